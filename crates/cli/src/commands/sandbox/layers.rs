//! `interlock sandbox diff|commit|discard`: handles changes of runs that are not in their workspace
//! yet. Committing or discarding them is a decision, so a run must not do it.

use std::process::ExitCode;

use interlock_arguments::{SandboxLayerArguments, StateArguments};
use interlock_client::{open, outside_runs};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::{EffectReport, EffectState, LayerError};
use interlock_sandbox::RunLayerState;
use serde_json::{Value, json};

pub(super) fn diff(state: &StateArguments, arguments: &SandboxLayerArguments) -> CommandOutcome {
    let host = open(state)?;
    let described = host
        .effects()
        .describe_layer(&arguments.id)
        .map_err(|error| refused(&error))?;
    let (report, diff) = (&described.report, &described.diff);
    if arguments.json {
        let mut row = json!(report);
        row["command"] = json!(described.layer.record.command);
        row["workspace"] = json!(described.layer.record.workspace);
        row["diff"] = json!(diff.diff.text);
        row["notShown"] = json!(diff.not_shown);
        row["run"] = json!(described.facts);
        output::print_json(&row);
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&diff.diff.text);
    output::note(&format!(
        "interlock: {} created, {} changed, {} deleted by `{}` in {}",
        report.created,
        report.changed,
        report.deleted,
        output::line(&described.layer.record.command),
        output::line(&described.layer.record.workspace),
    ));
    if diff.not_shown > 0 {
        output::note(&format!(
            "interlock: {} files are too long to be shown; they lie in {}",
            diff.not_shown,
            described.layer.upper().display()
        ));
    }
    if let Some(facts) = &described.facts {
        output::note(&format!(
            "interlock: a preview, {}",
            output::line(&facts.ended)
        ));
        for program in &facts.programs {
            output::note(&format!("interlock: started: {}", output::line(program)));
        }
        for host in &facts.hosts {
            output::note(&format!(
                "interlock: wanted: {} (not reached)",
                output::line(host)
            ));
        }
    }
    for path in &report.protected {
        output::note(&format!("interlock: protected: {}", output::line(path)));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn commit(state: &StateArguments, arguments: &SandboxLayerArguments) -> CommandOutcome {
    let host = open(state)?;
    let outside = outside_runs(host.state_dir())?;
    let report = host
        .effects()
        .commit_layer(&arguments.id, outside)
        .map_err(|error| refused(&error))?;
    if report.state != EffectState::Committed {
        let code = report.code.unwrap_or("EFFECT_FAILED");
        return Err(Failure::refused(code, report.words()));
    }
    print(&report, arguments.json);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn discard(state: &StateArguments, arguments: &SandboxLayerArguments) -> CommandOutcome {
    let host = open(state)?;
    let outside = outside_runs(host.state_dir())?;
    let report = host
        .effects()
        .discard_layer(&arguments.id, outside)
        .map_err(|error| refused(&error))?;
    print(&report, arguments.json);
    Ok(ExitCode::SUCCESS)
}

/// The JSON form of a layer.
pub(super) fn row(layer: &RunLayerState) -> Value {
    let record = &layer.record;
    json!({
        "runId": record.run_id,
        "agentId": record.agent_id,
        "command": record.command,
        "workspace": record.workspace,
        "ended": layer.is_ended(),
        "kept": layer.kept,
    })
}

/// Prints the runs whose changes are kept.
pub(super) fn print_list(layers: &[RunLayerState]) {
    for layer in layers {
        let why = match &layer.kept {
            Some(kept) => format!("{}: {}", kept.code, kept.reason),
            None if layer.is_ended() => "its changes are about to be committed".to_owned(),
            None => "it runs, or its end was not seen".to_owned(),
        };
        output::print(&format!(
            "run {}  {}  {}\n",
            layer.record.run_id,
            output::line(&layer.record.command),
            output::line(&why)
        ));
    }
}

fn print(report: &EffectReport, is_json: bool) {
    if is_json {
        output::print_json(&json!(report));
    } else {
        output::print(&format!("{}\n", output::line(&report.words())));
    }
}

fn refused(error: &LayerError) -> Failure {
    let failure = Failure::refused(error.code(), error.to_string());
    match error.remedy() {
        Some(remedy) => failure.with_hint(remedy),
        None => failure,
    }
}
