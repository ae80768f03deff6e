//! Reads the name that a TLS client asks for from the first bytes that it sends. Nothing is
//! decrypted.

use std::io;

use interlock_plan::TargetHost;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_rustls::rustls::server::Acceptor;

/// Longest hello of a client.
const MOST_HELLO: usize = 16 * 1024;

/// Reads the hello of a client, which must name the host. The caller passes the bytes on.
pub(crate) async fn read_hello(
    client: &mut (impl AsyncRead + Unpin),
    host: &TargetHost,
) -> Result<Vec<u8>, HelloRefusal> {
    let mut read = Vec::with_capacity(2 * 1024);
    let mut acceptor = Acceptor::default();
    loop {
        if read.len() >= MOST_HELLO {
            return Err(HelloRefusal::NoHello);
        }
        let before = read.len();
        if client.read_buf(&mut read).await? == 0 {
            return Err(HelloRefusal::NoHello);
        }
        let mut new = read.get(before..).unwrap_or_default();
        while !new.is_empty() {
            if acceptor.read_tls(&mut new)? == 0 {
                break;
            }
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return match (hello.server_name(), host) {
                    (Some(name), TargetHost::Name(own))
                        if name.parse().is_ok_and(|name| *own == name) =>
                    {
                        Ok(read)
                    }
                    // An address has no name that a client could ask for.
                    (None, TargetHost::Address(_)) => Ok(read),
                    _ => Err(HelloRefusal::OtherName),
                };
            }
            Err(_) => return Err(HelloRefusal::NoHello),
        }
    }
}

/// Why a connection is not passed on.
#[derive(Debug)]
pub(crate) enum HelloRefusal {
    NoHello,
    OtherName,
    Failed,
}

impl From<io::Error> for HelloRefusal {
    fn from(_: io::Error) -> Self {
        Self::Failed
    }
}

impl HelloRefusal {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoHello => "no TLS client hello on port 443",
            Self::OtherName => "the TLS client hello names another host",
            Self::Failed => "the client went away",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

    fn hello(name: &'static str) -> Vec<u8> {
        let config = ClientConfig::builder()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    async fn read(bytes: &[u8], host: &str) -> Result<usize, &'static str> {
        let host = TargetHost::read(host).unwrap();
        let mut bytes = bytes;
        let read = read_hello(&mut bytes, &host).await;
        read.map(|read| read.len())
            .map_err(|refusal| refusal.reason())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_hello_names_the_host_or_nothing_passes() {
        let named = hello("ok.test");
        assert_eq!(read(&named, "ok.test").await, Ok(named.len()));
        assert!(read(&named, "no.test").await.is_err());
        assert!(read(&named, "203.0.113.7").await.is_err());
        let address = hello("203.0.113.7");
        assert_eq!(read(&address, "203.0.113.7").await, Ok(address.len()));
        assert!(read(&address, "ok.test").await.is_err());
        let plain = b"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n";
        assert!(read(plain, "ok.test").await.is_err());
        assert!(read(b"", "ok.test").await.is_err());
        assert!(read(&named[..named.len() - 1], "ok.test").await.is_err());
        assert!(read(&vec![0x16; 100_000], "ok.test").await.is_err());
        // A record that is said to be long and never ends.
        let mut endless = vec![0x16, 3, 1, 0x40, 0];
        endless.extend([1; 5]);
        assert!(read(&endless, "ok.test").await.is_err());
        // In two records: put together before it is judged.
        let (head, body) = named.split_at(5);
        let (first, second) = body.split_at(20);
        let mut split = Vec::new();
        for part in [first, second] {
            split.extend([head[0], head[1], head[2]]);
            split.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
            split.extend(part);
        }
        assert_eq!(read(&split, "ok.test").await, Ok(split.len()));
        assert!(read(&split, "no.test").await.is_err());
    }
}
