//! Options that move a program to another directory, whose files then decide what runs. An entry
//! with `paths` must cover that directory, and further files are looked up in it.

use super::{FileOperand, OperandKind};

/// Programs with the option that moves them, which must be the first argument.
const ROWS: &[DirectoryOption] = &[
    DirectoryOption {
        names: &["make", "gmake"],
        form: OptionForm::NextArgument("-C"),
    },
    DirectoryOption {
        names: &["ninja", "samu"],
        form: OptionForm::NextArgument("-C"),
    },
    DirectoryOption {
        names: &["terraform", "tofu"],
        form: OptionForm::Attached("-chdir="),
    },
];

struct DirectoryOption {
    names: &'static [&'static str],
    form: OptionForm,
}

enum OptionForm {
    /// `-C DIR`
    NextArgument(&'static str),
    /// `-chdir=DIR`
    Attached(&'static str),
}

/// Returns the directory to which the first argument moves the program, and how many arguments this
/// takes.
pub(super) fn moved_to<'a>(name: &str, argv: &[&'a str]) -> Option<(FileOperand<'a>, usize)> {
    let row = ROWS.iter().find(|row| row.names.contains(&name))?;
    let first = *argv.get(1)?;
    let (index, path) = match row.form {
        OptionForm::NextArgument(option) if first == option => (2, *argv.get(2)?),
        OptionForm::Attached(option) => (1, first.strip_prefix(option)?),
        OptionForm::NextArgument(_) => return None,
    };
    let directory = FileOperand {
        index,
        path,
        wants: OperandKind::Any,
    };
    (!path.is_empty()).then_some((directory, index))
}
