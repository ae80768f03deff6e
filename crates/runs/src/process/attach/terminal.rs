//! Switches the caller's terminal to raw mode and back.

use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The settings of the terminal before raw mode. They are not kept in [`Raw`], because a thread
/// that ends this process has to find them.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keeps the terminal in raw mode, in which it passes on every key unchanged, until dropped.
#[derive(Debug)]
pub(super) struct Raw(());

impl Raw {
    /// Switches to raw mode. A terminal that cannot be changed stays as it is.
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

/// Restores the terminal if it is in raw mode. Must be called before every exit of this process.
pub fn restore() {
    let mut kept = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = kept.take() {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &before);
    }
}
