//! Only for tests, and in no program that is shipped: stops a start between its checks and the
//! process, so that a test can swap what was checked at the worst moment.

use std::cell::RefCell;

/// Where a start stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// All files and the working directory were opened and compared with the plan.
    FilesAreOpen,
    /// The last check before the process of a command is over.
    LastCheckIsOver,
}

type Hook = Box<dyn FnMut(Moment)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// From now on called by every start in this thread. A line of several commands is started by a
/// thread of its own, which is not stopped.
pub fn set(hook: impl FnMut(Moment) + 'static) {
    HOOK.set(Some(Box::new(hook)));
}

/// Starts in this thread stand still no more.
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
