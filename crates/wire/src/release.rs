//! The peer's release of the reference program. It decides between answers where two releases
//! expect different ones.

/// The year and month of a release of the reference. Its versions begin with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PeerRelease {
    year: u32,
    month: u32,
}

impl PeerRelease {
    /// The first release with the expectations observed in `2026.9.6`.
    const NEWER: Self = Self {
        year: 2026,
        month: 9,
    };

    /// The release of a version. Any other program counts as older than every release.
    pub fn of_version(version: &str) -> Self {
        let mut parts = version.split('.').map(str::parse::<u32>);
        match (parts.next(), parts.next()) {
            (Some(Ok(year)), Some(Ok(month))) => Self { year, month },
            _ => Self::default(),
        }
    }

    /// Whether the peer reads `execPolicy`, `allowAlwaysCoverage` and `plan.policySnapshot` in the
    /// answer to `system.run.prepare`. An older peer drops the snapshot from the plan that it sends
    /// back.
    pub fn reads_policy_of_plans(self) -> bool {
        self >= Self::NEWER
    }

    /// Whether the peer expects an exit code, [`crate::node::TIMEOUT_EXIT_CODE`], for a run that
    /// its time limit ended.
    pub fn knows_exit_code_of_timeout(self) -> bool {
        self >= Self::NEWER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_of_the_newer_reference_count_as_newer() {
        for (version, is_newer) in [
            ("2026.4.12", false),
            ("2026.5.19", false),
            ("2026.9.6", true),
            ("2026.9.6-beta.1", true),
            ("2026.12.1", true),
            ("2027.1.1", true),
            ("2025.12.1", false),
            ("0.2.0", false),
            ("2026", false),
            ("", false),
            ("newest", false),
            ("2026.x.1", false),
            ("99999999999999.9.1", false),
        ] {
            let release = PeerRelease::of_version(version);
            assert_eq!(release.reads_policy_of_plans(), is_newer, "{version}");
            assert_eq!(release.knows_exit_code_of_timeout(), is_newer, "{version}");
        }
    }
}
