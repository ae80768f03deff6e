//! Rows of programs that print, compare and transform text.

use super::parse::{ArgumentRow, OperandRule, ParsedArguments};
use super::{RefusedArgument, awk};
use crate::inline;

const WRITES: &str = "it writes a file";
const STARTS: &str = "it starts a program";
const READS: &str = "it reads a further file";

pub(super) const ROWS: &[ArgumentRow] = &[
    ArgumentRow {
        names: &["sort"],
        flags: "bcCdfghiMmnRrsuVz",
        values: "ktS",
        long_flags: &[
            "debug",
            "dictionary-order",
            "general-numeric-sort",
            "help",
            "human-numeric-sort",
            "ignore-case",
            "ignore-leading-blanks",
            "ignore-nonprinting",
            "merge",
            "month-sort",
            "numeric-sort",
            "random-sort",
            "reverse",
            "stable",
            "unique",
            "version",
            "version-sort",
            "zero-terminated",
        ],
        long_values: &[
            "batch-size",
            "buffer-size",
            "field-separator",
            "key",
            "parallel",
            "sort",
        ],
        long_attached: &["check"],
        refused: &[
            ("-o", WRITES),
            ("--output", WRITES),
            ("-T", "it writes files there"),
            ("--temporary-directory", "it writes files there"),
            ("--compress-program", STARTS),
            ("--files0-from", "it takes the files to look at from a file"),
            ("--random-source", READS),
        ],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["uniq"],
        flags: "cdDiuz",
        values: "fsw",
        long_flags: &[
            "count",
            "help",
            "ignore-case",
            "repeated",
            "unique",
            "version",
            "zero-terminated",
        ],
        long_values: &["check-chars", "skip-chars", "skip-fields"],
        long_attached: &["all-repeated", "group"],
        operands: OperandRule::AtMost(1),
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["shuf"],
        flags: "erz",
        values: "in",
        long_flags: &["echo", "help", "repeat", "version", "zero-terminated"],
        long_values: &["head-count", "input-range"],
        refused: &[
            ("-o", WRITES),
            ("--output", WRITES),
            ("--random-source", READS),
        ],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        // The language of `bc` has neither files nor programs. `-i` is not listed, because it would
        // wait for a terminal.
        names: &["bc"],
        flags: "lqsw",
        long_flags: &["help", "mathlib", "quiet", "standard", "version", "warn"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["cut"],
        flags: "nsz",
        values: "bcdf",
        long_flags: &[
            "complement",
            "help",
            "only-delimited",
            "version",
            "zero-terminated",
        ],
        long_values: &[
            "bytes",
            "characters",
            "delimiter",
            "fields",
            "output-delimiter",
        ],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["diff"],
        flags: "abBcdeEiNnpPqrstTuwyZ",
        values: "CFILSUWx",
        long_flags: &[
            "brief",
            "ed",
            "expand-tabs",
            "help",
            "ignore-all-space",
            "ignore-blank-lines",
            "ignore-case",
            "ignore-file-name-case",
            "ignore-space-change",
            "ignore-tab-expansion",
            "ignore-trailing-space",
            "initial-tab",
            "left-column",
            "minimal",
            "new-file",
            "no-dereference",
            "no-ignore-file-name-case",
            "normal",
            "rcs",
            "recursive",
            "report-identical-files",
            "show-c-function",
            "side-by-side",
            "speed-large-files",
            "strip-trailing-cr",
            "suppress-blank-empty",
            "suppress-common-lines",
            "text",
            "unidirectional-new-file",
            "version",
        ],
        long_values: &[
            "exclude",
            "horizon-lines",
            "ignore-matching-lines",
            "label",
            "palette",
            "show-function-line",
            "starting-file",
            "tabsize",
            "width",
        ],
        long_attached: &["color", "context", "unified"],
        refused: &[
            ("-l", STARTS),
            ("--paginate", STARTS),
            ("-X", READS),
            ("--exclude-from", READS),
            ("--from-file", READS),
            ("--to-file", READS),
        ],
        operands: OperandRule::FilesUnless(&["--no-dereference"]),
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["cmp"],
        flags: "blsv",
        values: "in",
        long_flags: &[
            "help",
            "print-bytes",
            "quiet",
            "silent",
            "verbose",
            "version",
        ],
        long_values: &["bytes", "ignore-initial"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["jq"],
        flags: "acCehjMnrRsSV",
        long_flags: &[
            "ascii-output",
            "color-output",
            "compact-output",
            "exit-status",
            "help",
            "join-output",
            "monochrome-output",
            "null-input",
            "raw-input",
            "raw-output",
            "raw-output0",
            "seq",
            "slurp",
            "sort-keys",
            "stream",
            "stream-errors",
            "tab",
            "unbuffered",
            "version",
        ],
        long_several: &[("arg", 2), ("argjson", 2), ("indent", 1)],
        refused: &[
            ("-f", "the program is in a file"),
            ("--from-file", "the program is in a file"),
            ("-L", "it loads modules"),
            ("--library-path", "it loads modules"),
            ("--slurpfile", READS),
            ("--rawfile", READS),
            ("--args", "what follows is no file"),
            ("--jsonargs", "what follows is no file"),
        ],
        operands: OperandRule::TextThenFiles(&[]),
        inspect: Some(jq_reads_operands_only),
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["sed"],
        flags: "Ehnrsuz",
        values: "el",
        long_flags: &[
            "debug",
            "help",
            "null-data",
            "posix",
            "quiet",
            "regexp-extended",
            "sandbox",
            "separate",
            "silent",
            "unbuffered",
            "version",
            "zero-terminated",
        ],
        long_values: &["expression", "line-length"],
        refused: &[
            ("-i", "it replaces the files it reads"),
            ("--in-place", "it replaces the files it reads"),
            ("-f", "the program is in a file"),
            ("--file", "the program is in a file"),
            ("--follow-symlinks", "it follows links"),
        ],
        operands: OperandRule::TextThenFiles(&["-e", "--expression"]),
        inspect: Some(sed_only_edits_text),
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["awk"],
        values: "Fv",
        long_values: &["assign", "field-separator"],
        refused: &[
            ("-f", "the program is in a file"),
            ("--file", "the program is in a file"),
            ("-i", "it loads code"),
            ("--include", "it loads code"),
            ("-l", "it loads code"),
            ("--load", "it loads code"),
        ],
        options_first: true,
        operands: OperandRule::TextThenFiles(&[]),
        inspect: Some(awk_only_prints),
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        // The programs of these names, not the builtins of a shell. None of their options names a
        // file.
        names: &["echo", "printf"],
        operands: OperandRule::Texts,
        ..ArgumentRow::ANY_WORDS
    },
];

/// Names in a `jq` program that reach beyond the input: the environment, which may contain secrets,
/// and modules, which are files.
const JQ_REACHES: &[&str] = &[
    "ENV",
    "env",
    "get_search_list",
    "import",
    "include",
    "input_filename",
    "modulemeta",
];

fn jq_reads_operands_only(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    let Some(&(index, program)) = parsed.operands.first() else {
        return Ok(());
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = program.split(|c: char| !is_word(c));
    // `.env` is a field of the input; `..env` would be two terms.
    let start = |name: &str| name.as_ptr().addr() - program.as_ptr().addr();
    let is_field = |name: &str| {
        let front = &program[..start(name)];
        front.ends_with('.') && !front.ends_with("..")
    };
    if names.any(|name| (JQ_REACHES.contains(&name) || name.starts_with("__")) && !is_field(name)) {
        let why = "the program may read the environment or load modules";
        return Err(RefusedArgument::new(index, why));
    }
    Ok(())
}

/// Refuses sed scripts that the table of inline code recognizes as writing files, reading files or
/// running commands.
fn sed_only_edits_text(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    let mut argv = vec!["sed".to_owned()];
    let mut last = None;
    for (name, value, index) in &parsed.options {
        argv.push(name.clone());
        if matches!(
            name.as_str(),
            "-e" | "--expression" | "-l" | "--line-length"
        ) {
            argv.extend(value.map(str::to_owned));
        }
        last = last.or(Some(*index));
    }
    argv.push("--".to_owned());
    argv.extend(parsed.operands.iter().map(|(_, word)| (*word).to_owned()));
    // `--sandbox` is not trusted, because a sed that does not know the option does not obey it.
    argv.retain(|word| word != "--sandbox");
    match inline::detect(&argv) {
        Some(hit) => {
            let index = parsed.operands.first().map(|(index, _)| *index);
            Err(RefusedArgument::new(
                index.or(last).unwrap_or(0),
                hit.reason,
            ))
        }
        None => Ok(()),
    }
}

/// Checks the program text. Assignments among the operands can set any variable, but they name no
/// file themselves.
fn awk_only_prints(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    let Some(&(index, program)) = parsed.operands.first() else {
        return Ok(());
    };
    match awk::reach(program) {
        Some(why) => Err(RefusedArgument::new(index, why)),
        None => Ok(()),
    }
}
