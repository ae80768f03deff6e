//! Levels of policy: how sources are joined, what a combination needs, what a prompt offers.

use std::collections::BTreeSet;

use interlock_approvals::{ApprovalDecision, offered_decisions};
use interlock_command::Source;
use interlock_config::{Config, ExecMode};
use interlock_policy::{
    AgentId, Allowlist, Ask, BindingKind, Document, Entry, EntryLists, Fallback, Layer, Levels,
    Outcome, PolicyParts, PolicySource as LayerSource, Remember, Security, Strictness,
    auto_allow_skills, entries,
};
use interlock_programs::VirtualHost;
use serde_json::{Value, json};

use crate::comparison::{Answer, Comparison, Direction, Row, strings};
use crate::world::judge_virtually;

pub fn ask(kind: &str, row: Row<'_>) -> Option<Answer> {
    match kind {
        "stricter-ask" => stricter(row, Ask::parse),
        "stricter-security" => stricter(row, Security::parse),
        "policy-of-mode" => mode(row),
        "effective" => effective(row),
        "approvals-file" => approvals_file(row),
        "defaults" => defaults(row),
        "policy" => approval_needed(row),
        "run-policy" => run_policy(row),
        "offered-decisions" => offered(row),
        "durable" => durable(row),
        _ => Some(Answer::NotOurs),
    }
}

fn stricter<T: Strictness + std::fmt::Debug>(
    row: Row<'_>,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<Answer> {
    let levels: Option<Vec<T>> = strings(row.get("input"))?
        .iter()
        .map(|text| parse(text))
        .collect();
    let got = levels?.into_iter().reduce(T::join)?;
    let expected = parse(row.expect().text("value")?)?;
    Some(Comparison::strictness(&expected, &got))
}

fn mode(row: Row<'_>) -> Option<Answer> {
    let mode: ExecMode = serde_json::from_value(row.get("input").get(0)?.clone()).ok()?;
    let (security, ask) = mode.policy();
    let expected = Row(row.expect().get("value"));
    let mut answers = vec![
        Comparison::strictness(&Security::parse(expected.text("security")?)?, &security),
        Comparison::strictness(&Ask::parse(expected.text("ask")?)?, &ask),
    ];
    if let Some(review) = expected.get("autoReview").as_bool() {
        answers.push(Comparison::permission(review, mode == ExecMode::Auto));
    }
    Some(Comparison::worst(answers))
}

/// The config of a row: `global` for all agents, `scope` for the agent, if one is named.
fn config(global: &Value, scope: &Value, agent: Option<&str>) -> Option<Config> {
    let or_empty = |value: &Value| {
        if value.is_null() {
            json!({})
        } else {
            value.clone()
        }
    };
    let config = match agent {
        Some(agent) => json!({
            "tools": { "exec": or_empty(global) },
            "agents": { "list": [{ "id": agent, "tools": { "exec": or_empty(scope) } }] },
        }),
        None if scope.is_null() => json!({ "tools": { "exec": or_empty(global) } }),
        None => json!({ "tools": { "exec": scope } }),
    };
    serde_json::from_value(config).ok()
}

/// Config and document joined, the document read as one of another program.
fn effective(row: Row<'_>) -> Option<Answer> {
    let agent = AgentId::new(row.text("agentId").unwrap_or(AgentId::MAIN)).ok()?;
    let config = config(
        row.get("globalExecConfig"),
        row.get("scopeExecConfig"),
        row.text("agentId"),
    );
    let expect = row.expect();
    let document = Document::import(row.get("approvals"));
    let (Some(config), Ok((document, _))) = (config, document) else {
        return Some(refused());
    };
    let levels = interlock_rules::levels(&config, &document, &agent, None);
    let joined = |key: &str| Row(expect.get(key)).text("effective");
    let mut answers = vec![
        Comparison::strictness(
            &Security::parse(joined("security")?)?,
            &levels.security.value(),
        ),
        Comparison::strictness(&Ask::parse(joined("ask")?)?, &levels.ask.value()),
    ];
    if let Some(expected) = expect.text("askFallback").and_then(Fallback::parse) {
        let got = levels.ask_fallback.value();
        answers.push(Comparison::strictness(&expected, &got).about("askFallback"));
    }
    if let Some(expected) = expect.argv("allowedDecisions") {
        let got = decisions(levels.ask.value(), &storable());
        answers.push(compare_decisions(&expected, &got));
    }
    Some(Comparison::worst(answers))
}

/// A document or config with an invalid value is refused as a whole.
pub fn refused() -> Answer {
    Comparison::answer(
        "the values that can be read",
        "refused as a whole",
        Direction::Stricter,
    )
    .because("refused")
}

/// What the document alone says, with the requested values where it says nothing.
fn approvals_file(row: Row<'_>) -> Option<Answer> {
    let agent = AgentId::new(row.text("agentId").unwrap_or(AgentId::MAIN)).ok()?;
    let Ok((document, _)) = Document::import(row.get("file")) else {
        return Some(refused());
    };
    let layer = Layer::of_document(&document, &agent);
    let overrides = Row(row.get("overrides"));
    let expected = Row(row.expect().get("agent"));
    let (security, ask, fallback) = Levels::DEFAULTS;
    let security = layer
        .security
        .map(|sourced| sourced.value)
        .or_else(|| Security::parse(overrides.text("security")?))
        .unwrap_or(security);
    let ask = layer
        .ask
        .map(|sourced| sourced.value)
        .or_else(|| Ask::parse(overrides.text("ask")?))
        .unwrap_or(ask);
    let fallback = layer
        .ask_fallback
        .map(|sourced| sourced.value)
        .or_else(|| Fallback::parse(overrides.text("askFallback")?))
        .unwrap_or(fallback);
    let mut answers = vec![
        Comparison::strictness(&Security::parse(expected.text("security")?)?, &security),
        Comparison::strictness(&Ask::parse(expected.text("ask")?)?, &ask),
        Comparison::strictness(&Fallback::parse(expected.text("askFallback")?)?, &fallback),
    ];
    if let Some(expected) = expected.get("autoAllowSkills").as_bool() {
        let got = auto_allow_skills(&document, &agent);
        answers.push(Comparison::permission(expected, got));
    }
    if let Some(expected) = row.expect().get("allowlist").as_array() {
        let expected: BTreeSet<&str> = expected.iter().filter_map(pattern).collect();
        let got = entries(&document, &agent);
        let got: BTreeSet<&str> = got
            .iter()
            .map(|(entry, _)| entry.pattern.as_str())
            .collect();
        let otherwise = if got.is_subset(&expected) {
            Direction::Stricter
        } else {
            Direction::Looser
        };
        answers.push(Comparison::values(&expected, &got, otherwise));
    }
    Some(Comparison::worst(answers))
}

fn pattern(entry: &Value) -> Option<&str> {
    entry.as_str().or_else(|| entry.get("pattern")?.as_str())
}

/// The values of an agent whose host says nothing. Where it runs is not asked here.
fn defaults(row: Row<'_>) -> Option<Answer> {
    let input = Row(row.get("input"));
    if row.expect().text("effectiveHost") == Some("sandbox") {
        return Some(Answer::NotOurs);
    }
    let config = match input.get("cfg") {
        Value::Null => Config::default(),
        config => match serde_json::from_value(config.clone()) {
            Ok(config) => config,
            Err(_) => return Some(refused()),
        },
    };
    let agent = AgentId::new(input.text("agentId").unwrap_or(AgentId::MAIN)).ok()?;
    let levels = interlock_rules::levels(&config, &Document::default(), &agent, None);
    let expect = row.expect();
    Some(Comparison::worst([
        Comparison::strictness(
            &Security::parse(expect.text("security")?)?,
            &levels.security.value(),
        ),
        Comparison::strictness(&Ask::parse(expect.text("ask")?)?, &levels.ask.value()),
    ]))
}

/// A command of the wanted kind, judged for real.
fn outcome(row: Row<'_>) -> Option<(Outcome, BindingKind)> {
    let security = Security::parse(row.text("security")?)?;
    let ask = Ask::parse(row.text("ask")?)?;
    let satisfied = row.get("satisfied").as_bool()?;
    let layer = Layer::new(LayerSource::Host, "", Some(security), Some(ask));
    let entry = Entry::for_pattern("rg");
    let policy = PolicyParts {
        levels: Some(Levels::join(&[layer])),
        entries: satisfied
            .then(|| (entry, "allowlist".to_owned()))
            .into_iter()
            .collect(),
        ..PolicyParts::default()
    };
    let text = if row.get("analyzable").as_bool()? {
        "rg needle"
    } else {
        "rg needle > found"
    };
    let source = Source::Text(text.to_owned());
    let policy = policy.assemble(None).ok()?;
    let evaluation = judge_virtually(&policy, source, &VirtualHost::new())?;
    let verdict = evaluation.verdict;
    Some((verdict.outcome, verdict.binding.kind))
}

fn approval_needed(row: Row<'_>) -> Option<Answer> {
    // A grant for exactly this command suppresses a question on a miss, but not `ask=always`.
    let durable = row.get("durable").as_bool() == Some(true);
    let (outcome, _) = outcome(row)?;
    let needed = outcome == Outcome::Ask && !(durable && row.text("ask") != Some("always"));
    let expected = row.expect().get("approvalNeeded").as_bool()?;
    Some(Comparison::suspicion(expected, needed))
}

fn run_policy(row: Row<'_>) -> Option<Answer> {
    let (outcome, binding) = outcome(row)?;
    let decision = row.text("approvalDecision");
    let approved = row.get("approved").as_bool() == Some(true)
        || matches!(decision, Some("allow-once" | "allow-always"));
    let got = match outcome {
        Outcome::Ask if decision == Some("deny") => "deny",
        Outcome::Ask if approved && binding != BindingKind::Unbound => "allow",
        other => other.as_str(),
    };
    let rank = |verdict: &str| match verdict {
        "allow" => Some(0),
        "ask" => Some(1),
        "deny" => Some(2),
        _ => None,
    };
    let expected = row.expect().text("verdict")?;
    let direction = match rank(got)?.cmp(&rank(expected)?) {
        std::cmp::Ordering::Less => Direction::Looser,
        std::cmp::Ordering::Equal => Direction::Same,
        std::cmp::Ordering::Greater => Direction::Stricter,
    };
    Some(Comparison::answer(expected, got, direction))
}

fn storable() -> Remember {
    Remember {
        entries: vec![Entry::for_pattern("/usr/bin/rg")],
        ..Remember::default()
    }
}

fn decisions(ask: Ask, remember: &Remember) -> Vec<String> {
    let offered = offered_decisions(ask, remember).into_iter();
    offered
        .map(|decision| decision.as_str().to_owned())
        .collect()
}

fn compare_decisions(expected: &[String], got: &[String]) -> Answer {
    let sorted = |list: &[String]| list.iter().cloned().collect::<BTreeSet<String>>();
    let (expected, got) = (sorted(expected), sorted(got));
    let otherwise = if got.is_subset(&expected) {
        Direction::Stricter
    } else {
        Direction::Looser
    };
    Comparison::values(&expected, &got, otherwise)
}

fn offered(row: Row<'_>) -> Option<Answer> {
    let input = Row(row.get("input"));
    let ask = match input.text("ask") {
        Some(ask) => Ask::parse(ask)?,
        None => Ask::OnMiss,
    };
    let one_shot = Row(input.get("allowAlwaysPersistence")).text("kind") == Some("one-shot");
    let unavailable = input.argv("unavailableDecisions").unwrap_or_default();
    let nothing = one_shot
        || unavailable
            .iter()
            .any(|it| it == ApprovalDecision::AllowAlways.as_str());
    let remember = if nothing {
        Remember {
            nothing_because: Some("one-shot".to_owned()),
            ..Remember::default()
        }
    } else {
        storable()
    };
    let got = decisions(ask, &remember);
    Some(compare_decisions(&row.expect().argv("decisions")?, &got))
}

/// Whether a stored grant answers for the command.
fn durable(row: Row<'_>) -> Option<Answer> {
    let input = Row(row.get("input"));
    let entry = |value: &Value| serde_json::from_value::<Entry>(value.clone()).ok();
    let list = input.get("allowlist").as_array();
    let list: EntryLists = list
        .into_iter()
        .flatten()
        .filter_map(|value| Some((entry(value)?, "allowlist".to_owned())))
        .collect();
    let exact = input.text("commandText").is_some_and(|text| {
        let allowlist = Allowlist::new(list, None);
        allowlist.find_command(text, "/", 0).is_some()
    });
    let segments = input.get("segmentAllowlistEntries").as_array();
    let by_segments = input.get("analysisOk").as_bool() == Some(true)
        && segments.is_some_and(|segments| {
            !segments.is_empty()
                && segments.iter().all(|segment| {
                    entry(segment).is_some_and(|entry| {
                        entry.source.as_deref() == Some(interlock_policy::ALLOW_ALWAYS)
                            && !entry.is_inert()
                    })
                })
        });
    let expected = row.expect().get("durable").as_bool()?;
    Some(Comparison::permission(expected, exact || by_segments))
}
