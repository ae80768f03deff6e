//! `git`: a row for each subcommand that only reads, and the settings that keep git from starting
//! programs that the repository names.

use super::parse::{ArgumentRow, OperandRule, ParsedArguments};
use super::{FileOperand, FileUse, OperandKind, RefusedArgument, git_lists};

const STARTS: &str = "it starts a program";
const WRITES: &str = "it writes a file";
const READS: &str = "it reads a further file";
const CHANGES: &str = "it changes the repository";

/// Settings of a repository that would start a program, write or reach elsewhere, with safe values.
const SETTINGS: &[(&str, &str)] = &[
    // Git asks this program, which may have any name, about changed files.
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("gpg.program", "/bin/false"),
    ("gpg.openpgp.program", "/bin/false"),
    ("gpg.ssh.program", "/bin/false"),
    ("gpg.x509.program", "/bin/false"),
    ("log.showSignature", "false"),
    // Git would fetch objects that a partial clone lacks.
    ("protocol.allow", "never"),
    // Files of the workspace that look like a repository do not count as one.
    ("safe.bareRepository", "explicit"),
    ("status.submoduleSummary", "false"),
];

/// Variables that git obeys, set for the same reasons.
const VARIABLES: &[(&str, &str)] = &[
    ("GIT_NO_LAZY_FETCH", "1"),
    // Keeps git from writing the index.
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// Options before the subcommand that point nowhere else.
const GLOBAL_FLAGS: &[&str] = &["--no-pager", "-P", "--no-optional-locks"];

/// Settings that may precede the subcommand (`-c NAME=VALUE`). They change only how the output
/// looks.
const OUTPUT_SETTINGS: &[&str] = &[
    "color.ui=always",
    "color.ui=auto",
    "color.ui=false",
    "color.ui=never",
    "core.pager=cat",
    "core.quotepath=false",
    "core.quotepath=off",
];

/// Skips the options before the subcommand. Returns where the subcommand begins, and the directory
/// to which git is sent.
fn global_options<'a>(argv: &[&'a str]) -> (usize, Option<FileOperand<'a>>) {
    let mut index = 1;
    let mut directory = None;
    loop {
        let value = argv.get(index + 1).copied().unwrap_or_default();
        match argv.get(index) {
            Some(word) if GLOBAL_FLAGS.contains(word) => index += 1,
            Some(&"-c") if OUTPUT_SETTINGS.contains(&value.to_ascii_lowercase().as_str()) => {
                index += 2;
            }
            // A second `-C` would be relative to the first.
            Some(&"-C") if directory.is_none() && !value.is_empty() => {
                directory = Some(FileOperand {
                    index: index + 1,
                    path: value,
                    wants: OperandKind::Any,
                });
                index += 2;
            }
            _ => return (index, directory),
        }
    }
}

pub(super) fn file_use<'a>(argv: &[&'a str]) -> Result<FileUse<'a>, RefusedArgument> {
    let (index, directory) = global_options(argv);
    match argv.get(index) {
        Some(&("--version" | "-v" | "version")) if argv.len() == index + 1 => {
            Ok(FileUse::of(Vec::new()))
        }
        Some(word) if word.starts_with('-') => {
            let why = "before the subcommand it may point at another repository or set anything";
            Err(RefusedArgument::new(index, why))
        }
        Some(name) => {
            let second = argv.get(index + 1);
            let mut two_words = git_lists::TWO_WORDS.iter();
            let two_words =
                two_words.find(|(first, next, _)| first == name && second == Some(next));
            let mut rows = ROWS.iter().chain(git_lists::ROWS);
            let (row, start) = match two_words {
                Some((_, _, row)) => (Some(row), index + 2),
                None => (rows.find(|row| row.names.contains(name)), index + 1),
            };
            let row = row.ok_or_else(|| {
                RefusedArgument::new(index, "the subcommand is not known to only read")
            })?;
            Ok(FileUse {
                // Revisions and patterns look like files.
                reads_cwd: true,
                reads_repository: true,
                directory,
                environment: environment(),
                ..row.file_use(argv, start)?
            })
        }
        None => Err(RefusedArgument::new(0, "a subcommand is missing")),
    }
}

fn environment() -> Vec<(String, String)> {
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    let mut all: Vec<(String, String)> = VARIABLES.iter().map(own).collect();
    all.push(("GIT_CONFIG_COUNT".to_owned(), SETTINGS.len().to_string()));
    for (index, (key, value)) in SETTINGS.iter().enumerate() {
        all.push((format!("GIT_CONFIG_KEY_{index}"), (*key).to_owned()));
        all.push((format!("GIT_CONFIG_VALUE_{index}"), (*value).to_owned()));
    }
    all
}

/// The base of all git rows. Many options of git take a value only if it is attached, and some only
/// in some subcommands: `git log -U --output=FILE` writes.
pub(super) const GIT: ArgumentRow = ArgumentRow {
    doubtful_values: true,
    ..ArgumentRow::NONE
};

/// The options that `diff`, `log` and `show` share.
const DIFFERENCES: ArgumentRow = ArgumentRow {
    flags: "abcgimpqrstuwzEFPDRW",
    values: "GILSUln",
    attached: "BCMX",
    long_flags: &[
        "abbrev-commit",
        "all",
        "all-match",
        "ancestry-path",
        "author-date-order",
        "binary",
        "boundary",
        "cached",
        "cc",
        "check",
        "cherry",
        "cherry-mark",
        "cherry-pick",
        "children",
        "clear-decorations",
        "combined-all-paths",
        "compact-summary",
        "cumulative",
        "date-order",
        "default-prefix",
        "dense",
        "dirstat-by-file",
        "do-walk",
        "exit-code",
        "extended-regexp",
        "find-copies-harder",
        "first-parent",
        "fixed-strings",
        "follow",
        "full-diff",
        "full-history",
        "full-index",
        "function-context",
        "graph",
        "histogram",
        "ignore-all-space",
        "ignore-blank-lines",
        "ignore-cr-at-eol",
        "ignore-missing",
        "ignore-space-at-eol",
        "ignore-space-change",
        "indent-heuristic",
        "invert-grep",
        "irreversible-delete",
        "ita-invisible-in-index",
        "left-only",
        "left-right",
        "log-size",
        "merge",
        "merge-base",
        "merges",
        "minimal",
        "name-only",
        "name-status",
        "no-abbrev-commit",
        "no-color",
        "no-color-moved",
        "no-decorate",
        "no-expand-tabs",
        "no-ext-diff",
        "no-graph",
        "no-indent-heuristic",
        "no-mailmap",
        "no-merges",
        "no-notes",
        "no-patch",
        "no-prefix",
        "no-relative",
        "no-rename-empty",
        "no-renames",
        "no-textconv",
        "not",
        "numstat",
        "oneline",
        "parents",
        "patch",
        "patch-with-raw",
        "patch-with-stat",
        "patience",
        "perl-regexp",
        "pickaxe-all",
        "pickaxe-regex",
        "quiet",
        "raw",
        "regexp-ignore-case",
        "relative-date",
        "remerge-diff",
        "reverse",
        "right-only",
        "shortstat",
        "show-linear-break",
        "show-pulls",
        "simplify-by-decoration",
        "simplify-merges",
        "source",
        "sparse",
        "staged",
        "summary",
        "text",
        "topo-order",
        "use-mailmap",
        "walk-reflogs",
    ],
    long_values: &[
        "after",
        "anchored",
        "author",
        "before",
        "committer",
        "date",
        "decorate-refs",
        "decorate-refs-exclude",
        "diff-algorithm",
        "diff-filter",
        "dst-prefix",
        "encoding",
        "exclude",
        "find-object",
        "format",
        "glob",
        "grep",
        "grep-reflog",
        "inter-hunk-context",
        "line-prefix",
        "max-count",
        "max-parents",
        "min-parents",
        "output-indicator-context",
        "output-indicator-new",
        "output-indicator-old",
        "rotate-to",
        "since",
        "since-as-filter",
        "skip",
        "skip-to",
        "src-prefix",
        "stat-count",
        "stat-graph-width",
        "stat-name-width",
        "stat-width",
        "unified",
        "until",
        "word-diff-regex",
        "ws-error-highlight",
    ],
    long_attached: &[
        "abbrev",
        "branches",
        "break-rewrites",
        "color",
        "color-moved",
        "color-moved-ws",
        "color-words",
        "decorate",
        "diff-merges",
        "dirstat",
        "expand-tabs",
        "find-copies",
        "find-renames",
        "ignore-submodules",
        "no-walk",
        "notes",
        "pretty",
        "relative",
        "remotes",
        "show-notes",
        "stat",
        "tags",
        "word-diff",
    ],
    refused: &[
        ("--output", WRITES),
        ("--ext-diff", STARTS),
        ("--textconv", STARTS),
        ("--no-index", "it compares any two files"),
        ("-O", READS),
        ("--show-signature", STARTS),
    ],
    numbers: true,
    ..GIT
};

const ROWS: &[ArgumentRow] = &[
    ArgumentRow {
        names: &["diff", "log", "show", "whatchanged"],
        ..DIFFERENCES
    },
    ArgumentRow {
        names: &["status"],
        flags: "bsvz",
        attached: "uM",
        long_flags: &[
            "ahead-behind",
            "branch",
            "long",
            "no-ahead-behind",
            "no-column",
            "no-renames",
            "null",
            "renames",
            "short",
            "show-stash",
            "verbose",
        ],
        long_attached: &[
            "column",
            "find-renames",
            "ignored",
            "ignore-submodules",
            "porcelain",
            "untracked-files",
        ],
        ..GIT
    },
    ArgumentRow {
        names: &["branch"],
        flags: "aqrvi",
        long_flags: &[
            "all",
            "ignore-case",
            "list",
            "no-abbrev",
            "no-color",
            "no-column",
            "omit-empty",
            "quiet",
            "remotes",
            "show-current",
            "verbose",
        ],
        long_values: &[
            "contains",
            "format",
            "merged",
            "no-contains",
            "no-merged",
            "points-at",
            "sort",
        ],
        long_attached: &["abbrev", "color", "column"],
        refused: &[
            ("-d", CHANGES),
            ("-D", CHANGES),
            ("-m", CHANGES),
            ("-M", CHANGES),
            ("-c", CHANGES),
            ("-C", CHANGES),
            ("-f", CHANGES),
            ("-u", CHANGES),
            ("-t", CHANGES),
            ("--delete", CHANGES),
            ("--move", CHANGES),
            ("--copy", CHANGES),
            ("--force", CHANGES),
            ("--track", CHANGES),
            ("--set-upstream-to", CHANGES),
            ("--unset-upstream", CHANGES),
            ("--edit-description", STARTS),
            ("-l", "in earlier versions it makes a branch; use --list"),
        ],
        operands: OperandRule::Texts,
        inspect: Some(branch_only_lists),
        ..GIT
    },
    ArgumentRow {
        names: &["rev-parse"],
        flags: "q",
        long_flags: &[
            "absolute-git-dir",
            "all",
            "git-common-dir",
            "git-dir",
            "is-bare-repository",
            "is-inside-git-dir",
            "is-inside-work-tree",
            "is-shallow-repository",
            "no-flags",
            "no-revs",
            "not",
            "quiet",
            "revs-only",
            "show-cdup",
            "show-prefix",
            "show-superproject-working-tree",
            "show-toplevel",
            "symbolic",
            "symbolic-full-name",
            "verify",
        ],
        long_attached: &[
            "abbrev-ref",
            "branches",
            "path-format",
            "remotes",
            "short",
            "show-object-format",
            "tags",
        ],
        refused: &[("--resolve-git-dir", READS)],
        ..GIT
    },
    ArgumentRow {
        names: &["ls-files"],
        flags: "cdfikmostuvz",
        values: "x",
        files: "X",
        long_flags: &[
            "cached",
            "debug",
            "deduplicate",
            "deleted",
            "directory",
            "empty-directory",
            "eol",
            "error-unmatch",
            "exclude-standard",
            "full-name",
            "ignored",
            "killed",
            "modified",
            "no-empty-directory",
            "others",
            "resolve-undo",
            "sparse",
            "stage",
            "unmerged",
        ],
        long_values: &["exclude", "format"],
        long_attached: &["abbrev"],
        long_files: &["exclude-from"],
        refused: &[
            ("--exclude-per-directory", READS),
            ("--recurse-submodules", STARTS),
            ("--with-tree", "it is not known to name no file"),
        ],
        ..GIT
    },
    ArgumentRow {
        names: &["blame", "annotate"],
        flags: "bceflnpstw",
        values: "L",
        attached: "CM",
        long_flags: &[
            "color-by-age",
            "color-lines",
            "incremental",
            "line-porcelain",
            "minimal",
            "no-progress",
            "porcelain",
            "progress",
            "root",
            "score-debug",
            "show-email",
            "show-name",
            "show-number",
            "show-stats",
            "first-parent",
        ],
        long_values: &["date", "ignore-rev", "since"],
        long_attached: &["abbrev"],
        long_files: &["contents", "ignore-revs-file"],
        refused: &[("-S", READS)],
        ..GIT
    },
];

/// A name creates a branch, unless `--list` makes it a pattern.
fn branch_only_lists(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    match parsed.operands.first() {
        Some(&(index, _)) if !parsed.has_any(&["--list"]) => Err(RefusedArgument::new(
            index,
            "without --list a name makes a branch",
        )),
        _ => Ok(()),
    }
}
