//! Describes what can be seen in text that is not plain.
//!
//! A full shell parser lists the commands that it finds: nested ones, substitutions, function
//! bodies, here-documents. Deny rules, prompts and highlighting use the list. **It may only
//! tighten**: no result of this module can lead to "allowed", and everything that was not seen is
//! reported.
//!
//! The parser is recursive and backtracks, so it runs behind guards: size, nesting, its own thread
//! with a large stack, and a time limit after which the text counts as not seen. [`word`] reads
//! single words without backtracking.

mod guard;
mod scan;
mod walk;
mod word;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

pub(crate) use guard::Budget;

/// The longest text that is described.
pub(crate) const MAX_BYTES: usize = 16 * 1024;
const STACK_BYTES: usize = 32 * 1024 * 1024;
/// The other guards keep every text far below this limit, which is for unexpected behavior of the
/// parser.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Parsers that exceeded the time limit may still run. With this many of them, no new parser
/// starts.
const MAX_STUCK: usize = 2;

static STUCK: AtomicUsize = AtomicUsize::new(0);

/// The commands found in a text, and whether these are all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// The words of each command. [`DYNAMIC`](interlock_programs::DYNAMIC) stands for an unknown
    /// word.
    pub commands: Vec<Vec<String>>,
    /// For each command, the text of the here-document on its standard input, if every word of the
    /// text is known.
    #[serde(skip)]
    pub(crate) stdin: Vec<Option<String>>,
    /// Why some words could not be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<&'static str>,
    /// Like `unseen`, but ignoring commands in files that the text names.
    #[serde(skip)]
    pub(crate) unbindable: Option<&'static str>,
}

impl Description {
    fn nothing_seen(reason: &'static str) -> Self {
        Self {
            commands: Vec::new(),
            stdin: Vec::new(),
            unseen: Some(reason),
            unbindable: Some(reason),
        }
    }

    pub(crate) fn note_unseen(&mut self, reason: &'static str) {
        self.unseen.get_or_insert(reason);
        self.unbindable.get_or_insert(reason);
    }

    /// Notes that commands are in a file that the text names.
    pub(crate) fn note_file(&mut self) {
        self.unseen.get_or_insert("commands are read from a file");
    }
}

/// Describes any text, even plain text. Never panics, and never takes longer than the limit.
pub fn describe(text: &str) -> Description {
    describe_within(text, &mut Budget::default())
}

/// Like [`describe`], but charges its cost to the budget.
pub(crate) fn describe_within(text: &str, budget: &mut Budget) -> Description {
    if text.len() > MAX_BYTES {
        return Description::nothing_seen("the text is too long to be described");
    }
    if text.contains('\0') {
        return Description::nothing_seen("the text holds a NUL character");
    }
    if STUCK.load(Ordering::Relaxed) >= MAX_STUCK {
        return Description::nothing_seen("too many texts are being described");
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let owned = text.to_owned();
    let mut spent = std::mem::take(budget);
    budget.exhaust();
    let job = Arc::new(ParserJob::default());
    let running = Arc::clone(&job);
    let thread = std::thread::Builder::new()
        .name("describe".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let description = std::panic::catch_unwind(move || {
                let description = walk::describe(&owned, &mut spent);
                (description, spent)
            });
            running.finish();
            // The receiver may have stopped waiting.
            let _ = sender.send(description);
        });
    let Ok(thread) = thread else {
        return Description::nothing_seen("the text could not be described");
    };
    let Ok(result) = receiver.recv_timeout(TIME_LIMIT) else {
        job.abandon();
        return Description::nothing_seen("the text took too long to describe");
    };
    // The thread has finished its work, so joining does not wait.
    let _ = thread.join();
    match result {
        Ok((description, left)) => {
            *budget = left;
            description
        }
        Err(_) => Description::nothing_seen("the text could not be described"),
    }
}

/// Counts parsers that outlived their time limit.
#[derive(Default)]
struct ParserJob(AtomicU8);

impl ParserJob {
    const RUNNING: u8 = 0;
    const FINISHED: u8 = 1;
    const ABANDONED: u8 = 2;

    fn finish(&self) {
        if self.0.swap(Self::FINISHED, Ordering::AcqRel) == Self::ABANDONED {
            STUCK.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn abandon(&self) {
        let was_running = self
            .0
            .compare_exchange(
                Self::RUNNING,
                Self::ABANDONED,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok();
        if was_running {
            STUCK.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<String> {
        let description = describe(text);
        assert_eq!(description.unseen, None, "{text}");
        let shown = description.commands.iter().map(|words| words.join(" "));
        shown.map(|words| words.replace('\0', "?")).collect()
    }

    #[test]
    fn nested_commands_are_listed() {
        assert_eq!(commands("echo $(rm -rf x)"), ["echo ?", "rm -rf x"]);
        assert_eq!(
            commands("if git diff; then git clean -fd; fi"),
            ["git diff", "git clean -fd"]
        );
        assert_eq!(commands("f() { rm x; }; f"), ["rm x", "f"]);
        assert_eq!(commands("for f in *; do rm $f; done"), ["rm ?"]);
        assert_eq!(commands("cat <<EOF\n`rm x`\nEOF"), ["cat", "rm x"]);
        assert_eq!(commands("diff <(a 1) <(b 2)"), ["diff ? ?", "a 1", "b 2"]);
        assert_eq!(commands("a > $(b)"), ["a", "b"]);
        assert_eq!(commands("x=$(rm y)"), ["rm y"]);
        assert_eq!(commands("'r'm \"x\" \\y"), ["rm x y"]);
        assert_eq!(commands("( a & ) | { b; }"), ["a", "b"]);
        assert_eq!(commands("case $x in a) b;; esac"), ["b"]);
        assert_eq!(commands("eval 'rm x'"), ["eval rm x", "rm x"]);
        assert_eq!(commands("trap 'rm x' EXIT"), ["trap rm x EXIT", "rm x"]);
        assert_eq!(commands("echo \"a $(b \"$(c)\")\""), ["echo ?", "b ?", "c"]);
    }

    #[test]
    fn what_is_not_seen_is_said() {
        for text in [
            "$x y",
            "$(a) b",
            "eval \"$x\"",
            "source x",
            ". x",
            "r{m,} x",
            "r? x",
            "a 'b",
            "${x:-$(rm y)}",
            "echo ${x:-`rm y`}",
            "((((((((((((((a",
            "a[a[a[a[a[a[a[a[a[=b",
            "echo $((x[$(rm y)]))",
            "/bin/r* x",
        ] {
            assert!(
                describe(text).unseen.is_some(),
                "{text}: {:?}",
                describe(text)
            );
        }
        assert!(describe(&"a ".repeat(20_000)).unseen.is_some());
    }

    #[test]
    fn hostile_nesting_is_cut_off() {
        for open in [
            "((",
            "( ( ",
            "$((",
            "case x in y) ",
            "{ ",
            "`",
            "[[ ( ",
            "\"$(",
        ] {
            let _ = describe(&open.repeat(2000));
            let _ = describe(&open.repeat(6));
        }
    }
}
