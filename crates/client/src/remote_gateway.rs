//! The gateway on another machine that `gateway.remote` names. Commands reach it as nodes do: in
//! plain text only if no other machine can read the traffic, otherwise with TLS and a pinned
//! certificate.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use interlock_arguments::StateArguments;
use interlock_config::types::GatewayRemote;
use interlock_console::Failure;
use interlock_host::LocalHost;
use interlock_node::{
    Fingerprint, GatewayTarget, NotAFingerprint, PASSWORD_VARIABLES, Secret, TOKEN_VARIABLES,
    TargetError,
};

/// How long connecting may take.
const DIAL_TIME: Duration = Duration::from_secs(10);

/// A remote gateway, and the secrets that prove an operator to it.
#[derive(Debug, Clone)]
pub struct RemoteGateway {
    pub target: GatewayTarget,
    pub token: Option<Secret>,
    pub password: Option<Secret>,
}

impl RemoteGateway {
    /// The remote gateway that client commands follow: that of `gateway.remote.url`, if a token or
    /// a password for it is given, no gateway of this state directory runs, and `--local` is
    /// absent. Without a token or a password, the address only says under which name the gateway of
    /// this machine is reached.
    pub fn followed(state: &StateArguments, host: &LocalHost) -> Result<Option<Self>, Failure> {
        if state.local {
            return Ok(None);
        }
        let remote = host.config()?.config().gateway.remote.clone();
        let Some(url) = &remote.url else {
            return Ok(None);
        };
        if interlock_gateway::running(host.state_dir()).is_some() {
            return Ok(None);
        }
        Self::of_config(url, &remote)
    }

    /// The gateway that a config names, if a token or a password for it is given.
    pub fn of_config(url: &str, remote: &GatewayRemote) -> Result<Option<Self>, Failure> {
        let token = secret(TOKEN_VARIABLES, remote.token_file.as_deref())?;
        let password = secret(PASSWORD_VARIABLES, remote.password_file.as_deref())?;
        if token.is_none() && password.is_none() {
            return Ok(None);
        }
        let target = target(url, remote)?;
        Ok(Some(Self {
            target,
            token,
            password,
        }))
    }

    /// Connects to the gateway. A thread carries the bytes between the returned socket and the
    /// gateway, with TLS if the target asks for it, until either end closes.
    pub fn open(&self) -> Result<UnixStream, Failure> {
        let unreachable = |what: String| {
            let message = format!("the gateway {}: {what}", self.target.url());
            Failure::refused("GATEWAY_UNREACHABLE", message)
                .with_hint("see where it is: interlock config get gateway.remote.url")
        };
        let (near, far) = UnixStream::pair().map_err(|error| unreachable(error.to_string()))?;
        let (sender, connected) = channel();
        let target = self.target.clone();
        std::thread::spawn(move || carry(&target, far, &sender));
        match connected.recv() {
            Ok(Ok(())) => Ok(near),
            Ok(Err(why)) => Err(unreachable(why)),
            Err(_) => Err(unreachable("no connection".to_owned())),
        }
    }
}

/// Carries bytes between the gateway and this process until either end is closed.
fn carry(target: &GatewayTarget, far: UnixStream, sender: &Sender<Result<(), String>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = sender.send(Err(error.to_string()));
            return;
        }
    };
    runtime.block_on(async {
        let opened = tokio::time::timeout(DIAL_TIME, interlock_node::open_stream(target)).await;
        let opened = opened.map_err(|_| "no answer".to_owned());
        let local = || {
            far.set_nonblocking(true)?;
            tokio::net::UnixStream::from_std(far)
        };
        let both = opened
            .and_then(|opened| opened.map_err(|error| error.to_string()))
            .and_then(|gateway| Ok((gateway, local().map_err(|error| error.to_string())?)));
        match both {
            Ok((mut gateway, mut local)) => {
                let _ = sender.send(Ok(()));
                let _ = tokio::io::copy_bidirectional(&mut gateway, &mut local).await;
            }
            Err(why) => {
                let _ = sender.send(Err(why));
            }
        }
    });
}

/// Parses `ws://HOST[:PORT]` or `wss://HOST[:PORT]`.
fn target(url: &str, remote: &GatewayRemote) -> Result<GatewayTarget, Failure> {
    let invalid = |why: &str| {
        let message = format!("gateway.remote.url is `{url}`: {why}");
        Failure::refused("GATEWAY_URL_INVALID", message)
            .with_hint("write it as wss://gateway.example:18789")
    };
    let wrong = |error: &TargetError| {
        let message = format!("gateway.remote.url is `{url}`: {error}");
        let remedy = match error {
            TargetError::Plaintext(_) | TargetError::LeadsAway { .. } => {
                "use wss:// with gateway.remote.tlsFingerprint, or reach it through a tunnel or a tailnet"
            }
            other => other.remedy(),
        };
        Failure::refused(error.code(), message).with_hint(remedy)
    };
    let (rest, is_secure) = match (url.strip_prefix("wss://"), url.strip_prefix("ws://")) {
        (Some(rest), _) => (rest, true),
        (None, Some(rest)) => (rest, false),
        (None, None) => return Err(invalid("it does not begin with ws:// or wss://")),
    };
    let place = rest.strip_suffix('/').unwrap_or(rest);
    if place.contains(['/', '?', '#', '@']) {
        return Err(invalid("a gateway is a host and a port, and nothing else"));
    }
    let (host, port) = match place.rsplit_once(':') {
        // An IPv6 address without a port ends with a bracket, and its colons separate no port.
        Some((host, port)) if !port.ends_with(']') => {
            let port = port
                .parse()
                .map_err(|_| invalid("its port is not a number"))?;
            (host, port)
        }
        _ => (place, if is_secure { 443 } else { 80 }),
    };
    let pinned = remote.tls_fingerprint.as_deref().map(Fingerprint::parse);
    let pinned = pinned
        .transpose()
        .map_err(|error| wrong(&TargetError::from(error)))?;
    let tls = match (is_secure, pinned) {
        (true, None) => {
            let message = "gateway.remote.tlsFingerprint is not set: the certificate of the gateway has to be pinned";
            return Err(Failure::refused("FINGERPRINT_MISSING", message)
                .with_hint(TargetError::from(NotAFingerprint).remedy()));
        }
        // A fingerprint in the config means TLS even if the address says `ws://`, as for nodes.
        (_, pinned) => pinned,
    };
    GatewayTarget::new(host, port, tls).map_err(|error| wrong(&error))
}

/// The secret from the environment, or else from the file that the config names.
fn secret(names: [&str; 2], file: Option<&str>) -> Result<Option<Secret>, Failure> {
    let given = names.iter().filter_map(|name| std::env::var(name).ok());
    let mut given = given.map(|secret| secret.trim().to_owned());
    if let Some(secret) = given.find(|secret| !secret.is_empty()) {
        return Ok(Some(Secret::new(secret.as_str())));
    }
    let Some(path) = file.map(PathBuf::from) else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(&path).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        Failure::refused("TOKEN_FILE_UNUSABLE", message)
    })?;
    let secret = text.trim();
    Ok((!secret.is_empty()).then(|| Secret::new(secret)))
}
