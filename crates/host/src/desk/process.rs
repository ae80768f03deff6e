//! The name of this process, by which another one can tell later whether it still lives.

use std::fs;
use std::sync::OnceLock;

/// The kernel's number, unique for each start of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Which start of the machine, which process, and when it began: a number alone would be used
/// again.
pub fn process_name() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let pid = std::process::id();
        let began = began(pid).unwrap_or_default();
        format!("process:{}:{pid}:{began}", boot())
    })
}

/// Whether a requester is a process of this machine that has ended: then nothing waits for its
/// approval. Of requesters of another kind this host cannot tell.
pub fn requester_has_ended(requester: &str) -> bool {
    !lives(requester)
}

/// Whether the process with this name lives. A name of an unknown kind counts as alive.
pub(super) fn lives(name: &str) -> bool {
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

fn boot() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    let id = ID.get_or_init(|| fs::read_to_string(BOOT).unwrap_or_default());
    id.trim()
}

/// In clock ticks since the machine was started. `None` where there is no such process, or it has
/// ended and only waits to be collected.
fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in the second field may hold anything, brackets and blanks too.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let began = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| began.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let own = process_name();
        assert!(lives(own));
        let parent = std::os::unix::process::parent_id();
        let began_at = began(parent).unwrap();
        assert!(lives(&format!("process:{}:{parent}:{began_at}", boot())));
        let (rest, began) = own.rsplit_once(':').unwrap();
        assert!(!began.is_empty());
        assert!(!lives(&format!("{rest}:{began}1")));
        let (boot, _) = rest.rsplit_once(':').unwrap();
        assert!(!lives(&format!("{boot}:4194305:{began}")));
        assert!(!lives(&own.replacen("process:", "process:other-", 1)));
    }

    #[test]
    fn what_has_another_form_of_name_is_left_alone() {
        assert!(lives("gateway 7"));
        assert!(lives("process:a:b:c"));
    }
}
