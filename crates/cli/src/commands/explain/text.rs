//! The explanation as text: the verdict and its rule first, then each command, the layers, what
//! would happen next, and what to do.

use interlock_binding::{Binding, BoundRole};
use interlock_command::Source;
use interlock_console::level_row;
use interlock_console::output::{self, Paint, visible};
use interlock_policy::{
    AlwaysForm, CallerInput, Entry, Evaluation, Joined, Levels, Outcome as VerdictOutcome,
    PolicySource as Layer, Transport, Verdict, quote,
};

use super::{CallFacts, ExplainedApproval, UNBOUND_CODE};

/// Formats the whole explanation.
pub(super) fn text(
    command: &str,
    facts: &CallFacts,
    evaluation: &Evaluation,
    levels: &Levels,
    approval: ExplainedApproval,
    paint: Paint,
) -> String {
    let verdict = &evaluation.verdict;
    let word = approval.word(verdict);
    let margin = " ".repeat(word.len() + 2);
    let shown = paint.command(command).replace('\n', &format!("\n{margin}"));
    let mut out = format!("{}  {shown}\n", paint.verdict(word));
    out += &format!("{margin}{}\n", visible(&verdict.reason.message));
    if let Some(origin) = &verdict.reason.origin {
        let rule = if verdict.reason.code == "ask-always" && is_of_call(&levels.ask) {
            "rule: the call's own `ask`".to_owned()
        } else {
            format!("rule: {origin}")
        };
        out += &format!("{margin}{}\n", paint.dim(&rule));
    }
    let mut sections = vec![out];
    let call = call(facts);
    if !call.is_empty() {
        sections.push(section("call", &call));
    }
    sections.extend([
        section("commands", &segments(evaluation)),
        section(
            "policy",
            &[
                level_row("security", &levels.security),
                level_row("ask", &levels.ask),
                level_row("askFallback", &levels.ask_fallback),
            ],
        ),
    ]);
    let outlook = outlook(verdict, approval);
    if !outlook.is_empty() {
        sections.push(section("then", &outlook));
    }
    let hints = verdict.remedies.iter().map(|remedy| {
        let command = paint.strong(&remedy.command);
        format!("hint: {}: {command}\n", remedy.effect)
    });
    let suggestion = verdict.suggestion.map(|words| format!("hint: {words}\n"));
    let hints: String = hints.chain(suggestion).collect();
    if !hints.is_empty() {
        sections.push(hints);
    }
    sections.join("\n")
}

/// The rows about the environment and input of the call.
fn call(facts: &CallFacts) -> Vec<Vec<String>> {
    let env = facts.env.iter();
    let env = env.map(|(name, value)| {
        vec![
            "env".to_owned(),
            visible(&format!("{name}={}", quote(value))),
        ]
    });
    let mut rows: Vec<Vec<String>> = env.collect();
    let input = match facts.input {
        CallerInput::None => None,
        CallerInput::Pipe => Some("stdin"),
        CallerInput::Terminal => Some("terminal"),
    };
    rows.extend(input.map(|input| {
        let text = "the caller can type into the program";
        vec![input.to_owned(), text.to_owned()]
    }));
    rows
}

fn is_of_call<T>(joined: &Joined<T>) -> bool {
    joined.effective.source == Layer::Call
}

fn segments(evaluation: &Evaluation) -> Vec<Vec<String>> {
    let judged = &evaluation.verdict.segments;
    if let (Some(odd), Source::Text(text)) =
        (evaluation.analysis.shape.odd(), &evaluation.analysis.source)
    {
        return vec![vec![format!(
            "not plain at byte {}, {}: {}; no entry can satisfy it",
            odd.span.start,
            place(odd.span.of(text)),
            odd.reason.message()
        )]];
    }
    judged
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
        .collect()
}

/// The odd part of the text, cut to fit on a line.
fn place(odd: &str) -> String {
    let line = visible(odd.lines().next().unwrap_or_default().trim_end());
    match line.char_indices().nth(20) {
        Some((end, _)) => format!("`{}…`", &line[..end]),
        None if line.is_empty() => "the end of the line".to_owned(),
        None => format!("`{line}`"),
    }
}

/// The rows that say what would happen next.
fn outlook(verdict: &Verdict, approval: ExplainedApproval) -> Vec<Vec<String>> {
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
            let approved = match approval {
                ExplainedApproval::Possible => format!("it runs {run}"),
                ExplainedApproval::Refused => format!(
                    "{UNBOUND_CODE}: what would run cannot be pinned (tools.exec.unboundApprovals is `deny`)"
                ),
            };
            lines.push(vec!["approved".to_owned(), approved]);
            lines.extend(bound(binding));
            if approval == ExplainedApproval::Refused {
                return lines;
            }
            let always = match (
                &verdict.remember.nothing_because,
                verdict.remember.entries.as_slice(),
            ) {
                (Some(reason), _) => format!("stores nothing: {reason}"),
                (None, entries) => {
                    let patterns: Vec<_> =
                        entries.iter().map(|entry| entry.pattern.as_str()).collect();
                    let is_held = entries.iter().any(|entry| entry.bound_file.is_some());
                    let has_env = entries.iter().any(|entry| !entry.env.is_empty());
                    let is_interactive = entries.iter().any(|entry| entry.interactive);
                    let parts = [
                        (is_held, ", and the content of what runs"),
                        (has_env, ", for exactly this environment"),
                        (
                            is_interactive,
                            ", where the caller can type into it like this",
                        ),
                    ];
                    let parts = parts.iter().filter(|(holds, _)| *holds);
                    let bounds = match verdict.remember.form {
                        AlwaysForm::Project => project_bounds(entries),
                        _ => "with exactly these arguments in this directory".to_owned(),
                    };
                    format!(
                        "stores {} {bounds}{}",
                        patterns.join(", "),
                        parts.map(|(_, text)| *text).collect::<String>()
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
                    "no approver".to_owned(),
                    format!("{outcome}: {}", fallback.reason),
                ]);
            }
        }
    }
    lines
}

/// Describes what *always for this project* would cover.
fn project_bounds(entries: &[Entry]) -> String {
    let each = entries.iter().filter_map(|entry| {
        let words = entry
            .args
            .as_deref()?
            .iter()
            .map(|word| match word.as_str() {
                "**" => "…".to_owned(),
                word => quote(word),
            });
        let words = words.collect::<Vec<_>>().join(" ");
        let root = entry.cwd.as_deref()?.trim_end_matches("/**");
        Some(format!("with `{words}` in the project {root}"))
    });
    let mut each: Vec<String> = each.collect();
    each.dedup();
    each.join(", ")
}

/// The rows about the binding: its kind and reason, then the pinned files or the obstacle.
fn bound(binding: &Binding) -> Vec<Vec<String>> {
    let reason = visible(&binding.reason);
    let mut lines = vec![vec![
        "binds".to_owned(),
        format!("{}: {reason}", binding.kind.as_str()),
    ]];
    let row = |title: &str, text: String| vec![title.to_owned(), visible(&text)];
    if let Some(unbound) = &binding.unbound {
        if let Some(executable) = &unbound.executable {
            lines.push(row("", format!("program: {executable}")));
        }
        lines.push(row("", format!("expected: {}", unbound.expected)));
        lines.push(row("", format!("found: {}", unbound.found)));
        let split = unbound.split_advice();
        lines.extend(split.map(|way| row("", format!("way out: {way}"))));
        lines.extend(
            unbound
                .remedies
                .iter()
                .map(|way| row("", format!("way out: {way}"))),
        );
        return lines;
    }
    for run in &binding.projects {
        if run.sentence != binding.reason {
            lines.push(row("", run.sentence.clone()));
        }
        for manifest in &run.manifests {
            lines.push(row("", format!("manifest: {manifest}")));
        }
    }
    lines.extend(binding.notes.iter().map(|note| row("", note.clone())));
    for bound in &binding.files {
        let role = match bound.role {
            BoundRole::Script => "code",
            BoundRole::Interpreter => "interpreter",
            // Programs that only the text names are in the JSON output.
            BoundRole::Program => continue,
            BoundRole::Settings => "settings",
        };
        lines.push(row("", format!("{role}: {}", bound.file.canonical)));
    }
    lines.extend(
        binding
            .absent
            .iter()
            .map(|path| row("", format!("must stay absent: {path}"))),
    );
    lines
}

fn section(title: &str, rows: &[Vec<String>]) -> String {
    format!("{title}\n{}", output::table(rows, "  "))
}
