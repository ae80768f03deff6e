//! The signed POST.

use std::time::Duration;

use axum::body::Body;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use interlock_host::now_ms;
use interlock_tls::{Fingerprint, TlsConnectError, Trust};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The time limit of one attempt, from the connection to the status.
const TIME: Duration = Duration::from_secs(10);

/// Sends the event once. The error is for people and never contains the address.
pub(super) async fn post(
    wake_key: &[u8],
    url: &str,
    fingerprint: Option<&str>,
    id: i64,
    body: &str,
) -> Result<(), String> {
    let sent = tokio::time::timeout(TIME, send(wake_key, url, fingerprint, id, body));
    sent.await
        .unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

trait PostStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> PostStream for S {}

/// Connects to the host of the address. With `https`, no other host gets any data.
async fn connect(uri: &Uri, fingerprint: Option<&str>) -> Result<Box<dyn PostStream>, String> {
    let host = uri.host().ok_or("gateway.wake.url names no host")?;
    // The URL has an IPv6 address in brackets, which must be removed here.
    let host = host.trim_matches(['[', ']']);
    let fingerprint = fingerprint
        .map(Fingerprint::parse)
        .transpose()
        .map_err(|error| format!("gateway.wake.tlsFingerprint: {error}"))?;
    let (trust, port) = match (uri.scheme_str(), fingerprint) {
        (Some("http"), None) => (None, 80),
        (Some("https"), None) => (Some(Trust::Machine), 443),
        (Some("https"), Some(fingerprint)) => (Some(Trust::Pinned(fingerprint)), 443),
        (Some("http"), Some(_)) => {
            return Err(
                "gateway.wake.tlsFingerprint is set, and gateway.wake.url is not https".to_owned(),
            );
        }
        _ => return Err("gateway.wake.url is neither http nor https".to_owned()),
    };
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(port)))
        .await
        .map_err(|error| format!("cannot connect: {error}"))?;
    match trust {
        None => Ok(Box::new(stream)),
        Some(trust) => match interlock_tls::connect(stream, host, trust).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(TlsConnectError::Name(_)) => {
                Err("gateway.wake.url names no host that a certificate could be for".to_owned())
            }
            Err(error) => Err(error.to_string()),
        },
    }
}

async fn send(
    wake_key: &[u8],
    url: &str,
    fingerprint: Option<&str>,
    id: i64,
    body: &str,
) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|_| "gateway.wake.url is no URL")?;
    let stream = connect(&uri, fingerprint).await?;
    let broke_off = |error: hyper::Error| format!("the call broke off: {error}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broke_off)?;
    let connection = tokio::spawn(connection);
    let time = now_ms().to_string();
    let signed = signature(wake_key, &time, body).ok_or("it cannot be signed")?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| {
        let text = authority.as_str();
        text.rsplit_once('@').map_or(text, |(_, host)| host)
    });
    let request = Request::post(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json")
        .header("x-interlock-event-id", id)
        .header("x-interlock-timestamp", &time)
        .header("x-interlock-signature", signed)
        .body(Body::from(body.to_owned()))
        .map_err(|error| error.to_string())?;
    let answered = sender.send_request(request).await;
    connection.abort();
    let status = answered.map_err(broke_off)?.status();
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("answered with status {status}"))
    }
}

/// `sha256=` and the HMAC of the time, a dot and the body, in hexadecimal.
fn signature(wake_key: &[u8], time: &str, body: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(wake_key).ok()?;
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    let mut text = "sha256=".to_owned();
    for byte in mac.finalize().into_bytes() {
        text.push_str(&format!("{byte:02x}"));
    }
    Some(text)
}
