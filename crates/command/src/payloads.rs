//! The commands that carriers pass on, as texts, so that a command that must not be typed into a
//! shell (`/approve ID`) is also found behind `sudo`, `env` or `sh -c`.

use interlock_programs::inline::carriers::{
    Carried, CarrierWord, MAX_SPLIT_LEVELS, is_assignment, join_words, unwrap_carrier,
};
use interlock_programs::{Dispatch, ShellCall, dispatch, shell_call};

use crate::lex;

/// How deeply texts inside texts are searched.
const MAX_DEPTH: usize = 8;
const MAX_PAYLOADS: usize = 64;

/// Returns every command that `argv` carries, with words separated by one blank, from the outermost
/// inwards: behind each carrier, and the text of a shell's `-c`. `argv` itself is not included.
///
/// Use this only to refuse. An empty result says nothing about what would run.
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
        match unwrap_carrier(words) {
            Carried::Words(next) => {
                note(join_words(&next), found);
                words = next;
            }
            Carried::Split(next) if levels < MAX_SPLIT_LEVELS => {
                levels += 1;
                words = next;
            }
            Carried::Split(_) | Carried::Nothing => return,
            Carried::Last(last) => match behind_wrapper(&last) {
                Some(next) => {
                    note(join_words(&next), found);
                    words = next;
                }
                None => return shell_text(&last, depth, found),
            },
        }
    }
}

/// Returns what a dispatch wrapper such as `nohup` would start, whether or not the wrapper is
/// trusted.
fn behind_wrapper(words: &[CarrierWord]) -> Option<Vec<CarrierWord>> {
    let argv = texts(words);
    match dispatch(&argv) {
        Dispatch::Unwrapped { inner, .. } => Some(CarrierWord::all(&inner.argv(&argv))),
        Dispatch::Blocked { .. } | Dispatch::NotWrapper => None,
    }
}

/// Adds the text after `-c`, and what it carries in turn.
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
}
