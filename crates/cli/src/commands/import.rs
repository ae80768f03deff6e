//! `interlock import openclaw`: imports policy, config and allowlists from another program.

use std::path::PathBuf;
use std::process::ExitCode;

use interlock_arguments::{ImportCommand, ImportOpenclawArguments, StateArguments};
use interlock_client::{open, outside_runs};
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, Failure};
use interlock_doctor::openclaw::{
    DocumentForm, ImportMode, ImportReport, ImportedValue, OpenClawState, import, usual_directory,
};
use serde_json::json;

pub fn run(state: &StateArguments, command: &ImportCommand) -> CommandOutcome {
    let ImportCommand::Openclaw(arguments) = command;
    let host = open(state)?;
    let outside = outside_runs(host.state_dir())?;
    let directory = source_directory(arguments, host.home())?;
    let source = OpenClawState::read(&directory).map_err(|error| {
        Failure::refused(error.code(), error.to_string()).with_hint(error.remedy())
    })?;
    let mode = if arguments.dry_run {
        ImportMode::DryRun
    } else {
        ImportMode::Write
    };
    let mut report = import(&host, &source, mode, outside)?;
    let lists = [&mut report.taken, &mut report.changed, &mut report.left];
    for value in lists.into_iter().flatten() {
        value.command = value.command.take().map(|command| state.in_hint(&command));
    }
    if arguments.json {
        output::print_json(&json!({
            "from": directory.display().to_string(),
            "version": source.version,
            "document": source.form.map(DocumentForm::as_str),
            "dryRun": arguments.dry_run,
            "taken": report.taken,
            "changed": report.changed,
            "left": report.left,
        }));
    } else {
        print(&report, arguments.dry_run);
        let version = source.version.as_deref().map(line);
        output::note(&format!(
            "interlock: {} {} of OpenClaw{}",
            if arguments.dry_run {
                "looked at"
            } else {
                "imported from"
            },
            line(&directory.display().to_string()),
            version.map_or_else(String::new, |version| format!(" {version}")),
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn source_directory(
    arguments: &ImportOpenclawArguments,
    home: Option<&str>,
) -> Result<PathBuf, Failure> {
    let usual = || usual_directory(std::env::var_os("OPENCLAW_STATE_DIR"), home);
    arguments.from.clone().or_else(usual).ok_or_else(|| {
        let message =
            "no state directory of OpenClaw: neither --from, OPENCLAW_STATE_DIR nor HOME is set";
        Failure::refused("IMPORT_SOURCE_MISSING", message)
            .with_hint("name it: interlock import openclaw --from DIR")
    })
}

fn print(report: &ImportReport, dry_run: bool) {
    let paint = Paint::stdout();
    let mut out = String::new();
    let taken = if dry_run { "would take" } else { "taken" };
    let changed = if dry_run { "would change" } else { "changed" };
    for (word, list) in [
        (taken, &report.taken),
        (changed, &report.changed),
        ("left", &report.left),
    ] {
        if list.is_empty() {
            continue;
        }
        out += &format!("{}\n", paint.strong(word));
        for value in list {
            out += &shown(paint, value);
        }
    }
    out += &format!(
        "{} {taken}, {} {changed}, {} left; {} allow more than before\n",
        report.taken.len(),
        report.changed.len(),
        report.left.len(),
        report.taken.iter().filter(|value| value.loosens).count(),
    );
    output::print(&out);
}

fn shown(paint: Paint, value: &ImportedValue) -> String {
    let mark = if value.loosens {
        format!(" {}", paint.warning("(allows more)"))
    } else {
        String::new()
    };
    let mut out = format!("  {}: {}{mark}\n", line(&value.path), line(&value.what));
    if let Some(command) = &value.command {
        out += &format!("    command: {}\n", line(command));
    }
    out
}
