//! The network of one scope, from outside: its sockets, the names it knows, and its records.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use interlock_engine::sandbox::ServedScope;
use interlock_engine::sandbox::{NetworkAnswer, NetworkQuestion, ScopeSockets, ServedNetwork};
use interlock_plan::TargetHost;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::askers::{ASK_TIME, Askers};
use crate::dns::{self, MOST_QUESTION, NameAnswer};
use crate::journal::{ConnectionJournal, ConnectionRecord, ConnectionVerdict, now_ms};
use crate::names::NamePool;
use crate::netd::OwnPorts;
use crate::proxy::{carry_direct, carry_proxied, carry_socks};

/// Most connections of one scope at one time.
const MOST_CONNECTIONS: usize = 512;

/// Within this time, the same name or address is recorded as refused only once, because programs
/// look up each name twice.
const SAME_TIME: Duration = Duration::from_secs(2);

/// Size of a burst of refusals that are recorded individually, and the rate after a burst. The rest
/// is counted.
const MOST_REFUSALS: u32 = 200;
const REFUSALS_PER_SECOND: u32 = 10;

/// How long a client of the DNS stream may take.
const STREAM_TIME: Duration = Duration::from_secs(10);

/// Pause of a listener that cannot accept.
const REST: Duration = Duration::from_millis(50);

/// Most questions about names that wait at one time, the size of a burst of questions, and their
/// rate after a burst. Each question makes the answering process look for the run. Further
/// questions wait.
const MOST_QUESTIONS: usize = 32;
const QUESTIONS_AT_ONCE: u32 = 256;
const QUESTIONS_PER_SECOND: u32 = 50;

/// The parts that all scopes of this process share.
#[derive(Debug)]
pub(crate) struct NetdParts {
    pub journal: ConnectionJournal,
    pub own_ports: OwnPorts,
    pub askers: Askers,
}

/// The parts that all connections of a scope share.
#[derive(Debug)]
pub(crate) struct ScopeContext {
    pub scope: ServedScope,
    pub journal: ConnectionJournal,
    pub own_ports: OwnPorts,
    /// The inode of the network namespace.
    namespace: u64,
    askers: Askers,
    questions: Semaphore,
    question_meter: Mutex<QuestionMeter>,
    names: Mutex<NamePool>,
    refusals: Mutex<RefusalMeter>,
    connections: Arc<Semaphore>,
}

/// Keeps a run from filling the journal with refusals.
#[derive(Debug)]
struct RefusalMeter {
    recent: HashMap<(String, Option<u16>), Instant>,
    left: u32,
    since: Instant,
    uncounted: u64,
}

/// Keeps a run from overloading the process that answers.
#[derive(Debug)]
struct QuestionMeter {
    left: u32,
    since: Instant,
}

impl QuestionMeter {
    fn take(&mut self) -> bool {
        let passed = u32::try_from(self.since.elapsed().as_millis()).unwrap_or(u32::MAX);
        let more = passed.saturating_mul(QUESTIONS_PER_SECOND) / 1000;
        if more > 0 {
            self.since = Instant::now();
            self.left = self.left.saturating_add(more).min(QUESTIONS_AT_ONCE);
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

impl ScopeContext {
    fn new(network: ServedNetwork, parts: NetdParts) -> Self {
        Self {
            scope: network.scope,
            journal: parts.journal,
            own_ports: parts.own_ports,
            namespace: network.namespace,
            askers: parts.askers,
            questions: Semaphore::new(MOST_QUESTIONS),
            question_meter: Mutex::new(QuestionMeter {
                left: QUESTIONS_AT_ONCE,
                since: Instant::now(),
            }),
            names: Mutex::default(),
            refusals: Mutex::new(RefusalMeter {
                recent: HashMap::new(),
                left: MOST_REFUSALS,
                since: Instant::now(),
                uncounted: 0,
            }),
            connections: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
        }
    }

    /// Returns the target of a connection to an address.
    pub fn target_of(&self, address: IpAddr) -> Option<TargetHost> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.target_of(address)
    }

    /// Returns the target of a client that names an address, for which it may have looked up a name
    /// before.
    pub fn meant_by(&self, host: TargetHost) -> TargetHost {
        match host {
            TargetHost::Address(address) => self
                .target_of(address)
                .unwrap_or(TargetHost::Address(address)),
            name @ TargetHost::Name(_) => name,
        }
    }

    /// Asks about a connection to a name that no entry lists. This waits as long as connections
    /// wait.
    pub async fn ask(
        &self,
        (host, port): (&TargetHost, u16),
        (from, to): (SocketAddr, SocketAddr),
    ) -> Option<NetworkAnswer> {
        let until = Instant::now() + ASK_TIME;
        let left = || until.saturating_duration_since(Instant::now());
        let _room = timeout(left(), self.questions.acquire()).await.ok()?.ok()?;
        let may_ask = || {
            let meter = self.question_meter.lock();
            meter.unwrap_or_else(PoisonError::into_inner).take()
        };
        while !may_ask() {
            if left().is_zero() {
                return None;
            }
            tokio::time::sleep(REST).await;
        }
        let question = NetworkQuestion {
            id: String::new(),
            scope_id: self.scope.scope_id.clone(),
            scope: self.scope.scope.clone(),
            host: host.to_string(),
            port,
            namespace: self.namespace,
            from,
            to,
            wait_ms: u64::try_from(left().as_millis()).unwrap_or_default(),
        };
        Some(self.askers.ask(question).await)
    }

    pub fn record(&self, host: String, port: Option<u16>) -> ConnectionRecord {
        ConnectionRecord {
            scope_id: self.scope.scope_id.clone(),
            scope: self.scope.scope.clone(),
            run_id: None,
            host,
            port,
            address: None,
            verdict: ConnectionVerdict::Allowed,
            reason: None,
            allowed_by: None,
            bytes_sent: 0,
            bytes_received: 0,
            at_ms: now_ms(),
        }
    }

    /// Adds a record to the journal, unless it has no host.
    pub fn keep(&self, record: &ConnectionRecord) {
        if record.host.is_empty() {
            return;
        }
        if record.verdict == ConnectionVerdict::Allowed {
            return self.journal.append(record);
        }
        let mut meter = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uncounted) = meter.admits(record) {
            let mut record = record.clone();
            if uncounted > 0 {
                let reason = record.reason.unwrap_or_default();
                record.reason = Some(format!("{reason} ({uncounted} more were refused before)"));
            }
            self.journal.append(&record);
        }
    }

    /// Returns the address of a name that may be reached.
    fn look_up(&self, name: &interlock_plan::HostName) -> NameAnswer {
        if !self.scope.rules.may_reach(name) {
            let mut record = self.record(name.to_string(), None);
            record.verdict = ConnectionVerdict::Denied;
            record.reason = Some("not in network.allow".to_owned());
            self.keep(&record);
            return NameAnswer::Nothing;
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names
            .address_of(name)
            .map_or(NameAnswer::Failure, NameAnswer::Address)
    }
}

impl RefusalMeter {
    /// Returns how many records were skipped since the last one, if this one is to be recorded.
    fn admits(&mut self, record: &ConnectionRecord) -> Option<u64> {
        let now = Instant::now();
        let key = (record.host.clone(), record.port);
        let is_same = |last: &Instant| now.duration_since(*last) < SAME_TIME;
        if self.recent.get(&key).is_some_and(is_same) {
            return None;
        }
        self.recent.retain(|_, last| is_same(last));
        let seconds = u32::try_from(now.duration_since(self.since).as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            self.since = now;
            let more = seconds.saturating_mul(REFUSALS_PER_SECOND);
            self.left = self.left.saturating_add(more).min(MOST_REFUSALS);
        }
        if self.left == 0 {
            self.uncounted += 1;
            return None;
        }
        self.left -= 1;
        self.recent.insert(key, now);
        Some(std::mem::take(&mut self.uncounted))
    }
}

/// Serves the sockets of a scope until it is dropped.
#[derive(Debug)]
pub(crate) struct ScopeServer {
    /// Dropping this ends the tasks and all connections.
    _tasks: JoinSet<()>,
}

impl ScopeServer {
    pub fn start(
        network: ServedNetwork,
        sockets: ScopeSockets,
        shared: NetdParts,
    ) -> io::Result<Self> {
        let ports = network.scope.rules.ports();
        let context = Arc::new(ScopeContext::new(network, shared));
        let mut tasks = JoinSet::new();
        let dns = std::net::UdpSocket::from(sockets.dns);
        dns.set_nonblocking(true)?;
        tasks.spawn(answer_datagrams(
            Arc::clone(&context),
            UdpSocket::from_std(dns)?,
        ));
        // A packet socket is read like a datagram socket.
        let attempts = std::net::UdpSocket::from(sockets.attempts);
        attempts.set_nonblocking(true)?;
        let attempts = UdpSocket::from_std(attempts)?;
        tasks.spawn(watch_attempts(Arc::clone(&context), attempts, ports));
        tasks.spawn(accept(
            Arc::clone(&context),
            listener(sockets.dns_stream)?,
            answer_stream,
        ));
        tasks.spawn(accept(
            Arc::clone(&context),
            listener(sockets.connect)?,
            carry_proxied,
        ));
        tasks.spawn(accept(
            Arc::clone(&context),
            listener(sockets.socks)?,
            carry_socks,
        ));
        for socket in sockets.listeners {
            tasks.spawn(accept(
                Arc::clone(&context),
                listener(socket)?,
                carry_direct,
            ));
        }
        Ok(Self { _tasks: tasks })
    }
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let socket = std::net::TcpListener::from(socket);
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

/// Accepts connections and carries each of them. They end with the listener.
async fn accept<F>(
    context: Arc<ScopeContext>,
    listener: TcpListener,
    carry: impl Fn(Arc<ScopeContext>, TcpStream) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut carried = JoinSet::new();
    loop {
        while carried.try_join_next().is_some() {}
        // Further connections wait in the listener until there is room.
        let Ok(room) = Arc::clone(&context.connections).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((client, _)) => {
                let _ = client.set_nodelay(true);
                let future = carry(Arc::clone(&context), client);
                carried.spawn(async move {
                    future.await;
                    drop(room);
                });
            }
            Err(_) => tokio::time::sleep(REST).await,
        }
    }
}

async fn answer_datagrams(context: Arc<ScopeContext>, socket: UdpSocket) {
    let mut message = vec![0; MOST_QUESTION];
    loop {
        let Ok((length, asker)) = socket.recv_from(&mut message).await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let question = message.get(..length).unwrap_or_default();
        if let Some(answer) = dns::answer(question, |name| context.look_up(name)) {
            let _ = socket.send_to(&answer, asker).await;
        }
    }
}

/// Answers the same questions over TCP, each preceded by its length.
async fn answer_stream(context: Arc<ScopeContext>, mut client: TcpStream) {
    let mut answer_next = async || -> io::Result<()> {
        let length = usize::from(client.read_u16().await?).min(MOST_QUESTION);
        let mut question = vec![0; length];
        client.read_exact(&mut question).await?;
        let answer = dns::answer(&question, |name| context.look_up(name));
        let answer = answer.ok_or(io::ErrorKind::InvalidData)?;
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        client.write_u16(length).await?;
        client.write_all(&answer).await
    };
    while let Ok(Ok(())) = timeout(STREAM_TIME, answer_next()).await {}
}

/// Records connections to ports that no entry names, which the kernel refuses at once.
async fn watch_attempts(context: Arc<ScopeContext>, socket: UdpSocket, ports: Vec<u16>) {
    let mut packet = [0; 128];
    loop {
        match socket.recv(&mut packet).await {
            Ok(length) => {
                let packet = packet.get(..length).unwrap_or_default();
                let Some((address, port)) = asked_for(packet) else {
                    continue;
                };
                if address.is_loopback() || ports.contains(&port) {
                    continue;
                }
                let host = context.target_of(address);
                let host = host.map_or(address.to_string(), |host| host.to_string());
                let mut record = context.record(host, Some(port));
                record.verdict = ConnectionVerdict::Denied;
                record.reason = Some("not in network.allow".to_owned());
                context.keep(&record);
            }
            Err(_) => tokio::time::sleep(REST).await,
        }
    }
}

/// Returns the destination of a connection's first packet.
fn asked_for(packet: &[u8]) -> Option<(IpAddr, u16)> {
    let words = packet.first()? & 0x0f;
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    let behind = packet.get(usize::from(words) * 4..)?;
    let port: [u8; 2] = behind.get(2..4)?.try_into().ok()?;
    Some((IpAddr::from(address), u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_cannot_fill_the_journal_with_refusals() {
        let mut meter = RefusalMeter {
            recent: HashMap::new(),
            left: MOST_REFUSALS,
            since: Instant::now(),
            uncounted: 0,
        };
        let record = |host: String| ConnectionRecord {
            scope_id: String::new(),
            scope: String::new(),
            run_id: None,
            host,
            port: None,
            address: None,
            verdict: ConnectionVerdict::Denied,
            reason: None,
            allowed_by: None,
            bytes_sent: 0,
            bytes_received: 0,
            at_ms: 0,
        };
        assert_eq!(meter.admits(&record("a.test".to_owned())), Some(0));
        assert_eq!(
            meter.admits(&record("a.test".to_owned())),
            None,
            "asked twice"
        );
        let kept =
            (0..10_000).filter(|number| meter.admits(&record(format!("{number}.test"))).is_some());
        assert!(kept.count() < 300);
        assert!(meter.uncounted > 9_000);
    }

    #[test]
    fn questions_are_asked_at_a_rate_that_ends() {
        let mut meter = QuestionMeter {
            left: QUESTIONS_AT_ONCE,
            since: Instant::now(),
        };
        let taken = (0..100_000).filter(|_| meter.take()).count();
        assert!((256..512).contains(&taken), "{taken}");
        meter.since = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert!(meter.take());
    }

    #[test]
    fn packets_that_are_cut_short_say_nothing() {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[203, 0, 113, 7]);
        packet[22..24].copy_from_slice(&8443_u16.to_be_bytes());
        let expected = ("203.0.113.7".parse().unwrap(), 8443);
        assert_eq!(asked_for(&packet), Some(expected));
        for end in 0..24 {
            assert_eq!(asked_for(&packet[..end]), None);
        }
        packet[0] = 0x4f;
        assert_eq!(asked_for(&packet), None);
    }
}
