//! `interlock explain`: the verdict, the deciding rule first, then everything it rests on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use interlock_command::{Highlight, Shape, Source, highlight};
use interlock_host::{Evaluation, Request, evaluate, now_ms};
use interlock_policy::{AgentId, Levels, Outcome as VerdictOutcome, Transport, Verdict, quote};
use serde::Serialize;

use super::{Outcome, level_row, open};
use crate::args::{ExplainArguments, StateArguments};
use crate::failure::Failure;
use crate::output::{self, Paint, visible};

pub fn run(state: &StateArguments, arguments: &ExplainArguments) -> Outcome {
    let agent = AgentId::new(&arguments.agent)
        .map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))?;
    let request = request(arguments)?;
    let host = open(state)?;
    let policy = host.policy(&agent, arguments.ask.map(Into::into))?;
    let shown = shown_command(&request.source);
    let mut evaluation = evaluate(request, &policy, &host.resolver())?;
    for remedy in &mut evaluation.verdict.remedies {
        remedy.command = state.in_command(&remedy.command);
    }
    if arguments.json {
        output::print_json(&Explanation::new(
            &shown,
            &agent,
            &evaluation,
            &policy.levels,
        ));
    } else {
        output::print(&text(&shown, &evaluation, &policy.levels, Paint::stdout()));
        for (origin, error) in policy.allowlist.broken() {
            output::note(&format!("warning: {origin} never matches: {error}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn request(arguments: &ExplainArguments) -> Result<Request, Failure> {
    let words = arguments
        .command
        .iter()
        .map(utf8)
        .collect::<Result<Vec<_>, _>>()?;
    let source = match words.as_slice() {
        [text] if !arguments.argv => Source::Text(text.clone()),
        _ => Source::Argv(words),
    };
    let cwd = match &arguments.cwd {
        Some(cwd) => std::fs::canonicalize(cwd),
        None => std::env::current_dir(),
    };
    let cwd = cwd.map_err(|error| {
        let named = arguments
            .cwd
            .as_ref()
            .map_or("the working directory".to_owned(), |cwd| {
                cwd.display().to_string()
            });
        Failure::usage("CWD_UNUSABLE", format!("{named}: {error}"))
    })?;
    Ok(Request {
        source,
        cwd: utf8(&cwd.into_os_string())?,
        env: environment(&arguments.env)?,
        now_ms: now_ms(),
    })
}

fn environment(pairs: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Failure::usage(
            "ENV_INVALID",
            format!("`{text}` is not NAME=VALUE"),
        )),
    };
    pairs.iter().map(pair).collect()
}

fn utf8(word: &OsString) -> Result<String, Failure> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        let shown = word.to_string_lossy();
        Failure::usage("COMMAND_NOT_UTF8", format!("`{shown}` is not valid UTF-8"))
    })
}

/// The command as people read it: text as it is, an argument vector quoted.
fn shown_command(source: &Source) -> String {
    match source {
        Source::Text(text) => text.clone(),
        Source::Argv(argv) => argv
            .iter()
            .map(|word| quote(word))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    command: &'a str,
    agent: &'a AgentId,
    cwd: &'a str,
    plain: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_plain: Option<&'a interlock_command::NotPlain>,
    highlights: Vec<Highlight>,
    #[serde(flatten)]
    verdict: &'a Verdict,
    policy: &'a Levels,
}

impl<'a> Explanation<'a> {
    fn new(
        command: &'a str,
        agent: &'a AgentId,
        evaluation: &'a Evaluation,
        policy: &'a Levels,
    ) -> Self {
        let analysis = &evaluation.analysis;
        Self {
            command,
            agent,
            cwd: &analysis.cwd,
            plain: analysis.shape.odd().is_none(),
            not_plain: analysis.shape.odd(),
            highlights: match &analysis.shape {
                Shape::Argv => Vec::new(),
                Shape::Plain(_) | Shape::Odd(_) => highlight(command),
            },
            verdict: &evaluation.verdict,
            policy,
        }
    }
}

fn text(command: &str, evaluation: &Evaluation, levels: &Levels, paint: Paint) -> String {
    let verdict = &evaluation.verdict;
    let word = verdict.outcome.as_str();
    let margin = " ".repeat(word.len() + 2);
    let shown = paint.command(command).replace('\n', &format!("\n{margin}"));
    let mut out = format!("{}  {shown}\n", paint.verdict(word));
    out += &format!("{margin}{}\n", visible(&verdict.reason.message));
    if let Some(origin) = &verdict.reason.origin {
        out += &format!("{margin}{}\n", paint.dim(&format!("rule: {origin}")));
    }
    out.push('\n');
    out += &segments(evaluation);
    out += &rows(
        "policy",
        &[
            level_row("security", &levels.security),
            level_row("ask", &levels.ask),
            level_row("askFallback", &levels.ask_fallback),
        ],
    );
    out += &outlook(verdict);
    for remedy in &verdict.remedies {
        out += &format!(
            "hint: {}: {}\n",
            remedy.effect,
            paint.strong(&remedy.command)
        );
    }
    out
}

fn segments(evaluation: &Evaluation) -> String {
    let judged = &evaluation.verdict.segments;
    if let Some(odd) = evaluation.analysis.shape.odd() {
        let span = odd.span;
        return rows(
            "commands",
            &[vec![format!(
                "not plain at byte {}: {}; no entry can satisfy it",
                span.start,
                odd.reason.message()
            )]],
        );
    }
    let lines: Vec<Vec<String>> = judged
        .iter()
        .map(|judged| {
            let argv = judged.argv.iter().map(|word| quote(word));
            let wrappers = judged.wrappers.iter().map(String::as_str);
            let words = wrappers.map(str::to_owned).chain(argv);
            let shown = words.collect::<Vec<_>>().join(" ");
            let file = match (&judged.resolved, &judged.canonical) {
                (Some(found), Some(canonical)) if found != canonical => {
                    format!("{found} -> {canonical}")
                }
                (Some(found), _) => found.clone(),
                (None, _) => "-".to_owned(),
            };
            let mark = if judged.satisfied_by.is_some() {
                "ok"
            } else {
                "miss"
            };
            let mut reason = judged.reason.message.clone();
            if let Some(origin) = &judged.reason.origin {
                reason += &format!(" ({origin})");
            }
            vec![
                mark.to_owned(),
                visible(&shown),
                visible(&file),
                visible(&reason),
            ]
        })
        .collect();
    rows("commands", &lines)
}

/// What would happen next.
fn outlook(verdict: &Verdict) -> String {
    let mut lines = Vec::new();
    let run = match verdict.transport {
        Transport::Direct => "directly, without a shell",
        Transport::Shell => "by the shell, exactly this text",
    };
    match verdict.outcome {
        VerdictOutcome::Allow(_) => lines.push(vec!["runs".to_owned(), run.to_owned()]),
        VerdictOutcome::Deny => {}
        VerdictOutcome::Ask => {
            let binding = &verdict.binding;
            let kind = serde_json::to_value(binding.kind).unwrap_or_default();
            let kind = kind.as_str().unwrap_or_default().to_owned();
            lines.push(vec!["approved".to_owned(), format!("it runs {run}")]);
            lines.push(vec![
                "binds".to_owned(),
                format!("{kind}: {}", binding.reason),
            ]);
            let always = match (
                &verdict.remember.nothing_because,
                verdict.remember.entries.as_slice(),
            ) {
                (Some(reason), _) => format!("stores nothing: {reason}"),
                (None, entries) => {
                    let patterns: Vec<_> =
                        entries.iter().map(|entry| entry.pattern.as_str()).collect();
                    format!(
                        "stores {} with exactly these arguments in this directory",
                        patterns.join(", ")
                    )
                }
            };
            lines.push(vec!["always".to_owned(), always]);
            if let Some(fallback) = &verdict.fallback {
                let outcome = if fallback.allow {
                    "it runs"
                } else {
                    "it is denied"
                };
                lines.push(vec![
                    "nobody there".to_owned(),
                    format!("{outcome}: {}", fallback.reason),
                ]);
            }
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    rows("then", &lines)
}

fn rows(title: &str, rows: &[Vec<String>]) -> String {
    format!("{title}\n{}\n", output::table(rows, "  "))
}
