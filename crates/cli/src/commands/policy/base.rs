//! `interlock policy base`: shows, removes and restores the entries that the first start writes.

use std::process::ExitCode;

use interlock_arguments::{PolicyBaseCommand, StateArguments};
use interlock_client::{open, outside_runs};
use interlock_console::output::{self, Paint};
use interlock_console::{CommandOutcome, Failure};
use interlock_host::LocalHost;
use interlock_policy::{BASE_PROGRAMS, BaseProgram, Document};
use serde_json::{Value, json};

const NAME: &str = "read-only";

pub(super) fn run(state: &StateArguments, command: &PolicyBaseCommand) -> CommandOutcome {
    let host = open(state)?;
    match command {
        PolicyBaseCommand::Show(arguments) => show(state, &host, arguments.json)?,
        PolicyBaseCommand::Remove(arguments) => {
            outside_runs(host.state_dir())?;
            let removed = host
                .rules()
                .edit_document(|document| Ok(document.remove_base()))?
                .0;
            let restore = state.in_command("interlock policy base restore");
            let text = match removed {
                0 => "the base is not in the document\n".to_owned(),
                count => format!(
                    "removed the {count} entries of the base; to put them back: {restore}\n"
                ),
            };
            print_result(arguments.json, &json!({ "removed": removed }), &text);
        }
        PolicyBaseCommand::Restore(arguments) => {
            outside_runs(host.state_dir())?;
            let restored = host
                .rules()
                .edit_document(|document| Ok(document.restore_base()))?
                .0;
            let entries = BASE_PROGRAMS.len();
            let text = if restored {
                format!("the document holds the base {NAME}, {entries} entries\n")
            } else {
                format!("the base {NAME} is in the document already\n")
            };
            let result = json!({ "restored": restored, "entries": entries });
            print_result(arguments.json, &result, &text);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_result(as_json: bool, result: &Value, text: &str) {
    if as_json {
        output::print_json(result);
    } else {
        output::print(text);
    }
}

fn show(state: &StateArguments, host: &LocalHost, as_json: bool) -> Result<(), Failure> {
    let (document, _) = host.document()?;
    let is_present = |program: &BaseProgram| is_present(&document, program);
    if as_json {
        let entries = BASE_PROGRAMS.iter().map(|program| {
            json!({
                "program": program.name,
                "allows": program.allows,
                "present": is_present(program),
                "entry": program.entry(),
            })
        });
        let entries: Vec<Value> = entries.collect();
        let present = BASE_PROGRAMS
            .iter()
            .filter(|program| is_present(program))
            .count();
        output::print_json(&json!({ "base": NAME, "present": present, "entries": entries }));
        return Ok(());
    }
    let rows: Vec<Vec<String>> = BASE_PROGRAMS
        .iter()
        .map(|program| {
            let state = if is_present(program) {
                ""
            } else {
                "not in force"
            };
            vec![
                program.name.to_owned(),
                program.allows.to_owned(),
                state.to_owned(),
            ]
        })
        .collect();
    let paint = Paint::stdout();
    let present = BASE_PROGRAMS
        .iter()
        .filter(|program| is_present(program))
        .count();
    let mut out = format!(
        "{}: {present} of {} entries are in force, for every agent\n\n",
        paint.strong(&format!("base {NAME}")),
        BASE_PROGRAMS.len()
    );
    out += &output::table(&rows, "  ");
    out += &format!(
        "\nThese run unasked where security is allowlist. Every file that they name must lie in the\n\
         workspace of the call, through all links; the workspace is never / or the home directory.\n\
         Options that write a file, start a program, follow links or read a list of files are asked\n\
         about, and so are programs that lie in the workspace itself.\n\n\
         to remove them:   {}\n\
         to restore them:  {}\n",
        state.in_command("interlock policy base remove"),
        state.in_command("interlock policy base restore"),
    );
    output::print(&out);
    Ok(())
}

fn is_present(document: &Document, program: &BaseProgram) -> bool {
    let entry = program.entry();
    let mut entries = document.base_entries();
    entries.any(|present| present.has_terms_of(&entry))
}
