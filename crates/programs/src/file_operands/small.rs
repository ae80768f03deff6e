//! Rows of small programs that read text, names of files and the state of the machine.

use super::RefusedArgument;
use super::parse::{ArgumentRow, OperandRule, ParsedArguments, WorkingDirectory};

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
    // `realpath` shows where a link leads only if that target is covered.
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
        names: &[
            "md5sum",
            "sha1sum",
            "sha224sum",
            "sha256sum",
            "sha384sum",
            "sha512sum",
        ],
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
    ArgumentRow {
        names: &["tac"],
        flags: "br",
        values: "s",
        long_flags: &["before", "help", "regex", "version"],
        long_values: &["separator"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["rev"],
        flags: "0hV",
        long_flags: &["help", "version", "zero"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["fold"],
        flags: "bs",
        values: "w",
        long_flags: &["bytes", "help", "spaces", "version"],
        long_values: &["width"],
        numbers: true,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["expand", "unexpand"],
        flags: "ai",
        values: "t",
        long_flags: &["all", "first-only", "help", "initial", "version"],
        long_values: &["tabs"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["join"],
        flags: "iz",
        values: "12aejotv",
        long_flags: &[
            "check-order",
            "header",
            "help",
            "ignore-case",
            "nocheck-order",
            "version",
            "zero-terminated",
        ],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["base64"],
        flags: "di",
        values: "w",
        long_flags: &["decode", "help", "ignore-garbage", "version"],
        long_values: &["wrap"],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        // A second operand is written. Some options are prefixes of others: `-pl 10` is `-p`, and
        // 10 is the file.
        names: &["xxd"],
        flags: "abCdeEiphuv",
        values: "cglos",
        refused: &[("-r", "it turns text back into bytes")],
        one_letter: true,
        options_first: true,
        operands: OperandRule::AtMost(1),
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["hexdump", "hd"],
        flags: "bcCdovx",
        values: "ns",
        long_flags: &["canonical", "help", "no-squeezing", "version"],
        long_values: &["length", "skip"],
        refused: &[("-f", "it reads a further file")],
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["strings"],
        flags: "afow",
        values: "ent",
        long_flags: &["all", "help", "print-file-name", "version"],
        long_values: &["bytes", "encoding", "radix"],
        numbers: true,
        inspect: Some(no_lists_of_arguments),
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        // An operand would set the name of the machine.
        names: &["hostname"],
        flags: "s",
        long_flags: &["help", "short", "version"],
        operands: OperandRule::Nothing,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        names: &["groups"],
        long_flags: &["help", "version"],
        operands: OperandRule::Nothing,
        ..ArgumentRow::NONE
    },
    ArgumentRow {
        // `expr` computes with its words, and no option of it names a file.
        names: &["expr"],
        operands: OperandRule::Texts,
        ..ArgumentRow::ANY_WORDS
    },
];

/// Refuses `@FILE`, because programs of binutils replace it by the words of FILE wherever it is.
fn no_lists_of_arguments(parsed: &ParsedArguments<'_>) -> Result<(), RefusedArgument> {
    let operands = parsed.operands.iter().copied();
    let values = parsed.options.iter();
    let values = values.filter_map(|(_, value, index)| Some((*index, (*value)?)));
    let mut words = operands.chain(values);
    match words.find(|(_, word)| word.starts_with('@')) {
        Some((index, _)) => Err(RefusedArgument::new(
            index,
            "it takes arguments from a file",
        )),
        None => Ok(()),
    }
}
