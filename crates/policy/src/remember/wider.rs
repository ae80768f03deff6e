//! Wider forms of "always": the program with these leading arguments, and the program with any
//! arguments.
//!
//! No form is offered that would let arbitrary code through. An interpreter is stored only with its
//! script, else only for the exact call. A whole program is offered only if the table of filters
//! and readers has it. A wider entry is checked again at each use, and it never covers inline code
//! and options that start programs.

use interlock_command::display::{self, Secrets};
use interlock_programs::inline::{Reach, reach};

use interlock_programs::{Executable, FileKind, in_trusted_dir};

use super::readers::is_filter_or_reader;
use super::{AlwaysForm, NotWider, Storable, Wider};
use crate::arguments::ANY_ARGUMENTS;
use crate::entry::Entry;
use crate::judge::quote;
use crate::pattern::has_wildcard;

/// An approver would not read more choices.
const MAX_LEADING: usize = 6;

pub(super) fn forms(
    storable: &[Storable<'_>],
    trusted_dirs: &[String],
) -> (Vec<Wider>, Vec<NotWider>) {
    let [only] = storable else {
        return none("several commands would be stored, each as it is");
    };
    let mut wider = Vec::new();
    let mut not_wider = Vec::new();
    match leading(only) {
        Ok(forms) => wider.extend(forms),
        Err(why) => not_wider.push(not("leading", why)),
    }
    match program(only, trusted_dirs) {
        Ok(form) => wider.push(form),
        Err(why) => not_wider.push(not("program", why)),
    }
    (wider, not_wider)
}

/// Offers neither form, for the same reason.
pub(super) fn none(why: &str) -> (Vec<Wider>, Vec<NotWider>) {
    (Vec::new(), vec![not("leading", why), not("program", why)])
}

fn leading(only: &Storable<'_>) -> Result<Vec<Wider>, String> {
    let name = only.command.name();
    let arguments = &only.command.argv[1..];
    if only.operand.is_none() && of(only) == Some(Reach::Interpreter) {
        return Err(format!("`{name}` runs any code that it is given"));
    }
    if arguments.is_empty() {
        return Err("it has no arguments".to_owned());
    }
    // Everything up to the script stays bound, because the script is what the approver saw.
    let fewest = only.operand.unwrap_or(1);
    let longest = arguments.len().min(fewest.saturating_add(MAX_LEADING - 1));
    let mut most = 0;
    let mut obstacle = "";
    for (index, argument) in arguments[..longest].iter().enumerate() {
        if has_wildcard(argument) {
            obstacle = "an argument has `*` or `?` in it, which a list would read as any";
            break;
        }
        // The preceding word is included, because some values are secrets only after `--password`.
        if holds_secret(&only.command.argv[..index + 2]) {
            obstacle = "an argument holds a secret, which an entry would show";
            break;
        }
        most = index + 1;
    }
    if most < fewest {
        return Err(obstacle.to_owned());
    }
    let form = |count: usize| Wider {
        form: AlwaysForm::Leading(count),
        entries: vec![open_behind(&only.entry, &arguments[..count])],
    };
    Ok((fewest..=most).map(form).collect())
}

/// Offered only for a filter or reader of the system, judged by the name of the call and by the
/// real name of the file, because elsewhere any program can have a name of the table.
fn program(only: &Storable<'_>, trusted_dirs: &[String]) -> Result<Wider, String> {
    let Executable {
        found,
        canonical,
        kind,
        ..
    } = only.executable;
    let name = only.command.name();
    let name = name.rsplit('/').next().unwrap_or(name);
    let file_name = canonical.rsplit('/').next().unwrap_or(canonical);
    let is_known = is_filter_or_reader(name) && is_filter_or_reader(file_name);
    if !is_known || *kind != FileKind::Native || only.operand.is_some() {
        return Err(format!(
            "`{name}` is not in the table of filters and readers: with other arguments it might start programs, write files or load settings"
        ));
    }
    if !in_trusted_dir(found, canonical, name, trusted_dirs) {
        return Err(format!(
            "`{name}` is not in a trusted directory, so it may be another program of that name"
        ));
    }
    Ok(Wider {
        form: AlwaysForm::Program,
        entries: vec![open_behind(&only.entry, &[])],
    })
}

/// Looks up the name of the call and the real name of the file. The tables do not apply to a
/// script, whose content decides.
fn of(only: &Storable<'_>) -> Option<Reach> {
    let is_script = only.executable.kind != FileKind::Native;
    if is_script {
        return None;
    }
    let names = [only.command.name(), &only.executable.canonical];
    let known = |wanted| names.into_iter().any(|name| reach(name) == Some(wanted));
    [Reach::Interpreter, Reach::Options]
        .into_iter()
        .find(|wanted| known(*wanted))
}

/// Returns an entry for these arguments and then any, in any directory. The name and the content
/// stay bound.
fn open_behind(exact: &Entry, arguments: &[String]) -> Entry {
    let mut args = arguments.to_vec();
    args.push(ANY_ARGUMENTS.to_owned());
    Entry {
        arg_pattern: None,
        args: Some(args),
        ..exact.clone()
    }
}

/// Whether `NAME=VALUE` contains a secret, judged as if it were shown before a command.
pub(crate) fn holds_secret_pair(pair: &str) -> bool {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let shown = display::command(&format!("{name}={} :", quote(value)), Secrets::Masked);
    shown.map_or(true, |shown| shown.masked > 0)
}

pub(super) fn holds_secret(words: &[String]) -> bool {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let shown = display::command(&quoted.join(" "), Secrets::Masked);
    shown.map_or(true, |shown| shown.masked > 0)
}

fn not(form: &str, why: impl Into<String>) -> NotWider {
    NotWider {
        form: form.to_owned(),
        why: why.into(),
    }
}
