//! For tests only, and in no shipped program: pauses a start between its checks and the process, so
//! that a test can swap a checked file at the worst moment.

use std::cell::RefCell;

/// The points at which a start pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// All files and the working directory have been opened and compared with the plan.
    FilesAreOpen,
    /// The last check before the process of a command has passed.
    LastCheckIsOver,
}

type Hook = Box<dyn FnMut(Moment)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Sets a hook that every start in this thread calls from now on. A line of several commands is
/// started by a thread of its own, which does not call the hook.
pub fn set(hook: impl FnMut(Moment) + 'static) {
    HOOK.set(Some(Box::new(hook)));
}

/// Removes the hook from this thread.
pub fn clear() {
    HOOK.set(None);
}

pub(super) fn reached(moment: Moment) {
    let hook = HOOK.take();
    if let Some(mut hook) = hook {
        hook(moment);
        HOOK.set(Some(hook));
    }
}
