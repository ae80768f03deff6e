//! Handles a connection from a run to its host: judges, resolves, dials and carries it. The dialed
//! address is exactly the one that was checked.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use interlock_plan::{AddressReach, HostVerdict, TargetHost, is_own_block};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::addresses::is_public;
use crate::hello::{HelloRefusal, read_hello};
use crate::http::{HTTP_PORT, HttpRefusal, HttpRequest, ProxyRequest, RequestReader, refusal_page};
use crate::journal::{ConnectionRecord, ConnectionVerdict};
use crate::scope::ScopeContext;
use crate::socks::{self, SocksReply};

const TLS_PORT: u16 = 443;

/// How long a client may take to send its request.
const HEAD_TIME: Duration = Duration::from_secs(20);

/// How long a connection waits for another request.
const NEXT_TIME: Duration = Duration::from_mins(5);

/// How long a name may take to be resolved, and an address to answer.
const RESOLVE_TIME: Duration = Duration::from_secs(10);
const DIAL_TIME: Duration = Duration::from_secs(10);

/// Most addresses of a name that are tried.
const MOST_ADDRESSES: usize = 8;

const BUFFER: usize = 64 * 1024;

const NOT_LISTED: &str = "not in network.allow";

/// Why a connection is not made.
#[derive(Debug)]
struct ConnectionRefusal {
    verdict: ConnectionVerdict,
    reason: String,
}

impl ConnectionRefusal {
    fn denied(reason: &str) -> Self {
        Self {
            verdict: ConnectionVerdict::Denied,
            reason: reason.to_owned(),
        }
    }

    fn failed(reason: String) -> Self {
        Self {
            verdict: ConnectionVerdict::Failed,
            reason,
        }
    }
}

/// A connection to a host, until it ends. Its outcome is recorded when this is dropped, even if its
/// scope ends first.
struct CarriedConnection<'a> {
    context: &'a ScopeContext,
    record: ConnectionRecord,
    sent: AtomicU64,
    received: AtomicU64,
}

impl<'a> CarriedConnection<'a> {
    fn new(context: &'a ScopeContext, host: &TargetHost, port: u16) -> Self {
        Self {
            context,
            record: context.record(host.to_string(), Some(port)),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    fn refuse(&mut self, refusal: ConnectionRefusal) -> String {
        self.record.verdict = refusal.verdict;
        self.record.reason = Some(refusal.reason.clone());
        refusal.reason
    }

    /// Judges the connection, which may require asking an approver.
    async fn judge(
        &mut self,
        host: &TargetHost,
        port: u16,
        client: &TcpStream,
    ) -> Result<AddressReach, ConnectionRefusal> {
        match self.context.scope.rules.judge(host, port) {
            HostVerdict::Allowed(_) | HostVerdict::Askable if !self.context.journal.has_room() => {
                Err(ConnectionRefusal::denied(
                    "the journal of connections is full, and `interlock audit log` empties it",
                ))
            }
            HostVerdict::Allowed(reach) => Ok(reach),
            HostVerdict::Askable => self.ask(host, port, client).await,
            HostVerdict::Denied => Err(ConnectionRefusal::denied("in network.deny")),
            HostVerdict::Unlisted => Err(ConnectionRefusal::denied(NOT_LISTED)),
        }
    }

    async fn ask(
        &mut self,
        host: &TargetHost,
        port: u16,
        client: &TcpStream,
    ) -> Result<AddressReach, ConnectionRefusal> {
        let gone = |error: io::Error| ConnectionRefusal::failed(error.to_string());
        let from = client.peer_addr().map_err(gone)?;
        let to = client.local_addr().map_err(gone)?;
        let Some(answer) = self.context.ask((host, port), (from, to)).await else {
            return Err(ConnectionRefusal::denied(
                "not in network.allow, and too many connections wait for an approver",
            ));
        };
        self.record.run_id = answer.run_id;
        if !answer.allowed {
            return Err(ConnectionRefusal::denied(&answer.reason));
        }
        self.record.allowed_by = Some(answer.reason);
        Ok(AddressReach::Public)
    }

    /// Resolves the host, checks the addresses and dials one.
    async fn dial(
        &mut self,
        host: &TargetHost,
        port: u16,
        reach: AddressReach,
    ) -> Result<TcpStream, ConnectionRefusal> {
        let found = self.resolve(host, port, reach).await?;
        let mut last = "no address answers".to_owned();
        for address in found.into_iter().take(MOST_ADDRESSES) {
            match timeout(DIAL_TIME, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    self.record.address = Some(address.ip());
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => "no answer in time".clone_into(&mut last),
            }
        }
        Err(ConnectionRefusal::failed(last))
    }

    /// Returns the addresses that may be dialed for a host, at least one.
    async fn resolve(
        &self,
        host: &TargetHost,
        port: u16,
        reach: AddressReach,
    ) -> Result<Vec<SocketAddr>, ConnectionRefusal> {
        let all = match (reach, host) {
            (AddressReach::HostLoopback, _) => vec![
                SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
            ],
            (_, TargetHost::Address(address)) => vec![SocketAddr::new(*address, port)],
            (_, TargetHost::Name(name)) => {
                let found = timeout(RESOLVE_TIME, lookup_host((name.as_str(), port))).await;
                let found = found.map_err(|_| {
                    ConnectionRefusal::failed("the name could not be resolved in time".to_owned())
                })?;
                let found = found.map_err(|error| {
                    ConnectionRefusal::failed(format!("the name could not be resolved: {error}"))
                })?;
                found.collect()
            }
        };
        let own_port = self.context.own_ports.is_own(port);
        let is_own = |address: &SocketAddr| own_port && is_of_this_machine(address.ip());
        let has_own = all.iter().any(is_own);
        let may_dial = |address: &SocketAddr| {
            let is_reached = match reach {
                AddressReach::Public => is_public(address.ip()),
                AddressReach::Any | AddressReach::HostLoopback => is_usable(address.ip()),
            };
            is_reached && !is_own(address)
        };
        let count = all.len();
        let usable: Vec<SocketAddr> = all.into_iter().filter(may_dial).collect();
        match (usable.is_empty(), count) {
            (false, _) => Ok(usable),
            (true, 0) => Err(ConnectionRefusal::failed(
                "the name has no address".to_owned(),
            )),
            (true, _) if has_own => Err(ConnectionRefusal::denied("a port of Interlock itself")),
            (true, _) => Err(ConnectionRefusal::denied(
                "private address: the name leads to none that is public; mark the entry `private` if it may",
            )),
        }
    }

    /// Carries bytes in both directions until both ends have finished.
    async fn relay(&self, client: TcpStream, server: TcpStream) -> io::Result<()> {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::try_join!(
            pass(from_client, to_server, &self.sent),
            pass(from_server, to_client, &self.received),
        )?;
        Ok(())
    }

    /// Carries HTTP requests one by one, and answers as they arrive.
    async fn relay_http(
        &self,
        (mut reader, to_client): (
            RequestReader<tokio::net::tcp::OwnedReadHalf>,
            tokio::net::tcp::OwnedWriteHalf,
        ),
        server: TcpStream,
        (host, port): (&TargetHost, u16),
        first: HttpRequest,
    ) -> Result<(), HttpRefusal> {
        let (from_server, mut to_server) = server.into_split();
        let requests = async {
            let mut request = first;
            loop {
                to_server.write_all(&request.head).await?;
                let body = reader.pass_body(&request, &mut to_server).await?;
                let sent = request.head.len() as u64 + body;
                self.sent.fetch_add(sent, Ordering::Relaxed);
                match timeout(NEXT_TIME, reader.has_next()).await {
                    Ok(Ok(true)) => {}
                    _ => break,
                }
                let next = timeout(HEAD_TIME, reader.next_for(host, port)).await;
                request = next.map_err(|_| HttpRefusal::Gone)??;
            }
            to_server.shutdown().await?;
            Ok::<(), HttpRefusal>(())
        };
        let answers = pass(from_server, to_client, &self.received);
        tokio::pin!(requests, answers);
        tokio::select! {
            asked = &mut requests => {
                // Earlier requests are still answered; a refused request ends the connection.
                asked?;
                answers.await?;
            }
            answered = &mut answers => answered?,
        }
        Ok(())
    }
}

impl Drop for CarriedConnection<'_> {
    fn drop(&mut self) {
        self.record.bytes_sent = self.sent.load(Ordering::Relaxed);
        self.record.bytes_received = self.received.load(Ordering::Relaxed);
        self.context.keep(&self.record);
    }
}

/// Whether an entry could mean this address. It excludes addresses that stand for names, for every
/// address, or for several machines.
fn is_usable(address: IpAddr) -> bool {
    !is_own_block(address) && !address.is_unspecified() && !address.is_multicast()
}

/// Whether an address belongs to this machine: only such an address can be bound.
fn is_of_this_machine(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..length).unwrap_or_default())
            .await?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Carries a connection that a program made to an address, without knowing of any proxy.
pub(crate) async fn carry_direct(context: Arc<ScopeContext>, client: TcpStream) {
    let Ok(asked) = client.local_addr() else {
        return;
    };
    let Some(host) = context.target_of(asked.ip()) else {
        let mut record = context.record(asked.ip().to_string(), Some(asked.port()));
        record.verdict = ConnectionVerdict::Denied;
        record.reason = Some("the address stands for no name".to_owned());
        context.keep(&record);
        return;
    };
    carry(&context, client, (host, asked.port()), Vec::new()).await;
}

/// Carries a connection whose host is known, from its first byte.
async fn carry(
    context: &ScopeContext,
    client: TcpStream,
    (host, port): (TargetHost, u16),
    read: Vec<u8>,
) {
    let mut carried = CarriedConnection::new(context, &host, port);
    let reach = match carried.judge(&host, port, &client).await {
        Ok(reach) => reach,
        Err(refusal) => {
            let reason = carried.refuse(refusal);
            if port == HTTP_PORT {
                tell(client, "403 Forbidden", &reason).await;
            }
            return;
        }
    };
    match port {
        HTTP_PORT => carry_http(&mut carried, client, (&host, port, reach), read).await,
        _ => carry_bytes(&mut carried, client, (&host, port, reach), read).await,
    }
}

async fn carry_bytes(
    carried: &mut CarriedConnection<'_>,
    mut client: TcpStream,
    (host, port, reach): (&TargetHost, u16, AddressReach),
    mut read: Vec<u8>,
) {
    if port == TLS_PORT {
        match check_hello(&mut client, host, read).await {
            Ok(hello) => read = hello,
            Err(refusal) => {
                carried.refuse(refusal);
                return;
            }
        }
    }
    match carried.dial(host, port, reach).await {
        Ok(mut server) => {
            if server.write_all(&read).await.is_ok() {
                carried.sent.fetch_add(read.len() as u64, Ordering::Relaxed);
                let _ = carried.relay(client, server).await;
            }
        }
        Err(refusal) => drop(carried.refuse(refusal)),
    }
}

async fn check_hello(
    client: &mut TcpStream,
    host: &TargetHost,
    read: Vec<u8>,
) -> Result<Vec<u8>, ConnectionRefusal> {
    let mut client = io::Cursor::new(read).chain(client);
    let hello = timeout(HEAD_TIME, read_hello(&mut client, host)).await;
    let hello = hello.unwrap_or(Err(HelloRefusal::NoHello));
    hello.map_err(|refusal| ConnectionRefusal::denied(refusal.reason()))
}

async fn carry_http(
    carried: &mut CarriedConnection<'_>,
    client: TcpStream,
    (host, port, reach): (&TargetHost, u16, AddressReach),
    read: Vec<u8>,
) {
    let (from_client, mut to_client) = client.into_split();
    let mut reader = RequestReader::after(from_client, read);
    let first = timeout(HEAD_TIME, reader.next_for(host, port)).await;
    let refusal = match first.unwrap_or(Err(HttpRefusal::Gone)) {
        Ok(first) => match carried.dial(host, port, reach).await {
            Ok(server) => {
                let ends = (reader, to_client);
                let relayed = carried.relay_http(ends, server, (host, port), first).await;
                if let Err(refusal @ (HttpRefusal::OtherHost | HttpRefusal::Unclear(_))) = relayed {
                    carried.refuse(ConnectionRefusal::denied(refusal.reason()));
                }
                return;
            }
            Err(refusal) => refusal,
        },
        Err(refusal) => ConnectionRefusal::denied(refusal.reason()),
    };
    let status = match refusal.verdict {
        ConnectionVerdict::Failed => "502 Bad Gateway",
        _ => "403 Forbidden",
    };
    let reason = carried.refuse(refusal);
    let _ = to_client.write_all(&refusal_page(status, &reason)).await;
    let _ = to_client.shutdown().await;
}

async fn tell(mut client: TcpStream, status: &str, reason: &str) {
    let _ = client.write_all(&refusal_page(status, reason)).await;
    let _ = client.shutdown().await;
    // Wait until the client has read the answer: closing with unread bytes would discard it.
    let mut rest = [0; 1024];
    let _ = timeout(Duration::from_secs(1), async {
        while client.read(&mut rest).await.is_ok_and(|length| length > 0) {}
    })
    .await;
}

/// Carries the connection of a client of the proxy on port 3128.
pub(crate) async fn carry_proxied(context: Arc<ScopeContext>, client: TcpStream) {
    let mut reader = RequestReader::new(client);
    let asked = timeout(HEAD_TIME, reader.next_for_proxy()).await;
    match asked.unwrap_or(Err(HttpRefusal::Gone)) {
        Ok(ProxyRequest::Connect(host, port)) => {
            let (client, rest) = reader.into_parts();
            let host = context.meant_by(host);
            carry_connect(&context, client, (host, port), rest).await;
        }
        Ok(ProxyRequest::Forward(host, port, request)) => {
            let (client, rest) = reader.into_parts();
            let host = context.meant_by(host);
            let mut carried = CarriedConnection::new(&context, &host, port);
            let dialed = match carried.judge(&host, port, &client).await {
                Ok(reach) => carried.dial(&host, port, reach).await,
                Err(refusal) => Err(refusal),
            };
            match dialed {
                Ok(server) => {
                    let (from_client, to_client) = client.into_split();
                    let ends = (RequestReader::after(from_client, rest), to_client);
                    let _ = carried
                        .relay_http(ends, server, (&host, port), request)
                        .await;
                }
                Err(refusal) => {
                    let reason = carried.refuse(refusal);
                    tell(client, "403 Forbidden", &reason).await;
                }
            }
        }
        Err(HttpRefusal::Gone) => {}
        Err(refusal) => {
            let (client, _) = reader.into_parts();
            tell(client, "400 Bad Request", refusal.reason()).await;
        }
    }
}

async fn carry_connect(
    context: &ScopeContext,
    mut client: TcpStream,
    (host, port): (TargetHost, u16),
    rest: Vec<u8>,
) {
    if let Err(refusal) = CarriedConnection::judge_only(context, (&host, port), &client).await {
        return tell(client, "403 Forbidden", &refusal).await;
    }
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    if client.write_all(established).await.is_ok() {
        carry(context, client, (host, port), rest).await;
    }
}

impl CarriedConnection<'_> {
    /// Judges and records a connection whose client gets the result in its own protocol.
    async fn judge_only(
        context: &ScopeContext,
        (host, port): (&TargetHost, u16),
        client: &TcpStream,
    ) -> Result<(), String> {
        let mut carried = CarriedConnection::new(context, host, port);
        match carried.judge(host, port, client).await {
            Ok(_) => {
                // The connection itself is recorded instead.
                carried.record.host.clear();
                Ok(())
            }
            Err(refusal) => Err(carried.refuse(refusal)),
        }
    }
}

/// Carries the connection of a client of the SOCKS proxy on port 1080.
pub(crate) async fn carry_socks(context: Arc<ScopeContext>, mut client: TcpStream) {
    let asked = timeout(HEAD_TIME, socks::read_request(&mut client)).await;
    let Ok(Ok((host, port))) = asked else { return };
    let host = context.meant_by(host);
    let judged = CarriedConnection::judge_only(&context, (&host, port), &client).await;
    if judged.is_err() {
        let _ = socks::reply(&mut client, SocksReply::NotAllowed).await;
        return;
    }
    if socks::reply(&mut client, SocksReply::Connected)
        .await
        .is_ok()
    {
        carry(&context, client, (host, port), Vec::new()).await;
    }
}
