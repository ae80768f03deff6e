//! `interlock approvals watch`: what waits, as it comes, and the decision.
//!
//! Read `inbox` (what is selected, and when a key decides it), then `keys`, `screen` (what they do), `draw` (what it
//! looks like), and `plain` for those without a terminal.

mod draw;
mod inbox;
mod keys;
mod plain;
mod screen;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use interlock_host::companion::Listener;
use interlock_host::{ApprovalSummary, Decision, LocalHost, OutsideRuns, PendingApproval};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::super::Outcome;
use super::decide;
use crate::args::ApprovalsWatchArguments;
use crate::failure::Failure;

/// So often it is looked for what is new.
const LOOK: Duration = Duration::from_millis(100);

/// As many as a person reads.
const PAGE: usize = 200;

/// As it stands in the record of deliveries.
const SURFACE: &str = "watch";

pub(super) fn run(
    host: &LocalHost,
    arguments: &ApprovalsWatchArguments,
    outside: OutsideRuns,
) -> Outcome {
    let listener = if arguments.no_listen {
        None
    } else {
        Some(Listener::bind(host, outside)?)
    };
    let mut desk = Window {
        host,
        outside,
        listener,
        signal: ending_signal()?,
    };
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if arguments.json || arguments.plain || !is_terminal {
        plain::run(&mut desk, arguments.json)?;
    } else {
        screen::run(&mut desk)?;
    }
    Ok(match desk.signal.load(Ordering::Relaxed) {
        0 => ExitCode::SUCCESS,
        signal => ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    })
}

/// The desk as it is seen from here.
struct Window<'a> {
    host: &'a LocalHost,
    outside: OutsideRuns,
    listener: Option<Listener>,
    /// 0, or the signal that ends this.
    signal: Arc<AtomicUsize>,
}

impl Window<'_> {
    /// What waits now, the one that expires first in front.
    fn waiting(&mut self) -> Result<Vec<ApprovalSummary>, Failure> {
        // Those who bring something are told that it came; what it says is read from the store.
        if let Some(listener) = &mut self.listener {
            listener.look(self.host)?;
        }
        Ok(self.host.desk().pending(0, PAGE)?.approvals)
    }

    /// A person can see it now.
    fn shown(&mut self, id: &str) {
        if let Some(listener) = &mut self.listener {
            listener.shown(id);
        }
    }

    /// Decides what is shown, and says what that did.
    fn decide(&self, approval: &PendingApproval, decision: Decision) -> Result<String, Failure> {
        let stored = decide::answer(
            self.host,
            approval,
            decide::DecisionWords::plain(decision),
            SURFACE,
            self.outside,
        )?;
        Ok(decide::told(approval, decision, &stored))
    }

    /// How one ended that waits no longer.
    fn ended(&self, id: &str) -> String {
        match self.host.desk().ended(id) {
            Ok(Some(ended)) => ended.to_string(),
            Ok(None) => "no longer listed".to_owned(),
            Err(error) => error.to_string(),
        }
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
