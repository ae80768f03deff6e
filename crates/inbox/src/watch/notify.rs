//! Tells the owner that an approval has come, where the owner does not look at the screen: a bell, and a program of
//! the owner's choice.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interlock_approvals::ApprovalSummary;

/// A program that takes longer is ended, so that it does not delay the notice of the next approval.
const MOST_TIME: Duration = Duration::from_secs(10);

/// Starts the owner's program for approvals that have come. It is named on the command line of `watch`
/// and nowhere else: no config that something else could change, no shell, no text of an agent in its
/// arguments. It learns which approval it is from its environment, and only the ids.
#[derive(Debug)]
pub(super) struct Notifier {
    program: PathBuf,
    running: Option<(Child, Instant)>,
}

impl Notifier {
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            running: None,
        }
    }

    /// Starts the program for the newest of these. One runs at a time, however many come at once.
    pub fn notify(
        &mut self,
        new: &[&ApprovalSummary],
        waiting: usize,
    ) -> Result<(), std::io::Error> {
        let (Some(newest), false) = (new.last(), self.is_busy()) else {
            return Ok(());
        };
        let child = Command::new(&self.program)
            .env("INTERLOCK_APPROVAL", &newest.short_id)
            .env("INTERLOCK_APPROVAL_AGENT", &newest.agent)
            .env("INTERLOCK_APPROVALS_WAITING", waiting.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.running = Some((child, Instant::now()));
        Ok(())
    }

    /// Collects the program that ran last, and ends it if it takes too long.
    fn is_busy(&mut self) -> bool {
        let Some((child, began)) = &mut self.running else {
            return false;
        };
        if began.elapsed() > MOST_TIME {
            let _ = child.kill();
            let _ = child.wait();
        } else if matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        self.running = None;
        false
    }
}
