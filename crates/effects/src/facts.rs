//! The facts that an approver reads of a preview in addition to its changes: how it ended, what it
//! wrote, which programs it started, and which hosts it asked for.

use interlock_approvals::PreviewFacts;
use interlock_engine::RunStatus;
use interlock_plan::StartedProgram;
use interlock_sandbox::{HeldLayer, RunLayerState};
use interlock_supervisor::EndedRun;

use crate::last_output::last_output;
use crate::run_effects::RunEffects;

/// Most bytes that are shown of the end of the output.
const MOST_OUTPUT: usize = 16 * 1024;

/// Most hosts that are named.
const MOST_HOSTS: usize = 50;

impl RunEffects<'_> {
    /// Records the facts in the layer, so that they are available to the process that asks the
    /// approver, whichever it is.
    pub(crate) fn note_preview(&self, held: &HeldLayer, session: &str, ended: &EndedRun) {
        let output = last_output(self.local.state_dir(), session, ended);
        let mut from = output.len().saturating_sub(MOST_OUTPUT);
        while !output.is_char_boundary(from) {
            from += 1;
        }
        let shown = output.get(from..).unwrap_or_default().to_owned();
        let length = u64::try_from(shown.len()).unwrap_or(u64::MAX);
        let programs = ended.outcome.programs.clone().unwrap_or_default();
        let facts = PreviewFacts {
            ended: ended_words(ended.outcome.status),
            output_left_out: ended.totals.bytes.saturating_sub(length),
            output: shown,
            programs: programs.list.iter().map(StartedProgram::words).collect(),
            programs_left_out: programs.left_out,
            hosts: self.wanted_hosts(&held.layer),
        };
        let noted = serde_json::to_vec(&facts)
            .map_err(std::io::Error::from)
            .and_then(|facts| held.note_run(&facts));
        if let Err(error) = noted {
            tracing::error!(run = held.layer.record.run_id, %error, "a preview is not noted");
        }
    }

    /// Returns the recorded facts of a preview.
    pub(crate) fn preview_facts(layer: &RunLayerState) -> PreviewFacts {
        let noted = layer.run_facts();
        let noted = noted.and_then(|text| serde_json::from_slice(&text).ok());
        noted.unwrap_or_else(|| PreviewFacts {
            ended: "how it ended was not seen: the process that waited for it is gone".to_owned(),
            ..PreviewFacts::default()
        })
    }

    /// Returns the hosts that runs in the scope of a preview asked for since it started.
    fn wanted_hosts(&self, layer: &RunLayerState) -> Vec<String> {
        let _ = self.local.record_connections();
        let record = &layer.record;
        let since = record.started_ns / 1_000_000;
        let mut hosts = Vec::new();
        for found in self.local.connections_since(&record.scope_id, since) {
            if !hosts.contains(&found) && hosts.len() < MOST_HOSTS {
                hosts.push(found);
            }
        }
        hosts
    }
}

fn ended_words(status: RunStatus) -> String {
    match status {
        RunStatus::Exited(code) => format!("exit code {code}"),
        RunStatus::Signaled(signal) => format!("ended by signal {signal}"),
        RunStatus::TimedOut => "its time was over".to_owned(),
    }
}
