//! The person's terminal in raw mode, and back.

use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// How the terminal was. Not in the value below: a signal handler that ends this process has to
/// find it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal hands over every key as it is, as long as this lives.
#[derive(Debug)]
pub(super) struct Raw(());

impl Raw {
    /// A terminal that does not let itself be changed stays as it is.
    pub fn enter() -> Self {
        let terminal = rustix::stdio::stdin();
        if let Ok(before) = tcgetattr(terminal) {
            let mut raw = before.clone();
            raw.make_raw();
            let mut kept = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get_or_insert(before);
            let _ = tcsetattr(terminal, OptionalActions::Now, &raw);
        }
        Self(())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

pub(super) fn is_raw() -> bool {
    let kept = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    kept.is_some()
}

/// Puts the terminal back as it was, if that is not so. Before every way out of this process.
pub fn restore() {
    let mut kept = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = kept.take() {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &before);
    }
}
