//! Decides which of git's settings could make it start a program.

use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

pub(super) const SETTING: &str = "a setting can name programs to start";

/// Settings that only change how things look or are counted, whatever their value.
const HARMLESS_SETTINGS: [&str; 37] = [
    "advice.",
    "author.email",
    "author.name",
    "color.",
    "column.",
    "commit.gpgsign",
    "commit.verbose",
    "committer.email",
    "committer.name",
    "core.abbrev",
    "core.autocrlf",
    "core.bigfilethreshold",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.longpaths",
    "core.precomposeunicode",
    "core.preloadindex",
    "core.quotepath",
    "core.safecrlf",
    "core.untrackedcache",
    "diff.algorithm",
    "diff.colormoved",
    "diff.context",
    "diff.noprefix",
    "diff.renamelimit",
    "diff.renames",
    "fetch.prune",
    "gc.auto",
    "init.defaultbranch",
    "log.",
    "merge.conflictstyle",
    "pull.ff",
    "pull.rebase",
    "push.default",
    "user.email",
    "user.name",
];

/// Settings that name a program or a file, with the values that switch them off.
const SWITCHED_OFF: [(&str, &[&str]); 8] = [
    ("core.pager", &["", "cat", "less"]),
    ("pager.", &["false", "true", "0", "no", "cat"]),
    ("core.editor", &["true", ":", "cat"]),
    ("sequence.editor", &["true", ":", "cat"]),
    ("core.hookspath", &["/dev/null"]),
    ("core.fsmonitor", &["false", "0", "no"]),
    ("credential.helper", &[""]),
    ("maintenance.auto", &["false", "0", "no"]),
];

/// Whether `key=value` could make git start a program, or trust another host or key.
pub(super) fn setting_matters(setting: &str) -> bool {
    let (key, value) = setting.split_once('=').unwrap_or((setting, "true"));
    let key = key.trim().to_ascii_lowercase();
    let is = |known: &str| key == known || (known.ends_with('.') && key.starts_with(known));
    let harmless = HARMLESS_SETTINGS.iter().any(|known| is(known));
    let off = SWITCHED_OFF
        .iter()
        .any(|(known, values)| is(known) && values.contains(&value));
    !harmless && !off
}

/// Finds a `git config` call that stores a setting that could name a program, or that edits another
/// file.
pub(super) fn config_write(
    call: &Invocation<'_>,
    at: usize,
    own: &ParsedLine<'_>,
) -> Option<InlineHit> {
    let reading = [
        "--get",
        "--get-all",
        "--get-regexp",
        "--get-urlmatch",
        "--list",
        "-l",
        "--get-color",
        "--get-colorbool",
        "--unset",
        "--unset-all",
        "--remove-section",
    ];
    if own.has(&["-e", "--edit"]) {
        return Some(call.hit("config --edit", HitKind::OtherConfig, at, SETTING));
    }
    if own.has(&reading) {
        return None;
    }
    let mut words = own.operands.iter().map(|&index| call.argv[index]);
    let key = match words.next()? {
        "get" | "list" | "unset" | "remove-section" => return None,
        "edit" => return Some(call.hit("config edit", HitKind::OtherConfig, at, SETTING)),
        "set" => words.next()?,
        key => key,
    };
    let matters = setting_matters(&format!("{key}={}", words.next()?));
    matters.then(|| call.hit("config", HitKind::OtherConfig, at, SETTING))
}
