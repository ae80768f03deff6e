//! A run on an Interlock node. The node starts and keeps it, and this gateway follows it. The run
//! survives the loss of the connection, and restarts of either process.

use std::sync::Arc;
use std::time::Duration;

use interlock_host::{EndListener, OpenRun};
use interlock_sessions::{Followed, ProcessAnswer, SessionAction};
use interlock_store::{RecordedOutcome, RecordedStatus};
use interlock_transcript::LineRange;
use interlock_wire::WireError;
use interlock_wire::node::SystemRun;
use interlock_wire::node::extension::{GoneState, MAX_READ_WAIT_MS, RunOrder, RunRead, RunStarted};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{NodeAttempt, NodeRun, NodeRunManner, refusals};
use crate::nodes::Node;
use crate::nodes::extension::{ask, is_lost, node_code, owner};
use crate::nodes::remote_runs::{self, AwaitedRun, connected_interlock_node, is_over, session_id};
use crate::nodes::sessions::{self, SessionHandler};
use crate::nodes::system_run::{ForwardedRunFacts, MARGIN};
use crate::tools::Progress;
use crate::tools::pipeline::OutcomeReceiver;
use crate::tools::run_outcome::{RunEndReport, RunLocation, RunningReport, ToolOutcome};
use crate::work::blocking;

/// How often a lost node is looked for.
const BACK: Duration = Duration::from_millis(200);

/// A run that ends within this time becomes no session: the node's answer contains all of it.
const BRIEF: Duration = Duration::from_millis(50);

/// How long a node may take to start a run.
const START_TIME: Duration = Duration::from_secs(30);

/// The most output in one progress report.
const PROGRESS_BYTES: usize = 4_000;

/// The longest message of a node about a start request.
const MAX_WORDS: usize = 2_000;

/// How much of a continuing run's output a result shows.
const TAIL_LINES: u64 = 20;
const TAIL_CHARS: usize = 4_000;

/// The result of a run, and its end, which is recorded once it is known whether a caller received
/// the result.
pub(super) struct NodeRunReport {
    pub(super) attempt: NodeAttempt,
    end: NodeRunEnding,
}

/// The end of a run on an Interlock node, for the record.
pub(super) struct NodeRunEnding {
    /// `None` if the run continues or never started.
    record: Option<EndRecord>,
    /// While this value exists, no other task records the end.
    _awaited: Option<AwaitedRun>,
}

struct EndRecord {
    run: OpenRun,
    outcome: Option<RecordedOutcome>,
    tail: String,
    /// Whether the node has a transcript that the result contains completely.
    is_transcript_useless: bool,
}

impl NodeRunReport {
    fn refused(error: WireError) -> Self {
        Self {
            attempt: NodeAttempt::Refused(error),
            end: NodeRunEnding {
                record: None,
                _awaited: None,
            },
        }
    }

    pub(super) fn into_outcome(self, node: &Node) -> (ToolOutcome, NodeRunEnding) {
        let outcome = match self.attempt {
            NodeAttempt::Outcome(outcome) => *outcome,
            NodeAttempt::Refused(error) => ToolOutcome::Refused(refusals::refused(node, &error)),
        };
        (outcome, self.end)
    }

    pub(super) async fn record(self, run: &NodeRun, listener: EndListener) {
        self.end.record(run, listener).await;
    }
}

impl NodeRunEnding {
    /// Records the end for its listener.
    pub(super) async fn record(self, run: &NodeRun, listener: EndListener) {
        let Some(record) = self.record else {
            return;
        };
        let id = record.run.id.clone();
        remote_runs::record_end(
            &run.dispatcher,
            record.run,
            record.outcome,
            record.tail,
            listener,
        )
        .await;
        if record.is_transcript_useless
            && listener == EndListener::Caller
            && let Some(node) = connected_interlock_node(&run.dispatcher, &run.node.id)
        {
            remote_runs::forget(&run.dispatcher, &node, &id).await;
        }
    }
}

impl NodeRun {
    /// Starts the run on its node and follows it until there is an outcome: its end, or that it
    /// continues in the background.
    pub(super) async fn start_and_follow(
        &self,
        run: SystemRun,
        receiver: &mut OutcomeReceiver,
    ) -> NodeRunReport {
        let id = run.run_id.clone().unwrap_or_default();
        let facts = ForwardedRunFacts::of(&run);
        let open_run = match self.record_start(&id, &facts).await {
            Ok(open_run) => open_run,
            Err(error) => return NodeRunReport::refused(error),
        };
        let awaited = AwaitedRun::new(&self.dispatcher, &id);
        let began = Instant::now();
        let NodeRunManner {
            pty, stdin_pipe, ..
        } = self.manner;
        let brief = self.manner.yields.map_or(BRIEF, |yields| yields.min(BRIEF));
        let order = RunOrder {
            owner: owner(&self.dispatcher, &self.node.id),
            run: SystemRun {
                policy_layer: Some(self.levels.layer()),
                ..run
            },
            pty,
            stdin_pipe,
            wait_ms: if pty || stdin_pipe {
                0
            } else {
                u64::try_from(brief.as_millis()).unwrap_or(0)
            },
            show_chars: self.manner.show_chars,
        };
        let started: Result<RunStarted, WireError> =
            ask(&self.dispatcher, &self.node, &order, START_TIME).await;
        let mut follow = NodeRunFollower {
            work: self,
            run: open_run,
            awaited,
            session: None,
            place: None,
            began,
            yields: self.manner.yields,
        };
        match started {
            Ok(started) => {
                if !started.handles_sessions {
                    follow.yields = None;
                }
                follow.place = Some(NodeProcess {
                    pid: started.pid,
                    started_at_ms: started.started_at_ms,
                    cwd: started.cwd,
                });
                follow.set_session(started.session_id);
                if let Some(followed) = started.ended.and_then(whole) {
                    return follow.ended(&followed, Transcript::Forgotten);
                }
            }
            // The following reads find out whether the run has started.
            Err(error) if is_lost(&error) => {}
            Err(error) => return follow.not_started(error),
        }
        follow.until_outcome(receiver).await
    }

    /// Records that the run is about to start on the node. A run that cannot be recorded must not
    /// start.
    async fn record_start(
        &self,
        id: &str,
        facts: &ForwardedRunFacts,
    ) -> Result<OpenRun, WireError> {
        let (dispatcher, node_id) = (Arc::clone(&self.dispatcher), self.node.id.clone());
        let (id, facts) = (id.to_owned(), facts.clone());
        let opened = blocking(move || dispatcher.host.start_remote_run(&facts.run(&id, &node_id)));
        let opened = opened.await?;
        opened.map_err(|error| WireError::unavailable(error.to_string()))
    }
}

/// The process of a run, as its node reports it.
struct NodeProcess {
    pid: Option<i32>,
    started_at_ms: u64,
    cwd: String,
}

/// Follows a run until there is an outcome.
struct NodeRunFollower<'a> {
    work: &'a NodeRun,
    run: OpenRun,
    awaited: AwaitedRun,
    /// The node's name for the session, once it is known.
    session: Option<String>,
    place: Option<NodeProcess>,
    began: Instant,
    yields: Option<Duration>,
}

/// The whole result of an ended run, as its node reports it.
fn whole(reported: Value) -> Option<Followed> {
    let followed: Followed = serde_json::from_value(reported).ok()?;
    (is_over(&followed.standing) && followed.shown.is_some()).then_some(followed)
}

/// Whether a node still has the transcript of an ended run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transcript {
    Kept,
    Forgotten,
}

/// The result of one read.
enum NodeRunLook {
    Stands(Box<Followed>),
    /// The node is not connected.
    Lost,
    Failed(WireError),
}

impl NodeRunFollower<'_> {
    async fn until_outcome(mut self, receiver: &mut OutcomeReceiver) -> NodeRunReport {
        let call = &self.work.call;
        let mut is_cancelled = false;
        let deadline = self.yields.map(|time| self.began + time);
        // A run that cannot go to the background must not wait forever for an absent node.
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
                () = receiver.gone() => return self.background().await,
                () = call.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    if !self.cancel().await {
                        return self.cancelled_later().await;
                    }
                    continue;
                }
            };
            match look {
                NodeRunLook::Stands(followed) => {
                    patience = self.patience();
                    self.set_session(followed.session_id.clone());
                    self.place.get_or_insert_with(|| NodeProcess {
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
                NodeRunLook::Lost => {
                    if patience.is_some_and(|until| until <= Instant::now()) {
                        return self.background().await;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(BACK) => {}
                        () = sleep_until(deadline.unwrap_or(now + BACK)) => {}
                    }
                }
                NodeRunLook::Failed(error) if node_code(&error) == Some("SESSION_NOT_FOUND") => {
                    match self.absent().await {
                        Some(Gone::Never) => {
                            let error =
                                "the node was lost before the command was started; it has not run";
                            return self.not_started(WireError::unavailable(error));
                        }
                        Some(Gone::Forgotten(outcome)) => {
                            return self.forgotten(outcome.map(|outcome| *outcome));
                        }
                        None => tokio::time::sleep(BACK).await,
                    }
                }
                NodeRunLook::Failed(error) => {
                    let refusal = refusals::refused(&self.work.node, &error);
                    return self.left(ToolOutcome::Refused(refusal)).await;
                }
            }
        }
    }

    fn set_session(&mut self, name: String) {
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

    async fn look(&self, offset: Option<u64>, wait: Duration) -> NodeRunLook {
        let dispatcher = &self.work.dispatcher;
        let Some(node) = connected_interlock_node(dispatcher, &self.work.node.id) else {
            return NodeRunLook::Lost;
        };
        let read = RunRead {
            owner: owner(dispatcher, &node.id),
            run_id: self.run.id.clone(),
            session_id: self.session.clone(),
            offset,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            max_bytes: PROGRESS_BYTES,
            show_chars: Some(self.work.manner.show_chars),
        };
        match ask(dispatcher, &node, &read, wait).await {
            Ok(followed) => NodeRunLook::Stands(Box::new(followed)),
            Err(error) if is_lost(&error) => NodeRunLook::Lost,
            Err(error) => NodeRunLook::Failed(error),
        }
    }

    async fn tell(&self, text: &str) {
        if let (Some(progress), false) = (&self.work.call.progress, text.is_empty()) {
            let _ = progress.send(Progress::Output(text.to_owned())).await;
        }
    }

    /// Cancels the run. Returns whether the node got the request.
    async fn cancel(&self) -> bool {
        let dispatcher = &self.work.dispatcher;
        match connected_interlock_node(dispatcher, &self.work.node.id) {
            Some(node) => remote_runs::cancel(dispatcher, &node, &self.run.id)
                .await
                .is_ok(),
            None => false,
        }
    }

    async fn cancelled_later(self) -> NodeRunReport {
        let dispatcher = Arc::clone(&self.work.dispatcher);
        dispatcher.nodes.cancel_later(&self.run.id);
        let refusal = refusals::cancelled_later(&self.work.node);
        self.left(ToolOutcome::Refused(refusal)).await
    }

    fn not_started(self, error: WireError) -> NodeRunReport {
        let words: String = error.message.chars().take(MAX_WORDS).collect();
        let record = EndRecord {
            run: self.run,
            outcome: Some(RecordedOutcome::new(RecordedStatus::NotStarted).with_message(words)),
            tail: String::new(),
            is_transcript_useless: false,
        };
        NodeRunReport {
            attempt: NodeAttempt::Refused(error),
            end: NodeRunEnding {
                record: Some(record),
                _awaited: Some(self.awaited),
            },
        }
    }

    fn ended(self, followed: &Followed, transcript: Transcript) -> NodeRunReport {
        let node = &self.work.node;
        let name = session_id(&followed.session_id, &node.id).unwrap_or_default();
        let shown = followed.shown.as_ref();
        let is_whole = shown.is_some_and(|shown| shown.omitted_bytes == 0);
        let record = EndRecord {
            outcome: remote_runs::outcome(followed, &name),
            tail: remote_runs::tail(followed),
            run: self.run,
            is_transcript_useless: is_whole && transcript == Transcript::Kept,
        };
        let shown_chars = self.work.manner.show_chars;
        let report = RunEndReport::on_node(node, followed, &name, shown_chars);
        NodeRunReport {
            attempt: NodeAttempt::Outcome(Box::new(ToolOutcome::Ended(Box::new(report)))),
            end: NodeRunEnding {
                record: Some(record),
                _awaited: Some(self.awaited),
            },
        }
    }

    /// The run continues without the caller.
    async fn background(self) -> NodeRunReport {
        let tail = self.tail().await;
        let node = &self.work.node;
        let outcome = match self.name() {
            Some(session) => {
                let place = self.place.as_ref();
                ToolOutcome::Running(RunningReport {
                    session,
                    pid: place.and_then(|place| place.pid),
                    started_at_ms: place.map(|place| place.started_at_ms),
                    tail,
                    location: RunLocation::node(node, place.map(|place| place.cwd.as_str())),
                })
            }
            None => ToolOutcome::Refused(refusals::not_known_to_run(node)),
        };
        self.left(outcome).await
    }

    fn name(&self) -> Option<String> {
        let name = self.session.as_deref()?;
        session_id(name, &self.work.node.id)
    }

    async fn left(self, outcome: ToolOutcome) -> NodeRunReport {
        if let Some(name) = self.name() {
            remote_runs::to_background(&self.work.dispatcher, &self.run.id, &name).await;
        }
        let (dispatcher, node_id) = (Arc::clone(&self.work.dispatcher), self.work.node.id.clone());
        let (run, awaited) = (self.run, self.awaited);
        // The run may have ended between two reads, so the last waiter reads once more.
        tokio::spawn(async move {
            drop(awaited);
            remote_runs::reconcile_run(&dispatcher, &node_id, run).await;
        });
        NodeRunReport {
            attempt: NodeAttempt::Outcome(Box::new(outcome)),
            end: NodeRunEnding {
                record: None,
                _awaited: None,
            },
        }
    }

    /// The last lines of output, if a caller waited for the run.
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
        match sessions::perform(&self.work.dispatcher, &SessionHandler::OPERATOR, wanted).await {
            Ok(ProcessAnswer::Log(log)) => {
                let skip = log.text.chars().count().saturating_sub(TAIL_CHARS);
                log.text.chars().skip(skip).collect()
            }
            _ => String::new(),
        }
    }

    /// Handles a run without a session on the node: it never started, is just starting, or was
    /// forgotten.
    async fn absent(&self) -> Option<Gone> {
        let dispatcher = &self.work.dispatcher;
        let node = connected_interlock_node(dispatcher, &self.work.node.id)?;
        let gone = remote_runs::cancel(dispatcher, &node, &self.run.id)
            .await
            .ok()?;
        match gone.state {
            GoneState::Never => Some(Gone::Never),
            GoneState::Over => Some(Gone::Forgotten(
                gone.outcome
                    .as_ref()
                    .and_then(remote_runs::reported_outcome)
                    .map(Box::new),
            )),
            GoneState::Starting | GoneState::Done => None,
        }
    }

    /// Another client made the node forget the run while the caller waited for it.
    fn forgotten(self, outcome: Option<RecordedOutcome>) -> NodeRunReport {
        let record = EndRecord {
            run: self.run,
            outcome,
            tail: String::new(),
            is_transcript_useless: false,
        };
        let refusal = refusals::forgotten(&self.work.node);
        NodeRunReport {
            attempt: NodeAttempt::Outcome(Box::new(ToolOutcome::Refused(refusal))),
            end: NodeRunEnding {
                record: Some(record),
                _awaited: Some(self.awaited),
            },
        }
    }
}

/// Why a run has no session.
enum Gone {
    Never,
    Forgotten(Option<Box<RecordedOutcome>>),
}
