//! `interlock apply-patch`: several files, all or nothing.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use interlock_host::PatchRequest;
use interlock_patch::{MAX_PATCH_BYTES, Summary};
use interlock_policy::AgentId;

use super::{Outcome, open, request};
use crate::args::{ApplyPatchArguments, StateArguments};
use crate::failure::Failure;
use crate::output::{self, visible};

pub fn run(state: &StateArguments, arguments: &ApplyPatchArguments) -> Outcome {
    let agent = AgentId::new(&arguments.agent)
        .map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))?;
    let input = read(&arguments.file)?;
    let root = request::directory(arguments.root.as_deref(), "--root")?;
    let host = open(state)?;
    let summary = host.apply_patch(&PatchRequest {
        agent: &agent,
        session_key: None,
        model: arguments.model.as_deref(),
        root,
        input: &input,
        dry_run: arguments.dry_run,
    })?;
    if arguments.json {
        output::print_json(&summary);
    } else {
        output::print(&text(&summary, arguments.dry_run));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(summary: &Summary, dry_run: bool) -> String {
    let counts = |added: usize, removed: usize| format!("+{added} -{removed}");
    let file = |word: &str, file: &interlock_patch::FileSummary| {
        vec![
            word.to_owned(),
            counts(file.lines_added, file.lines_removed),
            visible(&file.path),
        ]
    };
    let added = summary.added.iter().map(|f| file("added", f));
    let modified = summary.modified.iter().map(|f| file("modified", f));
    let deleted = summary.deleted.iter().map(|f| file("deleted", f));
    let moved = summary.moved.iter().map(|moved| {
        let path = visible(&format!("{} -> {}", moved.from, moved.to));
        vec![
            "moved".to_owned(),
            counts(moved.lines_added, moved.lines_removed),
            path,
        ]
    });
    let rows: Vec<Vec<String>> = added.chain(modified).chain(deleted).chain(moved).collect();
    let mut out = output::table(&rows, "");
    if summary.is_empty() {
        out += "nothing to change\n";
    } else if dry_run {
        out += "dry run: no file was changed\n";
    }
    out
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    // Whatever is longer is refused, and need not be read for that.
    let limit = MAX_PATCH_BYTES as u64 + 1;
    let outcome = if file == Path::new("-") {
        let stdin = std::io::stdin().lock();
        stdin.take(limit).read_to_end(&mut bytes)
    } else {
        let opened = std::fs::File::open(file);
        opened.and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    outcome.map_err(|error| {
        Failure::usage("PATCH_UNREADABLE", format!("{}: {error}", file.display()))
    })?;
    if bytes.len() > MAX_PATCH_BYTES {
        let message = format!("the patch has more than {MAX_PATCH_BYTES} bytes");
        return Err(Failure::refused("PATCH_TOO_LARGE", message).with_hint("split the patch"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::refused("PATCH_PARSE", "the patch is not valid UTF-8"))
}
