//! Rows of small programs that look at text, at names of files and at the machine.

use super::parse::{ArgumentRow, OperandRule, WorkingDirectory};

const LIST: &str = "it takes the files to look at from a file";

pub(super) const ROWS: &[ArgumentRow] = &[
    ArgumentRow {
        names: &["paste"],
        flags: "sz",
        values: "d",
        long_flags: &["help", "serial", "version", "zero-terminated"],
        long_values: &["delimiters"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["comm"],
        flags: "123z",
        long_flags: &[
            "check-order",
            "help",
            "nocheck-order",
            "total",
            "version",
            "zero-terminated",
        ],
        long_values: &["output-delimiter"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["nl"],
        flags: "p",
        values: "bdfhilnsvw",
        long_flags: &["help", "no-renumber", "version"],
        long_values: &[
            "body-numbering",
            "footer-numbering",
            "header-numbering",
            "join-blank-lines",
            "line-increment",
            "number-format",
            "number-separator",
            "number-width",
            "section-delimiter",
            "starting-line-number",
        ],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["od"],
        flags: "abcdfhilosvx",
        values: "AjNt",
        long_flags: &["help", "output-duplicates", "version"],
        long_values: &[
            "address-radix",
            "endian",
            "format",
            "read-bytes",
            "skip-bytes",
        ],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["column"],
        flags: "et",
        values: "os",
        long_flags: &["help", "table", "version"],
        long_values: &["output-separator", "separator"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["seq"],
        flags: "w",
        values: "fs",
        long_flags: &["equal-width", "help", "version"],
        long_values: &["format", "separator"],
        numbers: true,
        operands: OperandRule::Texts,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["basename"],
        flags: "az",
        values: "s",
        long_flags: &["help", "multiple", "version", "zero"],
        long_values: &["suffix"],
        operands: OperandRule::Texts,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["dirname"],
        flags: "z",
        long_flags: &["help", "version", "zero"],
        operands: OperandRule::Texts,
        ..ArgumentRow::NONE
    },
    // Where a link leads is shown only if that is covered.
    ArgumentRow {
        names: &["realpath"],
        flags: "emLPqsz",
        long_flags: &[
            "canonicalize-existing",
            "canonicalize-missing",
            "help",
            "logical",
            "no-symlinks",
            "physical",
            "quiet",
            "strip",
            "version",
            "zero",
        ],
        long_files: &["relative-base", "relative-to"],
        cwd: WorkingDirectory::WithoutFiles,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["readlink"],
        flags: "efmnqsvz",
        long_flags: &[
            "canonicalize",
            "canonicalize-existing",
            "canonicalize-missing",
            "help",
            "no-newline",
            "quiet",
            "silent",
            "verbose",
            "version",
            "zero",
        ],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["md5sum", "sha1sum", "sha256sum", "sha512sum"],
        flags: "btz",
        long_flags: &["binary", "help", "tag", "text", "version", "zero"],
        refused: &[("-c", LIST), ("--check", LIST)],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["id"],
        flags: "agGnruz",
        long_flags: &[
            "group", "groups", "help", "name", "real", "user", "version", "zero",
        ],
        operands: OperandRule::Nothing,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["nproc"],
        long_flags: &["all", "help", "version"],
        long_values: &["ignore"],
        operands: OperandRule::Nothing,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["uptime"],
        flags: "ps",
        long_flags: &["help", "pretty", "since", "version"],
        operands: OperandRule::Nothing,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["free"],
        flags: "bghkltmw",
        long_flags: &[
            "bytes", "gibi", "giga", "help", "human", "kibi", "kilo", "lohi", "mebi", "mega", "si",
            "total", "version", "wide",
        ],
        operands: OperandRule::Nothing,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["df"],
        flags: "ahHiklPT",
        values: "Btx",
        long_flags: &[
            "all",
            "help",
            "human-readable",
            "inodes",
            "local",
            "no-sync",
            "portability",
            "print-type",
            "si",
            "total",
            "version",
        ],
        long_values: &["block-size", "exclude-type", "type"],
        long_attached: &["output"],
        refused: &[("--sync", "it writes what is not on the disk yet")],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["sleep"],
        long_flags: &["help", "version"],
        operands: OperandRule::Texts,
        ..ArgumentRow::NONE
    },
];
