//! The host's side: carries one approval to the listening companion, and its decision back.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use interlock_command::display::{Secrets, visible};
use interlock_store::{ApprovalDecision, Delivery, DeliveryState, Lease};
use interlock_supervisor::{SupervisorPaths, check_peer};
use serde_json::json;

use super::link::{Link, LinkError, MAX_FROM_COMPANION, MAX_FROM_HOST};
use super::listener::RefusedHost;
use super::token::SocketToken;
use super::wire::{CompanionHello, FromCompanion, FromHost, SealedLink, Side, hello};
use super::{connect, is_socket, socket_path};
use crate::approvals::Approvals;
use crate::clock::now_ms;
use crate::decide::DecisionBy;
use crate::error::ApprovalRefusal;
use crate::origin::OutsideRuns;
use crate::pending::PendingApproval;
use crate::view::MESSAGE_BYTES;

/// The name of this surface in the record of deliveries.
const SURFACE: &str = "companion";

/// A companion that has not received the approval after this time does not get it.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long the last message may take to be sent.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// No companion needs more messages to decide one approval.
const MAX_MESSAGES: usize = 64;

/// The record keeps at most this much of a reason or a name that the companion gave.
const MAX_WORDS: usize = 200;

/// Whether a decision can still lead to a run of the waiting caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CourierWaits {
    ForDecision,
    /// The caller waits only until the approval has arrived.
    ForReceipt,
}

/// An approval on its way to the companion. It never makes a caller wait longer than the caller
/// allows.
#[derive(Debug)]
pub struct Courier<'a> {
    approvals: Approvals<'a>,
    approval: PendingApproval,
    waits: CourierWaits,
    state: CourierState,
    began: Instant,
    is_received: bool,
    messages: usize,
}

#[derive(Debug)]
enum CourierState {
    Greeting { link: Link, token: SocketToken },
    Open { link: Link, sealed: Box<SealedLink> },
    Closed,
}

impl<'a> Approvals<'a> {
    /// Begins to show an approval to the companion of this machine. `None` if no companion listens
    /// or the connection fails. Failures are recorded in the approval's deliveries.
    pub fn courier(self, approval: &PendingApproval, waits: CourierWaits) -> Option<Courier<'a>> {
        let path = socket_path(self.store.state_dir());
        if !is_socket(&path) {
            return None;
        }
        let mut courier = Courier {
            approvals: self,
            approval: approval.clone(),
            waits,
            state: CourierState::Closed,
            began: Instant::now(),
            is_received: false,
            messages: 0,
        };
        match courier.connect(&path) {
            Ok(true) => Some(courier),
            // The companion ended and left its socket behind.
            Ok(false) => None,
            Err(why) => {
                courier.fail(&why);
                None
            }
        }
    }
}

impl Courier<'_> {
    fn connect(&mut self, path: &Path) -> Result<bool, String> {
        let stream = match connect(path) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err("too many wait there already".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        };
        // The peer of a connected socket is the listening process. No run may pose as a companion.
        let place = SupervisorPaths::new(self.approvals.store.state_dir());
        check_peer(&stream, &place).map_err(|refusal| refusal.message)?;
        let token = self
            .approvals
            .socket_token()
            .map_err(|error| error.to_string())?;
        let token = token.ok_or("the document has no socket token")?;
        let link = Link::new(stream, MAX_FROM_COMPANION).map_err(|error| error.to_string())?;
        self.state = CourierState::Greeting { link, token };
        Ok(true)
    }

    /// Whether the companion can still receive or decide the approval.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, CourierState::Closed)
    }

    /// Reads and handles the companion's messages for at most `patience`. Without `outside`, the
    /// proof that this process is outside of runs, no decision is accepted.
    pub fn look(&mut self, patience: Duration, outside: Option<OutsideRuns>) {
        if let Err(why) = self.hear(patience, outside) {
            self.fail(&why);
        }
    }

    /// For callers that do not wait for a decision: returns when the approval has arrived, or after
    /// `within`.
    pub fn deliver(&mut self, within: Duration) {
        let until = self.began + within;
        while self.is_open() && !self.is_received {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.fail("it did not take the question in time");
            }
            self.look(left, None);
        }
    }

    /// Notifies the companion that the approval has ended.
    pub fn end(mut self, how: &str) {
        let how = how.to_owned();
        if self.say(&FromHost::Ended { how }).is_ok()
            && let CourierState::Open { link, .. } = &mut self.state
            && !link.is_sent()
        {
            let _ = link.lines(LAST_WORDS);
        }
    }

    fn hear(&mut self, patience: Duration, outside: Option<OutsideRuns>) -> Result<(), String> {
        let (CourierState::Greeting { link, .. } | CourierState::Open { link, .. }) =
            &mut self.state
        else {
            return Ok(());
        };
        let lines = match link.lines(patience) {
            Ok(lines) => lines,
            // A companion that has received the approval may leave.
            Err(LinkError::Closed | LinkError::Io(_)) if self.is_received => {
                self.state = CourierState::Closed;
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        for line in lines {
            self.messages += 1;
            if self.messages > MAX_MESSAGES {
                return Err("it says too much".to_owned());
            }
            match self.state {
                CourierState::Greeting { .. } => self.greet(&line)?,
                CourierState::Open { .. } => self.take(&line, outside)?,
                CourierState::Closed => return Ok(()),
            }
        }
        if !self.is_received && self.began.elapsed() > HANDSHAKE {
            return Err("it does not answer".to_owned());
        }
        Ok(())
    }

    /// Answers the companion's nonce with the host's own, and sends the request.
    fn greet(&mut self, line: &str) -> Result<(), String> {
        let state = std::mem::replace(&mut self.state, CourierState::Closed);
        let CourierState::Greeting { mut link, token } = state else {
            return Ok(());
        };
        if let Ok(refused) = serde_json::from_str::<RefusedHost>(line) {
            return Err(format!("it refused: {}", words(&refused.refused)));
        }
        let other: CompanionHello =
            serde_json::from_str(line).map_err(|error| error.to_string())?;
        let own = hello().map_err(|error| error.to_string())?;
        let sealed = SealedLink::new(token, Side::Host, &own, &other);
        let sealed = Box::new(sealed.map_err(|error| error.to_string())?);
        let greeting = serde_json::to_string(&own).map_err(|error| error.to_string())?;
        link.say(&greeting).map_err(|error| error.to_string())?;
        self.state = CourierState::Open { link, sealed };
        let mut printed = self.approval.printed();
        let mut approval = json!(printed);
        // Only the difference can become long through other people's input. Without it the message
        // fits.
        if approval.to_string().len() > MAX_FROM_HOST / 4 {
            printed.diff = None;
            approval = json!(printed);
        }
        self.say(&FromHost::Request {
            approval,
            waits: self.waits == CourierWaits::ForDecision,
        })
    }

    fn take(&mut self, line: &str, outside: Option<OutsideRuns>) -> Result<(), String> {
        let CourierState::Open { sealed, .. } = &mut self.state else {
            return Ok(());
        };
        let message = sealed.open::<FromCompanion>(line, now_ms());
        match message.map_err(|error| error.to_string())? {
            FromCompanion::Received {} => {
                self.received();
                Ok(())
            }
            FromCompanion::Shown {} => {
                self.received();
                self.record(DeliveryState::Seen, None);
                Ok(())
            }
            FromCompanion::Reveal {} => {
                let revealed = self
                    .approvals
                    .approval(&self.approval.id, Secrets::Revealed);
                let revealed = revealed.map_err(|error| error.to_string())?;
                let view = serde_json::to_value(revealed.view.bounded(MESSAGE_BYTES));
                self.say(&FromHost::Revealed {
                    command: revealed.command.text,
                    view: view.map_err(|error| error.to_string())?,
                })
            }
            answer @ FromCompanion::Answer { .. } => {
                self.received();
                let (code, message) = match self.answer(answer, outside) {
                    Ok(()) => (None, None),
                    Err((code, message)) => (Some(code), Some(message)),
                };
                self.say(&FromHost::Result {
                    ok: code.is_none(),
                    code,
                    message,
                })
            }
        }
    }

    /// Decides like every other surface: for the plan that was shown, and only if it is the first
    /// decision.
    fn answer(
        &self,
        answer: FromCompanion,
        outside: Option<OutsideRuns>,
    ) -> Result<(), (String, String)> {
        let FromCompanion::Answer {
            id,
            plan_digest,
            decision,
            expires_in_ms,
            max_uses,
            decider,
            reason,
        } = answer
        else {
            return Ok(());
        };
        let refuse = |code: &str, message: &str| Err((code.to_owned(), message.to_owned()));
        let lease = expires_in_ms.map(|time| Lease {
            expires_in: Duration::from_millis(time),
            max_uses,
        });
        let Some(decision) = ApprovalDecision::from_word(&decision, lease) else {
            return refuse("ANSWER_INVALID", "there is no such decision");
        };
        if id != self.approval.id {
            let message = "this connection is about another approval";
            return refuse("APPROVAL_REQUEST_MISMATCH", message);
        }
        let Some(outside) = outside.filter(|_| self.waits == CourierWaits::ForDecision) else {
            let message = "no answer is taken here: use `interlock approvals`";
            return refuse("APPROVAL_NOT_HERE", message);
        };
        let user = rustix::process::getuid().as_raw();
        let decider = match decider {
            Some(name) => format!("{} (companion of uid {user})", words(&name)),
            None => format!("companion of uid {user}"),
        };
        let by = DecisionBy {
            decider: &decider,
            surface: SURFACE,
            reason: reason.as_deref(),
            has_shown: false,
            outside,
        };
        let outcome = self.approvals.decide(&id, &plan_digest, decision, by);
        let refused = |error: ApprovalRefusal| (error.code().to_owned(), error.to_string());
        outcome.map(|_| ()).map_err(refused)
    }

    fn say(&mut self, message: &FromHost) -> Result<(), String> {
        let CourierState::Open { link, sealed } = &mut self.state else {
            return Ok(());
        };
        let line = sealed.seal(message, now_ms());
        let line = line.map_err(|error| error.to_string())?;
        link.say(&line).map_err(|error| error.to_string())
    }

    fn received(&mut self) {
        if !self.is_received {
            self.is_received = true;
            self.record(DeliveryState::Sent, None);
        }
    }

    fn fail(&mut self, why: &str) {
        self.state = CourierState::Closed;
        self.record(DeliveryState::Failed, Some(words(why)));
    }

    /// A failed write of a receipt shows later: without a receipt, nothing is decided.
    fn record(&self, state: DeliveryState, detail: Option<String>) {
        let delivery = Delivery {
            surface: SURFACE.to_owned(),
            state,
            at_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
            detail,
        };
        let _ = self
            .approvals
            .store
            .record_delivery(&self.approval.id, &delivery);
    }
}

/// The companion's text, made safe for a record.
fn words(text: &str) -> String {
    let short: String = text.chars().take(MAX_WORDS).collect();
    visible(&short).replace('\n', " ")
}
