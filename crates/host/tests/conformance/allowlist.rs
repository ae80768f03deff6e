//! Commands in allowlist mode: texts, argvs, resolutions, requests at the host.

use interlock_command::Source;
use interlock_config::Config;
use interlock_policy::{
    AgentId, BindingKind, Document, Evaluation, Outcome, evaluate, path_matches, quote,
};
use interlock_programs::builtins::Builtin;
use interlock_programs::{Executable, VirtualHost};
use serde_json::{Value, json};

use crate::allow_always::source;
use crate::comparison::{Answer, Comparison, Row, unreadable};
use crate::world::{
    World, allowlist_policy, allows, environment, judge_virtually, obstacle, request, row_policy,
};
use crate::{argpattern, levels, parse};

pub fn ask(row: Row<'_>) -> Answer {
    let answer = match row.kind() {
        "shell" | "argv" => return in_world(row, verdict),
        "host-run" => return in_world(row, host_run),
        "parse" => parse::ask(row),
        "resolved" => resolved(row),
        "entries" => argpattern::entries(row),
        "pattern" => pattern(row),
        "builtin" => builtin(row),
        kind => levels::ask(kind, row),
    };
    answer.unwrap_or_else(unreadable)
}

fn in_world(row: Row<'_>, question: impl Fn(&World) -> Option<Answer>) -> Answer {
    match World::make(row) {
        Ok(world) => question(&world).unwrap_or_else(unreadable),
        Err(reason) => Answer::Skipped(reason),
    }
}

/// From loose to strict. `miss` leaves open whether an approver is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Allow,
    Ask,
    Deny,
}

impl Said {
    fn outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Allow(_) => Self::Allow,
            Outcome::Ask => Self::Ask,
            Outcome::Deny => Self::Deny,
        }
    }
}

/// Input that cannot be judged at all is denied.
fn said(evaluation: Option<&Evaluation>) -> Said {
    evaluation.map_or(Said::Deny, |evaluation| {
        Said::outcome(evaluation.verdict.outcome)
    })
}

fn compare(expected: &str, got: Said) -> Option<Answer> {
    Some(match expected {
        "miss" => Comparison::permission(false, got == Said::Allow),
        "allow" => Comparison::strictness(&Said::Allow, &got),
        "ask" => Comparison::strictness(&Said::Ask, &got),
        "deny" => Comparison::strictness(&Said::Deny, &got),
        _ => return None,
    })
}

fn verdict(world: &World) -> Option<Answer> {
    let row = world.row();
    let policy = row_policy(row.get("policy"))?;
    let evaluation = world.judge(&policy, source(row)?, &world.cwd);
    let answer = compare(row.expect().text("verdict")?, said(evaluation.as_ref()))?;
    Some(answer.because(obstacle(evaluation.as_ref())))
}

/// What the executing host says: config from the request's side, the document from its own.
fn host_run(world: &World) -> Option<Answer> {
    let row = world.row();
    let policy = Row(row.get("policy"));
    let request_row = Row(row.get("request"));
    let mut exec = serde_json::Map::new();
    for key in [
        "security",
        "ask",
        "strictInlineEval",
        "safeBins",
        "safeBinTrustedDirs",
    ] {
        if !policy.get(key).is_null() {
            exec.insert(key.to_owned(), policy.get(key).clone());
        }
    }
    let config = json!({ "tools": { "exec": exec } });
    let config: Config = serde_json::from_value(config).ok()?;
    let document = match policy.get("approvalsFile") {
        Value::Null => Document::default(),
        file => match Document::from_json(file) {
            Ok(document) => document,
            Err(_) => return Some(levels::refused()),
        },
    };
    let agent = AgentId::new(request_row.text("agentId").unwrap_or(AgentId::MAIN)).ok()?;
    let home = std::env::var("HOME").ok();
    let mut judge =
        interlock_host::policy(&config, &document, &agent, None, home.as_deref()).ok()?;
    judge.skill_bins = row_policy(row.get("policy"))?.skill_bins;
    let argv = request_row.argv("command")?;
    let cwd = request_row.text("cwd").unwrap_or(&world.cwd);
    let mut request = request(Source::Argv(argv), cwd);
    request.env = environment(request_row.get("env"));
    let evaluation = evaluate(request, &judge, &world.resolver).ok();
    let approved = request_row.get("approved").as_bool() == Some(true);
    let (got, obstacle) = match (said(evaluation.as_ref()), &evaluation) {
        (Said::Ask, Some(evaluation)) if approved => (approve(evaluation), "binding".to_owned()),
        (said, evaluation) => (said, obstacle(evaluation.as_ref())),
    };
    Some(compare(row.expect().text("verdict")?, got)?.because(obstacle))
}

/// What a human's "once" leads to.
fn approve(evaluation: &Evaluation) -> Said {
    if evaluation.verdict.binding.kind == BindingKind::Unbound {
        Said::Deny
    } else {
        Said::Allow
    }
}

/// Commands whose files the case names; all of them must be satisfied.
fn resolved(row: Row<'_>) -> Option<Answer> {
    let policy = row_policy(row.get("policy"))?;
    let mut host = VirtualHost::new();
    let mut commands = Vec::new();
    for segment in row.get("segments").as_array()? {
        let segment = Row(segment);
        let argv = segment.argv("argv")?;
        let name = segment.text("raw").or(argv.first().map(String::as_str))?;
        if let Some(found) = segment.text("resolved") {
            let canonical = segment.text("realPath").unwrap_or(found);
            // The case says nothing about who may change the way to the file.
            let executable = Executable {
                protected: false,
                ..VirtualHost::describe(found, canonical)
            };
            host.insert(name, executable);
        }
        let words: Vec<String> = argv.iter().map(|word| quote(word)).collect();
        commands.push(words.join(" "));
    }
    let text = Source::Text(commands.join(" && "));
    let evaluation = judge_virtually(&policy, text, &host);
    let answer = compare(row.expect().text("verdict")?, said(evaluation.as_ref()))?;
    Some(answer.because(obstacle(evaluation.as_ref())))
}

fn pattern(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().get("match").as_bool()?;
    let own = std::env::var("HOME").ok();
    let home = row.text("home").or(own.as_deref());
    let got = path_matches(row.text("pattern")?, row.text("target")?, home);
    Some(Comparison::permission(expected, got))
}

/// Needs no entry: in shell text by Interlock's own implementation, in argv never.
fn builtin(row: Row<'_>) -> Option<Answer> {
    let argv = row.argv("argv")?;
    let expected = row.expect().get("autoAllowed").as_bool()?;
    let got = if row.text("context") == Some("shell text") {
        let builtin = argv.first().and_then(|name| Builtin::named(name));
        builtin.is_some_and(|builtin| builtin.accepts(&argv[1..]).is_ok())
    } else {
        let policy = allowlist_policy(&[])?;
        let evaluation = judge_virtually(&policy, Source::Argv(argv), &VirtualHost::new());
        allows(evaluation.as_ref())
    };
    Some(Comparison::permission(expected, got))
}
