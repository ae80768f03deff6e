//! How a command is sent to a foreign node.
//!
//! Sending it through a shell has two drawbacks. A foreign node does not let an approver allow
//! `/usr/bin/id -un` inside a shell under root, because it takes the program for a script that
//! could change. It also silently drops most environment variables. Therefore a single plain
//! command is sent as words, which need no shell. Everything else is sent as shell text, and the
//! caller is told which variables are dropped.

use interlock_command::{Connector, Source, lex};
use interlock_policy::env;
use interlock_programs::builtins::{ShellWord, shell_word};
use interlock_wire::node::{SystemRun, format_exec_command};

use crate::nodes::{Node, Platform};

/// The words for a node, and their text.
pub(super) struct ForeignCommand {
    pub(super) command: Vec<String>,
    pub(super) raw_command: String,
}

impl ForeignCommand {
    pub(super) fn of_text(platform: Platform, text: &str) -> Self {
        let words = match platform {
            Platform::Windows => None,
            _ => single_command(text),
        };
        match words {
            Some(command) => Self {
                raw_command: format_exec_command(&command),
                command,
            },
            None => Self {
                command: platform.shell(text),
                raw_command: text.to_owned(),
            },
        }
    }
}

/// The words of a text that is one program with its arguments. Nothing may be left for a shell to
/// expand, redirect or do by itself.
fn single_command(text: &str) -> Option<Vec<String>> {
    let line = lex(text).ok()?;
    let [pipeline] = line.pipelines.as_slice() else {
        return None;
    };
    let [segment] = pipeline.segments.as_slice() else {
        return None;
    };
    let is_plain = pipeline.timed.is_none()
        && pipeline.next == Connector::End
        && segment.assignments.is_empty()
        && segment.redirections.is_empty()
        && segment
            .words
            .iter()
            .all(interlock_command::Word::is_literal)
        && shell_word(segment.name()) == ShellWord::Program
        && !segment.name().is_empty();
    is_plain.then(|| segment.words.iter().map(|word| word.text.clone()).collect())
}

/// Whether the command is shell text.
fn is_shell_text(run: &SystemRun) -> bool {
    run.command.len() > 2 && run.command.last() == run.raw_command.as_ref()
}

/// The command in the form for a judge.
pub(super) fn source(run: &SystemRun) -> Source {
    match &run.raw_command {
        Some(text) if is_shell_text(run) => Source::Text(text.clone()),
        _ => Source::Argv(run.command.clone()),
    }
}

/// The variables of a run that the node does not pass to the command. An Interlock node passes all.
pub(super) fn dropped_variables(node: &Node, run: &SystemRun) -> Vec<String> {
    if node.is_interlock() || !is_shell_text(run) {
        return Vec::new();
    }
    let sent = run.env.clone().unwrap_or_default();
    let passed = env::for_shell_wrapper(&sent);
    sent.into_keys()
        .filter(|name| !passed.contains_key(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_plain_command_goes_without_a_shell() {
        for (text, words) in [
            ("/usr/bin/id -un", Some(vec!["/usr/bin/id", "-un"])),
            ("env /usr/bin/whoami", Some(vec!["env", "/usr/bin/whoami"])),
            ("echo 'a b' \"c\"", Some(vec!["echo", "a b", "c"])),
            ("./tool --flag=x", Some(vec!["./tool", "--flag=x"])),
            ("uname && whoami", None),
            ("uname | head -n 1", None),
            ("uname;", Some(vec!["uname"])),
            ("uname &", None),
            ("ls *.txt", None),
            ("ls ~", None),
            ("A=1 env", None),
            ("ls > /dev/null", None),
            ("echo $HOME", None),
            ("cd /", None),
            ("exec ls", None),
            ("time ls", None),
            ("test -e x", None),
            ("true", None),
            ("", None),
            ("# only a remark", None),
        ] {
            let words = words.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(single_command(text), words, "{text}");
        }
    }

    #[test]
    fn the_text_belongs_to_the_words() {
        let direct = ForeignCommand::of_text(Platform::Linux, "echo 'a b'");
        assert_eq!(direct.command, ["echo", "a b"]);
        assert_eq!(direct.raw_command, "echo \"a b\"");
        let shell = ForeignCommand::of_text(Platform::Linux, "cd / && ls");
        assert_eq!(shell.command, ["/bin/sh", "-lc", "cd / && ls"]);
        assert_eq!(shell.raw_command, "cd / && ls");
        let windows = ForeignCommand::of_text(Platform::Windows, "whoami");
        assert_eq!(windows.command, ["cmd.exe", "/d", "/s", "/c", "whoami"]);
        for (sent, is_text) in [(direct, false), (shell, true), (windows, true)] {
            let run = SystemRun {
                command: sent.command,
                raw_command: Some(sent.raw_command),
                ..SystemRun::default()
            };
            assert_eq!(matches!(source(&run), Source::Text(_)), is_text, "{run:?}");
        }
    }
}
