//! `interlock approvals watch`: what waits, as it comes, and the decision.
//!
//! Read `inbox` (what is selected, and when a key decides it), `filter` (what is shown), then `keys`, `screen` (what
//! they do), `draw` (what it looks like), `plain` for those without a terminal, and `notify`.

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

/// So often it is looked for keys, signals, and whether something is new.
const LOOK: Duration = Duration::from_millis(100);

/// So often the store of this machine is read where nothing is new: the time of an approval may be up.
const STORE_LOOK: Duration = Duration::from_secs(1);

/// So often a gateway elsewhere is asked for what is new.
const REMOTE_LOOK: Duration = Duration::from_millis(500);

/// As it stands in the record of deliveries.
const SURFACE: &str = "watch";

pub fn run(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &ApprovalsWatchArguments,
    outside: OutsideRuns,
) -> CommandOutcome {
    // Looked at first: a terminal that is closed later ends the command. It is no reason to print
    // lines for no reader.
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let source = ApprovalSource::open(state, host)?;
    // The socket is for programs of this machine, and brings what waits on this machine.
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

/// Listens, unless the companion of the desktop does: then what waits is read from the store alone.
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

/// The pending approvals as they are seen from here.
struct Window<'a> {
    source: ApprovalSource<'a>,
    /// What processes of this machine store. None where the kernel has no watch left for this user.
    changes: Option<StoreWatch>,
    outside: OutsideRuns,
    /// Where programs of this machine bring approvals.
    listener: Option<(CompanionListener, &'a LocalHost)>,
    /// What the last look found, and when that was.
    last: RefCell<Option<(Instant, Vec<ApprovalSummary>)>>,
    /// That look did not reach it.
    is_out: bool,
    /// 0, or the signal that ends this.
    signal: Arc<AtomicUsize>,
    notifier: Option<Notifier>,
    /// Everything that was there at the last look; none before the first.
    known: Option<BTreeSet<String>>,
}

/// What a look found.
struct WatchLook {
    /// What waits now, the one that expires first in front.
    waiting: Vec<ApprovalSummary>,
    /// Approvals that the filter shows have come since the last look.
    has_new: bool,
    /// The owner could not be notified of them.
    not_notified: Option<String>,
    /// The gateway elsewhere cannot be reached since this look, or can be reached again.
    outage: Option<Outage>,
}

/// What became of the connection with a gateway elsewhere.
enum Outage {
    /// What waits is what the gateway said last.
    Begun(Failure),
    Over,
}

impl Window<'_> {
    /// Looks for what waits, and notifies the owner of what is new and not hidden by the filter. What
    /// waited before the first look is not new.
    fn look(&mut self, filter: &Filter) -> Result<WatchLook, Failure> {
        // Hosts that bring an approval learn that it came; its content is read from the store.
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

    /// What waits. A gateway elsewhere is asked less often than the keys are looked at, and the store of
    /// this machine when something is new. While a gateway cannot be reached, what it said last still
    /// stands on the screen.
    fn waiting(&mut self) -> Result<(Vec<ApprovalSummary>, Option<Outage>), Failure> {
        let is_changed = || {
            let changes = self.changes.as_ref();
            changes.is_none_or(|changes| changes.wait(Duration::ZERO))
        };
        let stands_for = match self.source.gateway() {
            Some(_) => REMOTE_LOOK,
            None if is_changed() => Duration::ZERO,
            None => STORE_LOOK,
        };
        if let Some((at, waiting)) = &*self.last.borrow()
            && at.elapsed() < stands_for
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

    /// What stands beside the number of those that wait.
    fn about(&self) -> String {
        match (self.source.gateway(), &self.listener) {
            (Some(url), _) => format!(" at {url}"),
            (None, Some(_)) => ", listening".to_owned(),
            (None, None) => String::new(),
        }
    }

    /// A person can see it now.
    fn shown(&mut self, id: &str) {
        if let Some((listener, _)) = &mut self.listener {
            listener.shown(id);
        }
    }

    /// Decides what is shown, and says what that did.
    fn decide(&self, approval: &PendingApproval, wish: &Wish) -> Result<String, Failure> {
        let words = decide::DecisionWords {
            decision: wish.decision,
            form: wish.form,
            reason: wish.reason.as_deref(),
        };
        let answered = self.source.answer(approval, words, SURFACE, self.outside)?;
        // What is decided waits no longer, also until the next look.
        if let Some((_, waiting)) = &mut *self.last.borrow_mut() {
            waiting.retain(|one| one.id != approval.id);
        }
        let mut told = decide::told(approval, wish.decision, &answered.stored);
        if let Some(unawaited) = answered.unawaited {
            told += &format!("{}\n", line(&unawaited));
        }
        Ok(told)
    }

    /// How one ended that waits no longer.
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
