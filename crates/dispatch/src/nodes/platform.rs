//! The kinds of machines, and the commands that each may offer.

use interlock_config::types::GatewayNodes;
use interlock_wire::node::{
    SYSTEM_EXEC_APPROVALS_GET, SYSTEM_EXEC_APPROVALS_SET, SYSTEM_RUN, SYSTEM_RUN_PREPARE,
    SYSTEM_WHICH,
};

/// The kind of a machine, according to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    Linux,
    Macos,
    Windows,
    /// Any other platform, or contradictory names. It gets no command that runs programs.
    Unknown,
}

/// The name of a platform, its device family, and its kind.
const NAMES: &[(&str, &str, Platform)] = &[
    ("linux", "linux", Platform::Linux),
    ("macos", "mac", Platform::Macos),
    ("darwin", "mac", Platform::Macos),
    ("windows", "windows", Platform::Windows),
    ("win32", "windows", Platform::Windows),
];

/// Commands that run programs, and related ones.
const RUNS: &[&str] = &[
    SYSTEM_RUN,
    SYSTEM_RUN_PREPARE,
    SYSTEM_WHICH,
    "system.notify",
    "browser.proxy",
    // Not for `node.invoke`: only administrators reach these commands, by separate methods.
    SYSTEM_EXEC_APPROVALS_GET,
    SYSTEM_EXEC_APPROVALS_SET,
];

/// Commands that inspect the machine and its surroundings.
const DESKTOP: &[&str] = &[
    "camera.list",
    "location.get",
    "device.info",
    "device.status",
    "screen.snapshot",
];

/// Commands that read personal data on the machine.
const PERSONAL: &[&str] = &[
    "contacts.search",
    "calendar.events",
    "reminders.list",
    "photos.latest",
    "motion.activity",
    "motion.pedometer",
];

/// Commands that change nothing and run nothing.
const HARMLESS: &[&str] = &["camera.list", "location.get", "system.notify"];

impl Platform {
    /// The platform of these names, which must belong together. Without a family, the platform's
    /// own one is assumed.
    pub fn of(platform: &str, family: Option<&str>) -> Self {
        let plain = |text: &str| text.trim().to_ascii_lowercase();
        let platform = plain(platform);
        let Some((_, usual, found)) = NAMES.iter().find(|(name, ..)| *name == platform) else {
            return Self::Unknown;
        };
        match family.map(plain) {
            Some(family) if family != *usual => Self::Unknown,
            _ => *found,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Macos => "macos",
            Self::Windows => "windows",
            Self::Unknown => "unknown",
        }
    }

    /// Whether a node of this kind may have the command. The owner's lists take precedence.
    pub fn allows(self, command: &str, config: &GatewayNodes) -> bool {
        let named = |list: &Option<Vec<String>>| {
            let mut list = list.iter().flatten();
            list.any(|name| name.trim() == command)
        };
        if named(&config.deny_commands) {
            return false;
        }
        let lists: &[&[&str]] = match self {
            Self::Linux => &[RUNS],
            Self::Macos => &[RUNS, DESKTOP, PERSONAL],
            Self::Windows => &[RUNS, DESKTOP],
            Self::Unknown => &[HARMLESS],
        };
        lists.iter().any(|list| list.contains(&command)) || named(&config.allow_commands)
    }

    /// The declared commands that a node may offer, sorted and without duplicates.
    pub fn cut(self, commands: &[String], config: &GatewayNodes) -> Vec<String> {
        let mut kept: Vec<String> = commands
            .iter()
            .map(|command| command.trim().to_owned())
            .filter(|command| self.allows(command, config))
            .collect();
        kept.sort();
        kept.dedup();
        kept
    }

    /// The words that run a command text in the platform's shell.
    pub fn shell(self, text: &str) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Windows => &["cmd.exe", "/d", "/s", "/c"],
            _ => &["/bin/sh", "-lc"],
        };
        let words = words.iter().map(|word| (*word).to_owned());
        words.chain([text.to_owned()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_platform_and_the_family_that_belongs_to_it_run_programs() {
        let cases = [
            ("linux", Some("Linux"), Platform::Linux),
            (" LINUX ", None, Platform::Linux),
            ("linux", Some("iPad"), Platform::Unknown),
            ("macos", Some("Mac"), Platform::Macos),
            ("win32", Some("Windows"), Platform::Windows),
            ("ios", Some("iPhone"), Platform::Unknown),
            ("", None, Platform::Unknown),
        ];
        for (platform, family, expected) in cases {
            assert_eq!(
                Platform::of(platform, family),
                expected,
                "{platform} {family:?}"
            );
        }
        let config = GatewayNodes::default();
        assert!(Platform::Linux.allows("system.run", &config));
        assert!(!Platform::Linux.allows("screen.snapshot", &config));
        assert!(Platform::Windows.allows("screen.snapshot", &config));
        assert!(!Platform::Windows.allows("contacts.search", &config));
        assert!(!Platform::Unknown.allows("system.run", &config));
    }

    #[test]
    fn the_owner_adds_commands_and_takes_them_away_and_taking_away_wins() {
        let config = GatewayNodes {
            allow_commands: Some(vec!["file.fetch".to_owned(), "system.run".to_owned()]),
            deny_commands: Some(vec!["system.run".to_owned()]),
            ..GatewayNodes::default()
        };
        let said = [
            "system.run",
            "file.fetch",
            "system.which",
            "system.which",
            "dir.list",
        ];
        let said = said.map(str::to_owned);
        assert_eq!(
            Platform::Linux.cut(&said, &config),
            ["file.fetch", "system.which"]
        );
    }
}
