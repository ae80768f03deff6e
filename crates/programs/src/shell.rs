//! Shells: what `SHELL -c TEXT` and `SHELL FILE` would run.

use crate::names::{program_name, without_version};
use crate::powershell;

/// Shells that read `-c` text by the rules of the Bourne family.
const BOURNE: &[&str] = &[
    "ash",
    "bash",
    "dash",
    "fish",
    "hush",
    "ksh",
    "lksh",
    "mksh",
    "oksh",
    "pdksh",
    "posh",
    "sh",
    "static-sh",
    "yash",
    "zsh",
];
/// Shells that always read startup files, that have another language, or that restrict rights which
/// running their text directly would give back.
const FOREIGN: &[&str] = &[
    "csh", "elvish", "nu", "osh", "rbash", "rksh", "rzsh", "sash", "tcsh", "xonsh", "ysh",
];
const WINDOWS: &[&str] = &["cmd", "powershell", "pwsh"];
/// Names after `-o` and `+o` that affect how commands run, and never which commands run.
const SET_OPTIONS: &[&str] = &[
    "allexport",
    "braceexpand",
    "errtrace",
    "functrace",
    "hashall",
    "histexpand",
    "ignoreeof",
    "interactive-comments",
    "monitor",
    "noclobber",
    "noexec",
    "noglob",
    "notify",
    "physical",
    "posix",
    "verbose",
    "xtrace",
];
/// The same for names after `-O` and `+O`.
const SHOPT_OPTIONS: &[&str] = &[
    "dotglob",
    "extglob",
    "failglob",
    "globstar",
    "inherit_errexit",
    "lastpipe",
    "nocaseglob",
    "nocasematch",
    "nullglob",
];
/// Binaries that contain many programs. Only their shells are looked through.
const MULTIPLEXERS: &[&str] = &["busybox", "toybox"];

/// Whether the program is a shell. An entry for a shell itself never satisfies the shell.
pub fn is_shell(token: &str) -> bool {
    is_listed(&shell_name(token))
}

fn is_listed(name: &str) -> bool {
    [BOURNE, FOREIGN, WINDOWS]
        .iter()
        .any(|names| names.contains(&name))
}

/// Returns the name in the tables: `bash-static`, `zsh-5.9`, `ksh93` and `pwsh-preview` count as
/// the shells that they are built from.
fn shell_name(token: &str) -> String {
    let name = program_name(token);
    let stem = ["-static", "-preview"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    let stem = without_version(stem).unwrap_or(stem);
    if is_listed(&name) || !is_listed(stem) {
        return name.into_owned();
    }
    stem.to_owned()
}

/// What a shell is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellCall {
    NotShell,
    /// `-c TEXT`, with the text at `index`.
    Text {
        index: usize,
        options: TextOptions,
    },
    /// `SHELL FILE …`, with the file at `index`.
    File {
        index: usize,
    },
    /// A call that is not looked through for trust. `text` may still be described.
    Closed {
        reason: &'static str,
        text: Option<String>,
        /// Whether only the text runs: no startup file, no other language.
        is_whole: bool,
    },
}

/// Options before `-c` with which the text is still what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextOptions {
    /// No options, or a login shell (which is not started: the text runs directly).
    Plain,
    /// `-e`, `-u`, `-o pipefail`: they affect how a list of commands continues, but not a single
    /// command.
    OneCommandOnly,
}

/// Reads the arguments of a shell. Any argv has a result.
pub fn shell_call(argv: &[String]) -> ShellCall {
    let Some(first) = argv.first() else {
        return ShellCall::NotShell;
    };
    let name = shell_name(first);
    let name = name.as_str();
    if BOURNE.contains(&name) {
        return Bourne::default().read(name, argv);
    }
    if FOREIGN.contains(&name) {
        return ShellCall::Closed {
            reason: "this shell has start-up files or a language of its own",
            text: foreign_text(argv),
            is_whole: false,
        };
    }
    if WINDOWS.contains(&name) {
        return ShellCall::Closed {
            reason: "PowerShell and cmd are not looked through",
            text: powershell::inline_text(name, argv),
            is_whole: false,
        };
    }
    ShellCall::NotShell
}

/// The applet of a multi-call binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Multiplexer {
    NotMultiplexer,
    /// The applet at index 1 is a shell.
    Shell,
    Blocked,
}

pub fn multiplexer(argv: &[String]) -> Multiplexer {
    let Some(first) = argv.first() else {
        return Multiplexer::NotMultiplexer;
    };
    if !is_multi_call(&program_name(first)) {
        return Multiplexer::NotMultiplexer;
    }
    match argv.get(1) {
        Some(applet) if matches!(applet.as_str(), "sh" | "ash" | "bash" | "hush") => {
            Multiplexer::Shell
        }
        _ => Multiplexer::Blocked,
    }
}

/// Whether the name is that of a multi-call binary. They accept any name with their own as a
/// prefix, such as `busybox-static`.
pub(crate) fn is_multi_call(name: &str) -> bool {
    MULTIPLEXERS
        .iter()
        .any(|multiplexer| name.starts_with(multiplexer))
}

/// Whether a text means something else to this shell than to a Bourne shell.
pub fn has_own_language(token: &str) -> bool {
    let name = shell_name(token);
    FOREIGN.contains(&name.as_str()) || WINDOWS.contains(&name.as_str())
}

/// Returns the text of `-c`, `-e` and the long forms of shells that are not Bourne shells.
fn foreign_text(argv: &[String]) -> Option<String> {
    const LONG: [&str; 3] = ["--command", "--commands", "--execute"];
    argv.iter().enumerate().skip(1).find_map(|(index, token)| {
        if let Some((option, text)) = token.split_once('=')
            && LONG.contains(&option)
        {
            return Some(text.to_owned());
        }
        let takes_text = LONG.contains(&token.as_str())
            || token == "-e"
            || (token.starts_with('-') && !token.starts_with("--") && token.ends_with('c'));
        takes_text.then(|| argv.get(index + 1).cloned()).flatten()
    })
}

#[derive(Default)]
struct Bourne {
    inline: bool,
    login: bool,
    flow: bool,
    trace: bool,
    closed: Option<&'static str>,
}

impl Bourne {
    fn read(mut self, name: &str, argv: &[String]) -> ShellCall {
        let mut index = 1;
        while let Some(token) = argv.get(index) {
            if token == "--" {
                index += 1;
                break;
            }
            // To fish, a word that begins with `+` is a file like any other.
            let is_option = token.starts_with('-') || (token.starts_with('+') && name != "fish");
            if token == "-" || !is_option {
                break;
            }
            index += if token.starts_with("--") {
                self.long_option(token)
            } else {
                self.short_cluster(token, argv.get(index + 1))
            };
        }
        let operand = (index < argv.len()).then_some(index);
        self.outcome(name, argv, operand)
    }

    fn outcome(self, name: &str, argv: &[String], operand: Option<usize>) -> ShellCall {
        let closed = |reason, text: Option<usize>| ShellCall::Closed {
            reason,
            text: text.and_then(|index| argv.get(index).cloned()),
            is_whole: false,
        };
        match (operand, self.inline) {
            (None, true) => closed("`-c` without a text", None),
            (Some(index), true) => match self.closed {
                Some(reason) => closed(reason, Some(index)),
                None if self.trace => ShellCall::Closed {
                    reason: "an option in front of `-c` changes the run",
                    text: argv.get(index).cloned(),
                    is_whole: true,
                },
                None if self.flow => ShellCall::Text {
                    index,
                    options: TextOptions::OneCommandOnly,
                },
                None => ShellCall::Text {
                    index,
                    options: TextOptions::Plain,
                },
            },
            (None, false) => closed("a shell that reads its commands from elsewhere", None),
            (Some(index), false) => {
                if let Some(reason) = self.closed {
                    closed(reason, None)
                } else if self.login {
                    closed("a login shell reads start-up files first", None)
                } else if argv.get(index).is_some_and(|file| file == "-") {
                    closed("a shell that reads its commands from elsewhere", None)
                } else if name == "fish" {
                    closed("fish reads its start-up files first", None)
                } else {
                    ShellCall::File { index }
                }
            }
        }
    }

    /// Returns how many arguments the option takes up.
    fn long_option(&mut self, token: &str) -> usize {
        match token {
            "--login" => self.login = true,
            "--norc" | "--noprofile" | "--posix" | "--no-config" => {}
            "--command" | "--commands" | "--cmdline" => self.inline = true,
            "--rcfile" | "--init-file" | "--startup-script" => {
                self.close("a start-up file is named");
                return 2;
            }
            _ => self.close("an option of the shell that is not understood"),
        }
        1
    }

    fn short_cluster(&mut self, token: &str, next: Option<&String>) -> usize {
        let mut length = 1;
        let sets = token.starts_with('-');
        for flag in token.chars().skip(1) {
            match flag {
                'c' if sets => self.inline = true,
                'l' if sets => self.login = true,
                'e' | 'u' => self.flow = true,
                // `-n` runs nothing, `-x` and `-v` print, and others change what words mean, so the
                // run differs from running the text alone. None of them reads code from elsewhere.
                'n' | 'x' | 'v' | 'a' | 'f' | 'h' | 'm' | 'B' | 'C' | 'E' | 'H' | 'P' => {
                    self.trace = true;
                }
                'i' => self.close("an interactive shell reads start-up files first"),
                's' => self.close("a shell that reads its commands from elsewhere"),
                'o' | 'O' => {
                    length = 2;
                    match next.map(String::as_str) {
                        Some("pipefail" | "errexit" | "nounset") if flag == 'o' => self.flow = true,
                        Some(name) if flag == 'o' && SET_OPTIONS.contains(&name) => {
                            self.trace = true;
                        }
                        Some(name) if flag == 'O' && SHOPT_OPTIONS.contains(&name) => {
                            self.trace = true;
                        }
                        _ => self.close("an option of the shell that is not understood"),
                    }
                }
                _ => self.close("an option of the shell that is not understood"),
            }
        }
        length
    }

    fn close(&mut self, reason: &'static str) {
        self.closed.get_or_insert(reason);
    }
}

/// Whether all options leave the source of commands unchanged, so that the shell reads them from
/// standard input.
pub fn reads_only_stdin(argv: &[String]) -> bool {
    argv.iter().skip(1).all(|word| {
        matches!(
            word.as_str(),
            "-" | "-s" | "-e" | "-u" | "-x" | "-eu" | "-ex" | "-eux" | "-ux" | "-es"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> ShellCall {
        let argv: Vec<String> = text.split(' ').map(str::to_owned).collect();
        shell_call(&argv)
    }

    #[test]
    fn text_behind_c_is_found() {
        let plain = |index| ShellCall::Text {
            index,
            options: TextOptions::Plain,
        };
        assert_eq!(call("sh -c ls"), plain(2));
        assert_eq!(call("bash -lc ls"), plain(2));
        assert_eq!(call("bash --login -c ls"), plain(3));
        assert_eq!(call("bash -c -l ls"), plain(3));
        assert_eq!(
            call("bash -euo pipefail -c ls"),
            ShellCall::Text {
                index: 4,
                options: TextOptions::OneCommandOnly
            }
        );
    }

    #[test]
    fn a_file_is_found_behind_harmless_options() {
        assert_eq!(call("bash x.sh a"), ShellCall::File { index: 1 });
        assert_eq!(
            call("bash -eo pipefail ./run.sh"),
            ShellCall::File { index: 3 }
        );
        assert_eq!(call("sh -- x.sh"), ShellCall::File { index: 2 });
    }

    #[test]
    fn start_up_files_and_unknown_options_close_the_shell() {
        for text in [
            "bash -i -c ls",
            "bash --rcfile x y.sh",
            "bash --rcfile=x y.sh",
            "bash --init-file x y.sh",
            "bash --startup-file x y.sh",
            "bash -s",
            "bash",
            "bash -l x.sh",
            "bash -c",
            "sh -cecho",
            "fish x.fish",
            "csh -c ls",
            "pwsh -Command ls",
            "zsh -i x",
            "sh -",
            "bash -O extglob -c ls",
            "bash -xc ls",
        ] {
            assert!(
                matches!(call(text), ShellCall::Closed { .. }),
                "{text}: {:?}",
                call(text)
            );
        }
        assert_eq!(call("ls -c x"), ShellCall::NotShell);
    }

    #[test]
    fn the_text_of_a_closed_shell_is_found_for_description() {
        for (argv, expected) in [
            (&["nu", "--execute=rm x"][..], Some("rm x")),
            (&["nu", "--commands", "rm x"], Some("rm x")),
            (&["csh", "-fc", "rm x"], Some("rm x")),
            (&["bash", "-ic", "rm x"], Some("rm x")),
            (&["cmd.exe", "/d", "/c", "del", "x"], Some("del x")),
            (&["pwsh", "-NoProfile", "-Command", "rm x"], Some("rm x")),
            (&["nu", "script.nu"], None),
            (&["nu", "-e"], None),
        ] {
            let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
            let ShellCall::Closed { text, .. } = shell_call(&argv) else {
                panic!("{argv:?} is not closed");
            };
            assert_eq!(text.as_deref(), expected, "{argv:?}");
        }
    }
}
