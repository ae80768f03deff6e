//! `interlock policy`, with `policy test` itself.

mod base;
mod replay;
mod suggest;
mod template;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use interlock_arguments::{PolicyCommand, PolicyTestArguments, StateArguments};
use interlock_checks::cases::Cases;
use interlock_client::open;
use interlock_console::output::{self, visible};
use interlock_console::{CommandOutcome, Failure};
use interlock_policy::Document;
use interlock_rules::parse_document;

pub fn run(state: &StateArguments, command: PolicyCommand) -> CommandOutcome {
    match command {
        PolicyCommand::Test(arguments) => test(state, &arguments),
        PolicyCommand::Replay(arguments) => replay::run(state, &arguments),
        PolicyCommand::Base(command) => base::run(state, &command),
        PolicyCommand::Template(command) => template::run(state, &command),
        PolicyCommand::Suggest(arguments) => suggest::run(state, &arguments),
    }
}

fn test(state: &StateArguments, arguments: &PolicyTestArguments) -> CommandOutcome {
    let mut cases = Cases::default();
    for file in &arguments.files {
        cases.add(&file.display().to_string(), &read(file)?)?;
    }
    let host = if cases.need_host() || arguments.with.is_some() {
        Some(open(state)?)
    } else {
        None
    };
    let proposed = match &arguments.with {
        Some(file) => Some(read_proposed(file)?),
        None => None,
    };
    if proposed.is_some() && !cases.need_host() {
        output::note(
            "warning: every case has a policy of its own: the proposed document judges none of them",
        );
    }
    let results = cases.run(host.as_ref(), proposed.as_ref());
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for result in &results {
        match (&result.skipped, result.pass) {
            (Some(_), _) => skipped += 1,
            (None, true) => passed += 1,
            (None, false) => failed += 1,
        }
        if arguments.json {
            let line = serde_json::to_string(result).unwrap_or_default();
            output::print(&(line + "\n"));
        } else {
            print_result(result, arguments);
        }
    }
    let summary = format!("{passed} passed, {failed} failed, {skipped} skipped\n");
    if arguments.json {
        output::note(summary.trim_end());
    } else {
        output::print(&summary);
    }
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Reads a proposed document, which is not in force.
pub(super) fn read_proposed(file: &Path) -> Result<Document, Failure> {
    let name = file.display().to_string();
    let text = File::open(file).and_then(super::approvals::read_limited);
    let text = text.map_err(|error| {
        Failure::refused("DOCUMENT_UNREADABLE", format!("{name}: {error}"))
            .with_hint("name a JSON5 file with an approvals document")
    })?;
    Ok(parse_document(&name, &text)?)
}

fn print_result(result: &interlock_checks::cases::CaseResult, arguments: &PolicyTestArguments) {
    let word = match (&result.skipped, result.pass) {
        (Some(_), _) => "skip",
        (None, true) => "ok",
        (None, false) => "FAIL",
    };
    if word != "FAIL" && !arguments.verbose {
        return;
    }
    let detail = match &result.skipped {
        Some(why) => why.clone(),
        None => format!(
            "expected {}, got {} ({})",
            result.expected, result.verdict, result.reason
        ),
    };
    let command = visible(&result.command).replace('\n', "\\n");
    output::print(&format!(
        "{word} {}: {command}: {}\n",
        result.id,
        visible(&detail)
    ));
}

fn read(file: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::usage("CASES_UNREADABLE", format!("{}: {error}", file.display())).with_hint(
            r#"write one case per line, such as {"id":"list","command":"ls","expect":"allow"}"#,
        )
    };
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|mut open| open.read_to_end(&mut bytes))
    }
    .map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.split(|byte| *byte == b'\n').count();
        let message = format!("{}:{line}: not valid UTF-8", file.display());
        Failure::usage("CASES_INVALID", message)
    })
}
