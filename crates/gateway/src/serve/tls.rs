//! TLS at the TCP port: its certificate, and the handshake with every caller.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use interlock_config::{Config, GatewayBind};
use interlock_tls::{Identity, TlsAcceptor, TlsStream, Validity};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use interlock_methods::host_of;
use interlock_methods::ui::phones::lan_address;
use interlock_methods::{Gateway, GatewayError};

/// How long the TLS handshake may take. The request has its own limit.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// The first byte of every TLS connection.
const HANDSHAKE_RECORD: u8 = 22;

/// The answer to callers in plain text, as HTTP clients show it.
const PLAIN: &str =
    "this port speaks TLS: https:// and wss://, for nodes --tls --tls-fingerprint\n";

/// How much of a plain caller's input is read after its answer was sent.
const DRAINED_BYTES: u64 = 64 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// The identity of the port, if it uses TLS: the owner's certificate, or a generated and stored
/// one. Called under the lock of the state directory, before the port is open.
pub(super) fn identity(
    gateway: &Gateway,
    config: &Config,
    bind: IpAddr,
) -> Result<Option<Identity>, GatewayError> {
    let tls = &config.gateway.tls;
    if tls.enabled != Some(true) {
        let is_tailnet = config.gateway.bind == Some(GatewayBind::Tailnet);
        if !bind.is_loopback() && !is_tailnet {
            tracing::warn!(
                "other machines reach this port in plain text, tokens too: interlock config set gateway.tls.enabled true"
            );
        }
        return Ok(None);
    }
    let half = |set, missing| GatewayError::HalfOfTls { set, missing };
    let identity = match (tls.cert_path.as_deref(), tls.key_path.as_deref()) {
        (Some(certificate), Some(key)) => {
            Identity::read(&gateway.path(certificate), &gateway.path(key))?
        }
        (Some(_), None) => return Err(half("certPath", "keyPath")),
        (None, Some(_)) => return Err(half("keyPath", "certPath")),
        (None, None) if tls.auto_generate == Some(false) => {
            return Err(GatewayError::NoCertificate);
        }
        (None, None) => Identity::kept(
            gateway.dispatcher.host.state_dir(),
            &own_names(config, bind),
        )?,
    };
    match identity.validity() {
        Validity::Valid => {}
        Validity::Expired => {
            tracing::warn!("the certificate has expired: only those who pinned it take it");
        }
        Validity::NotYet => {
            tracing::warn!("the certificate is not valid yet: only those who pinned it take it");
        }
    }
    Ok(Some(identity))
}

/// The names and addresses of a generated certificate.
fn own_names(config: &Config, bind: IpAddr) -> Vec<String> {
    let mut names = BTreeSet::from([
        "localhost".to_owned(),
        Ipv4Addr::LOCALHOST.to_string(),
        Ipv6Addr::LOCALHOST.to_string(),
    ]);
    if bind.is_unspecified() {
        // Phones on the same network use this address.
        names.extend(lan_address().map(|address| address.to_string()));
    } else {
        names.insert(bind.to_string());
    }
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let remote = config.gateway.remote.url.as_deref().and_then(host_of);
    let known = machine.iter().map(|name| name.trim()).chain(remote);
    names.extend(known.filter(|name| is_name(name)).map(str::to_owned));
    names.into_iter().collect()
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len()) && label.chars().all(is_word) && !label.starts_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The encrypted connection, if the caller completes the TLS handshake in time.
pub(super) async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
) -> Option<TlsStream<TcpStream>> {
    let opening = async {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first[0] == HANDSHAKE_RECORD => {}
            Ok(1) => {
                decline(stream).await;
                return None;
            }
            _ => return None,
        }
        let opened = acceptor.accept(stream).await;
        opened
            .inspect_err(|error| tracing::debug!(%error, "no TLS handshake"))
            .ok()
    };
    let opened = tokio::time::timeout(HANDSHAKE_TIME, opening).await;
    opened.ok().flatten()
}

/// Tells a plain caller to use TLS. Its input is read and discarded: a connection that is closed
/// with unread input may lose the answer.
async fn decline(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{PLAIN}",
        PLAIN.len()
    );
    let telling = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = stream.take(DRAINED_BYTES);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(DRAIN_TIME, telling).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_this_machine_and_for_what_its_owner_calls_it() {
        let mut config = Config::default();
        config.gateway.remote.url = Some("wss://gateway.example:443/".to_owned());
        let names = own_names(&config, IpAddr::from([10, 1, 2, 3]));
        for name in [
            "localhost",
            "127.0.0.1",
            "::1",
            "10.1.2.3",
            "gateway.example",
        ] {
            assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
        }
        let any = own_names(&Config::default(), IpAddr::from([0, 0, 0, 0]));
        assert!(!any.iter().any(|name| name == "0.0.0.0"), "{any:?}");
    }

    #[test]
    fn odd_names_are_left_out() {
        for odd in ["", "a b", "-a", "a..b", "(none)", "ä", &"a".repeat(64)] {
            assert!(!is_name(odd), "{odd}");
        }
        assert!(is_name("box") && is_name("box.lan") && is_name("a-1.b"));
    }
}
