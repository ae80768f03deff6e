//! Admits new connections: finds out who connects, and for what purpose.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::Pid;

use super::{Supervisor, add};
use crate::frame::{self, Incoming, MAX_HELLO};
use crate::handover::{self, Note};
use crate::message::{About, PROTOCOL, Purpose, StartedRun, SupervisorHello, SupervisorRefusal};
use crate::pool::Shim;

/// How long a new connection may take to send its first message.
pub(super) const HELLO_TIME: Duration = Duration::from_secs(5);

/// Most connections that may be silent at once.
const MAX_HELLOS: usize = 256;

/// A connection that has not sent its first message yet.
#[derive(Debug)]
pub(super) struct NewConnection {
    connection: UnixStream,
    incoming: Incoming,
    pub until: Instant,
}

impl Supervisor {
    pub(super) fn accept(&mut self) {
        while let Ok((connection, _)) = self.setup.listener.accept() {
            if let Err(refusal) = self.outsiders.check(&connection, &self.setup.place) {
                refuse(&connection, refusal);
                continue;
            }
            let token = self.token();
            let visitor = NewConnection {
                connection,
                incoming: Incoming::new(MAX_HELLO),
                until: Instant::now() + HELLO_TIME,
            };
            self.hellos.insert(token, visitor);
            // The first message has usually arrived already.
            self.read_hello(token);
            if let Some(visitor) = self.hellos.get(&token)
                && add(&self.events, &visitor.connection, token).is_err()
            {
                self.hellos.remove(&token);
            }
            self.turn_away_longest_silent();
        }
    }

    /// If too many connections are silent, closes the one that has been silent for the longest
    /// time, so that silent connections keep no client out.
    fn turn_away_longest_silent(&mut self) {
        if self.hellos.len() > MAX_HELLOS
            && let Some(first) = self.hellos.keys().min().copied()
            && let Some(visitor) = self.hellos.remove(&first)
        {
            let message = "too many connections at once; try again";
            refuse(&visitor.connection, SupervisorRefusal::new("BUSY", message));
        }
    }

    /// Reads the part of the first message that has arrived.
    pub(super) fn read_hello(&mut self, token: u64) {
        let Some(visitor) = self.hellos.get_mut(&token) else {
            return;
        };
        while !visitor.incoming.is_complete() {
            let received = rustix::net::recv(
                &visitor.connection,
                visitor.incoming.wanted(),
                RecvFlags::DONTWAIT,
            );
            let outcome = match received {
                Err(Errno::AGAIN | Errno::INTR) => return,
                Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((count, _)) => visitor.incoming.got(count),
                Err(error) => Err(error.into()),
            };
            if outcome.is_err() {
                self.hellos.remove(&token);
                return;
            }
        }
        if let Some(visitor) = self.hellos.remove(&token) {
            let _ = epoll::delete(&self.events, &visitor.connection);
            match visitor.incoming.message::<SupervisorHello>() {
                Ok((hello, _)) => self.welcome(visitor.connection, hello),
                Err(error) => refuse(
                    &visitor.connection,
                    SupervisorRefusal::new("HELLO_INVALID", error.to_string()),
                ),
            }
        }
    }

    fn welcome(&mut self, connection: UnixStream, hello: SupervisorHello) {
        if hello.protocol != PROTOCOL {
            let message = format!(
                "the supervisor speaks protocol {PROTOCOL}, the client {}",
                hello.protocol
            );
            return refuse(
                &connection,
                SupervisorRefusal::new("PROTOCOL_MISMATCH", message),
            );
        }
        match hello.purpose {
            Purpose::Start if self.draining || hello.version != self.setup.version => {
                let message = "this supervisor takes no further runs";
                refuse(&connection, SupervisorRefusal::new("DRAINING", message));
            }
            Purpose::Start => self.start(connection, hello.agent.as_deref()),
            Purpose::Session { name } => match self.shim_of(&name) {
                Some(shim) => {
                    let note = Note::Connection(connection.into());
                    let _ = handover::send_note(&shim.control, &note);
                }
                None => {
                    let message = format!("no session {name} is running");
                    refuse(
                        &connection,
                        SupervisorRefusal::new("SESSION_NOT_RUNNING", message),
                    );
                }
            },
            Purpose::About => self.tell(&connection),
            Purpose::EndScope { scope } => {
                let is_over = self.keepers.end_scope(&scope);
                reply(&connection, &Ok::<_, SupervisorRefusal>(is_over));
            }
            Purpose::AnswerNetworks => {
                reply(&connection, &Ok::<_, SupervisorRefusal>(()));
                self.add_asker(connection);
            }
            Purpose::Drain => {
                self.drain();
                self.tell(&connection);
            }
        }
    }

    /// Returns the shim of this session. The session may have been announced just now, while other
    /// clients were admitted.
    fn shim_of(&mut self, name: &str) -> Option<&Shim> {
        if !self.sessions.contains_key(name) {
            let busy: Vec<u64> = self.shims.keys().copied().collect();
            for token in busy {
                self.hear(token);
            }
        }
        self.shims.get(self.sessions.get(name)?)
    }

    /// Takes a waiting process that has served this agent or none yet. Those of other agents are
    /// left alone.
    fn take_idle(&mut self, agent: Option<&str>) -> Option<u64> {
        let agent_of = |token: &u64| self.shims.get(token).and_then(|shim| shim.agent.as_deref());
        let of_same = |token: &u64| agent.is_some() && agent_of(token) == agent;
        let of_none = |token: &u64| agent_of(token).is_none();
        let at = self.idle.iter().rposition(of_same);
        let at = at.or_else(|| self.idle.iter().rposition(of_none))?;
        self.idle.remove(at)
    }

    fn start(&mut self, connection: UnixStream, agent: Option<&str>) {
        let note = Note::Start(connection.into());
        self.last_start = Instant::now();
        // A process that died while it waited is skipped; its end is handled elsewhere.
        while let Some(token) = self.take_idle(agent) {
            if let Some(shim) = self.shims.get(&token)
                && handover::send_note(&shim.control, &note).is_ok()
            {
                return;
            }
        }
        self.need.missed();
        let born = self.bear().and_then(|token| {
            self.idle.retain(|other| *other != token);
            let shim = self.shims.get(&token).ok_or(io::ErrorKind::NotFound)?;
            handover::send_note(&shim.control, &note)
        });
        if let (Err(error), Note::Start(connection)) = (born, note) {
            let message = format!("cannot make a process: {error}");
            let refusal = SupervisorRefusal::new("START_FAILED", message);
            refuse(&UnixStream::from(connection), refusal);
        }
    }

    fn tell(&self, connection: &UnixStream) {
        let about = About {
            version: self.setup.version.clone(),
            pid: rustix::process::getpid().as_raw_pid(),
            guard_pid: rustix::process::getppid().map_or(0, Pid::as_raw_pid),
            instance: self.setup.instance.clone(),
            started_ms: self.started_ms,
            draining: self.draining,
            running: self.sessions.len(),
        };
        reply(connection, &Ok::<_, SupervisorRefusal>(about));
    }
}

/// Sends a short answer. A peer that does not take it at once gets none.
fn reply(connection: &UnixStream, message: &impl serde::Serialize) {
    if connection.set_nonblocking(true).is_ok()
        && let Ok(frame) = frame::encode(message, &[])
    {
        let _ = (&*connection).write_all(&frame);
    }
}

fn refuse(connection: &UnixStream, refusal: SupervisorRefusal) {
    reply(connection, &Err::<StartedRun, _>(refusal));
}
