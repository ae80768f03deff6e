//! Announces an approved run that takes long, while this process waits for it.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use interlock_host::{LocalHost, RunTicket};

/// Ends the watch when dropped.
pub struct NoticeWatch {
    _end: Sender<()>,
}

pub fn begin(host: &LocalHost, ticket: &RunTicket) -> Option<NoticeWatch> {
    let notice = host.running_event(ticket)?;
    let (end, ended) = channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(notice.after()) == Err(RecvTimeoutError::Timeout) {
            // A notice that cannot be published changes nothing for the run.
            let _ = notice.publish();
        }
    });
    Some(NoticeWatch { _end: end })
}
