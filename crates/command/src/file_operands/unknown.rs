//! Programs without a row: everything that could be a path counts as one.

use super::{FileOperand, FileUse, OperandKind, RefusedArgument};
use crate::inline;

/// Characters behind which programs of all kinds put a file: `if=FILE`, `@FILE`, `a,FILE`, `host:FILE`.
const SEPARATORS: [char; 4] = ['=', '@', ',', ':'];

pub(super) fn file_use<'a>(argv: &[&'a str]) -> Result<FileUse<'a>, RefusedArgument> {
    if let Some(hit) = inline::detect_through_carriers(argv) {
        return Err(RefusedArgument::new(hit.arg_index, hit.reason));
    }
    let mut operands = Vec::new();
    for (index, &word) in argv.iter().enumerate().skip(1) {
        for path in candidates(word) {
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
        ..FileUse::of(operands)
    })
}

/// The parts of an argument that a program could open.
fn candidates(word: &str) -> Vec<&str> {
    let mut found = Vec::new();
    if !word.starts_with('-') {
        found.push(word);
    } else if !word.starts_with("--") {
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
