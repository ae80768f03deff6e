//! The addresses that messages are sent to: known push services, and those that the owner named. No
//! other address is ever called, whatever a browser claims.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use interlock_channels::is_private_address;
use interlock_tls::Trust;
use tokio::net::TcpStream;

/// The limit of one attempt, from the name lookup to the status.
const TIME: Duration = Duration::from_secs(10);

/// The longest address of a subscription.
const MOST_BYTES: usize = 1024;

/// Hosts of push services. A leading dot stands for any name below it.
const SERVICES: &[&str] = &[
    "fcm.googleapis.com",
    "updates.push.services.mozilla.com",
    ".push.services.mozilla.com",
    ".push.apple.com",
    ".notify.windows.com",
];

/// The address of one browser at a push service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PushEndpoint {
    uri: Uri,
    host: String,
    port: u16,
    /// Whether the owner named the host. Only then may its address be in this network.
    is_named: bool,
}

/// How a push service answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PushAnswered {
    Taken,
    /// The subscription does not exist any more.
    Gone,
    /// Why the message was not accepted, for people. The text never contains the address, which is
    /// a secret of the browser.
    Failed(String),
}

impl PushEndpoint {
    /// Checks an address against the known services and the owner's list. Returns why it may not be
    /// called.
    pub(crate) fn check(text: &str, named: &[String]) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("the endpoint has more than {MOST_BYTES} bytes"));
        }
        let uri: Uri = text.parse().map_err(|_| "the endpoint is no address")?;
        if uri.scheme_str() != Some("https") {
            return Err("the endpoint is not https".to_owned());
        }
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let has_user = uri
            .authority()
            .is_some_and(|all| all.as_str().contains('@'));
        if host.is_empty() || has_user {
            return Err("the endpoint names no plain host".to_owned());
        }
        let port = uri.port_u16().unwrap_or(443);
        let own = (host.as_str(), port);
        let is_named = named
            .iter()
            .any(|one| origin(one).as_ref().map(pair) == Some(own));
        let is_service = |service: &&str| match service.strip_prefix('.') {
            Some(_) => host.ends_with(*service),
            None => host == **service,
        };
        let is_known = port == 443 && SERVICES.iter().any(is_service);
        if !is_named && !is_known {
            return Err(format!(
                "{host} is no push service that is known: push.endpoints may name it"
            ));
        }
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            uri,
            port,
            is_named,
        })
    }

    /// Returns the origin for which a signature is valid.
    pub(crate) fn origin(&self) -> String {
        let authority = self.uri.authority().map_or("", |all| all.as_str());
        format!("https://{authority}")
    }

    /// Sends a message once.
    pub(crate) async fn post(&self, message: &PushRequest<'_>) -> PushAnswered {
        match tokio::time::timeout(TIME, self.send(message)).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(why)) => PushAnswered::Failed(why),
            Err(_) => PushAnswered::Failed("no answer in time".to_owned()),
        }
    }

    async fn send(&self, message: &PushRequest<'_>) -> Result<PushAnswered, String> {
        let address = self.resolve().await?;
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        let stream = interlock_tls::connect(stream, &self.host, Trust::Machine).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let broke_off = |error: hyper::Error| format!("the call broke off: {error}");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broke_off)?;
        let connection = tokio::spawn(connection);
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or("", |all| all.as_str());
        let request = Request::post(path)
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_ENCODING, "aes128gcm")
            .header(AUTHORIZATION, message.authorization)
            .header("ttl", message.ttl_seconds)
            .header("urgency", "high")
            .header("topic", message.topic)
            .body(Body::from(message.body.to_vec()))
            .map_err(|error| error.to_string())?;
        let answered = sender.send_request(request).await;
        connection.abort();
        let status = answered.map_err(broke_off)?.status();
        Ok(match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => PushAnswered::Gone,
            status if status.is_success() => PushAnswered::Taken,
            // Redirects are not followed, because they could lead anywhere.
            status => PushAnswered::Failed(format!("answered with status {status}")),
        })
    }

    /// Resolves the host name. Only the owner can name a host whose address is on this machine or
    /// in its network.
    async fn resolve(&self) -> Result<SocketAddr, String> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found: Vec<SocketAddr> = found
            .map_err(|error| format!("no address for its name: {error}"))?
            .collect();
        if !self.is_named && found.iter().any(|address| is_private_address(address.ip())) {
            return Err("its name leads into this network: push.endpoints may name it".to_owned());
        }
        found.first().copied().ok_or("it has no address".to_owned())
    }
}

/// The body and the headers of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PushRequest<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) authorization: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) ttl_seconds: u64,
}

fn origin(text: &str) -> Option<(String, u16)> {
    let uri: Uri = text.parse().ok()?;
    let is_https = uri.scheme_str() == Some("https");
    let host = uri.host()?.to_ascii_lowercase();
    is_https.then(|| (host, uri.port_u16().unwrap_or(443)))
}

fn pair(origin: &(String, u16)) -> (&str, u16) {
    (origin.0.as_str(), origin.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_services_and_those_that_the_owner_named_are_called() {
        let none: &[String] = &[];
        for known in [
            "https://fcm.googleapis.com/fcm/send/abc",
            "https://updates.push.services.mozilla.com/wpush/v2/x",
            "https://web.push.apple.com/x",
        ] {
            assert!(PushEndpoint::check(known, none).is_ok(), "{known}");
        }
        for other in [
            "http://fcm.googleapis.com/x",
            "https://fcm.googleapis.com:8443/x",
            "https://fcm.googleapis.com.evil.example/x",
            "https://evilfcm.googleapis.com/x",
            "https://user@fcm.googleapis.com/x",
            "https://push.apple.com.evil/x",
            "https://127.0.0.1/x",
            "https://[::1]/x",
            "https://169.254.169.254/latest",
            "https://10.0.0.1/x",
            "ftp://fcm.googleapis.com/x",
            "not an address",
            "",
        ] {
            assert!(PushEndpoint::check(other, none).is_err(), "{other}");
        }
        let named = [
            "https://127.0.0.1:9443".to_owned(),
            "http://10.0.0.1".to_owned(),
        ];
        assert!(PushEndpoint::check("https://127.0.0.1:9443/up/1", &named).is_ok());
        assert!(PushEndpoint::check("https://127.0.0.1:9444/up/1", &named).is_err());
        assert!(PushEndpoint::check("http://10.0.0.1/up", &named).is_err());
    }
}
