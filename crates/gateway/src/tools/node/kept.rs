//! A run on an Interlock node: started there, followed from here, and kept there whatever becomes
//! of the connection, of this process, or of the node's.

use std::sync::Arc;
use std::time::Duration;

use interlock_host::process::{Followed, ProcessAnswer, SessionAction};
use interlock_host::{EndListener, OpenRun};
use interlock_run::spool::LineRange;
use interlock_wire::WireError;
use interlock_wire::node::SystemRun;
use interlock_wire::node::extension::{GoneState, MAX_READ_WAIT_MS, RunOrder, RunRead, RunStarted};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{NodeAttempt, NodeCall, result};
use crate::nodes::Node;
use crate::nodes::extension::{ask, is_lost, node_code, owner};
use crate::nodes::handed::{self, AwaitedRun, able, is_over, session_id};
use crate::nodes::run::{Handed, MARGIN};
use crate::nodes::sessions::{self, SessionHandler};
use crate::tools::result::ToolResult;
use crate::tools::{Progress, blocking};

/// How often it is looked whether a node is back.
const BACK: Duration = Duration::from_millis(200);

/// A run that ends so soon is no session: its node answers with all of it.
const BRIEF: Duration = Duration::from_millis(50);

/// How long a node may take to start a run.
const START_TIME: Duration = Duration::from_secs(30);

/// How much output one report of progress holds.
const PROGRESS_BYTES: usize = 4_000;

/// Characters of what a node says to an order.
const MAX_WORDS: usize = 2_000;

/// What a result shows of a run that goes on.
const TAIL_LINES: u64 = 20;
const TAIL_CHARS: usize = 4_000;

/// How a run on such a node is carried out.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptHow {
    pub(super) pty: bool,
    pub(super) stdin_pipe: bool,
    /// When it goes to the background; none is never.
    pub(super) yields: Option<Duration>,
    pub(super) show_chars: usize,
}

/// The outcome of a run, and what follows once it is known whether a caller took it.
pub(super) struct KeptRun {
    ended: NodeAttempt,
    end: Option<KeptRunEnd>,
    /// While this is there, no other task records its end.
    _awaited: Option<AwaitedRun>,
}

struct KeptRunEnd {
    run: OpenRun,
    outcome: Option<Value>,
    tail: String,
    /// The node has a transcript of it, all of which is in the result.
    is_kept_in_vain: bool,
}

impl KeptRun {
    fn refused(error: WireError) -> Self {
        Self {
            ended: NodeAttempt::Refused(error),
            end: None,
            _awaited: None,
        }
    }

    /// Gives the result to the caller, and records the end by whether it was received. `give` says
    /// whether it was.
    pub(super) async fn give(self, work: &NodeCall, give: impl FnOnce(NodeAttempt) -> bool) {
        let listener = if give(self.ended) {
            EndListener::Caller
        } else {
            EndListener::SessionEvent
        };
        let Some(KeptRunEnd {
            run,
            outcome,
            tail,
            is_kept_in_vain,
        }) = self.end
        else {
            return;
        };
        let id = run.id.clone();
        handed::record(&work.gateway, run, outcome, tail, listener).await;
        if is_kept_in_vain
            && listener == EndListener::Caller
            && let Some(node) = able(&work.gateway, &work.node.id)
        {
            handed::forget(&work.gateway, &node, &id).await;
        }
    }
}

impl NodeCall {
    /// Starts the run on its node and follows it until there is a result: its end, or that it goes
    /// on in the background. `gone` ends when the caller stops waiting.
    pub(super) async fn keep(
        &self,
        node: &Arc<Node>,
        run_it: SystemRun,
        gone: impl Future<Output = ()>,
    ) -> KeptRun {
        let id = run_it.run_id.clone().unwrap_or_default();
        let handed = Handed::of(&run_it);
        let run = match self.hand_over(node, &id, &handed).await {
            Ok(run) => run,
            Err(error) => return KeptRun::refused(error),
        };
        let awaited = AwaitedRun::new(&self.gateway, &id);
        let began = Instant::now();
        let is_interactive = self.how.pty || self.how.stdin_pipe;
        let brief = self.how.yields.map_or(BRIEF, |yields| yields.min(BRIEF));
        let order = RunOrder {
            owner: owner(&self.gateway, &node.id),
            run: SystemRun {
                policy_layer: Some(self.wanted.layer()),
                ..run_it
            },
            pty: self.how.pty,
            stdin_pipe: self.how.stdin_pipe,
            wait_ms: if is_interactive {
                0
            } else {
                u64::try_from(brief.as_millis()).unwrap_or(0)
            },
            show_chars: self.how.show_chars,
        };
        let started: Result<RunStarted, WireError> =
            ask(&self.gateway, node, &order, START_TIME).await;
        let mut follow = Follow {
            work: self,
            run,
            awaited,
            session: None,
            place: None,
            began,
            yields: self.how.yields,
        };
        match started {
            Ok(started) => {
                if !started.handles_sessions {
                    follow.yields = None;
                }
                follow.place = Some(KeptPlace {
                    pid: started.pid,
                    started_at_ms: started.started_at_ms,
                    cwd: started.cwd,
                });
                follow.is_called(started.session_id);
                if let Some(followed) = started.ended.and_then(whole) {
                    return follow.ended(&followed, Transcript::Forgotten);
                }
            }
            // Whether it has started is found out.
            Err(error) if is_lost(&error) => {}
            Err(error) => return follow.not_started(error),
        }
        follow.until_result(gone).await
    }

    /// Puts down that the run is about to be on that node. What cannot be recorded does not run.
    async fn hand_over(
        &self,
        node: &Arc<Node>,
        id: &str,
        handed: &Handed,
    ) -> Result<OpenRun, WireError> {
        let (gateway, node_id, id) = (Arc::clone(&self.gateway), node.id.clone(), id.to_owned());
        let handed = handed.clone();
        let opened = blocking(move || gateway.host.start_remote_run(&handed.run(&id, &node_id)));
        let opened = opened.await?;
        opened.map_err(|error| WireError::unavailable(error.to_string()))
    }
}

/// Where and since when a run is, as its node said.
pub(super) struct KeptPlace {
    pub(super) pid: Option<i32>,
    pub(super) started_at_ms: u64,
    pub(super) cwd: String,
}

/// A run that a caller waits for.
struct Follow<'a> {
    work: &'a NodeCall,
    run: OpenRun,
    awaited: AwaitedRun,
    /// What the node calls it, once that is known.
    session: Option<String>,
    place: Option<KeptPlace>,
    began: Instant,
    yields: Option<Duration>,
}

/// All of a run that has ended, as its node reports it.
fn whole(reported: Value) -> Option<Followed> {
    let followed: Followed = serde_json::from_value(reported).ok()?;
    (is_over(&followed.standing) && followed.shown.is_some()).then_some(followed)
}

/// Whether a node still has the transcript of a run that has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transcript {
    Kept,
    Forgotten,
}

/// What one look gave.
enum KeptLook {
    Stands(Box<Followed>),
    /// The node is not there.
    Lost,
    Failed(WireError),
}

impl Follow<'_> {
    async fn until_result(mut self, gone: impl Future<Output = ()>) -> KeptRun {
        tokio::pin!(gone);
        let cancelled = self.work.call.cancelled.clone();
        let mut is_cancelled = false;
        let deadline = self.yields.map(|time| self.began + time);
        // Where nothing goes to the background, a node that stays away is not waited for for ever.
        let mut patience = self.patience();
        let mut offset = self.work.call.progress.as_ref().map(|_| 0);
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) && !is_cancelled {
                return self.background().await;
            }
            let wait = Duration::from_millis(MAX_READ_WAIT_MS);
            let wait = deadline
                .filter(|_| !is_cancelled)
                .map_or(wait, |deadline| wait.min(deadline - now));
            let look = tokio::select! {
                look = self.look(offset, wait) => look,
                () = &mut gone => return self.background().await,
                () = cancelled.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    if !self.cancel().await {
                        return self.cancelled_later().await;
                    }
                    continue;
                }
            };
            match look {
                KeptLook::Stands(followed) => {
                    patience = self.patience();
                    self.is_called(followed.session_id.clone());
                    self.place.get_or_insert_with(|| KeptPlace {
                        pid: followed.pid,
                        started_at_ms: followed.started_at_ms,
                        cwd: followed.cwd.clone(),
                    });
                    if let Some(piece) = &followed.piece {
                        offset = Some(piece.next_offset);
                        self.tell(&piece.text).await;
                    }
                    if is_over(&followed.standing) {
                        return self.ended(&followed, Transcript::Kept);
                    }
                }
                KeptLook::Lost => {
                    if patience.is_some_and(|until| until <= Instant::now()) {
                        return self.background().await;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(BACK) => {}
                        () = sleep_until(deadline.unwrap_or(now + BACK)) => {}
                    }
                }
                KeptLook::Failed(error) if node_code(&error) == Some("SESSION_NOT_FOUND") => {
                    match self.absent().await {
                        Some(Gone::Never) => {
                            let error =
                                "the node was lost before the command was started; it has not run";
                            return self.not_started(WireError::unavailable(error));
                        }
                        Some(Gone::Forgotten(outcome)) => return self.forgotten(outcome),
                        None => tokio::time::sleep(BACK).await,
                    }
                }
                KeptLook::Failed(error) => {
                    let result = result::refused(&self.work.node, &error);
                    return self.left(result).await;
                }
            }
        }
    }

    fn is_called(&mut self, name: String) {
        if self.session.as_ref() == Some(&name) {
            return;
        }
        self.session = Some(name);
        if let Some(name) = self.name() {
            self.awaited.called(&name);
        }
    }

    fn patience(&self) -> Option<Instant> {
        let limit = self.work.limit?;
        Instant::now().checked_add(limit.saturating_add(MARGIN))
    }

    async fn look(&self, offset: Option<u64>, wait: Duration) -> KeptLook {
        let gateway = &self.work.gateway;
        let Some(node) = able(gateway, &self.work.node.id) else {
            return KeptLook::Lost;
        };
        let read = RunRead {
            owner: owner(gateway, &node.id),
            run_id: self.run.id.clone(),
            session_id: self.session.clone(),
            offset,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            max_bytes: PROGRESS_BYTES,
            show_chars: Some(self.work.how.show_chars),
        };
        match ask(gateway, &node, &read, wait).await {
            Ok(followed) => KeptLook::Stands(Box::new(followed)),
            Err(error) if is_lost(&error) => KeptLook::Lost,
            Err(error) => KeptLook::Failed(error),
        }
    }

    async fn tell(&self, text: &str) {
        if let (Some(progress), false) = (&self.work.call.progress, text.is_empty()) {
            let _ = progress.send(Progress::Output(text.to_owned())).await;
        }
    }

    /// Whether the node got the request to cancel.
    async fn cancel(&self) -> bool {
        let gateway = &self.work.gateway;
        match able(gateway, &self.work.node.id) {
            Some(node) => handed::cancel(gateway, &node, &self.run.id).await.is_ok(),
            None => false,
        }
    }

    async fn cancelled_later(self) -> KeptRun {
        let gateway = Arc::clone(&self.work.gateway);
        gateway.nodes.cancel_later(&self.run.id);
        let result = result::cancelled_later(&self.work.node);
        self.left(result).await
    }

    fn not_started(self, error: WireError) -> KeptRun {
        let words: String = error.message.chars().take(MAX_WORDS).collect();
        let end = KeptRunEnd {
            run: self.run,
            outcome: Some(json!({ "message": words, "status": "not-started" })),
            tail: String::new(),
            is_kept_in_vain: false,
        };
        KeptRun {
            ended: NodeAttempt::Refused(error),
            end: Some(end),
            _awaited: Some(self.awaited),
        }
    }

    fn ended(self, followed: &Followed, transcript: Transcript) -> KeptRun {
        let node = &self.work.node;
        let name = session_id(&followed.session_id, &node.id).unwrap_or_default();
        let shown = followed.shown.as_ref();
        let is_whole = shown.is_some_and(|shown| shown.omitted_bytes == 0);
        let end = KeptRunEnd {
            outcome: handed::outcome(followed, &name),
            tail: handed::tail(followed),
            run: self.run,
            is_kept_in_vain: is_whole && transcript == Transcript::Kept,
        };
        KeptRun {
            ended: NodeAttempt::Result(Box::new(result::kept_ended(
                node,
                followed,
                &name,
                self.work.how.show_chars,
            ))),
            end: Some(end),
            _awaited: Some(self.awaited),
        }
    }

    /// It goes on without the caller.
    async fn background(self) -> KeptRun {
        let tail = self.tail().await;
        let node = &self.work.node;
        let name = self.name();
        let result = match &name {
            Some(name) => result::kept_running(node, name, self.place.as_ref(), &tail),
            None => result::not_known_to_run(node),
        };
        self.left(result).await
    }

    fn name(&self) -> Option<String> {
        let name = self.session.as_deref()?;
        session_id(name, &self.work.node.id)
    }

    async fn left(self, result: ToolResult) -> KeptRun {
        if let Some(name) = self.name() {
            handed::to_background(&self.work.gateway, &self.run.id, &name).await;
        }
        let (gateway, node_id) = (Arc::clone(&self.work.gateway), self.work.node.id.clone());
        let (run, awaited) = (self.run, self.awaited);
        // The run may have ended between two looks: the last waiter looks once more.
        tokio::spawn(async move {
            drop(awaited);
            handed::look(&gateway, &node_id, run).await;
        });
        KeptRun {
            ended: NodeAttempt::Result(Box::new(result)),
            end: None,
            _awaited: None,
        }
    }

    /// The last lines, where a caller waited for it.
    async fn tail(&self) -> String {
        let (Some(name), false) = (self.name(), self.yields == Some(Duration::ZERO)) else {
            return String::new();
        };
        let last = LineRange {
            offset: None,
            limit: Some(TAIL_LINES),
        };
        let wanted = sessions::SessionWanted {
            action: SessionAction::Log {
                session_id: name,
                range: last,
            },
            arguments: json!({ "action": "log", "limit": TAIL_LINES }),
            poll_from: None,
        };
        match sessions::perform(&self.work.gateway, &SessionHandler::OPERATOR, wanted).await {
            Ok(ProcessAnswer::Log(log)) => {
                let skip = log.text.chars().count().saturating_sub(TAIL_CHARS);
                log.text.chars().skip(skip).collect()
            }
            _ => String::new(),
        }
    }

    /// The node knows no session of it: it never started, is just starting, or was forgotten.
    async fn absent(&self) -> Option<Gone> {
        let gateway = &self.work.gateway;
        let node = able(gateway, &self.work.node.id)?;
        let gone = handed::cancel(gateway, &node, &self.run.id).await.ok()?;
        match gone.state {
            GoneState::Never => Some(Gone::Never),
            GoneState::Over => Some(Gone::Forgotten(
                gone.outcome.as_ref().and_then(handed::reported_outcome),
            )),
            GoneState::Starting | GoneState::Done => None,
        }
    }

    /// Another client had the run forgotten while the caller waited for it.
    fn forgotten(self, outcome: Option<Value>) -> KeptRun {
        let result = result::forgotten(&self.work.node);
        let end = KeptRunEnd {
            run: self.run,
            outcome,
            tail: String::new(),
            is_kept_in_vain: false,
        };
        KeptRun {
            ended: NodeAttempt::Result(Box::new(result)),
            end: Some(end),
            _awaited: Some(self.awaited),
        }
    }
}

/// Why a run has no session.
enum Gone {
    Never,
    Forgotten(Option<Value>),
}
