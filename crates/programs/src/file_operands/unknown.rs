//! Programs without a row: everything that could be a path counts as one.

use super::{FileOperand, FileUse, OperandKind, RefusedArgument, directories};
use crate::inline;

/// Characters behind which programs of all kinds put a file: `if=FILE`, `@FILE`, `a,FILE`, `host:FILE`.
const SEPARATORS: [char; 4] = ['=', '@', ',', ':'];

pub(super) fn file_use<'a>(name: &str, argv: &[&'a str]) -> Result<FileUse<'a>, RefusedArgument> {
    let (directory, skipped) = match directories::moved_to(name, argv) {
        Some((directory, skipped)) => (Some(directory), skipped),
        None => (None, 0),
    };
    // Without the option for the directory, which is looked at by itself.
    let mut rest = argv.to_vec();
    rest.drain(1..=skipped);
    if let Some(hit) = inline::detect_through_carriers(&rest) {
        let index = match hit.arg_index {
            0 => 0,
            index => index + skipped,
        };
        return Err(RefusedArgument::new(index, hit.reason));
    }
    let mut operands = Vec::new();
    for (index, &word) in argv.iter().enumerate().skip(1 + skipped) {
        for path in candidates(name, word) {
            operands.push(FileOperand {
                index,
                path,
                wants: OperandKind::Any,
            });
        }
    }
    Ok(FileUse {
        // What it looks at by itself is not known: its working directory at least.
        reads_cwd: true,
        directory,
        ..FileUse::of(operands)
    })
}

/// Programs whose options are whole words behind one dash: the value of one stands behind `=` or is the
/// next argument, and letters are never options of their own.
const WORD_OPTIONS: [&str; 3] = ["go", "terraform", "tofu"];

/// A word with a blank in it holds options for another program, which may read letters.
fn is_word_option(name: &str, word: &str) -> bool {
    WORD_OPTIONS.contains(&name) && !word.contains(char::is_whitespace)
}

/// The parts of an argument that a program could open.
fn candidates<'a>(name: &str, word: &'a str) -> Vec<&'a str> {
    let mut found = Vec::new();
    if !word.starts_with('-') {
        found.push(word);
    } else if !word.starts_with("--") && !is_word_option(name, word) {
        // Any letter of a cluster may be the option that the rest is the value of.
        let letters = word.char_indices().skip(2);
        found.extend(letters.map(|(at, _)| &word[at..]));
    }
    let separators = word.match_indices(SEPARATORS);
    found.extend(separators.map(|(at, separator)| &word[at + separator.len()..]));
    found.retain(|path| !path.is_empty() && *path != "-");
    // A long argument has many parts, of which those that lead nowhere else need no look.
    found.dedup();
    found
}
