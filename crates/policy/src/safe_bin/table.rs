//! The built-in profiles, as data.
//!
//! A flag that is not listed is refused. A flag is listed only if it can neither open a file, nor
//! start a program, nor keep the command running after its input ended.

use super::operand::SafeBinOperandKind::{
    self, Delimiter, List, Number, Pattern, Set, SortKey, Text, Word,
};
use super::profile::Arity::{self, AttachedOnly, Required};

/// The safe bins of a config that sets none.
pub const DEFAULT_SAFE_BINS: &[&str] = &["cut", "uniq", "head", "tail", "tr", "wc"];

/// One built-in profile.
#[derive(Debug)]
pub(super) struct BuiltIn {
    pub name: &'static str,
    /// The fewest and the most positional operands, and their kind.
    pub positional: (usize, usize, SafeBinOperandKind),
    /// Flags with a value, in all spellings.
    pub value_flags: &'static [(&'static [&'static str], SafeBinOperandKind, Arity)],
    /// Flags without a value.
    pub flags: &'static [&'static str],
    /// Flags that are refused with their own reason, in every spelling and abbreviation.
    pub denied: &'static [(&'static [&'static str], &'static str)],
    /// Whether `-20` stands for a count.
    pub number_flag: bool,
}

const READS_FILE_LIST: &str = "it reads the files that a list names";
const FOLLOWS: &str = "it keeps running after its input ended";
const READS_TREE: &str = "it reads files below the working directory";

/// No operands, because every positional of these programs is a file.
const NO_FILES: (usize, usize, SafeBinOperandKind) = (0, 0, Text);

const METHODS: SafeBinOperandKind = Word(&["separate", "prepend", "append", "both"]);
const WHEN: SafeBinOperandKind = Word(&["always", "never", "auto"]);

#[rustfmt::skip]
pub(super) static BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "cut",
        positional: NO_FILES,
        value_flags: &[
            (&["--bytes", "-b"], List, Required),
            (&["--characters", "-c"], List, Required),
            (&["--fields", "-f"], List, Required),
            (&["--delimiter", "-d"], Delimiter, Required),
            (&["--output-delimiter"], Delimiter, Required),
        ],
        flags: &["--complement", "--only-delimited", "--zero-terminated", "-n", "-s", "-z"],
        denied: &[],
        number_flag: false,
    },
    BuiltIn {
        name: "uniq",
        positional: NO_FILES,
        value_flags: &[
            (&["--skip-fields", "-f"], Number, Required),
            (&["--skip-chars", "-s"], Number, Required),
            (&["--check-chars", "-w"], Number, Required),
            // The value is optional and always attached: in `uniq --group notes` the second word is
            // the input file.
            (&["--group"], METHODS, AttachedOnly),
        ],
        flags: &[
            "--count", "--repeated", "--unique", "--ignore-case", "--zero-terminated",
            "-c", "-d", "-u", "-i", "-z",
        ],
        denied: &[],
        number_flag: false,
    },
    BuiltIn {
        name: "head",
        positional: NO_FILES,
        value_flags: &[
            (&["--lines", "-n"], Number, Required),
            (&["--bytes", "-c"], Number, Required),
        ],
        flags: &["--quiet", "--silent", "--verbose", "--zero-terminated", "-q", "-v", "-z"],
        denied: &[],
        number_flag: true,
    },
    BuiltIn {
        name: "tail",
        positional: NO_FILES,
        value_flags: &[
            (&["--lines", "-n"], Number, Required),
            (&["--bytes", "-c"], Number, Required),
            (&["--sleep-interval"], Number, Required),
            (&["--max-unchanged-stats"], Number, Required),
            (&["--pid"], Number, Required),
        ],
        flags: &["--quiet", "--silent", "--verbose", "--zero-terminated", "-q", "-v", "-z"],
        denied: &[
            (&["--follow", "-f", "-F"], FOLLOWS),
            (&["--retry"], FOLLOWS),
        ],
        number_flag: true,
    },
    BuiltIn {
        name: "tr",
        positional: (1, 2, Set),
        value_flags: &[],
        flags: &[
            "--complement", "--delete", "--squeeze-repeats", "--truncate-set1",
            "-C", "-c", "-d", "-s", "-t",
        ],
        denied: &[],
        number_flag: false,
    },
    BuiltIn {
        name: "wc",
        positional: NO_FILES,
        value_flags: &[],
        flags: &[
            "--bytes", "--chars", "--lines", "--max-line-length", "--words",
            "-L", "-c", "-l", "-m", "-w",
        ],
        denied: &[(&["--files0-from"], READS_FILE_LIST)],
        number_flag: false,
    },
    BuiltIn {
        name: "grep",
        positional: NO_FILES,
        value_flags: &[
            (&["--regexp", "-e"], Pattern, Required),
            (&["--max-count", "-m"], Number, Required),
            (&["--after-context", "-A"], Number, Required),
            (&["--before-context", "-B"], Number, Required),
            (&["--context", "-C"], Number, Required),
            (&["--devices", "-D"], Word(&["read", "skip"]), Required),
            (&["--binary-files"], Word(&["binary", "text", "without-match"]), Required),
            (&["--exclude"], Pattern, Required),
            (&["--include"], Pattern, Required),
            (&["--label"], Text, Required),
            (&["--color", "--colour"], WHEN, AttachedOnly),
        ],
        flags: &[
            "--extended-regexp", "--fixed-strings", "--basic-regexp", "--perl-regexp",
            "-E", "-F", "-G", "-P",
            "--ignore-case", "--no-ignore-case", "--word-regexp", "--line-regexp", "--null-data",
            "--invert-match", "-i", "-w", "-x", "-z", "-v",
            "--count", "--line-number", "--byte-offset", "--only-matching", "--quiet", "--silent",
            "--no-messages", "--line-buffered", "-c", "-n", "-b", "-o", "-q", "-s",
            "--with-filename", "--no-filename", "--files-with-matches", "--files-without-match",
            "--initial-tab", "--null", "-H", "-h", "-l", "-L", "-T", "-Z",
            "--text", "--binary", "-a", "-I", "-U",
        ],
        denied: &[
            (&["--file", "-f"], "it reads patterns from a file"),
            (&["--exclude-from"], "it reads patterns from a file"),
            (&["--recursive", "-r"], READS_TREE),
            (&["--dereference-recursive", "-R"], READS_TREE),
            (&["--directories", "-d"], READS_TREE),
        ],
        number_flag: true,
    },
    BuiltIn {
        name: "sort",
        positional: NO_FILES,
        value_flags: &[
            (&["--key", "-k"], SortKey, Required),
            (&["--field-separator", "-t"], Delimiter, Required),
            (&["--buffer-size", "-S"], Number, Required),
            (&["--parallel"], Number, Required),
            (&["--batch-size"], Number, Required),
            (&["--sort"], Word(&["general-numeric", "human-numeric", "month", "numeric", "random", "version"]), Required),
            (&["--check"], Word(&["diagnose-first", "quiet", "silent"]), AttachedOnly),
        ],
        flags: &[
            "--ignore-leading-blanks", "--dictionary-order", "--ignore-case",
            "--general-numeric-sort", "--ignore-nonprinting", "--month-sort",
            "--human-numeric-sort", "--numeric-sort", "--random-sort", "--reverse",
            "--version-sort", "--stable", "--unique", "--zero-terminated", "--debug",
            "-b", "-d", "-f", "-g", "-i", "-M", "-h", "-n", "-R", "-r", "-V",
            "-s", "-u", "-z", "-c", "-C",
        ],
        denied: &[
            (&["--compress-program"], "it starts another program"),
            (&["--files0-from"], READS_FILE_LIST),
            (&["--output", "-o"], "it writes a file"),
            (&["--random-source"], "it reads a file"),
            (&["--temporary-directory", "-T"], "it writes files into the directory it names"),
        ],
        number_flag: false,
    },
];
