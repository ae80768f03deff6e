//! The name of this process, by which another process can later check whether it is still alive.

use std::fs;
use std::sync::OnceLock;

use interlock_store::OpenRun;

/// The kernel's id of this boot of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The boot of the machine, the process id, and the start time of the process. A process id alone
/// would be reused.
pub fn process_name() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let pid = std::process::id();
        let began = began(pid).unwrap_or_default();
        format!("process:{}:{pid}:{began}", boot())
    })
}

/// Whether a requester is a process of this machine that has ended, so that nothing waits for its
/// approval. For requesters of other kinds, this host cannot tell.
pub fn requester_has_ended(requester: &str) -> bool {
    match requester.strip_prefix(ELSEWHERE) {
        Some(state) => state.starts_with(HAS_ENDED),
        None => !process_lives(requester),
    }
}

/// The prefix of a requester's name that another machine reported.
const ELSEWHERE: &str = "elsewhere:";
const HAS_ENDED: &str = "ended:";
const WAITS: &str = "waits:";

/// The name of a requester that another machine reported. Whether it has ended is that machine's
/// statement: its process id means nothing here.
pub(crate) fn requester_elsewhere(requester: &str, has_ended: bool) -> String {
    let state = if has_ended { HAS_ENDED } else { WAITS };
    format!("{ELSEWHERE}{state}{requester}")
}

/// The requester's name on its own machine, and whether that is another machine.
pub fn requester_at_home(requester: &str) -> (&str, bool) {
    let elsewhere = requester.strip_prefix(ELSEWHERE);
    let name = elsewhere.and_then(|state| {
        let ended = state.strip_prefix(HAS_ENDED);
        ended.or_else(|| state.strip_prefix(WAITS))
    });
    match name {
        Some(name) => (name, true),
        None => (requester, false),
    }
}

/// Whether the process with this name is alive. A name of an unknown kind counts as alive.
pub fn process_lives(name: &str) -> bool {
    if name == process_name() {
        return true;
    }
    let mut parts = name.split(':');
    let (Some("process"), Some(boot_of), Some(pid), Some(began_at), None) = (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) else {
        return true;
    };
    let Ok(pid) = pid.parse() else {
        return true;
    };
    boot_of == boot() && began(pid).is_some_and(|began| began == began_at)
}

/// Whether no process waits for a run: the run is in the background, or its waiting process has
/// ended.
pub fn is_unattended(run: &OpenRun) -> bool {
    run.session.is_some() || !process_lives(&run.waiter)
}

fn boot() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    let id = ID.get_or_init(|| fs::read_to_string(BOOT).unwrap_or_default());
    id.trim()
}

/// The start time in clock ticks since boot. `None` if the process does not exist, or has ended and
/// waits to be collected.
fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in the second field may contain anything, including brackets and blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let began = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| began.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_distinguished_from_a_later_one_with_its_number() {
        let own = process_name();
        assert!(process_lives(own));
        let parent = std::os::unix::process::parent_id();
        let began_at = began(parent).unwrap();
        assert!(process_lives(&format!(
            "process:{}:{parent}:{began_at}",
            boot()
        )));
        let (rest, began) = own.rsplit_once(':').unwrap();
        assert!(!began.is_empty());
        assert!(!process_lives(&format!("{rest}:{began}1")));
        let (boot, _) = rest.rsplit_once(':').unwrap();
        assert!(!process_lives(&format!("{boot}:4194305:{began}")));
        assert!(!process_lives(&own.replacen(
            "process:",
            "process:other-",
            1
        )));
    }

    #[test]
    fn what_has_another_form_of_name_is_left_alone() {
        assert!(process_lives("gateway 7"));
        assert!(process_lives("process:a:b:c"));
    }
}
