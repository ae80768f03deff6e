//! Finds out where the process at the other end of a TCP connection comes from.
//!
//! A lookup inspects many processes. Therefore one task does it for all waiting connections, on its
//! own thread, and each connection keeps the result for a moment.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_supervisor::SupervisorPaths;
use interlock_supervisor::tcp_peer::{TcpEnds, TcpLooks, TcpOrigin};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::{RunOf, record_of};

/// How long a result is valid. A socket can later be passed on to a run.
const FRESH: Duration = Duration::from_secs(1);

/// How long a lookup is repeated while processes start and end. The pause between two lookups
/// starts at `PAUSE` and doubles. A busy machine must not refuse its owner.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(15);

/// How many connections one lookup covers.
const MAX_AT_ONCE: usize = 4096;

/// How far a connection is trusted, by the process at its other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerStanding {
    /// No run holds the connection, or it comes from another machine: its proof counts.
    Trusted,
    /// A run holds the connection: whatever it proves, the caller is that run. `None` if the run is
    /// unknown.
    Run(Option<RunOf>),
    /// It is not certain that no run holds the connection, so it decides nothing. Carries the
    /// reason.
    Unidentified(String),
}

/// The lookup of one connection, and the channel for its result.
type PeerLookup = (TcpEnds, oneshot::Sender<TcpOrigin>);

/// Looks up connections, many at once. Ends with the last connection and the gateway.
#[derive(Clone)]
pub struct PeerLooks {
    wanted: mpsc::UnboundedSender<PeerLookup>,
    place: SupervisorPaths,
}

impl fmt::Debug for PeerLooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerLooks").finish_non_exhaustive()
    }
}

impl PeerLooks {
    /// Starts the lookup task. Must be called on the gateway's runtime.
    pub fn start(place: SupervisorPaths) -> Self {
        let (wanted, waiting) = mpsc::unbounded_channel();
        tokio::spawn(look(waiting, place.clone()));
        Self { wanted, place }
    }

    /// Repeats the lookup for one connection, so that an unclear connection does not delay the
    /// others.
    async fn origin(&self, ends: TcpEnds) -> TcpOrigin {
        let until = Instant::now() + PATIENCE;
        let mut pause = PAUSE;
        loop {
            let origin = self.look_once(ends).await;
            if !matches!(origin, TcpOrigin::Moving(_)) || Instant::now() + pause > until {
                return origin;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    async fn look_once(&self, ends: TcpEnds) -> TcpOrigin {
        let (answer, answered) = oneshot::channel();
        let unknown = || TcpOrigin::Unidentified("the gateway stops".to_owned());
        if self.wanted.send((ends, answer)).is_err() {
            return unknown();
        }
        answered.await.unwrap_or_else(|_| unknown())
    }

    /// The run that a shim serves. A shim serves no other run while a process of its run lives, so
    /// the connection must still belong to the shim after the record was read.
    async fn run_of(&self, ends: TcpEnds, shim: i32) -> Option<RunOf> {
        let session = record_of(&self.place, shim).await?;
        let is_still_there = self.origin(ends).await == TcpOrigin::Run(Some(shim));
        RunOf::new(session).filter(|_| is_still_there)
    }
}

async fn look(mut waiting: mpsc::UnboundedReceiver<PeerLookup>, place: SupervisorPaths) {
    let mut looks = TcpLooks::new(place);
    let mut wanted = Vec::new();
    while waiting.recv_many(&mut wanted, MAX_AT_ONCE).await > 0 {
        let (ends, answers): (Vec<_>, Vec<_>) = wanted.drain(..).unzip();
        let looked = spawn_blocking(move || {
            for (origin, answer) in looks.origins(&ends).into_iter().zip(answers) {
                // A closed connection needs no answer.
                let _ = answer.send(origin);
            }
            looks.learn();
            looks
        });
        let Ok(after) = looked.await else {
            return;
        };
        looks = after;
    }
}

/// The other end of one TCP connection.
#[derive(Debug)]
pub struct TcpPeer {
    ends: TcpEnds,
    looks: PeerLooks,
    found: Mutex<Option<(PeerStanding, Instant)>>,
}

impl TcpPeer {
    /// Starts the lookup at once: a run that connects and passes the connection on still holds it
    /// at this moment.
    pub fn new(ends: TcpEnds, looks: PeerLooks) -> Arc<Self> {
        let peer = Arc::new(Self {
            ends,
            looks,
            found: Mutex::default(),
        });
        let looking = Arc::clone(&peer);
        tokio::spawn(async move { looking.standing().await });
        peer
    }

    /// The present result, or one from a moment ago. A connection that a run once held remains that
    /// run's.
    pub async fn standing(&self) -> PeerStanding {
        let mut found = self.found.lock().await;
        match &*found {
            Some((standing @ PeerStanding::Run(_), _)) => return standing.clone(),
            Some((standing, at)) if at.elapsed() < FRESH => return standing.clone(),
            _ => {}
        }
        let at = Instant::now();
        let standing = match self.looks.origin(self.ends).await {
            TcpOrigin::Remote | TcpOrigin::Outside => PeerStanding::Trusted,
            TcpOrigin::Unidentified(why) | TcpOrigin::Moving(why) => {
                PeerStanding::Unidentified(why)
            }
            TcpOrigin::Run(None) => PeerStanding::Run(None),
            TcpOrigin::Run(Some(shim)) => {
                PeerStanding::Run(self.looks.run_of(self.ends, shim).await)
            }
        };
        *found = Some((standing.clone(), at));
        standing
    }
}
