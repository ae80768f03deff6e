//! Finds the narrowest entry that a hint may propose: never wider than the shape of the command.

use interlock_programs::in_trusted_dir;
use interlock_programs::inline::{Reach, reach};

use super::quote;
use crate::arguments::digest_pattern;
use crate::pattern::has_wildcard;
use crate::remember::is_filter_or_reader;
use crate::verdict::JudgedCommand;

/// A longer list is not proposed.
const MAX_LISTED: usize = 100;

/// What an entry for a command binds, as flags of `allowlist add` and in words.
pub(super) struct CommandShape {
    pub(super) flags: String,
    pub(super) words: &'static str,
}

/// Returns the shape of a command: its exact arguments. Only a filter or reader of the system needs
/// no bound arguments, because it does no harm with any.
pub(super) fn of_command(judged: &JudgedCommand, trusted_dirs: &[String]) -> CommandShape {
    let arguments = &judged.argv[1..];
    if is_system_reader(judged, trusted_dirs) {
        return CommandShape {
            flags: String::new(),
            words: "",
        };
    }
    let is_listed = arguments.len() <= MAX_LISTED && !arguments.iter().any(|one| has_wildcard(one));
    if !is_listed {
        return CommandShape {
            flags: format!(" --arg-pattern={}", digest_pattern(arguments, &judged.cwd)),
            words: " with exactly these arguments in this directory",
        };
    }
    let mut flags = String::new();
    if arguments.is_empty() {
        flags.push_str(" --arg-pattern='^$'");
    }
    for argument in arguments {
        flags += &format!(" --arg={}", quote(argument));
    }
    // An interpreter runs a file of this directory.
    let runs_files = judged
        .argv
        .first()
        .is_some_and(|name| reach(name) == Some(Reach::Interpreter));
    let words = match (
        runs_files && !has_wildcard(&judged.cwd),
        arguments.is_empty(),
    ) {
        (true, _) => {
            flags += &format!(" --cwd={}", quote(&judged.cwd));
            " with exactly these arguments in this directory"
        }
        (false, true) => " without arguments",
        (false, false) => " with exactly these arguments",
    };
    CommandShape { flags, words }
}

/// Checks the name of the call, the real name of the file, and the directory of the file.
fn is_system_reader(judged: &JudgedCommand, trusted_dirs: &[String]) -> bool {
    let (Some(name), Some(found), Some(canonical)) = (
        judged.argv.first(),
        judged.resolved.as_deref(),
        judged.canonical.as_deref(),
    ) else {
        return false;
    };
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let name = base(name);
    is_filter_or_reader(&name)
        && is_filter_or_reader(&base(canonical))
        && in_trusted_dir(found, canonical, &name, trusted_dirs)
}
