//! The addresses on which the gateway listens. Other machines are only served with proof.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use interlock_config::{Config, GatewayBind};
use tokio::net::{TcpListener, UnixListener};

use interlock_methods::GatewayError;

const PORT: u16 = 18_789;

pub(super) fn address(
    config: &Config,
    port: Option<u16>,
    asks_for_proof: bool,
) -> Result<SocketAddr, GatewayError> {
    let gateway = &config.gateway;
    let ip = match gateway.bind.unwrap_or(GatewayBind::Loopback) {
        GatewayBind::Loopback => IpAddr::V4(Ipv4Addr::LOCALHOST),
        GatewayBind::Lan => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        GatewayBind::Custom => custom(gateway.custom_bind_host.as_deref())?,
        GatewayBind::Tailnet => tailnet()?,
    };
    if !ip.is_loopback() && !asks_for_proof {
        return Err(GatewayError::Open);
    }
    let configured = gateway.port.and_then(|port| u16::try_from(port).ok());
    Ok(SocketAddr::new(ip, port.or(configured).unwrap_or(PORT)))
}

/// This machine's address in the tailnet: the source address of a route to the tailnet's own
/// service. Nothing is sent.
fn tailnet() -> Result<IpAddr, GatewayError> {
    let route = || -> io::Result<IpAddr> {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(100, 100, 100, 100), 53))?;
        Ok(socket.local_addr()?.ip())
    };
    match route() {
        Ok(IpAddr::V4(ip)) if ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64 => Ok(ip.into()),
        _ => Err(GatewayError::Config(
            "gateway.bind is `tailnet`, and this machine has no address in one".to_owned(),
        )),
    }
}

fn custom(host: Option<&str>) -> Result<IpAddr, GatewayError> {
    let host = host.unwrap_or_default();
    host.parse().map_err(|_| {
        GatewayError::Config(format!(
            "gateway.customBindHost must be an IP address for gateway.bind `custom`, not `{host}`"
        ))
    })
}

pub(super) async fn tcp(address: SocketAddr) -> Result<TcpListener, GatewayError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| GatewayError::Listen {
        address: address.to_string(),
        source,
    })
}

/// Listens for processes of this user only. Called under the lock, so an existing socket is left
/// over.
pub(super) fn unix(path: &Path) -> Result<UnixListener, GatewayError> {
    let bind = || -> io::Result<UnixListener> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The directory is already closed to others. This covers the moment before the mode is set.
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    bind().map_err(|source| GatewayError::Listen {
        address: path.display().to_string(),
        source,
    })
}
