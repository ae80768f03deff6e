//! Waits for the approval that a command of this process needs. An approver at the terminal decides
//! it here; without a terminal, the command prints where it can be decided. An interrupted command
//! withdraws its approval, so that no inbox lists an approval that no caller waits for.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use interlock_approvals::companion::{Courier, CourierWaits};
use interlock_approvals::{ApprovalDecision, ApprovalEnd, OutsideRuns, PendingApproval};
use interlock_arguments::StateArguments;
use interlock_client::outside_runs;
use interlock_command::display::Secrets;
use interlock_console::output::{self, Paint};
use interlock_console::{CommandOutcome, Failure, NOT_ALLOWED};
use interlock_host::LocalHost;
use interlock_policy::AlwaysForm;
use interlock_store::StoreWatch;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::QueueSelector;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::prompt;
use crate::decide::{DecisionWords, answer, told};

/// How often the wait checks for signals and for the companion. Keys and the decision of another
/// approver wake it at once.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long a companion may take to confirm that it has the approval, when the caller does not wait
/// for a decision.
const RECEIPT: Duration = Duration::from_secs(1);

/// How the wait for a decision ended.
#[derive(Debug)]
pub enum Settled {
    /// An approver allowed or denied it, or it expired.
    Decided,
    /// A signal ended the wait.
    Left {
        code: ExitCode,
        /// The decision that came before the approval could be withdrawn.
        decided: Option<ApprovalEnd>,
    },
}

/// Catches the signals that end a command. From now on they stay pending until the command reads
/// them.
pub fn ending_signals() -> Result<Signals, Failure> {
    Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))
}

/// An approval that this process waits for.
#[derive(Debug)]
pub struct AwaitedApproval<'a> {
    pub approval: &'a PendingApproval,
    pub reason: &'a str,
    /// The result is JSON for a program, so the terminal is not asked.
    pub json: bool,
    /// Shows the approval to a companion as well.
    pub courier: Option<Courier<'a>>,
}

/// Waits for the decision.
pub fn settle(
    host: &LocalHost,
    state: &StateArguments,
    asked: AwaitedApproval<'_>,
    signals: &mut Signals,
) -> Result<Settled, Failure> {
    let AwaitedApproval {
        approval,
        reason,
        json,
        mut courier,
    } = asked;
    let approve = approve_command(state, approval);
    // A command inside a run must not ask at its terminal: the agent types there, not an approver.
    let is_asked_here = !json && is_terminal();
    let outside = (is_asked_here || courier.is_some())
        .then(|| outside_runs(host.state_dir()).ok())
        .flatten();
    let mut approver = outside
        .filter(|_| is_asked_here)
        .map(|outside| TerminalApprover {
            host,
            outside,
            approval: approval.clone(),
            is_opened: false,
            decisions: host.store().watch(),
        });
    match &approver {
        Some(approver) => approver.ask(),
        None => {
            let reason = output::line(reason);
            output::note(&format!("interlock: approval required: {reason}"));
            output::note(&format!(
                "interlock: {} waits for a decision; allow it elsewhere: {approve}",
                approval.short_id
            ));
        }
    }
    loop {
        if let Some(courier) = &mut courier {
            courier.look(Duration::ZERO, outside);
        }
        if let Some(ended) = host
            .approvals()
            .wait(&approval.id, pause(approver.is_some()))?
        {
            if let Some(courier) = courier {
                courier.end(&ended.to_string());
            }
            output::note(&format!("interlock: {}: {ended}", approval.short_id));
            return Ok(Settled::Decided);
        }
        if let Some(signal) = signals.pending().next() {
            if let Some(courier) = courier {
                courier.end("withdrawn by its caller");
            }
            let decided = withdraw(host, approval);
            let code = ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX));
            return Ok(Settled::Left { code, decided });
        }
        if let Some(at_terminal) = &mut approver
            && at_terminal.read_answer()? == TerminalInput::Gone
        {
            output::note(&format!(
                "interlock: waiting; allow it elsewhere: {approve}"
            ));
            approver = None;
        }
    }
}

/// Withdraws the approval. If an approver has just decided it, the decision stays and is returned.
fn withdraw(host: &LocalHost, approval: &PendingApproval) -> Option<ApprovalEnd> {
    let short_id = &approval.short_id;
    let (outcome, decided) = match host.approvals().withdraw_undecided(&approval.id) {
        Ok(None) => ("is withdrawn; nothing was done".to_owned(), None),
        Ok(Some(ended)) => (format!("was decided just before: {ended}"), Some(ended)),
        Err(error) => (format!("could not be withdrawn: {error}"), None),
    };
    output::note(&format!("interlock: {short_id} {outcome}"));
    decided
}

/// How long to wait in the store. It is zero if an approver sits at the terminal, because then the
/// wait happens in [`read_line`].
fn pause(is_person_there: bool) -> Duration {
    if is_person_there {
        Duration::ZERO
    } else {
        POLL_INTERVAL
    }
}

fn is_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn approve_command(state: &StateArguments, approval: &PendingApproval) -> String {
    let command = format!("interlock approvals approve {}", approval.short_id);
    state.in_command(&command)
}

/// An approval that this process does not wait for.
#[derive(Debug)]
pub struct Unawaited<'a> {
    pub approval: &'a PendingApproval,
    pub reason: &'a str,
    /// What the caller can do besides approving it.
    pub hint: String,
}

/// Prints which approval is pending and how to approve it; as JSON if `print` is given.
pub fn leave(
    host: &LocalHost,
    state: &StateArguments,
    left: Unawaited<'_>,
    print: Option<&dyn Fn(Value)>,
) -> CommandOutcome {
    let approval = left.approval;
    if let Some(mut courier) = host.approvals().courier(approval, CourierWaits::ForReceipt) {
        courier.deliver(RECEIPT);
    }
    let approve = approve_command(state, approval);
    if let Some(print) = print {
        print(json!({
            "status": "approval-pending",
            "approvalId": approval.id,
            "shortId": approval.short_id,
            "expiresAtMs": approval.expires_at_ms,
            "reason": left.reason,
            "binding": approval.binding,
            "approve": approve,
        }));
        return Ok(ExitCode::from(NOT_ALLOWED));
    }
    let message = format!(
        "approval required: {}\napproval-pending: {} ({})\napprove it: {approve}",
        output::line(left.reason),
        approval.short_id,
        approval.id
    );
    Err(Failure::pending(message).with_hint(left.hint))
}

/// An approver at the terminal.
struct TerminalApprover<'a> {
    host: &'a LocalHost,
    outside: OutsideRuns,
    approval: PendingApproval,
    /// Whether every text was printed in full.
    is_opened: bool,
    /// Wakes the wait when another approver decides.
    decisions: Option<StoreWatch>,
}

#[derive(PartialEq, Eq)]
enum TerminalInput {
    Nothing,
    /// The terminal has no more input.
    Gone,
}

impl TerminalApprover<'_> {
    fn ask(&self) {
        output::note(prompt::text(&self.approval, Paint::stderr()).trim_end());
        self.print_choices();
    }

    /// Whether the approver was shown everything. Nothing may be allowed before.
    fn is_whole(&self) -> bool {
        self.is_opened || self.approval.view.is_whole_in_prompt()
    }

    fn print_choices(&self) {
        // Keys typed before the prompt appeared must not answer it.
        let _ = rustix::termios::tcflush(rustix::stdio::stdin(), QueueSelector::IFlush);
        let mut words = vec!["[y] allow once", "[n] deny (n REASON says why)"];
        if self.approval.offers(ApprovalDecision::AllowSession) {
            words.push("[s] allow for this session");
        }
        if self.approval.offers(ApprovalDecision::AllowAlways) {
            words.push(match self.approval.always_form {
                AlwaysForm::Project => "[a] always for this project",
                _ => "[a] always",
            });
        }
        let wider: Vec<String> = self
            .approval
            .wider
            .iter()
            .map(|wider| format!("[a {}]", wider.form))
            .collect();
        words.extend(wider.iter().map(String::as_str));
        if !self.is_whole() {
            words.push("[o] open the rest");
        }
        if self.approval.view.masked_secrets > 0 {
            words.push("[r] reveal");
        }
        output::note(&format!("{}, then Enter:", words.join("  ")));
    }

    /// Reads a line if the approver typed one, and acts on it.
    fn read_answer(&mut self) -> Result<TerminalInput, Failure> {
        let Some(line) = read_line(self.decisions.as_ref()) else {
            return Ok(TerminalInput::Nothing);
        };
        let mut form = AlwaysForm::Exact;
        let mut reason = None;
        let decision = match line.trim() {
            "y" | "yes" => ApprovalDecision::AllowOnce,
            "n" | "no" => ApprovalDecision::Deny,
            "s" | "session" => ApprovalDecision::AllowSession,
            "a" | "always" => ApprovalDecision::AllowAlways,
            "o" | "open" => {
                self.is_opened = true;
                let whole = prompt::whole_text(&self.approval, Paint::stderr());
                output::note(whole.trim_end());
                self.print_choices();
                return Ok(TerminalInput::Nothing);
            }
            "r" | "reveal" => {
                let approvals = self.host.approvals();
                self.approval = approvals.approval(&self.approval.id, Secrets::Revealed)?;
                self.ask();
                return Ok(TerminalInput::Nothing);
            }
            _ if line.is_empty() => return Ok(TerminalInput::Gone),
            other => match (always(other), denial(other)) {
                (Some(chosen), _) => {
                    form = chosen;
                    ApprovalDecision::AllowAlways
                }
                (None, Some(words)) => {
                    reason = Some(words);
                    ApprovalDecision::Deny
                }
                (None, None) => {
                    self.print_choices();
                    return Ok(TerminalInput::Nothing);
                }
            },
        };
        if decision != ApprovalDecision::Deny && !self.is_whole() {
            output::note("interlock: not all of it was shown: o opens the rest");
            self.print_choices();
            return Ok(TerminalInput::Nothing);
        }
        match answer(
            self.host,
            &self.approval,
            DecisionWords {
                decision,
                form,
                reason,
            },
            "terminal",
            self.outside,
        ) {
            Ok(stored) => {
                for line in told(&self.approval, decision, &stored).lines().skip(1) {
                    output::note(line);
                }
            }
            // The decision is not offered, or another approver was first. The next poll shows the
            // state of the approval.
            Err(failure) => {
                output::note(&format!("interlock: {failure}"));
                self.print_choices();
            }
        }
        Ok(TerminalInput::Nothing)
    }
}

/// Parses `a leading:2` or `always program`.
fn always(line: &str) -> Option<AlwaysForm> {
    let (word, form) = line.split_once(' ')?;
    let is_always = matches!(word, "a" | "always");
    form.trim().parse().ok().filter(|_| is_always)
}

/// Parses `n REASON` or `no REASON`. The caller reads the reason.
fn denial(line: &str) -> Option<&str> {
    let (word, reason) = line.split_once(' ')?;
    matches!(word, "n" | "no").then(|| reason.trim())
}

/// Reads a line from the terminal if one is typed within [`POLL_INTERVAL`]. The line is empty at
/// the end of input.
fn read_line(decisions: Option<&StoreWatch>) -> Option<String> {
    let stdin = rustix::stdio::stdin();
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()),
    };
    let mut polled = vec![PollFd::new(&stdin, PollFlags::IN)];
    polled.extend(decisions.map(|decisions| PollFd::new(decisions, PollFlags::IN)));
    let is_polled = rustix::event::poll(&mut polled, Some(&time)).is_ok();
    let has_keys = is_polled && !polled[0].revents().is_empty();
    if let Some(decisions) = decisions {
        decisions.clear();
    }
    if !has_keys {
        return None;
    }
    let mut line = [0; 1024];
    // The buffer of the standard library must not be used: `poll` does not see what it holds.
    match rustix::io::read(stdin, &mut line) {
        Ok(length) => Some(String::from_utf8_lossy(&line[..length]).into_owned()),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => None,
        Err(_) => Some(String::new()),
    }
}
