//! A thread that is started ahead of time, for a process that waits for its one run: the run then
//! does not wait for the thread.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

type Work = Box<dyn FnOnce() + Send>;

static WAITING: Mutex<Option<SyncSender<Work>>> = Mutex::new(None);

/// Starts the thread. Without one, it is started when it is needed.
pub(crate) fn warm_up() {
    let (sender, receiver) = sync_channel::<Work>(1);
    let started = std::thread::Builder::new().spawn(move || {
        if let Ok(work) = receiver.recv() {
            work();
        }
    });
    if started.is_ok() {
        *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    }
}

pub(super) fn run_in_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let waiting = WAITING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(waiting) = waiting else {
        let thread = std::thread::Builder::new().name(name.to_owned());
        return thread.spawn(work).map(drop);
    };
    // The thread waits for exactly this, and cannot have ended.
    let _ = waiting.send(Box::new(work));
    Ok(())
}
