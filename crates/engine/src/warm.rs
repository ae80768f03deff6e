//! A thread that is started ahead of time, for a process that has one run after the other, so that
//! no run waits for a thread to start.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use rustix::process::Pid;

type WarmWork = Box<dyn FnOnce() + Send>;

static WAITING: Mutex<Option<SyncSender<WarmWork>>> = Mutex::new(None);

/// The ID of the thread, once it runs.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// Starts the thread ahead of time. Otherwise it starts when it is needed.
pub fn warm_up() {
    let (sender, receiver) = sync_channel::<WarmWork>(1);
    let started = std::thread::Builder::new().spawn(move || {
        THREAD.store(rustix::thread::gettid().as_raw_pid(), Ordering::Relaxed);
        while let Ok(work) = receiver.recv() {
            work();
        }
    });
    if started.is_ok() {
        *waiting() = Some(sender);
    }
}

/// Returns the ID of the thread, if it runs.
pub fn warm_thread() -> Option<Pid> {
    Pid::from_raw(THREAD.load(Ordering::Relaxed))
}

pub(super) fn run_in_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    if let Some(thread) = &*waiting() {
        // The thread has at most the last steps of the last run to do, and cannot have ended.
        let _ = thread.send(Box::new(work));
        return Ok(());
    }
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(drop)
}

fn waiting() -> std::sync::MutexGuard<'static, Option<SyncSender<WarmWork>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}
