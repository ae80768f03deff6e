//! Forms of commands that rules go by.

use interlock_command::{Connector, Line, lex};
use interlock_policy::ArgumentRule;
use interlock_programs::inline::{HitKind, detect, detect_through_carriers};
use interlock_programs::names::program_name;
use interlock_programs::{Multiplexer, ShellCall, multiplexer, shell_call, unwrap_chain};
use serde_json::Value;

use crate::comparison::{Row, strings};

/// Texts inside texts that are looked at.
const MAX_DEPTH: usize = 4;

/// Stands in for `${TMP}`, which no shell could read.
const SOMEWHERE: &str = "/tmp/somewhere";

/// The commands of a row as argvs: its argv, its request, or the segments of its plain text.
fn argvs(row: Row<'_>) -> Vec<Vec<String>> {
    let given = row
        .argv("argv")
        .or_else(|| strings(Row(row.get("request")).get("command")));
    match (given, line(row)) {
        (Some(argv), _) => {
            let filled = argv.iter().map(|word| word.replace("${TMP}", SOMEWHERE));
            vec![filled.collect()]
        }
        (None, Some(line)) => line_argvs(&line),
        (None, None) => Vec::new(),
    }
}

fn line(row: Row<'_>) -> Option<Line> {
    lex(&row.text("command")?.replace("${TMP}", SOMEWHERE)).ok()
}

fn line_argvs(line: &Line) -> Vec<Vec<String>> {
    let words = |segment: &interlock_command::Segment| {
        let words = segment.words.iter();
        words.map(|word| word.text.clone()).collect()
    };
    line.segments().map(words).collect()
}

/// A shell with a text behind wrappers: the shell's own argv, and where the text stands.
struct ShellText {
    argv: Vec<String>,
    index: usize,
}

impl ShellText {
    fn text(&self) -> &str {
        &self.argv[self.index]
    }

    fn is_login(&self) -> bool {
        self.argv[1..self.index].iter().any(|option| {
            option == "--login"
                || (option.starts_with('-') && !option.starts_with("--") && option.contains('l'))
        })
    }
}

/// Every shell text of a row, those inside others included.
fn shell_texts(row: Row<'_>) -> Vec<ShellText> {
    let mut found = Vec::new();
    for argv in argvs(row) {
        collect(&argv, 0, &mut found);
    }
    found
}

fn collect(argv: &[String], depth: usize, found: &mut Vec<ShellText>) {
    let mut argv = unwrap_chain(argv).argv;
    if multiplexer(&argv) == Multiplexer::Shell {
        argv.remove(0);
    }
    let ShellCall::Text { index, .. } = shell_call(&argv) else {
        return;
    };
    if depth < MAX_DEPTH
        && let Ok(line) = lex(&argv[index])
    {
        for inner in line_argvs(&line) {
            collect(&inner, depth + 1, found);
        }
    }
    found.push(ShellText { argv, index });
}

pub fn has_text(row: Row<'_>) -> bool {
    !shell_texts(row).is_empty()
}

pub fn has_login_text(row: Row<'_>) -> bool {
    shell_texts(row).iter().any(ShellText::is_login)
}

/// Some command of a shell text is named by its path.
pub fn has_path_in_text(row: Row<'_>) -> bool {
    shell_texts(row).iter().any(|shell| {
        let line = lex(shell.text());
        line.is_ok_and(|line| line.segments().any(|segment| segment.name().contains('/')))
    })
}

/// A shell text that starts what stands behind it: `sh -c '$0 "$@"' program …`.
pub fn has_positional_text(row: Row<'_>) -> bool {
    let named = |text: &str| {
        ["$0", "$1", "$2", "$@", "$*", "${0", "${1", "${@"]
            .iter()
            .any(|parameter| text.contains(parameter))
    };
    shell_texts(row).iter().any(|shell| named(shell.text()))
}

pub fn has_redirection(row: Row<'_>) -> bool {
    any_line(row, |line| {
        line.segments()
            .any(|segment| !segment.redirections.is_empty())
    })
}

pub fn has_background(row: Row<'_>) -> bool {
    any_line(row, |line| {
        let mut pipelines = line.pipelines.iter();
        pipelines.any(|pipeline| pipeline.next == Connector::Background)
    })
}

pub fn has_assignment(row: Row<'_>) -> bool {
    any_line(row, |line| {
        line.segments()
            .any(|segment| !segment.assignments.is_empty())
    })
}

pub fn has_tilde(row: Row<'_>) -> bool {
    any_line(row, |line| {
        let mut words = line.segments().flat_map(|segment| &segment.words);
        words.any(|word| word.tilde)
    })
}

pub fn has_continuation(row: Row<'_>) -> bool {
    let text = row.text("command").unwrap_or_default();
    text.contains("\\\n") && line(row).is_some()
}

pub fn has_comment(row: Row<'_>) -> bool {
    has_mark(row, "#")
}

/// `$'…'`
pub fn has_dollar_quote(row: Row<'_>) -> bool {
    has_mark(row, "$'")
}

/// In a text that is plain.
fn has_mark(row: Row<'_>, mark: &str) -> bool {
    line(row).is_some() && row.text("command").is_some_and(|text| text.contains(mark))
}

pub fn has_multi_call_shell(row: Row<'_>) -> bool {
    argvs(row)
        .iter()
        .any(|argv| multiplexer(&unwrap_chain(argv).argv) == Multiplexer::Shell)
}

/// The text of the row or a shell text in it.
fn any_line(row: Row<'_>, holds: impl Fn(&Line) -> bool) -> bool {
    line(row).is_some_and(|line| holds(&line))
        || shell_texts(row)
            .iter()
            .any(|shell| lex(shell.text()).is_ok_and(|line| holds(&line)))
}

/// A pattern that is a link on this machine, outside of the fixture.
pub fn has_linked_pattern(row: Row<'_>) -> bool {
    let policy = Row(row.get("policy"));
    let linked = |entry: &Value| {
        let pattern = entry.as_str().or_else(|| entry.get("pattern")?.as_str());
        pattern.is_some_and(|pattern| {
            pattern.starts_with('/')
                && std::fs::canonicalize(pattern)
                    .is_ok_and(|real| real != std::path::Path::new(pattern))
        })
    };
    let agents = policy.get("approvalsFile").get("agents");
    let agents = agents.and_then(Value::as_object).into_iter().flatten();
    let in_document = agents.filter_map(|(_, scope)| scope.get("allowlist")?.as_array());
    let in_policy = policy.get("allowlist").as_array();
    in_policy
        .into_iter()
        .chain(in_document)
        .flatten()
        .any(linked)
}

pub fn has_attached_stdbuf(row: Row<'_>) -> bool {
    argvs(row).iter().any(|argv| {
        let stdbuf = argv.iter().position(|word| program_name(word) == "stdbuf");
        let short = ["-i", "-o", "-e"];
        stdbuf.is_some_and(|at| {
            argv[at + 1..]
                .iter()
                .any(|word| word.len() > 2 && short.iter().any(|option| word.starts_with(option)))
        })
    })
}

/// `env NAME=VALUE PROGRAM`, also behind another wrapper.
pub fn has_env_assignment(row: Row<'_>) -> bool {
    argvs(row).iter().any(|argv| {
        argv.windows(3)
            .any(|words| program_name(&words[0]) == "env" && words[1].contains('='))
    })
}

pub fn program_is(row: Row<'_>, names: &[&str]) -> bool {
    let argvs = argvs(row);
    let first = argvs.first().and_then(|argv| argv.first());
    first.is_some_and(|first| names.contains(&&*program_name(first)))
}

/// `-20`, `-n+2`, `+5`.
pub fn has_count(row: Row<'_>) -> bool {
    let argv = row.argv("argv").unwrap_or_default();
    argv.iter().any(|word| {
        let count = word
            .strip_prefix("-n")
            .or_else(|| word.strip_prefix("-c"))
            .or_else(|| word.strip_prefix('-'));
        let digits = count.map_or(word.as_str(), |count| count);
        let digits = digits.strip_prefix('+').unwrap_or(digits);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The first program is the system's own: by its path, or through PATH.
pub fn program_may_be_trusted(row: Row<'_>) -> bool {
    let argvs = argvs(row);
    let Some(first) = argvs.first().and_then(|argv| argv.first()) else {
        return false;
    };
    if first.contains('/') {
        return ["/usr/bin/", "/bin/"]
            .iter()
            .any(|directory| first.starts_with(directory));
    }
    let files = row.get("fs").as_array().into_iter().flatten();
    let mut paths = files.filter_map(|file| file.get("path")?.as_str());
    let shadowed = paths.any(|path| path.ends_with(&format!("/{first}")));
    let path = row.argv("path").unwrap_or_default();
    !shadowed
        && path
            .iter()
            .any(|directory| directory == "/usr/bin" || directory == "/bin")
}

pub fn is_approved(row: Row<'_>) -> bool {
    let request = Row(row.get("request"));
    row.get("approved").as_bool() == Some(true)
        || request.get("approved").as_bool() == Some(true)
        || row
            .text("approvalDecision")
            .is_some_and(|decision| decision.starts_with("allow-"))
}

/// What was found is an option that loads code, points elsewhere or writes, not code itself.
pub fn has_option_hit(row: Row<'_>) -> bool {
    let argv = row.argv("argv").unwrap_or_default();
    let hit = if row.get("throughCarriers").as_bool() == Some(true) {
        detect_through_carriers(&argv)
    } else {
        detect(&argv)
    };
    hit.is_some_and(|hit| hit.kind != HitKind::Code)
}

/// Every argument pattern of the row.
fn argument_patterns(row: Row<'_>) -> Vec<String> {
    let entries = row.get("entries").as_array().into_iter().flatten();
    let of_entries = entries.filter_map(|entry| entry.get("argPattern")?.as_str());
    let own = row.text("argPattern");
    own.into_iter()
        .chain(of_entries)
        .map(str::to_owned)
        .collect()
}

/// Two unbounded repetitions, which could take a backtracking engine forever.
pub fn has_repeated_repetition(row: Row<'_>) -> bool {
    argument_patterns(row).iter().any(|pattern| {
        let unbounded = pattern.matches(['*', '+']).count() + pattern.matches(",}").count();
        unbounded >= 2
    })
}

pub fn has_refused_regex(row: Row<'_>) -> bool {
    argument_patterns(row)
        .iter()
        .any(|pattern| ArgumentRule::parse(Some(pattern), None).is_err())
}

/// A text whose words the lexer cannot prove, or a key that stands in several words.
pub fn has_unproven_words(row: Row<'_>) -> bool {
    let Some(text) = row.text("text") else {
        return false;
    };
    let seen: String = text
        .chars()
        .filter(|c| c.is_ascii() || c.is_alphanumeric())
        .collect();
    match interlock_command::lex(&seen) {
        Err(_) => true,
        Ok(line) => {
            let mut words = line.segments().flat_map(|segment| &segment.words);
            seen.contains("-----BEGIN ") && !words.any(|word| word.text.contains("-----BEGIN "))
        }
    }
}
