//! The other side: finds the supervisor of a state directory, or starts it, and talks to it.

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

/// How long a supervisor may take to say who it is. It does nothing that takes long.
const ABOUT_TIME: Duration = Duration::from_secs(5);

/// How often a session is looked for while supervisors step aside and take their sockets with them.
const SESSION_LOOKS: usize = 3;

/// How long supervisors that end before they take the order are replaced.
const START_TIME: Duration = Duration::from_secs(5);

/// Reaches the supervisors of one state directory.
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
    /// Said of a run that was started: what became of it is not known.
    #[error("the process of the run ended before it could report")]
    Lost,
    #[error("{} of its processes could not be ended", .0.len())]
    StillThere(Vec<Leftover>),
}

impl ClientError {
    /// Stable, for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(refusal) => &refusal.code,
            Self::NotStarted(_) | Self::Connection(_) => "SUPERVISOR_UNAVAILABLE",
            Self::Lost => "SESSION_LOST",
            Self::StillThere(_) => "STILL_RUNNING",
        }
    }
}

/// Nothing was started: the permission was for another plan.
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

    /// Where no supervisor is there, this program is called, which has to become the guard.
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

    /// Starts a plan that is authorized, which is used up by this. When this returns, the run goes
    /// on whatever becomes of this process.
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
        // More than once: the one that is there may be about to end, or to be replaced.
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
            // A process that is gone has read nothing of it.
            Some(stream) if io::Write::write_all(&mut &stream, &order).is_ok() => stream,
            _ => {
                let stream = self.place.connect(&self.version)?;
                // One message after the other without waiting: the second is for the run's own
                // process.
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
        // Not earlier: accepting the spare connection would compete with the run that begins.
        self.make_spare();
        Ok(RunConversation {
            stream,
            started,
            key,
            spares: Arc::clone(&self.spares),
        })
    }

    /// Shows a plan to the process that waits for the next order, if one does. It opens and reads
    /// the plan's files meanwhile; nothing starts without the rest of the order.
    pub fn announce(&self, plan: &RunPlan) -> Option<Announced> {
        let stream = self.spares.take(&SpareKey::of(plan))?;
        frame::send(&stream, plan).ok()?;
        Some(Announced(stream))
    }

    /// As [`SupervisorClient::start`], of a plan that was announced. The authorization is compared
    /// with what was announced, so it has to be the same.
    #[allow(clippy::needless_pass_by_value)] // taken by value: no plan is started twice
    pub fn start_announced(
        &self,
        Announced(stream): Announced,
        authorized: AuthorizedPlan,
        manner: &Manner,
    ) -> Result<RunConversation, ClientError> {
        // A process that is gone has read nothing of it.
        if io::Write::write_all(&mut &stream, &go(&authorized, manner)?).is_err() {
            return self.start_run(&authorized, manner);
        }
        match self.started(stream, SpareKey::of(authorized.plan())) {
            Err(error) if is_gone(&error) => self.start_run(&authorized, manner),
            outcome => outcome,
        }
    }

    /// From now on a process waits for the next order of this client, so that it need not be found
    /// first. For clients that live longer than one order.
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

    /// Calls the program that becomes the guard, and waits until the supervisor is ready.
    fn launch(&self) -> Result<(), ClientError> {
        let fail = |why: String| ClientError::NotStarted(why);
        let Some((program, arguments)) = &self.program else {
            return Err(fail("none is running".to_owned()));
        };
        // Runs can read the environment of those above them, and who starts this may have secrets
        // in its own. The guard and the supervisor need nothing of it; plans say what runs get.
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

    /// Who serves now, of all versions.
    pub fn supervisors(&self) -> Vec<About> {
        about_all(&self.place, None)
    }

    /// The same for callers that read sessions, which are files: an error where a supervisor
    /// refuses this process, or cannot be asked whether it does.
    pub fn supervisors_that_let_us(&self) -> Result<Vec<About>, ClientError> {
        let mut serving = Vec::new();
        for version in self.place.versions() {
            match ask(&self.place, &version, &hello(&version, Purpose::About)) {
                Ok(about) => serving.push(about),
                // It ends, or has ended.
                Err(ClientError::Lost) => {}
                Err(ClientError::Connection(error))
                    if error.kind() == io::ErrorKind::ConnectionReset => {}
                Err(error) if is_gone(&error) => {}
                // The refusal came after the peer check: the peer was accepted.
                Err(ClientError::Refused(refusal)) if refusal.code != PEER_REFUSED => {}
                Err(error) => return Err(error),
            }
        }
        Ok(serving)
    }

    /// Whether this process descends from a run of this state directory, whatever it did to detach
    /// itself: every living supervisor is asked, and refuses such a process. Where one cannot be
    /// asked the answer is not known, and must not be taken for a no.
    pub fn descends_from_run(&self) -> Result<bool, ClientError> {
        for version in self.place.versions() {
            let about = || ask::<About>(&self.place, &version, &hello(&version, Purpose::About));
            // Twice: one that is just ending closes the connection without a word.
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

    /// All sessions of the state directory, of every owner.
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
        // A supervisor may have stepped aside, or have started, between the two looks: a session is
        // lost if it is lost in both.
        let mut second = look();
        for one in second.iter_mut().filter(|one| is_lost(one)) {
            let mut before = first.iter().filter(|one| is_lost(one));
            if !before.any(|before| before.session.id == one.session.id) {
                one.state = SessionState::Running;
            }
        }
        second
    }

    /// What lists of sessions are chosen from, the newest first. A process that lives long reads only
    /// what changed since it asked the last time.
    pub fn session_index(&self) -> Arc<Vec<Arc<IndexedSession>>> {
        self.index.look(&self.place)
    }

    /// Removes sessions whose time is over. A supervisor does that as long as it lives; it does not live
    /// for that alone.
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

    /// Ends what keeps a sandbox scope in all supervisors. `false` where a run is in it.
    pub fn end_scope(&self, scope: &str) -> bool {
        let mut is_over = true;
        for version in self.place.versions() {
            let scope = scope.to_owned();
            let hello = hello(&version, Purpose::EndScope { scope });
            // One that does not answer is gone, with all that it kept.
            is_over &= ask(&self.place, &version, &hello).unwrap_or(true);
        }
        is_over
    }

    /// The versions of the supervisors that are, or were, here.
    pub fn versions(&self) -> Vec<String> {
        self.place.versions()
    }

    /// A connection on which the server of networks of this supervisor asks whether runs may reach a name:
    /// lines of JSON, [`NetworkQuestion`](interlock_engine::sandbox::NetworkQuestion) and
    /// [`NetworkAnswer`](interlock_engine::sandbox::NetworkAnswer). It stays when that process is replaced.
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
                    // One that ends has no session.
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

    /// Forgets a session that has ended, with its transcript. `false` if it had not.
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

/// The supervisors that serve now, but for one of this version.
pub(super) fn about_all(place: &SupervisorPaths, except: Option<&str>) -> Vec<About> {
    place
        .versions()
        .iter()
        .filter(|version| except != Some(version.as_str()))
        .filter_map(|version| ask(place, version, &hello(version, Purpose::About)).ok())
        .collect()
}

/// Whether a supervisor of this version takes runs, as it says itself. A successful connection does
/// not mean that: the supervisor may be about to end.
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

/// A supervisor that refuses a connection may close it before anything was sent. Its reason can
/// still be read.
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

/// Nothing was started, and another attempt may find a supervisor, or another process.
fn is_gone(error: &ClientError) -> bool {
    match error {
        ClientError::Connection(error) => matches!(
            error.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                // Not all of the order was sent, or not all of it was read: who has read all of
                // it and ends closes the connection without an error.
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
        ),
        ClientError::Refused(refusal) => {
            matches!(refusal.code.as_str(), "DRAINING" | ALTERED | OTHER_AGENT)
        }
        _ => false,
    }
}

/// With the process of the run that was ordered.
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

    /// Waits for the end, or until the session went to the background.
    pub fn wait(&self) -> Result<Waited, ClientError> {
        frame::receive(&self.stream)?.ok_or(ClientError::Lost)
    }

    /// The result was received whole and is all that is wanted: the session need not be kept.
    /// Otherwise it is, until its time is over.
    pub fn taken(self) -> Result<(), ClientError> {
        if !self.spares.have_room() {
            return Ok(frame::send(&self.stream, &SessionRequest::Taken)?);
        }
        frame::send(&self.stream, &SessionRequest::TakenForNext)?;
        self.spares.add_when_ready(self.stream, self.key);
        Ok(())
    }
}

/// A process knows the plan and waits for the rest of the order. Dropped, it waits no more.
#[derive(Debug)]
pub struct Announced(UnixStream);

fn go(authorized: &AuthorizedPlan, manner: &Manner) -> io::Result<Vec<u8>> {
    let go = SentGo {
        authorization: authorized.authorization(),
        manner,
    };
    frame::encode(&go, &[])
}
