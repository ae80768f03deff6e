//! `interlock approvals watch`: shows pending approvals as they arrive, and decides them.
//!
//! Read `inbox` first (what is selected, and when a key decides it) and `filter` (what is shown).
//! Then read `keys`, `screen` (what each key does) and `draw` (what the inbox looks like). `plain`
//! works without a terminal, and `notify` notifies the owner.

mod draw;
mod filter;
mod inbox;
mod keys;
mod notify;
mod plain;
mod screen;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use interlock_approvals::companion::{CompanionListener, ListenerError, desktop_companion};
use interlock_approvals::{ApprovalSummary, OutsideRuns, PendingApproval};
use interlock_arguments::{ApprovalsWatchArguments, StateArguments};
use interlock_console::output::line;
use interlock_console::{CommandOutcome, Failure};
use interlock_host::LocalHost;
use interlock_store::StoreWatch;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::decide;
use super::source::{ApprovalSource, is_outage};
use filter::Filter;
use inbox::Wish;
use notify::Notifier;

/// How often the command checks for keys, signals and new approvals.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often the store of this machine is read even if nothing has changed: an approval may have
/// expired.
const STORE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often a remote gateway is asked for pending approvals.
const REMOTE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The name of this surface in the delivery records.
const SURFACE: &str = "watch";

pub fn run(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &ApprovalsWatchArguments,
    outside: OutsideRuns,
) -> CommandOutcome {
    // Check for a terminal first: if it is closed later, the command must end instead of printing
    // lines for no reader.
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let source = ApprovalSource::open(state, host)?;
    // The socket brings approvals of this machine only, so it does not fit a remote inbox.
    let listener = match (&source, arguments.no_listen) {
        (ApprovalSource::Here(host), false) => listener(host, outside)?,
        _ => None,
    };
    let mut window = Window {
        changes: host.store().watch(),
        source,
        outside,
        listener,
        last: RefCell::default(),
        is_out: false,
        signal: ending_signal()?,
        notifier: arguments.notify_command.clone().map(Notifier::new),
        known: None,
    };
    let filter = Filter::parse(&arguments.filter.join(" "));
    if arguments.json || arguments.plain || !is_terminal {
        plain::run(&mut window, arguments.json, &filter)?;
    } else {
        screen::run(&mut window, filter, !arguments.no_bell)?;
    }
    Ok(match window.signal.load(Ordering::Relaxed) {
        0 => ExitCode::SUCCESS,
        signal => ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    })
}

/// Listens on the approval socket. If the desktop companion listens already, approvals are read
/// from the store alone.
fn listener(
    host: &LocalHost,
    outside: OutsideRuns,
) -> Result<Option<(CompanionListener, &LocalHost)>, Failure> {
    match CompanionListener::bind(host.approvals(), outside) {
        Ok(listener) => Ok(Some((listener, host))),
        Err(ListenerError::Busy { .. }) if desktop_companion(host.state_dir()).is_some() => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The pending approvals as this command sees them.
struct Window<'a> {
    source: ApprovalSource<'a>,
    /// Changes of the store by other processes. `None` if the kernel has no watch left for this
    /// user.
    changes: Option<StoreWatch>,
    outside: OutsideRuns,
    /// The approval socket, over which programs of this machine deliver approvals.
    listener: Option<(CompanionListener, &'a LocalHost)>,
    /// The result of the last poll, and its time.
    last: RefCell<Option<(Instant, Vec<ApprovalSummary>)>>,
    /// Whether the last poll failed to reach the remote gateway.
    is_out: bool,
    /// The signal that ends this command, or 0.
    signal: Arc<AtomicUsize>,
    notifier: Option<Notifier>,
    /// The ids of the approvals that were pending at the last poll; `None` before the first poll.
    known: Option<BTreeSet<String>>,
}

/// The result of a poll.
struct WatchLook {
    /// The pending approvals. The one that expires first comes first.
    waiting: Vec<ApprovalSummary>,
    /// Whether the filter shows an approval that has arrived since the last poll.
    has_new: bool,
    /// The error, if the owner could not be notified of the new approvals.
    not_notified: Option<String>,
    /// Set if the remote gateway became unreachable with this poll, or reachable again.
    outage: Option<Outage>,
}

/// A change in the connection to a remote gateway.
enum Outage {
    /// The gateway is unreachable. The inbox shows the last known approvals.
    Begun(Failure),
    Over,
}

impl Window<'_> {
    /// Reads the pending approvals, and notifies the owner of new ones that the filter shows.
    /// Approvals that were pending before the first poll are not new.
    fn look(&mut self, filter: &Filter) -> Result<WatchLook, Failure> {
        // A host that delivers an approval gets a receipt. The content of the approval is read from
        // the store, never from the socket.
        if let Some((listener, host)) = &mut self.listener {
            listener.look(host.approvals())?;
        }
        let (waiting, outage) = self.waiting()?;
        let ids: BTreeSet<String> = waiting.iter().map(|one| one.id.clone()).collect();
        let known = self.known.replace(ids);
        let is_new = |one: &&ApprovalSummary| {
            let is_known = known.as_ref().is_none_or(|known| known.contains(&one.id));
            !is_known && filter.lets_through(one)
        };
        let new: Vec<&ApprovalSummary> = waiting.iter().filter(is_new).collect();
        let has_new = !new.is_empty();
        let not_notified = self.notifier.as_mut().and_then(|notifier| {
            let notified = notifier.notify(&new, waiting.len());
            notified
                .err()
                .map(|error| format!("--notify-command: {error}"))
        });
        Ok(WatchLook {
            waiting,
            has_new,
            not_notified,
            outage,
        })
    }

    /// The pending approvals. A remote gateway is asked less often than keys are polled; the store
    /// of this machine is read when it has changed. While a gateway is unreachable, its last answer
    /// stays on the screen.
    fn waiting(&mut self) -> Result<(Vec<ApprovalSummary>, Option<Outage>), Failure> {
        let is_changed = || {
            let changes = self.changes.as_ref();
            changes.is_none_or(|changes| changes.wait(Duration::ZERO))
        };
        let is_fresh_for = match self.source.gateway() {
            Some(_) => REMOTE_POLL_INTERVAL,
            None if is_changed() => Duration::ZERO,
            None => STORE_POLL_INTERVAL,
        };
        if let Some((at, waiting)) = &*self.last.borrow()
            && at.elapsed() < is_fresh_for
        {
            return Ok((waiting.clone(), None));
        }
        let was_out = self.is_out;
        let (waiting, outage) = match self.source.waiting() {
            Ok(waiting) => {
                self.is_out = false;
                (waiting, was_out.then_some(Outage::Over))
            }
            Err(failure) if is_outage(&failure) => {
                self.is_out = true;
                let last = self.last.take().map(|(_, waiting)| waiting);
                let begun = (!was_out).then_some(Outage::Begun(failure));
                (last.unwrap_or_default(), begun)
            }
            Err(failure) => return Err(failure),
        };
        self.last.replace(Some((Instant::now(), waiting.clone())));
        Ok((waiting, outage))
    }

    /// The text beside the number of pending approvals.
    fn about(&self) -> String {
        match (self.source.gateway(), &self.listener) {
            (Some(url), _) => format!(" at {url}"),
            (None, Some(_)) => ", listening".to_owned(),
            (None, None) => String::new(),
        }
    }

    /// Records that the approver can see this approval now.
    fn shown(&mut self, id: &str) {
        if let Some((listener, _)) = &mut self.listener {
            listener.shown(id);
        }
    }

    /// Decides an approval that was shown, and describes what the decision did.
    fn decide(&self, approval: &PendingApproval, wish: &Wish) -> Result<String, Failure> {
        let words = decide::DecisionWords {
            decision: wish.decision,
            form: wish.form,
            reason: wish.reason.as_deref(),
        };
        let answered = self.source.answer(approval, words, SURFACE, self.outside)?;
        // Remove the decided approval now, so that it is not shown as pending until the next poll.
        if let Some((_, waiting)) = &mut *self.last.borrow_mut() {
            waiting.retain(|one| one.id != approval.id);
        }
        let mut text = decide::told(approval, wish.decision, &answered.stored);
        if let Some(unawaited) = answered.unawaited {
            text += &format!("{}\n", line(&unawaited));
        }
        Ok(text)
    }

    /// Describes how an approval ended that is no longer pending.
    fn ended(&self, id: &str) -> String {
        self.source.ended(id)
    }

    fn is_over(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }
}

fn ending_signal() -> Result<Arc<AtomicUsize>, Failure> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        let value = usize::try_from(number).unwrap_or_default();
        signal_hook::flag::register_usize(number, Arc::clone(&signal), value)
            .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
    }
    Ok(signal)
}
