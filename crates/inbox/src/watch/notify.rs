//! Notifies an owner who does not look at the screen that an approval has arrived, with a program
//! of the owner's choice.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interlock_approvals::ApprovalSummary;

/// How long the program may run. It is then killed, so that it does not delay the next
/// notification.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Starts the owner's program when approvals arrive. Only the command line of `watch` can name the
/// program: another process must not be able to change it in a config file. It runs without a shell
/// and without arguments, so no text of an agent reaches a command line. Its environment carries
/// only the short id and agent of the approval, and the number of pending approvals.
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

    /// Starts the program for the newest approval. Only one program runs at a time, even if several
    /// approvals arrive at once.
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

    /// Reaps the program if it has ended, and kills it if it takes too long. Returns whether it
    /// still runs.
    fn is_busy(&mut self) -> bool {
        let Some((child, began)) = &mut self.running else {
            return false;
        };
        if began.elapsed() > TIME_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
        } else if matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        self.running = None;
        false
    }
}
