//! `find`: starting points, then an expression in which every word must be known.

use super::{FileOperand, FileUse, OperandKind, RefusedArgument};

/// Tests and actions without a value that only read and print.
const PLAIN: &[&str] = &[
    "!",
    "(",
    ")",
    ",",
    "-a",
    "-and",
    "-d",
    "-daystart",
    "-depth",
    "-empty",
    "-executable",
    "-false",
    "-help",
    "--help",
    "-ignore_readdir_race",
    "-ls",
    "-mount",
    "-nogroup",
    "-noignore_readdir_race",
    "-noleaf",
    "-not",
    "-nouser",
    "-nowarn",
    "-o",
    "-or",
    "-print",
    "-print0",
    "-prune",
    "-quit",
    "-readable",
    "-true",
    "-version",
    "--version",
    "-warn",
    "-writable",
    "-xdev",
];

/// Tests and actions with one value that names no file.
const VALUED: &[&str] = &[
    "-amin",
    "-atime",
    "-cmin",
    "-ctime",
    "-fstype",
    "-gid",
    "-group",
    "-ilname",
    "-iname",
    "-inum",
    "-ipath",
    "-iregex",
    "-iwholename",
    "-links",
    "-lname",
    "-maxdepth",
    "-mindepth",
    "-mmin",
    "-mtime",
    "-name",
    "-path",
    "-perm",
    "-printf",
    "-regex",
    "-regextype",
    "-size",
    "-type",
    "-uid",
    "-used",
    "-user",
    "-wholename",
    "-xtype",
];

/// Tests whose value is a file.
const FILES: &[&str] = &["-anewer", "-cnewer", "-newer", "-samefile"];

const REFUSED: &[(&str, &str)] = &[
    ("-H", "it follows links"),
    ("-L", "it follows links"),
    ("-delete", "it deletes files"),
    ("-exec", "it starts a program"),
    ("-execdir", "it starts a program"),
    ("-files0-from", "it takes the files to look at from a file"),
    ("-fls", "it writes a file"),
    ("-follow", "it follows links"),
    ("-fprint", "it writes a file"),
    ("-fprint0", "it writes a file"),
    ("-fprintf", "it writes a file"),
    ("-ok", "it starts a program"),
    ("-okdir", "it starts a program"),
];

pub(super) fn file_use<'a>(argv: &[&'a str]) -> Result<FileUse<'a>, RefusedArgument> {
    let mut operands = Vec::new();
    let mut has_start = false;
    let mut in_expression = false;
    let mut index = 1;
    while let Some(&word) = argv.get(index) {
        let begins_expression = word.starts_with('-') || matches!(word, "(" | ")" | "!" | ",");
        if !in_expression && word == "-P" {
            index += 1;
            continue;
        }
        if !begins_expression {
            // After the expression, `find` itself refuses a starting point, so the word is checked
            // like the others.
            has_start = true;
            operands.push(file(index, word));
            index += 1;
            continue;
        }
        in_expression = true;
        if PLAIN.contains(&word) {
            index += 1;
        } else if VALUED.contains(&word) || is_newer_than(word, b"t") {
            index += 2;
        } else if FILES.contains(&word) || is_newer_than(word, b"aBcm") {
            operands.extend(argv.get(index + 1).map(|path| file(index + 1, path)));
            index += 2;
        } else {
            let known = REFUSED.iter().find(|(name, _)| *name == word);
            let why = known.map_or(super::parse::UNKNOWN_OPTION, |(_, why)| why);
            return Err(RefusedArgument::new(index, why));
        }
    }
    Ok(FileUse {
        reads_cwd: !has_start,
        ..FileUse::of(operands)
    })
}

/// Matches `-newermt TIME` and `-newermc FILE`. The last letter gives the kind of the value.
fn is_newer_than(word: &str, last: &[u8]) -> bool {
    let letters = word.strip_prefix("-newer").map(str::as_bytes);
    matches!(letters, Some([b'a' | b'B' | b'c' | b'm', kind]) if last.contains(kind))
}

fn file(index: usize, path: &str) -> FileOperand<'_> {
    FileOperand {
        index,
        path,
        wants: OperandKind::Any,
    }
}
