//! `git`: further subcommands of which some forms only list.
//!
//! Left out are `remote show` and `ls-remote`, which ask a server, `worktree list`, which names
//! directories elsewhere, `config --list`, which shows credentials among the settings, and every
//! option that writes, takes names from standard input, starts a program or leaves the repository.

use super::RefusedArgument;
use super::git::GIT;
use super::parse::{ArgumentRow, OperandRule, ParsedArguments};

const STARTS: &str = "it starts a program";
const CHANGES: &str = "it changes the repository";
const LEAVES: &str = "it reads files that are not of the repository";

/// Subcommands with a second word that says what they do.
pub(super) const TWO_WORDS: &[(&str, &str, ArgumentRow)] = &[
    (
        "remote",
        "get-url",
        ArgumentRow {
            long_flags: &["all", "push"],
            operands: OperandRule::Texts,
            ..GIT
        },
    ),
    (
        "stash",
        "list",
        ArgumentRow {
            flags: "p",
            values: "n",
            long_flags: &["name-only", "name-status", "oneline", "patch", "stat"],
            long_values: &["date", "format", "max-count"],
            long_attached: &["pretty"],
            numbers: true,
            ..GIT
        },
    ),
    (
        "stash",
        "show",
        ArgumentRow {
            flags: "pu",
            long_flags: &[
                "include-untracked",
                "name-only",
                "name-status",
                "no-color",
                "numstat",
                "only-untracked",
                "patch",
                "shortstat",
                "stat",
            ],
            ..GIT
        },
    ),
];

pub(super) const ROWS: &[ArgumentRow] = &[
    ArgumentRow {
        names: &["remote"],
        flags: "v",
        long_flags: &["verbose"],
        operands: OperandRule::Nothing,
        ..GIT
    },
    ArgumentRow {
        names: &["tag"],
        flags: "il",
        attached: "n",
        long_flags: &["ignore-case", "list", "no-column", "omit-empty"],
        long_values: &["format", "sort"],
        long_attached: &[
            "color",
            "column",
            "contains",
            "merged",
            "no-contains",
            "no-merged",
            "points-at",
        ],
        refused: &[("-d", CHANGES), ("--delete", CHANGES), ("-v", STARTS)],
        operands: OperandRule::Texts,
        inspect: Some(tag_only_lists),
        ..GIT
    },
    ArgumentRow {
        // `--dirty` is not listed, because it writes the index.
        names: &["describe"],
        long_flags: &[
            "all",
            "always",
            "contains",
            "exact-match",
            "first-parent",
            "long",
            "tags",
        ],
        long_values: &["candidates", "exclude", "match"],
        long_attached: &["abbrev"],
        ..GIT
    },
    ArgumentRow {
        names: &["ls-tree"],
        flags: "dlrtz",
        long_flags: &[
            "full-name",
            "full-tree",
            "long",
            "name-only",
            "name-status",
            "object-only",
        ],
        long_values: &["format"],
        long_attached: &["abbrev"],
        ..GIT
    },
    ArgumentRow {
        names: &["cat-file"],
        flags: "epst",
        refused: &[("--textconv", STARTS), ("--filters", STARTS)],
        ..GIT
    },
    ArgumentRow {
        names: &["merge-base"],
        flags: "a",
        long_flags: &["all", "fork-point", "independent", "is-ancestor", "octopus"],
        ..GIT
    },
    ArgumentRow {
        names: &["rev-list"],
        flags: "gi",
        values: "n",
        long_flags: &[
            "abbrev-commit",
            "all",
            "ancestry-path",
            "author-date-order",
            "boundary",
            "cherry-mark",
            "cherry-pick",
            "children",
            "count",
            "date-order",
            "first-parent",
            "full-history",
            "left-only",
            "left-right",
            "merges",
            "no-merges",
            "objects",
            "oneline",
            "parents",
            "reverse",
            "right-only",
            "timestamp",
            "topo-order",
        ],
        long_values: &[
            "after",
            "author",
            "before",
            "committer",
            "format",
            "grep",
            "max-count",
            "since",
            "skip",
            "until",
        ],
        long_attached: &["abbrev", "branches", "pretty", "remotes", "tags"],
        numbers: true,
        ..GIT
    },
    ArgumentRow {
        names: &["shortlog"],
        flags: "cens",
        long_flags: &[
            "all",
            "committer",
            "email",
            "merges",
            "no-merges",
            "numbered",
            "summary",
        ],
        long_values: &[
            "after", "author", "before", "format", "group", "since", "until",
        ],
        numbers: true,
        ..GIT
    },
    ArgumentRow {
        names: &["reflog"],
        values: "n",
        long_flags: &[
            "all",
            "no-abbrev",
            "no-abbrev-commit",
            "oneline",
            "relative-date",
        ],
        long_values: &[
            "after",
            "before",
            "date",
            "format",
            "max-count",
            "since",
            "until",
        ],
        long_attached: &["abbrev", "pretty"],
        numbers: true,
        inspect: Some(reflog_only_shows),
        ..GIT
    },
    ArgumentRow {
        names: &["show-ref"],
        flags: "dqs",
        long_flags: &[
            "branches",
            "dereference",
            "head",
            "heads",
            "quiet",
            "tags",
            "verify",
        ],
        long_attached: &["abbrev", "hash"],
        operands: OperandRule::Texts,
        ..GIT
    },
    ArgumentRow {
        names: &["for-each-ref"],
        long_flags: &["ignore-case", "omit-empty"],
        long_values: &["count", "exclude", "format", "points-at", "sort"],
        long_attached: &["color", "contains", "merged", "no-contains", "no-merged"],
        operands: OperandRule::Texts,
        ..GIT
    },
    ArgumentRow {
        names: &["name-rev"],
        long_flags: &["all", "always", "name-only", "tags"],
        long_values: &["exclude", "refs"],
        ..GIT
    },
    ArgumentRow {
        names: &["check-ignore"],
        flags: "nqv",
        long_flags: &["non-matching", "quiet", "verbose"],
        refused: &[(
            "--stdin",
            "it takes the files to look at from standard input",
        )],
        ..GIT
    },
    ArgumentRow {
        names: &["config"],
        long_flags: &[
            "get",
            "global",
            "local",
            "show-origin",
            "show-scope",
            "system",
        ],
        refused: &[
            ("-l", "it shows credentials among the settings"),
            ("--list", "it shows credentials among the settings"),
            ("-f", LEAVES),
            ("--file", LEAVES),
            ("--unset", CHANGES),
            ("--add", CHANGES),
            ("-e", STARTS),
            ("--edit", STARTS),
        ],
        operands: OperandRule::Texts,
        inspect: Some(config_shows_one_setting),
        ..GIT
    },
    ArgumentRow {
        names: &["symbolic-ref"],
        flags: "q",
        long_flags: &["quiet", "short"],
        refused: &[("-d", CHANGES), ("--delete", CHANGES), ("-m", CHANGES)],
        operands: OperandRule::Texts,
        inspect: Some(symbolic_ref_only_shows),
        ..GIT
    },
    ArgumentRow {
        names: &["count-objects"],
        flags: "vH",
        long_flags: &["human-readable", "verbose"],
        operands: OperandRule::Nothing,
        ..GIT
    },
    ArgumentRow {
        names: &["diff-tree"],
        flags: "cmprstz",
        long_flags: &[
            "cc",
            "name-only",
            "name-status",
            "no-commit-id",
            "no-renames",
            "numstat",
            "patch",
            "root",
            "shortstat",
            "stat",
        ],
        long_values: &["diff-filter"],
        long_attached: &["abbrev", "find-renames"],
        ..GIT
    },
    ArgumentRow {
        names: &["cherry"],
        flags: "v",
        long_flags: &["verbose"],
        long_attached: &["abbrev"],
        ..GIT
    },
    ArgumentRow {
        // It starts `git log -p`, with the same settings.
        names: &["range-diff"],
        long_flags: &[
            "left-only",
            "no-color",
            "no-dual-color",
            "no-notes",
            "no-patch",
            "right-only",
        ],
        long_values: &["creation-factor"],
        ..GIT
    },
    ArgumentRow {
        names: &["show-branch"],
        flags: "ar",
        long_flags: &[
            "all",
            "current",
            "date-order",
            "independent",
            "list",
            "merge-base",
            "no-color",
            "no-name",
            "remotes",
            "sha1-name",
            "sparse",
            "topics",
            "topo-order",
        ],
        long_attached: &["more"],
        operands: OperandRule::Texts,
        ..GIT
    },
    ArgumentRow {
        // `--untracked` is not listed, because it follows links among untracked files.
        names: &["grep"],
        flags: "acEFGHhIiLlnoPpqvWwz",
        values: "ABCem",
        long_flags: &[
            "all-match",
            "basic-regexp",
            "break",
            "cached",
            "column",
            "count",
            "extended-regexp",
            "files-with-matches",
            "files-without-match",
            "fixed-strings",
            "full-name",
            "function-context",
            "heading",
            "ignore-case",
            "invert-match",
            "line-number",
            "name-only",
            "no-color",
            "no-textconv",
            "only-matching",
            "perl-regexp",
            "quiet",
            "show-function",
            "text",
            "word-regexp",
        ],
        long_values: &[
            "after-context",
            "before-context",
            "context",
            "max-count",
            "max-depth",
        ],
        long_attached: &["color"],
        refused: &[
            ("-O", STARTS),
            ("--open-files-in-pager", STARTS),
            ("--textconv", STARTS),
            ("--no-index", LEAVES),
            ("--untracked", LEAVES),
            ("-f", LEAVES),
        ],
        numbers: true,
        operands: OperandRule::TextThenFiles(&["-e"]),
        ..GIT
    },
];

/// A name creates a tag, unless an option makes names patterns.
fn tag_only_lists(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    match parsed.operands.first() {
        Some(&(index, _)) if !parsed.has_any(&["-l", "--list"]) => Err(RefusedArgument::new(
            index,
            "without --list a name makes a tag",
        )),
        _ => Ok(()),
    }
}

/// Subcommands of `reflog` besides `show`.
const REFLOG_CHANGES: [&str; 7] = [
    "delete", "drop", "exists", "expire", "list", "migrate", "write",
];

fn reflog_only_shows(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    let mut operands = parsed.operands.iter();
    match operands.find(|(_, word)| REFLOG_CHANGES.contains(word)) {
        Some(&(index, _)) => Err(RefusedArgument::new(index, CHANGES)),
        None => Ok(()),
    }
}

/// Settings that contain no credential and that Interlock does not set for the run.
const SHOWN_SETTINGS: &[&str] = &[
    "core.autocrlf",
    "core.bare",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "init.defaultbranch",
    "pull.rebase",
    "push.default",
    "user.email",
    "user.name",
];

/// Settings of a branch or a remote, by the last part of their name. `git remote -v` also shows the
/// addresses.
const SHOWN_OF_NAMES: &[(&str, &[&str])] = &[
    ("branch.", &[".merge", ".rebase", ".remote"]),
    ("remote.", &[".url"]),
];

/// One name shows a setting. A second word would be its new value.
fn config_shows_one_setting(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    let [(index, name)] = parsed.operands.as_slice() else {
        let index = parsed.operands.last().map_or(0, |(index, _)| *index);
        return Err(RefusedArgument::new(index, "only one setting is shown"));
    };
    let name = name.to_ascii_lowercase();
    let is_of_name = SHOWN_OF_NAMES.iter().any(|(section, keys)| {
        let rest = name.strip_prefix(section);
        rest.is_some_and(|rest| keys.iter().any(|key| rest.ends_with(key)))
    });
    if is_of_name || SHOWN_SETTINGS.contains(&name.as_str()) {
        return Ok(());
    }
    let why = "the setting is not known to hold no credential";
    Err(RefusedArgument::new(*index, why))
}

/// A second word would be the new target of the first.
fn symbolic_ref_only_shows(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    match parsed.operands.get(1) {
        Some(&(index, _)) => Err(RefusedArgument::new(index, CHANGES)),
        None => Ok(()),
    }
}
