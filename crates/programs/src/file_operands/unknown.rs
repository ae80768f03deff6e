//! Programs without a row: everything that could be a path counts as one.

use super::{FileOperand, FileUse, OperandKind, RefusedArgument, directories};
use crate::inline;

/// Characters after which some programs expect a file: `if=FILE`, `@FILE`, `a,FILE`, `host:FILE`.
const SEPARATORS: [char; 4] = ['=', '@', ',', ':'];

pub(super) fn file_use<'a>(name: &str, argv: &[&'a str]) -> Result<FileUse<'a>, RefusedArgument> {
    let (directory, skipped) = match directories::moved_to(name, argv) {
        Some((directory, skipped)) => (Some(directory), skipped),
        None => (None, 0),
    };
    // The option for the directory is checked separately.
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
        // The files that an unknown program reads unasked are unknown; its working directory is
        // among them.
        reads_cwd: true,
        directory,
        ..FileUse::of(operands)
    })
}

/// Programs whose options are whole words after one dash. A value follows `=` or is the next
/// argument, and letters are never separate options.
const WORD_OPTIONS: [&str; 3] = ["go", "terraform", "tofu"];

/// Whether the word is a single option. A word with a blank contains options for another program,
/// which may read letters.
fn is_word_option(name: &str, word: &str) -> bool {
    WORD_OPTIONS.contains(&name) && !word.contains(char::is_whitespace)
}

/// Returns the parts of an argument that a program could open.
fn candidates<'a>(name: &str, word: &'a str) -> Vec<&'a str> {
    let mut found = Vec::new();
    if !word.starts_with('-') {
        found.push(word);
    } else if !word.starts_with("--") && !is_word_option(name, word) {
        // Any letter of a cluster may be an option, with the rest as its value.
        let letters = word.char_indices().skip(2);
        found.extend(letters.map(|(at, _)| &word[at..]));
    }
    let separators = word.match_indices(SEPARATORS);
    found.extend(separators.map(|(at, separator)| &word[at + separator.len()..]));
    found.retain(|path| !path.is_empty() && *path != "-");
    // A long argument has many equal parts, which need only one check.
    found.dedup();
    found
}
