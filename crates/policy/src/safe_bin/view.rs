//! Describes the configured safe bins, for `doctor`, `security audit` and `explain`.

use interlock_programs::names::program_name;
use interlock_programs::trusted_dirs;

use super::profile::Profiles;
use super::table::DEFAULT_SAFE_BINS;

/// The safe bins in force, and their problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafeBinView {
    /// Names in force, in the order of the config.
    pub safe_bins: Vec<String>,
    /// Safe bins without a profile, which are never allowed automatically.
    pub unprofiled: Vec<String>,
    /// Safe bins that run code, with or without a profile.
    pub interpreter_like: Vec<String>,
    /// Safe bins that are refused whatever their profile says, with the reason.
    pub always_refused: Vec<(String, &'static str)>,
    pub trusted_dirs: Vec<String>,
}

impl SafeBinView {
    /// `safe_bins` is `None` if the config sets no list. An empty list means no safe bins.
    pub fn new(
        safe_bins: Option<&[String]>,
        extra_trusted_dirs: &[String],
        profiles: &Profiles,
    ) -> Self {
        let configured: Vec<&str> = match safe_bins {
            Some(names) => names.iter().map(|name| name.trim()).collect(),
            None => DEFAULT_SAFE_BINS.to_vec(),
        };
        let mut view = Self {
            safe_bins: Vec::new(),
            unprofiled: Vec::new(),
            interpreter_like: Vec::new(),
            always_refused: Vec::new(),
            trusted_dirs: trusted_dirs(extra_trusted_dirs),
        };
        for name in configured {
            if name.is_empty() || view.contains(name) {
                continue;
            }
            let name = name.to_owned();
            if is_interpreter_like(&name) {
                view.interpreter_like.push(name.clone());
            }
            let refused = always_refused(&name);
            if let Some(why) = refused {
                view.always_refused.push((name.clone(), why));
            }
            // A profile would not make `jq` a safe bin, so `jq` is not reported as lacking one.
            let lacks = profiles.get(&name).is_none();
            if lacks && (refused.is_none() || is_interpreter_like(&name)) {
                view.unprofiled.push(name.clone());
            }
            view.safe_bins.push(name);
        }
        view
    }

    /// Whether `name` is configured as a safe bin. The comparison is exact, because another case is
    /// another program.
    pub fn contains(&self, name: &str) -> bool {
        self.safe_bins.iter().any(|configured| configured == name)
    }

    /// The safe bins that run code and have no profile.
    pub fn unprofiled_interpreters(&self) -> impl Iterator<Item = &str> {
        self.unprofiled
            .iter()
            .filter(|name| self.interpreter_like.contains(name))
            .map(String::as_str)
    }
}

/// Whether the program, given by name or path, runs code that it reads: shells, language
/// interpreters and script engines. A version number at the end of the name is ignored.
pub fn is_interpreter_like(name: &str) -> bool {
    let name = program_name(name);
    INTERPRETERS.contains(&&*name) || INTERPRETERS.contains(&without_version(&name))
}

/// Why the program, given by name or path, is refused as a safe bin whatever its profile says.
pub fn always_refused(name: &str) -> Option<&'static str> {
    let name = program_name(name);
    let bare = without_version(&name);
    ALWAYS_REFUSED
        .iter()
        .find(|(names, _)| names.contains(&&*name) || names.contains(&bare))
        .map(|(_, why)| *why)
}

#[rustfmt::skip]
const INTERPRETERS: &[&str] = &[
    "ash", "awk", "bash", "busybox", "bun", "cmd", "cscript", "dash", "deno", "fish", "gawk",
    "gsed", "ksh", "lua", "mawk", "nawk", "node", "nodejs", "perl", "php", "powershell", "pypy",
    "pwsh", "python", "python2", "python3", "ruby", "sed", "sh", "toybox", "wscript", "zsh",
];

#[rustfmt::skip]
const ALWAYS_REFUSED: &[(&[&str], &str)] = &[
    (
        &["awk", "gawk", "mawk", "nawk", "goawk", "original-awk"],
        "its program text can read and write files and start commands",
    ),
    (
        &["sed", "gsed", "ssed"],
        "its script can read and write files and start commands",
    ),
    (
        &["jq", "gojq", "jaq"],
        "its filters can read the environment and load modules from files",
    ),
    (
        &[
            "ash", "bash", "busybox", "cmd", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu",
            "osh", "powershell", "pwsh", "sh", "tcsh", "toybox", "xonsh", "yash", "zsh",
        ],
        "a shell runs what it reads, so it is judged by that and never by its own name",
    ),
];

/// Removes a version number: `ruby3.2`, `node-20` and `python3.12` become `ruby`, `node` and
/// `python`.
fn without_version(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if bare.len() == name.len() {
        return name;
    }
    bare.strip_suffix('-').unwrap_or(bare)
}
