//! The client side: finds the supervisor of a state directory, or starts it, and talks to it.

mod link;
mod spares;

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_engine::{AuthorizedPlan, Leftover, NotAuthorized};
use interlock_plan::RunPlan;
use serde::de::DeserializeOwned;

use super::frame;
use super::message::{
    ALTERED, About, Manner, OTHER_AGENT, PEER_REFUSED, PROTOCOL, Purpose, SentGo, SessionRequest,
    StartedRun, SupervisorHello, SupervisorRefusal, Waited,
};
use super::paths::SupervisorPaths;
use super::retention::{self, ListedSession, SessionState};
use super::session_index::{IndexedSession, SessionIndex};
use crate::names;

pub use link::{Drawing, SessionLink};
use spares::{SpareKey, Spares};

/// How long a supervisor may take to identify itself. It does nothing that takes long.
const ABOUT_TIME: Duration = Duration::from_secs(5);

/// How often a session is looked up while supervisors step aside and their sockets move.
const SESSION_LOOKS: usize = 3;

/// How long the client keeps replacing supervisors that end before they take the order.
const START_TIME: Duration = Duration::from_secs(5);

/// A client of the supervisors of one state directory.
#[derive(Debug, Clone)]
pub struct SupervisorClient {
    place: SupervisorPaths,
    version: String,
    spares: Arc<Spares>,
    index: Arc<SessionIndex>,
    /// The program that becomes the guard, with its arguments.
    program: Option<(PathBuf, Vec<std::ffi::OsString>)>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Refused(#[from] SupervisorRefusal),
    #[error("no supervisor: {0}")]
    NotStarted(String),
    #[error("the supervisor does not answer: {0}")]
    Connection(#[from] io::Error),
    /// The run was started, but its outcome is unknown.
    #[error("the process of the run ended before it could report")]
    Lost,
    #[error("{} of its processes could not be ended", .0.len())]
    StillThere(Vec<Leftover>),
}

impl ClientError {
    /// A stable error code for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(refusal) => &refusal.code,
            Self::NotStarted(_) | Self::Connection(_) => "SUPERVISOR_UNAVAILABLE",
            Self::Lost => "SESSION_LOST",
            Self::StillThere(_) => "STILL_RUNNING",
        }
    }
}

/// Means that nothing was started, because the permission was for another plan.
impl From<NotAuthorized> for ClientError {
    fn from(error: NotAuthorized) -> Self {
        Self::Refused(SupervisorRefusal::new("NOT_AUTHORIZED", error.to_string()))
    }
}

impl SupervisorClient {
    pub fn new(place: SupervisorPaths, version: &str) -> Self {
        Self {
            place,
            version: version.to_owned(),
            spares: Arc::default(),
            index: Arc::default(),
            program: None,
        }
    }

    /// Sets the program that becomes the guard. It is started if no supervisor is running.
    #[must_use]
    pub fn starting(
        mut self,
        program: PathBuf,
        arguments: impl IntoIterator<Item = impl Into<std::ffi::OsString>>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        self.program = Some((program, arguments));
        self
    }

    pub fn place(&self) -> &SupervisorPaths {
        &self.place
    }

    /// Starts an authorized plan and consumes it. When this returns, the run continues even if this
    /// process ends.
    ///
    /// ```no_run
    /// use interlock_engine::AuthorizedPlan;
    /// use interlock_supervisor::{Manner, SupervisorClient};
    /// fn once(client: &SupervisorClient, plan: AuthorizedPlan, manner: &Manner) {
    ///     let _ = client.start(plan, manner);
    /// }
    /// ```
    ///
    /// An authorized plan cannot be used twice.
    ///
    /// ```compile_fail,E0382
    /// use interlock_engine::AuthorizedPlan;
    /// use interlock_supervisor::{Manner, SupervisorClient};
    /// fn twice(client: &SupervisorClient, plan: AuthorizedPlan, manner: &Manner) {
    ///     let _ = client.start(plan, manner);
    ///     let _ = client.start(plan, manner);
    /// }
    /// ```
    #[allow(clippy::needless_pass_by_value)] // taken by value: no plan is started twice
    pub fn start(
        &self,
        authorized: AuthorizedPlan,
        manner: &Manner,
    ) -> Result<RunConversation, ClientError> {
        self.start_run(&authorized, manner)
    }

    fn start_run(
        &self,
        authorized: &AuthorizedPlan,
        manner: &Manner,
    ) -> Result<RunConversation, ClientError> {
        // There may be several attempts, because the present supervisor may be about to end or to
        // be replaced.
        let until = Instant::now() + START_TIME;
        loop {
            match self.try_start(authorized, manner) {
                Err(error) if is_gone(&error) && Instant::now() < until => {
                    if !matches!(error.code(), ALTERED | OTHER_AGENT) {
                        self.launch()?;
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn try_start(
        &self,
        authorized: &AuthorizedPlan,
        manner: &Manner,
    ) -> Result<RunConversation, ClientError> {
        let plan = frame::encode(authorized.plan(), &[])?;
        let order = [plan, go(authorized, manner)?].concat();
        let key = SpareKey::of(authorized.plan());
        let agent = &authorized.plan().agent_id;
        let stream = match self.spares.take(&key) {
            // A process that is gone has read nothing of the order.
            Some(stream) if io::Write::write_all(&mut &stream, &order).is_ok() => stream,
            _ => {
                let stream = self.place.connect(&self.version)?;
                // Both messages are sent without waiting in between. The second is for the run's
                // own process.
                let mut hello = self.hello(Purpose::Start);
                hello.agent = Some(agent.clone());
                let mut messages = frame::encode(&hello, &[])?;
                messages.extend(order);
                say(&stream, &messages)?;
                stream
            }
        };
        self.started(stream, key)
    }

    fn started(&self, stream: UnixStream, key: SpareKey) -> Result<RunConversation, ClientError> {
        let started = answer::<StartedRun>(&stream)?;
        // This comes last, because accepting the spare connection would compete with the start of
        // the run.
        self.make_spare();
        Ok(RunConversation {
            stream,
            started,
            key,
            spares: Arc::clone(&self.spares),
        })
    }

    /// Shows a plan to a process that waits for the next order, if there is one. The process opens
    /// and reads the plan's files meanwhile, but starts nothing without the rest of the order.
    pub fn announce(&self, plan: &RunPlan) -> Option<Announced> {
        let stream = self.spares.take(&SpareKey::of(plan))?;
        frame::send(&stream, plan).ok()?;
        Some(Announced(stream))
    }

    /// Does the same as [`SupervisorClient::start`] for an announced plan. The authorization is
    /// compared with the announced plan, so both must be the same.
    #[allow(clippy::needless_pass_by_value)] // taken by value: no plan is started twice
    pub fn start_announced(
        &self,
        Announced(stream): Announced,
        authorized: AuthorizedPlan,
        manner: &Manner,
    ) -> Result<RunConversation, ClientError> {
        // A process that is gone has read nothing of the order.
        if io::Write::write_all(&mut &stream, &go(&authorized, manner)?).is_err() {
            return self.start_run(&authorized, manner);
        }
        match self.started(stream, SpareKey::of(authorized.plan())) {
            Err(error) if is_gone(&error) => self.start_run(&authorized, manner),
            outcome => outcome,
        }
    }

    /// Keeps a process waiting for the next order of this client from now on, so that the order
    /// need not look for one. This is for clients that live longer than one order.
    pub fn prepare(&self) {
        self.spares.want();
        self.make_spare();
    }

    fn make_spare(&self) {
        if !self.spares.are_missing() {
            return;
        }
        let hello = self.hello(Purpose::Start);
        if let Ok(stream) = self.place.connect(&self.version)
            && frame::send(&stream, &hello).is_ok()
        {
            self.spares.add(stream);
        }
    }

    /// Starts the program that becomes the guard, and waits until the supervisor is ready.
    fn launch(&self) -> Result<(), ClientError> {
        let fail = |why: String| ClientError::NotStarted(why);
        let Some((program, arguments)) = &self.program else {
            return Err(fail("none is running".to_owned()));
        };
        // Runs can read the environment of their ancestors, and the environment of the starting
        // process may contain secrets. The guard and the supervisor need none of it, because plans
        // say what runs get.
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| fail(format!("{}: {error}", program.display())))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut said);
        }
        let _ = child.wait();
        match said.trim_end() {
            "ready" => Ok(()),
            "" => Err(fail("it ended at once".to_owned())),
            why => Err(fail(why.to_owned())),
        }
    }

    /// Returns the running supervisors, of all versions.
    pub fn supervisors(&self) -> Vec<About> {
        about_all(&self.place, None)
    }

    /// Does the same for callers that read sessions, which are files. Fails if a supervisor refuses
    /// this process, or cannot be asked whether it does.
    pub fn supervisors_that_let_us(&self) -> Result<Vec<About>, ClientError> {
        let mut serving = Vec::new();
        for version in self.place.versions() {
            match ask(&self.place, &version, &hello(&version, Purpose::About)) {
                Ok(about) => serving.push(about),
                // The supervisor is ending, or has ended.
                Err(ClientError::Lost) => {}
                Err(ClientError::Connection(error))
                    if error.kind() == io::ErrorKind::ConnectionReset => {}
                Err(error) if is_gone(&error) => {}
                // This refusal came after the peer check, so the peer was accepted.
                Err(ClientError::Refused(refusal)) if refusal.code != PEER_REFUSED => {}
                Err(error) => return Err(error),
            }
        }
        Ok(serving)
    }

    /// Whether this process descends from a run of this state directory, however it detached
    /// itself. Every living supervisor is asked, because it refuses such a process. If one cannot
    /// be asked, the answer is unknown, which must not count as a no.
    pub fn descends_from_run(&self) -> Result<bool, ClientError> {
        for version in self.place.versions() {
            let about = || ask::<About>(&self.place, &version, &hello(&version, Purpose::About));
            // A second attempt is needed because a supervisor that is just ending closes the
            // connection silently.
            let answer = about().or_else(|error| match error {
                ClientError::Refused(_) => Err(error),
                _ => about(),
            });
            match answer {
                Ok(_) => {}
                Err(ClientError::Refused(refusal)) if refusal.code == "PEER_REFUSED" => {
                    return Ok(true);
                }
                // Any other answer means that the supervisor accepts this process.
                Err(ClientError::Refused(refusal)) if refusal.code != "BUSY" => {}
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Returns all sessions of the state directory, of every owner.
    pub fn list(&self) -> Vec<ListedSession> {
        let look = || {
            let living = self.supervisors().into_iter();
            let living: Vec<String> = living.map(|about| about.instance).collect();
            retention::list(&self.place, &living)
        };
        let is_lost =
            |one: &ListedSession| one.state == SessionState::Lost && !one.status.outcome.is_final();
        let first = look();
        if !first.iter().any(is_lost) {
            return first;
        }
        // A supervisor may have stepped aside or started between the two looks. A session counts as
        // lost only if both looks show it as lost.
        let mut second = look();
        for one in second.iter_mut().filter(|one| is_lost(one)) {
            let mut before = first.iter().filter(|one| is_lost(one));
            if !before.any(|before| before.session.id == one.session.id) {
                one.state = SessionState::Running;
            }
        }
        second
    }

    /// Returns the index from which lists of sessions are chosen, newest first. A long-lived
    /// process reads only what changed since its last call.
    pub fn session_index(&self) -> Arc<Vec<Arc<IndexedSession>>> {
        self.index.look(&self.place)
    }

    /// Removes sessions that are due. A supervisor does this too while it lives, but does not live
    /// just for that.
    pub fn remove_due_sessions(&self) {
        let now = interlock_transcript::now_ms();
        let index = self.session_index();
        let due = |one: &&Arc<IndexedSession>| one.due_ms.is_some_and(|due| due <= now);
        for one in index.iter().filter(due) {
            retention::remove_due_session(&self.place, &one.name, now);
        }
    }

    /// Asks all supervisors to take no further runs.
    pub fn drain(&self) {
        for version in self.place.versions() {
            let _ = ask::<About>(&self.place, &version, &hello(&version, Purpose::Drain));
        }
    }

    /// Ends the processes that keep a sandbox scope, in all supervisors. Returns `false` if a run
    /// is in the scope.
    pub fn end_scope(&self, scope: &str) -> bool {
        let mut is_over = true;
        for version in self.place.versions() {
            let scope = scope.to_owned();
            let hello = hello(&version, Purpose::EndScope { scope });
            // A supervisor that does not answer is gone, with everything that it kept.
            is_over &= ask(&self.place, &version, &hello).unwrap_or(true);
        }
        is_over
    }

    /// The versions of current and former supervisors of this state directory.
    pub fn versions(&self) -> Vec<String> {
        self.place.versions()
    }

    /// Opens a connection on which this supervisor's network server asks whether runs may reach a
    /// name, in lines of JSON: [`NetworkQuestion`](interlock_engine::sandbox::NetworkQuestion) and
    /// [`NetworkAnswer`](interlock_engine::sandbox::NetworkAnswer). The connection survives a
    /// replacement of that process.
    pub fn answer_networks(&self, version: &str) -> Result<UnixStream, ClientError> {
        let stream = self.place.connect(version)?;
        stream.set_read_timeout(Some(ABOUT_TIME))?;
        say(
            &stream,
            &frame::encode(&hello(version, Purpose::AnswerNetworks), &[])?,
        )?;
        answer::<()>(&stream)?;
        stream.set_read_timeout(None)?;
        Ok(stream)
    }

    /// Connects to a running session.
    pub fn session(&self, name: &str) -> Result<SessionLink, ClientError> {
        let mut last = SupervisorRefusal::new(
            "SESSION_NOT_RUNNING",
            format!("no session {name} is running"),
        );
        for _ in 0..SESSION_LOOKS {
            let mut has_moved = false;
            let mut versions = self.place.versions();
            versions.sort_by_key(|version| *version != self.version);
            for version in versions {
                match self.ask_for_session(&version, name) {
                    Ok(link) => return Ok(link),
                    Err(ClientError::Refused(refusal)) => last = refusal,
                    Err(ClientError::Connection(error)) => {
                        has_moved |= error.kind() == io::ErrorKind::NotFound;
                    }
                    // A supervisor that is ending has no session.
                    Err(_) => {}
                }
            }
            if !has_moved {
                break;
            }
        }
        Err(last.into())
    }

    fn ask_for_session(&self, version: &str, name: &str) -> Result<SessionLink, ClientError> {
        let purpose = Purpose::Session {
            name: name.to_owned(),
        };
        let stream = self.place.connect(version)?;
        say(&stream, &frame::encode(&hello(version, purpose), &[])?)?;
        answer::<()>(&stream)?;
        Ok(SessionLink { stream })
    }

    /// Removes a session that has ended, with its transcript. Returns `false` if it has not ended.
    pub fn forget(&self, name: &str) -> bool {
        let is_final = names::is_session_name(name)
            && interlock_transcript::TranscriptStatus::read(&self.place.session(name))
                .is_ok_and(|status| status.outcome.is_final());
        if is_final {
            retention::remove_finished(&self.place, name);
        }
        is_final
    }

    fn hello(&self, purpose: Purpose) -> SupervisorHello {
        hello(&self.version, purpose)
    }
}

fn hello(version: &str, purpose: Purpose) -> SupervisorHello {
    SupervisorHello {
        protocol: PROTOCOL,
        version: version.to_owned(),
        purpose,
        agent: None,
    }
}

/// The supervisors that run now, except one of this version.
pub(super) fn about_all(place: &SupervisorPaths, except: Option<&str>) -> Vec<About> {
    place
        .versions()
        .iter()
        .filter(|version| except != Some(version.as_str()))
        .filter_map(|version| ask(place, version, &hello(version, Purpose::About)).ok())
        .collect()
}

/// Whether a supervisor of this version takes runs, by its own account. A successful connection
/// does not prove that, because the supervisor may be about to end.
pub(super) fn is_serving(place: &SupervisorPaths, version: &str) -> bool {
    ask::<About>(place, version, &hello(version, Purpose::About)).is_ok_and(|about| !about.draining)
}

fn ask<T: DeserializeOwned>(
    place: &SupervisorPaths,
    version: &str,
    hello: &SupervisorHello,
) -> Result<T, ClientError> {
    let stream = place.connect(version)?;
    stream.set_read_timeout(Some(ABOUT_TIME))?;
    say(&stream, &frame::encode(hello, &[])?)?;
    answer(&stream)
}

/// Sends the messages. A supervisor that refuses a connection may close it before everything is
/// sent; its reason can still be read.
fn say(mut stream: &UnixStream, messages: &[u8]) -> io::Result<()> {
    match io::Write::write_all(&mut stream, messages) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

fn answer<T: DeserializeOwned>(stream: &UnixStream) -> Result<T, ClientError> {
    let answer = frame::receive::<Result<T, SupervisorRefusal>>(stream)?;
    Ok(answer.ok_or(ClientError::Lost)??)
}

/// Whether the error means that nothing was started, and that another attempt may find a supervisor
/// or another process.
fn is_gone(error: &ClientError) -> bool {
    match error {
        ClientError::Connection(error) => matches!(
            error.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                // Part of the order was not sent, or not read. A process that has read all of it
                // and then ends closes the connection without an error.
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
        ),
        ClientError::Refused(refusal) => {
            matches!(refusal.code.as_str(), "DRAINING" | ALTERED | OTHER_AGENT)
        }
        _ => false,
    }
}

/// A conversation with the process of the ordered run.
#[derive(Debug)]
pub struct RunConversation {
    stream: UnixStream,
    started: StartedRun,
    key: SpareKey,
    spares: Arc<Spares>,
}

impl RunConversation {
    pub fn started(&self) -> &StartedRun {
        &self.started
    }

    /// Waits until the run ends or the session goes to the background.
    pub fn wait(&self) -> Result<Waited, ClientError> {
        frame::receive(&self.stream)?.ok_or(ClientError::Lost)
    }

    /// Confirms that the result was received completely and that the session need not be kept.
    /// Without this, it is kept until it is due.
    pub fn taken(self) -> Result<(), ClientError> {
        if !self.spares.have_room() {
            return Ok(frame::send(&self.stream, &SessionRequest::Taken)?);
        }
        frame::send(&self.stream, &SessionRequest::TakenForNext)?;
        self.spares.add_when_ready(self.stream, self.key);
        Ok(())
    }
}

/// A connection to a process that knows the plan and waits for the rest of the order. Dropping it
/// ends the wait.
#[derive(Debug)]
pub struct Announced(UnixStream);

fn go(authorized: &AuthorizedPlan, manner: &Manner) -> io::Result<Vec<u8>> {
    let go = SentGo {
        authorization: authorized.authorization(),
        manner,
    };
    frame::encode(&go, &[])
}
