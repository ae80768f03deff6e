//! Watches the file systems that a sandboxed run writes to. A run that is about to fill a file
//! system of the host is ended, and its use of the in-memory ones is recorded.

use std::sync::Arc;
use std::time::Duration;

use interlock_engine::Signal;
use rustix::event::{PollFd, PollFlags};

use super::live::Live;
use super::timespec;

/// Assumed speed at which a file system fills up: the nearer it is to its bound, the more often it
/// is checked.
const BYTES_PER_SECOND: u64 = 4 << 30;
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

/// Starts to watch, for a run that is not very short. The thread ends with the run.
pub(super) fn begin(live: &Arc<Live>) {
    let Some(space) = live.run().space() else {
        return;
    };
    let live = Arc::clone(live);
    let watch = move || {
        let mut pause = SHORTEST;
        while !has_ended(&live, pause) {
            let look = space.look();
            if live.note_space(&look) {
                live.run().request_end(Signal::KILL);
                return;
            }
            let margin = look
                .disk
                .map_or(u64::MAX, |(keep, free)| free - keep.min(free));
            let until_full = Duration::from_millis(margin / (BYTES_PER_SECOND / 1000));
            pause = until_full.clamp(SHORTEST, LONGEST);
        }
    };
    // If no thread can be started, there is no watch, but the end of the run is still checked.
    let _ = std::thread::Builder::new()
        .name("space".to_owned())
        .spawn(watch);
}

fn has_ended(live: &Live, pause: Duration) -> bool {
    let mut ended = [PollFd::new(live.ended_event(), PollFlags::IN)];
    match rustix::event::poll(&mut ended, Some(&timespec(pause))) {
        Ok(count) => count > 0,
        Err(_) => false,
    }
}
