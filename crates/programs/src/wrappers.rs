//! Dispatch wrappers: programs that start the program named in their arguments.
//!
//! A *transparent* wrapper does not change what the inner program is trusted for, so the judge
//! looks through it. The judge never looks through a *blocked* wrapper for trust.

use crate::names::program_name;

/// The most wrappers in a row that are looked through.
pub const MAX_WRAPPERS: usize = 4;

/// What a wrapper does with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dispatch {
    NotWrapper,
    /// A wrapper that is never looked through for trust.
    Blocked {
        wrapper: String,
    },
    /// A wrapper that would start `inner`. If it is not `transparent`, it also changes the
    /// environment or the directory, or writes a file, so it is looked through only to describe it.
    Unwrapped {
        wrapper: String,
        inner: Inner,
        transparent: bool,
    },
}

/// The inner command of a wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inner {
    /// The command begins at this index of the wrapper's argv.
    At(usize),
    /// The command was assembled from an argument (`env -S`).
    Split(Vec<String>),
}

impl Inner {
    pub fn argv(&self, outer: &[String]) -> Vec<String> {
        match self {
            Self::At(index) => outer.get(*index..).unwrap_or_default().to_vec(),
            Self::Split(argv) => argv.clone(),
        }
    }

    pub(crate) fn is_empty(&self, outer: &[String]) -> bool {
        match self {
            Self::At(index) => *index >= outer.len(),
            Self::Split(argv) => argv.is_empty(),
        }
    }
}

/// One row: how a wrapper reads its own options.
struct Wrapper {
    name: &'static str,
    /// Options without a value.
    flags: &'static [&'static str],
    /// Options with a value, which is separate or, for long options, after `=`.
    values: &'static [&'static str],
    /// Short options of `values` whose value may be attached (`-n5`, `-oL`).
    attached: &'static [&'static str],
    /// Options that make it more than a wrapper.
    untransparent: &'static [&'static str],
    /// Whether `-5` is an option.
    numeric_flag: bool,
    /// How many operands of the wrapper itself precede the command.
    operands: usize,
}

const NONE: &[&str] = &[];

const TRANSPARENT: &[Wrapper] = &[
    // Changes only the scheduling priority.
    Wrapper {
        name: "nice",
        flags: NONE,
        values: &["-n", "--adjustment", "--priority"],
        attached: &["-n"],
        untransparent: NONE,
        numeric_flag: true,
        operands: 0,
    },
    // Ignores SIGHUP. Any option only prints something.
    Wrapper {
        name: "nohup",
        flags: NONE,
        values: NONE,
        attached: NONE,
        untransparent: NONE,
        numeric_flag: false,
        operands: 0,
    },
    // Changes the buffering of the standard streams.
    Wrapper {
        name: "stdbuf",
        flags: NONE,
        values: &["-i", "-o", "-e", "--input", "--output", "--error"],
        attached: &["-i", "-o", "-e"],
        untransparent: NONE,
        numeric_flag: false,
        operands: 0,
    },
    // Ends the command after a duration.
    Wrapper {
        name: "timeout",
        flags: &["--foreground", "--preserve-status", "-v", "--verbose"],
        values: &["-k", "--kill-after", "-s", "--signal"],
        attached: NONE,
        untransparent: NONE,
        numeric_flag: false,
        operands: 1,
    },
    // Measures the command. With a file it also writes.
    Wrapper {
        name: "time",
        flags: &[
            "-a",
            "--append",
            "-h",
            "--help",
            "-l",
            "-p",
            "-q",
            "--quiet",
            "-v",
            "--verbose",
            "-V",
            "--version",
        ],
        values: &["-f", "--format", "-o", "--output"],
        attached: NONE,
        untransparent: &["-o", "--output"],
        numeric_flag: false,
        operands: 0,
    },
    // Holds a lock file while the command runs.
    Wrapper {
        name: "flock",
        flags: &[
            "-e",
            "-F",
            "-n",
            "-o",
            "-s",
            "-x",
            "--close",
            "--exclusive",
            "--nb",
            "--no-fork",
            "--nonblock",
            "--shared",
            "--verbose",
        ],
        values: &["-E", "-w", "--conflict-exit-code", "--timeout", "--wait"],
        attached: NONE,
        untransparent: NONE,
        numeric_flag: false,
        operands: 1,
    },
    // Keeps the machine awake (macOS).
    Wrapper {
        name: "caffeinate",
        flags: &["-d", "-i", "-m", "-s", "-u"],
        values: &["-t", "-w"],
        attached: NONE,
        untransparent: NONE,
        numeric_flag: false,
        operands: 0,
    },
    // Only removes rights (macOS).
    Wrapper {
        name: "sandbox-exec",
        flags: NONE,
        values: &["-f", "-p", "-d", "-D", "-n"],
        attached: NONE,
        untransparent: NONE,
        numeric_flag: false,
        operands: 0,
    },
];

/// Wrappers that change which user runs the command, where, or under which kernel view, or that
/// read their command in ways the judge does not model. `arch`, `xcrun` and `script` are for other
/// systems.
const BLOCKED: &[&str] = &[
    "arch",
    "bwrap",
    "catchsegv",
    "chroot",
    "chrt",
    "cpulimit",
    "doas",
    "eatmydata",
    "firejail",
    "gosu",
    "ionice",
    "linux32",
    "linux64",
    "nsenter",
    "numactl",
    "pkexec",
    "proot",
    "proxychains",
    "proxychains4",
    "runuser",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "torify",
    "torsocks",
    "unbuffer",
    "unshare",
    "watch",
    "xcrun",
    "xvfb-run",
];

/// Whether the name is in either table, or is `env`.
pub fn is_dispatch_wrapper(token: &str) -> bool {
    let name = program_name(token);
    name == "env" || BLOCKED.contains(&&*name) || row(&name).is_some()
}

fn row(name: &str) -> Option<&'static Wrapper> {
    TRANSPARENT.iter().find(|wrapper| wrapper.name == name)
}

/// Reads one wrapper. Any argv has a result.
pub fn dispatch(argv: &[String]) -> Dispatch {
    let Some(first) = argv.first() else {
        return Dispatch::NotWrapper;
    };
    let name = program_name(first);
    if name == "env" {
        return crate::env_wrapper::dispatch(argv);
    }
    if BLOCKED.contains(&&*name) {
        return Dispatch::Blocked {
            wrapper: name.into_owned(),
        };
    }
    let Some(wrapper) = row(&name) else {
        return Dispatch::NotWrapper;
    };
    // `nice` alone prints a number, like an ordinary program.
    if argv.len() == 1 && name == "nice" {
        return Dispatch::NotWrapper;
    }
    match wrapper.inner(argv) {
        Some((index, transparent)) => Dispatch::Unwrapped {
            wrapper: name.into_owned(),
            inner: Inner::At(index),
            transparent,
        },
        None => Dispatch::Blocked {
            wrapper: name.into_owned(),
        },
    }
}

impl Wrapper {
    /// Returns the index of the inner command, and whether only the command is affected. Returns
    /// `None` if an option is unknown or there is no command.
    fn inner(&self, argv: &[String]) -> Option<(usize, bool)> {
        let mut index = 1;
        let mut transparent = true;
        while let Some(token) = argv.get(index) {
            if token == "--" {
                index += 1;
                break;
            }
            if !token.starts_with('-') || token == "-" {
                break;
            }
            let name = token
                .split_once('=')
                .map_or(token.as_str(), |(name, _)| name);
            transparent &= !self.untransparent.contains(&name);
            index += self.option_length(token)?;
        }
        for _ in 0..self.operands {
            let operand = argv.get(index)?;
            // A descriptor number instead of a lock file is another use of `flock`.
            if self.name == "flock" && operand.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            index += 1;
        }
        let command = argv.get(index)?;
        let misread = self.operands > 0 && self.name == "flock" && command.starts_with('-');
        (!misread).then_some((index, transparent))
    }

    /// Returns how many arguments the option takes, including itself.
    fn option_length(&self, token: &str) -> Option<usize> {
        if self.flags.contains(&token) {
            return Some(1);
        }
        if self.values.contains(&token) {
            return Some(2);
        }
        if let Some((name, _)) = token.split_once('=')
            && name.starts_with("--")
        {
            return self.values.contains(&name).then_some(1);
        }
        if self.numeric_flag && token.len() > 1 && token[1..].bytes().all(|b| b.is_ascii_digit()) {
            return Some(1);
        }
        let attached = |flag: &&str| token.starts_with(flag) && token.len() > flag.len();
        (!token.starts_with("--") && self.attached.iter().any(attached)).then_some(1)
    }
}

/// The wrappers around a command, from the outermost inwards, and the remaining command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub wrappers: Vec<String>,
    pub argv: Vec<String>,
    /// The wrapper that stopped the search: blocked, not transparent, or one too many.
    pub blocked: Option<String>,
}

/// Looks through transparent wrappers, at most [`MAX_WRAPPERS`].
pub fn unwrap_chain(argv: &[String]) -> Chain {
    let mut chain = Chain {
        wrappers: Vec::new(),
        argv: argv.to_vec(),
        blocked: None,
    };
    loop {
        match dispatch(&chain.argv) {
            Dispatch::NotWrapper => return chain,
            Dispatch::Unwrapped {
                wrapper,
                inner,
                transparent: true,
            } if chain.wrappers.len() < MAX_WRAPPERS => {
                chain.argv = inner.argv(&chain.argv);
                chain.wrappers.push(wrapper);
            }
            Dispatch::Blocked { wrapper } | Dispatch::Unwrapped { wrapper, .. } => {
                chain.blocked = Some(wrapper);
                return chain;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn transparent_wrappers_are_looked_through() {
        for text in [
            "env ls",
            "env -- ls",
            "nice -n 5 ls",
            "nice -5 ls",
            "nohup ls",
            "stdbuf -oL ls",
            "stdbuf -o L ls",
            "timeout -s KILL 5 ls",
            "time -p ls",
            "flock -n /tmp/lock ls",
            "nohup timeout 5 nice ls",
            "/usr/bin/nice ls",
        ] {
            let chain = unwrap_chain(&words(text));
            assert_eq!((chain.argv, chain.blocked), (words("ls"), None), "{text}");
        }
    }

    #[test]
    fn anything_not_understood_blocks() {
        for text in [
            "env A=1 ls",
            "env -i ls",
            "env -S ls",
            "env --bogus ls",
            "nice --bogus ls",
            "nohup --help",
            "time -o f ls",
            "time --output=f ls",
            "flock 9",
            "flock lock -c ls",
            "flock lock -- ls",
            "sudo ls",
            "setsid ls",
            "timeout -sKILL 5 ls",
            "nice nice nice nice nice ls",
        ] {
            assert!(unwrap_chain(&words(text)).blocked.is_some(), "{text}");
        }
    }
}
