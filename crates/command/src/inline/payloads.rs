//! What carriers hand on, as texts: so that a command which must not be typed into a shell
//! (`/approve ID`) is also found behind `sudo`, `env` or `sh -c`.

use super::carriers::{Carried, CarrierWord, SPLIT_LEVELS, is_assignment, unwrap};
use crate::names::program_name;
use crate::{Dispatch, ShellCall, dispatch, lex, shell_call};

/// Texts inside texts that are looked at.
const MAX_DEPTH: usize = 8;
const MAX_PAYLOADS: usize = 64;

/// Every command that `argv` carries, words parted by one blank, from the outside in: behind each
/// carrier, and the text of a shell's `-c`. `argv` itself is not among them.
///
/// For refusing only. That nothing was found says nothing about what would run.
pub fn payloads(argv: &[impl AsRef<str>]) -> Vec<String> {
    let mut found = Vec::new();
    collect(CarrierWord::all(argv), 0, &mut found);
    found
}

fn collect(mut words: Vec<CarrierWord>, depth: usize, found: &mut Vec<String>) {
    let assignments = words.iter().take_while(|word| is_assignment(&word.text));
    words.drain(..assignments.count());
    let mut levels = 0;
    loop {
        match unwrap(words) {
            Carried::Words(next) => {
                note(joined(&next), found);
                words = next;
            }
            Carried::Split(next) if levels < SPLIT_LEVELS => {
                levels += 1;
                words = next;
            }
            Carried::Split(_) | Carried::Nothing => return,
            Carried::Last(last) => match behind_wrapper(&last) {
                Some(next) => {
                    note(joined(&next), found);
                    words = next;
                }
                None => return shell_text(&last, depth, found),
            },
        }
    }
}

/// What a dispatch wrapper such as `nohup` would start, whether or not it is trusted for that.
fn behind_wrapper(words: &[CarrierWord]) -> Option<Vec<CarrierWord>> {
    let argv = texts(words);
    match dispatch(&argv) {
        Dispatch::Unwrapped { inner, .. } => Some(CarrierWord::all(&inner.argv(&argv))),
        Dispatch::Blocked { .. } | Dispatch::NotWrapper => None,
    }
}

/// The text behind `-c`, and what it carries in turn.
fn shell_text(words: &[CarrierWord], depth: usize, found: &mut Vec<String>) {
    let argv = texts(words);
    let text = match shell_call(&argv) {
        ShellCall::Text { index, .. } => argv[index].clone(),
        ShellCall::Closed {
            text: Some(text), ..
        } => text,
        ShellCall::Closed { text: None, .. } | ShellCall::File { .. } | ShellCall::NotShell => {
            return;
        }
    };
    let text = text.trim();
    if text.is_empty() || depth >= MAX_DEPTH {
        return;
    }
    note(text.to_owned(), found);
    let Ok(line) = lex(text) else { return };
    for segment in line.segments() {
        let words: Vec<&str> = segment
            .words
            .iter()
            .map(|word| word.text.as_str())
            .collect();
        collect(CarrierWord::all(&words), depth + 1, found);
    }
}

fn note(payload: String, found: &mut Vec<String>) {
    if found.len() < MAX_PAYLOADS && !found.contains(&payload) {
        found.push(payload);
    }
}

fn texts(words: &[CarrierWord]) -> Vec<String> {
    words.iter().map(|word| word.text.clone()).collect()
}

fn joined(words: &[CarrierWord]) -> String {
    texts(words).join(" ")
}

/// A shell builtin that runs commands which are not its own words, behind `command` and the like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CarriedBuiltin {
    /// `eval`: the text that it would run.
    Eval(String),
    /// `source` or `.`: the name as written; the commands come from a file.
    Source(String),
}

/// The builtin that `command`, `builtin` or `exec` hand on to, if it runs commands of its own.
pub fn carried_builtin(argv: &[impl AsRef<str>]) -> Option<CarriedBuiltin> {
    let mut words = CarrierWord::all(argv);
    loop {
        let carrier = program_name(&words.first()?.text);
        if !matches!(&*carrier, "command" | "builtin" | "exec") {
            return None;
        }
        let Carried::Words(next) = unwrap(words) else {
            return None;
        };
        match next.first()?.text.as_str() {
            "eval" => return Some(CarriedBuiltin::Eval(joined(&next[1..]))),
            name @ ("source" | ".") => return Some(CarriedBuiltin::Source(name.to_owned())),
            _ => words = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_carried_is_found_from_the_outside_in() {
        for (argv, expected) in [
            (
                &["sudo", "-EH", "/approve", "abc"][..],
                &["/approve abc"][..],
            ),
            (&["A=1", "sudo", "-E", "/approve", "x"], &["/approve x"]),
            (
                &["sudo", "-uroot", "bash", "-lc", "/approve x"],
                &["bash -lc /approve x", "/approve x"],
            ),
            (
                &["env", "-S", "bash -lc", "/approve x deny"],
                &["bash -lc /approve x deny", "/approve x deny"],
            ),
            (
                &["env", "nohup", "env", "/approve"],
                &["nohup env /approve", "env /approve", "/approve"],
            ),
            (
                &["sh", "-c", "true; sudo /approve x"],
                &["true; sudo /approve x", "/approve x"],
            ),
            (&["command", "-v", "/approve"], &[]),
            (&["echo", "/approve"], &[]),
        ] {
            assert_eq!(payloads(argv), expected, "{argv:?}");
        }
    }

    #[test]
    fn builtins_are_found_behind_command() {
        let source = CarriedBuiltin::Source("source".to_owned());
        assert_eq!(
            carried_builtin(&["command", "source", "./env.sh"]),
            Some(source)
        );
        let eval = CarriedBuiltin::Eval("rm x".to_owned());
        assert_eq!(
            carried_builtin(&["builtin", "command", "eval", "rm", "x"]),
            Some(eval)
        );
        assert_eq!(carried_builtin(&["command", "echo", "eval"]), None);
        assert_eq!(carried_builtin(&["eval", "x"]), None);
    }
}
