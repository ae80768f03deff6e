//! The effective values of `tools.exec` for a run: the set value within its limits, or else the
//! default.

use std::time::Duration;

use interlock_plan::SandboxTree;

use crate::choice::{Leftovers, Shield};
use crate::types::ExecConfig;

/// A number with a default and limits. The schema has the same three numbers, and a test compares
/// them. A value outside the limits, which no checked file has, counts as the nearest limit.
struct Bounded {
    default: u64,
    least: u64,
    most: u64,
}

const BACKGROUND_MS: Bounded = Bounded {
    default: 10_000,
    least: 10,
    most: 120_000,
};
const CLEANUP_MS: Bounded = Bounded {
    default: 1_800_000,
    least: 60_000,
    most: 10_800_000,
};
const MAX_SPOOL_BYTES: Bounded = Bounded {
    default: 1 << 30,
    least: 65_536,
    most: 10 << 30,
};

const MAX_PENDING: Bounded = Bounded {
    default: 100,
    least: 1,
    most: 10_000,
};

const RESULT_CHARS: Bounded = Bounded {
    default: 30_000,
    least: 1_000,
    most: 200_000,
};

impl Bounded {
    fn of(&self, set: Option<u64>) -> u64 {
        set.unwrap_or(self.default).clamp(self.least, self.most)
    }
}

/// How long a call may wait before its run goes to the background. A value outside the range counts
/// as the nearest limit.
pub const YIELD_MS: std::ops::RangeInclusive<u64> = BACKGROUND_MS.least..=BACKGROUND_MS.most;

/// An approved run that takes longer than this is announced.
const RUNNING_NOTICE_MS: u64 = 10_000;

impl ExecConfig {
    /// How long an approved run takes before it is announced; `None` means never.
    pub fn running_notice(&self) -> Option<Duration> {
        let after = self.approval_running_notice_ms.unwrap_or(RUNNING_NOTICE_MS);
        (after > 0).then(|| Duration::from_millis(after))
    }

    /// How many approvals of an agent may be pending at once.
    pub fn most_pending(&self) -> usize {
        usize::try_from(MAX_PENDING.of(self.max_pending)).unwrap_or(usize::MAX)
    }

    /// How many characters a result for a model has.
    pub fn result_chars(&self) -> usize {
        usize::try_from(RESULT_CHARS.of(self.result_chars)).unwrap_or(usize::MAX)
    }

    /// Whether the end of a background run is an event, and whether events wake their session.
    pub fn notifies_on_exit(&self) -> bool {
        self.notify_on_exit.unwrap_or(true)
    }

    /// Whether a background run that succeeds without output also causes an event.
    pub fn notifies_on_empty_success(&self) -> bool {
        self.notify_on_exit_empty_success.unwrap_or(false)
    }

    /// How long a run takes before it continues in the background.
    pub fn background_after(&self) -> Duration {
        Duration::from_millis(BACKGROUND_MS.of(self.background_ms))
    }

    /// How long finished sessions are kept.
    pub fn keep_finished(&self) -> Duration {
        Duration::from_millis(CLEANUP_MS.of(self.cleanup_ms))
    }

    /// How many bytes of output are kept per session.
    pub fn spool_quota(&self) -> u64 {
        MAX_SPOOL_BYTES.of(self.max_spool_bytes)
    }

    /// What happens to processes that a run leaves behind.
    pub fn leftovers(&self) -> Leftovers {
        self.leftovers.unwrap_or(Leftovers::End)
    }

    /// Whether runs are kept away from Interlock itself.
    pub fn shield(&self) -> Shield {
        self.shield.unwrap_or(Shield::Auto)
    }

    /// Which programs runs start that the allowlist allows.
    pub fn tree(&self) -> SandboxTree {
        self.tree.unwrap_or(SandboxTree::Off)
    }

    /// Whether a run is refused when a file of it could change between check and start.
    pub fn requires_race_free(&self) -> bool {
        self.require_race_free.unwrap_or(false)
    }
}
