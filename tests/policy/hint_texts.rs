//! Every command of this program that stands in a text can be pasted: in errors, remedies and findings, in
//! `--help`, and in the documentation.
//!
//! The texts are found in the sources, so a new remedy is tested the moment it is written. A command that the
//! program does not know fails [`every_written_command_is_known`]. A command that tells where to look or what to
//! set is also run, on a fresh machine, by [`commands_that_stand_alone_work_on_a_fresh_machine`].

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod commands;
mod literals;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use commands::{CommandForm, WrittenCommand, commands_in_page, commands_in_text, shell_words};
use literals::string_literals;
use testkit::Machine;

/// What a name between braces stands for in every command.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("{directory}", "/srv/state"),
    ("{fingerprint}", "ab12"),
    ("{first}", "kmnpz"),
    ("{id}", "kmnpz"),
    ("{kind}", "gateway"),
    ("{missing}", "keyPath"),
    ("{name}", "brave-otter"),
    ("{port}", "18789"),
    ("{request}", "6f1c"),
    ("{short}", "kmnpz"),
];

/// Commands whose text is put together from pieces, each with what it can become. A row that no source has
/// any more fails the test.
const PUT_TOGETHER: &[(&str, &[&str])] = &[
    (
        "interlock --local",
        &["interlock --local status", "interlock --local config get"],
    ),
    (
        "interlock agents revoke {}",
        &["interlock agents revoke 0b9f3c1e-7d57-4f0e-9d62-3c4e1d6a8b11"],
    ),
    (
        "interlock apply-patch --approval {id}{flags} {file}",
        &[
            "interlock apply-patch --approval kmnpz -",
            "interlock apply-patch --approval kmnpz --agent lab --root /srv --model m 'my changes.patch'",
        ],
    ),
    (
        "interlock approvals allowlist add --agent {agent}{bounds}{admitted}{shield} {}",
        &[
            "interlock approvals allowlist add --agent main rg",
            "interlock approvals allowlist add --agent main --arg=status --arg=-s git",
            "interlock approvals allowlist add --agent main --arg-pattern='^$' --cwd=/srv make",
            "interlock approvals allowlist add --agent main --path='${workspace}/**' tac",
            "interlock approvals allowlist add --agent main --env FOO=1 --interactive --shield off '/srv/a b'",
        ],
    ),
    (
        "interlock approvals allowlist add --agent {} {}",
        &["interlock approvals allowlist add --agent main --arg=status git"],
    ),
    (
        "interlock approvals allowlist remove {agent}{which}",
        &[
            "interlock approvals allowlist remove 0b9f3c1e-7d57-4f0e-9d62-3c4e1d6a8b11",
            "interlock approvals allowlist remove --agent main rg",
            "interlock approvals allowlist remove --agent main -- -x",
        ],
    ),
    (
        "interlock approvals allowlist remove {flag}{which}",
        &[
            "interlock approvals allowlist remove 0b9f3c1e-7d57-4f0e-9d62-3c4e1d6a8b11",
            "interlock approvals allowlist remove --agent main rg",
        ],
    ),
    (
        "interlock approvals approve {}",
        &["interlock approvals approve kmnpz"],
    ),
    (
        "interlock approvals get {}",
        &[
            "interlock approvals get --gateway",
            "interlock approvals get --node lab",
        ],
    ),
    (
        "interlock approvals get --node {}",
        &["interlock approvals get --node lab"],
    ),
    (
        "interlock approvals pending {}",
        &["interlock approvals pending kmnpz"],
    ),
    (
        "interlock config set 'agents.list[{}].id' {agent}",
        &["interlock config set 'agents.list[0].id' main"],
    ),
    (
        "interlock config set {key} VALUE",
        &[
            "interlock config set tools.exec.runAs VALUE",
            "interlock config set gateway.wake.command VALUE",
        ],
    ),
    (
        "interlock config set {} allowlist",
        &["interlock config set 'agents.list[0].tools.exec.security' allowlist"],
    ),
    (
        "interlock config set {} ask",
        &["interlock config set 'agents.list[0].tools.exec.mode' ask"],
    ),
    (
        "interlock config set {} gateway",
        &["interlock config set 'agents.list[0].tools.exec.host' gateway"],
    ),
    (
        "interlock config set {} on-miss",
        &["interlock config set 'agents.list[0].tools.exec.ask' on-miss"],
    ),
    (
        "interlock config set {} {wanted}",
        &[
            "interlock config set 'agents.list[0].tools.exec.security' allowlist",
            "interlock config set 'agents.list[0].tools.exec.ask' on-miss",
        ],
    ),
    (
        "interlock config set {} {}",
        &[
            r#"interlock config set tools.deny '["exec"]'"#,
            r#"interlock config set tools.exec.safeBins '["cut"]'"#,
            r#"interlock config set tools.exec.safeBinTrustedDirs '["/opt/bin"]'"#,
            "interlock config set tools.exec.timeoutSec 600",
        ],
    ),
    (
        "interlock config unset {key}",
        &[
            "interlock config unset tools.exec.shield",
            "interlock config unset 'agents.list[0].tools.exec.shield'",
        ],
    ),
    (
        "interlock config unset {}",
        &[
            "interlock config unset tools.exec.safeBins",
            "interlock config unset tools.exec.safeBinTrustedDirs",
        ],
    ),
    (
        "interlock nodes approve {}",
        &["interlock nodes approve 'lab machine'"],
    ),
    (
        "interlock devices approve {}",
        &["interlock devices approve 6f1c"],
    ),
    (
        "interlock exec-policy set {flag} {level}",
        &[
            "interlock exec-policy set --security full",
            "interlock exec-policy set --ask off",
            "interlock exec-policy set --ask-fallback allowlist",
        ],
    ),
    (
        "interlock exec -- {}",
        &["interlock exec -- 'make all && cp a b'"],
    ),
    (
        "interlock explain",
        &[
            "interlock explain --agent lab --cwd /srv --env FOO=1 --pty --stdin pipe --argv -- 'ls -l'",
        ],
    ),
    (
        "interlock node run{known}",
        &[
            "interlock node run --host HOST",
            "interlock node run --host 10.0.0.5 --port 18789",
        ],
    ),
    (
        "interlock policy template remove --agent {}{directory} {names}",
        &[
            "interlock policy template remove --agent '*' rust",
            "interlock policy template remove --agent main --dir '/srv/my app' rust node",
        ],
    ),
    (
        "interlock policy suggest --since {}{flags} --accept-all",
        &[
            "interlock policy suggest --since 7d --accept-all",
            "interlock policy suggest --since 7d --agent main --accept-all",
        ],
    ),
    (
        "interlock setup {}",
        &[
            "interlock setup codex --undo",
            "interlock setup codex --scope project --undo",
        ],
    ),
    (
        "interlock setup {} --only-interlock",
        &["interlock setup goose --only-interlock"],
    ),
    (
        "interlock setup {} --scope {other} --undo",
        &[
            "interlock setup codex --scope user --undo",
            "interlock setup codex --scope project --undo",
        ],
    ),
    (
        "interlock setup {}{scope} {flag}",
        &[
            "interlock setup codex --only-interlock",
            "interlock setup codex --scope project --only-interlock",
        ],
    ),
    (
        "interlock {global}",
        &[
            "interlock exec-policy set --security allowlist --ask on-miss",
            "interlock exec-policy set --ask on-miss",
        ],
    ),
    (
        "interlock {kind} install{gateway}",
        &[
            "interlock gateway install",
            "interlock node install --host HOST",
        ],
    ),
    (
        "interlock {kind} run{gateway}",
        &["interlock gateway run", "interlock node run --host HOST"],
    ),
    (
        "interlock {} install{}",
        &[
            "interlock gateway install",
            "interlock node install --host HOST",
        ],
    ),
];

/// Texts that are no commands, each with what they are.
const NOT_COMMANDS: &[(&str, &str)] = &[
    ("interlock", "what stands in front of a command"),
    ("interlock wake v1", "the domain of a signature"),
    (
        "interlock approvals: {} waiting{}{}",
        "the title of the inbox",
    ),
    ("interlock gateway", "the name in a certificate"),
    ("interlock owner", "the domain of a digest"),
    ("interlock setup", "the name of an MCP client"),
];

/// Whether a command that stands in a text is also run on a fresh machine, by its first words. The longest row
/// that fits decides; a command without a row fails the test.
const TRIED: &[(&str, Trial)] = &[
    ("agents list", Trial::Works),
    ("agents revoke", Trial::Needs("a token")),
    ("agents token", Trial::Works),
    ("apply-patch", Trial::Needs("a patch")),
    ("approvals allowlist add", Trial::Works),
    ("approvals allowlist add --node", Trial::Needs("a node")),
    ("approvals allowlist list", Trial::Works),
    ("approvals allowlist remove", Trial::Needs("an entry")),
    ("approvals allowlist remove --help", Trial::Works),
    ("approvals approve", Trial::Needs("an approval")),
    ("approvals deny", Trial::Needs("an approval")),
    ("approvals get", Trial::Works),
    ("approvals get --gateway", Trial::Needs("a remote gateway")),
    ("approvals get --node", Trial::Needs("a node")),
    ("approvals grants", Trial::Works),
    ("approvals pending", Trial::Works),
    ("approvals pending kmnpz", Trial::Needs("an approval")),
    ("approvals pending K7QXM", Trial::Needs("an approval")),
    ("approvals revoke", Trial::Needs("a grant")),
    ("approvals set", Trial::Needs("a document")),
    ("approvals socket", Trial::Works),
    ("approvals watch", Trial::Needs("a terminal and a person")),
    ("audit", Trial::Works),
    ("audit export", Trial::Works),
    (
        "audit verify --head",
        Trial::Needs("a head of this machine"),
    ),
    ("completion", Trial::Works),
    ("config", Trial::Works),
    ("config get", Trial::NamesKey),
    (
        "config set gateway.tls.certPath",
        Trial::Needs("a certificate"),
    ),
    ("config set gateway.tls.keyPath", Trial::Needs("a key")),
    ("config set gateway.remote", Trial::Needs("a certificate")),
    ("config set gateway.wake.command", Trial::Needs("a program")),
    (
        "config set tools.exec.runAs",
        Trial::Needs("root and another account"),
    ),
    ("config unset", Trial::NamesKey),
    (
        "dashboard",
        Trial::Needs("a gateway, which it would start and leave"),
    ),
    ("deny add", Trial::Works),
    ("deny add --agent", Trial::Needs("another agent")),
    ("deny add --node", Trial::Needs("a node")),
    ("deny list", Trial::Works),
    ("deny remove", Trial::Needs("a rule")),
    ("devices", Trial::Needs("a device")),
    ("devices list", Trial::Works),
    ("doctor", Trial::Works),
    ("events", Trial::Needs("to be ended")),
    ("exec", Trial::Needs("a program to run")),
    ("exec-policy", Trial::Works),
    ("explain", Trial::Works),
    ("explain --agent", Trial::Needs("another agent")),
    ("explain --node", Trial::Needs("a node")),
    ("gateway install", Trial::Needs("a service manager")),
    ("gateway restart", Trial::Needs("a service manager")),
    ("gateway run", Trial::Needs("to be ended")),
    ("gateway start", Trial::Needs("a service manager")),
    (
        "gateway status",
        Trial::Needs("a gateway; exits with 1 without one"),
    ),
    ("gateway stop", Trial::Needs("a gateway")),
    ("gateway token", Trial::Works),
    (
        "gateway token --import",
        Trial::Needs("a file with a token"),
    ),
    ("gateway token --revoke", Trial::Needs("a token")),
    ("gateway uninstall", Trial::Needs("a service manager")),
    ("hook", Trial::Needs("a call of an agent program")),
    ("import openclaw", Trial::Needs("a directory of OpenClaw")),
    ("man", Trial::Needs("a directory")),
    ("mcp", Trial::Needs("an MCP client")),
    ("node", Trial::Needs("a gateway or a service manager")),
    ("nodes", Trial::Needs("a node")),
    ("nodes enroll", Trial::Works),
    ("nodes enroll --revoke", Trial::Needs("a token")),
    ("nodes list", Trial::Works),
    ("nodes status", Trial::Works),
    ("policy base", Trial::Works),
    ("policy replay", Trial::Needs("a document")),
    ("policy suggest", Trial::Works),
    ("policy template", Trial::Works),
    ("policy template apply --agent", Trial::Needs("a directory")),
    (
        "policy template apply project",
        Trial::Needs("files of a project"),
    ),
    (
        "policy template remove",
        Trial::Needs("an applied template"),
    ),
    ("policy test", Trial::Needs("a file of cases")),
    ("process", Trial::Needs("a background session")),
    ("process list", Trial::Works),
    (
        "security audit",
        Trial::Needs("a machine without critical findings"),
    ),
    ("setup", Trial::Needs("an agent program")),
    ("status", Trial::Works),
    ("version", Trial::Works),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// It exits with 0 on a machine on which nothing has been done yet.
    Works,
    /// The same, or the key that it names is known and has no value there.
    NamesKey,
    /// It is only held against the parser here, because it needs this.
    Needs(&'static str),
}

fn repository() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// Files beneath a directory of the repository that end so.
fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let mut waiting = vec![repository().join(directory)];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    let path = path.strip_prefix(repository()).unwrap();
    path.display().to_string()
}

/// Commands in the string literals of every crate, tests left out.
fn commands_of_sources() -> Vec<WrittenCommand> {
    let mut found = Vec::new();
    for path in files("crates", ".rs") {
        let name = shown(&path);
        let is_source = name.split('/').nth(2) == Some("src");
        if !is_source || name.contains("/tests/") || name.ends_with("/tests.rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let tests = source.find("#[cfg(test)]\nmod tests {");
        let source = &source[..tests.unwrap_or(source.len())];
        for literal in string_literals(source) {
            let place = format!("{name}:{}", literal.line);
            found.extend(commands_in_text(&literal.text, &place));
        }
    }
    found
}

/// Commands in what `--help` shows of every command and argument.
fn commands_of_help() -> Vec<WrittenCommand> {
    let mut found = Vec::new();
    let mut waiting = vec![("interlock".to_owned(), interlock::reference::command_line())];
    while let Some((name, command)) = waiting.pop() {
        let place = format!("{name} --help");
        let of_command = [
            command.get_about(),
            command.get_long_about(),
            command.get_before_help(),
            command.get_after_help(),
            command.get_after_long_help(),
        ];
        let of_arguments = command
            .get_arguments()
            .flat_map(|argument| [argument.get_help(), argument.get_long_help()]);
        for text in of_command.into_iter().chain(of_arguments).flatten() {
            found.extend(commands_in_text(&text.to_string(), &place));
        }
        for inner in command.get_subcommands() {
            waiting.push((format!("{name} {}", inner.get_name()), inner.clone()));
        }
    }
    found
}

/// Commands in the documentation. The pages of the reference are made from `--help`, and the changelog tells
/// of programs as they were.
fn commands_of_documentation() -> Vec<WrittenCommand> {
    let mut pages: Vec<PathBuf> = ["README.md", "SECURITY.md", "SPECIFICATION.md"]
        .iter()
        .map(|name| repository().join(name))
        .collect();
    pages.extend(files("docs", ".md"));
    let mut found = Vec::new();
    for path in pages {
        let name = shown(&path);
        if !name.starts_with("docs/reference/") {
            found.extend(commands_in_page(&fs::read_to_string(&path).unwrap(), &name));
        }
    }
    found
}

/// The written command with values in place of its placeholders. Which rows were used is noted.
fn filled(
    written: &WrittenCommand,
    used: &mut BTreeSet<&'static str>,
) -> Result<Vec<String>, String> {
    let text = written.text.as_str();
    if let Some((row, _)) = NOT_COMMANDS.iter().find(|(row, _)| *row == text) {
        used.insert(row);
        return Ok(Vec::new());
    }
    if let Some((row, commands)) = PUT_TOGETHER.iter().find(|(row, _)| *row == text)
        && written.place.ends_with(|c: char| c.is_ascii_digit())
        && written.form == CommandForm::Whole
    {
        used.insert(row);
        return Ok(commands
            .iter()
            .map(|command| (*command).to_owned())
            .collect());
    }
    let mut out = text.to_owned();
    for (name, value) in PLACEHOLDERS {
        if out.contains(name) {
            used.insert(name);
            out = out.replace(name, value);
        }
    }
    // A variable of the policy and JSON have braces of their own.
    let braces = out.replace("${workspace}", "");
    let is_json = braces.contains("{ ") || braces.contains("{\"");
    if braces.contains('{') && !is_json {
        return Err("has a placeholder that no table of this test knows".to_owned());
    }
    Ok(alternatives(&out))
}

/// `list|show` names two commands.
fn alternatives(command: &str) -> Vec<String> {
    let word = command
        .split(' ')
        .find(|word| word.contains('|') && word.len() > 1 && !word.contains(['\'', '"']));
    let Some(word) = word else {
        return vec![command.to_owned()];
    };
    word.split('|')
        .flat_map(|one| alternatives(&command.replacen(word, one, 1)))
        .collect()
}

/// Why the parser of the program does not take the command.
fn refusal(command: &str, form: CommandForm) -> Option<String> {
    let Some(words) = shell_words(command) else {
        return Some("has an open quote".to_owned());
    };
    let error = interlock::reference::command_line()
        .try_get_matches_from(words)
        .err()?;
    let is_named_only = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::InvalidValue
    ) && (error.kind() != ErrorKind::InvalidValue || has_no_value(&error));
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        _ if is_named_only && form == CommandForm::Named => None,
        _ => {
            let text = error.to_string();
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
    }
}

/// A flag or argument that is named without its value, or with a word in capital letters in its place.
fn has_no_value(error: &clap::Error) -> bool {
    let value = error.get(ContextKind::InvalidValue);
    matches!(value, Some(ContextValue::String(value)) if value.chars().all(|c| c.is_ascii_uppercase()))
}

/// All commands with values in place of placeholders, each with one place where it stands.
fn all_commands() -> BTreeMap<(String, bool), String> {
    let mut used = BTreeSet::new();
    let mut problems = Vec::new();
    let mut found = BTreeMap::new();
    let written = commands_of_sources()
        .into_iter()
        .chain(commands_of_help())
        .chain(commands_of_documentation());
    for one in written {
        match filled(&one, &mut used) {
            Ok(commands) => {
                for command in commands {
                    let key = (command, one.form == CommandForm::Whole);
                    found.entry(key).or_insert_with(|| one.place.clone());
                }
            }
            Err(reason) => problems.push(format!("{}: `{}` {reason}", one.place, one.text)),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let rows = PLACEHOLDERS.iter().map(|(row, _)| *row);
    let rows = rows.chain(PUT_TOGETHER.iter().map(|(row, _)| *row));
    let rows = rows.chain(NOT_COMMANDS.iter().map(|(row, _)| *row));
    let unused: Vec<&str> = rows.filter(|row| !used.contains(row)).collect();
    assert_eq!(unused, Vec::<&str>::new(), "no text has these any more");
    found
}

#[test]
fn every_written_command_is_known() {
    let all = all_commands();
    assert!(all.len() > 200, "only {} commands were found", all.len());
    let mut problems = Vec::new();
    for ((command, is_whole), place) in &all {
        let form = if *is_whole {
            CommandForm::Whole
        } else {
            CommandForm::Named
        };
        if let Some(reason) = refusal(command, form) {
            problems.push(format!("{place}: `{command}`: {reason}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The row for a command, by the most words that both begin with.
fn trial(words: &[String]) -> Option<Trial> {
    let line = format!("{} ", words.join(" "));
    let fitting = TRIED.iter().filter(|(row, _)| {
        line.starts_with(&format!("{row} ")) || line.starts_with(&format!("{row}."))
    });
    fitting
        .max_by_key(|(row, _)| row.len())
        .map(|(_, trial)| *trial)
}

/// Whether the config may hold this key: any other one cannot be set.
fn is_known_key(machine: &Machine, key: &str) -> bool {
    let set = machine.run(&["config", "set", key, "{}"]);
    set.code == 0 || set.error_code() != "UNKNOWN_KEY"
}

#[test]
fn commands_that_stand_alone_work_on_a_fresh_machine() {
    let mut tried = 0;
    let mut problems = Vec::new();
    let mut machine = Machine::new();
    for ((command, is_whole), place) in all_commands() {
        let words = shell_words(&command).unwrap();
        let words: Vec<String> = words[1..]
            .iter()
            .skip_while(|word| *word == "--local")
            .map(|word| word.split('[').next().unwrap().to_owned())
            .collect();
        if !is_whole {
            continue;
        }
        match trial(&words) {
            None => problems.push(format!("{place}: `{command}`: TRIED has no row for it")),
            Some(Trial::Needs(_)) => {}
            Some(trial) => {
                // Two values of the config may contradict each other.
                if tried % 8 == 0 || command.contains(" config set ") {
                    machine = Machine::new();
                    machine.start();
                    machine.ok(&["config", "set", "agents.list", r#"[{"id":"main"}]"#]);
                }
                tried += 1;
                let run = machine.paste(&command);
                let is_unset = trial == Trial::NamesKey
                    && run.stderr.contains("error[CONFIG_KEY_NOT_SET]")
                    && is_known_key(&machine, &words[2]);
                if run.code != 0 && !is_unset {
                    problems.push(format!("{place}: `{command}`: {run:#?}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(tried > 60, "only {tried} commands were tried");
}

/// The test sees what it is for: a command and a flag that do not exist, and a placeholder that it does not know.
#[test]
fn a_wrong_hint_is_seen() {
    let source = r##"
        // interlock of-a-comment
        const QUOTE: char = '"'; fn life<'a>(text: &'a str) {}
        let one = "look at it: interlock no-such-command";
        let two = format!("set it:\n  interlock config set {} on; then \"go\"", key);
        let raw = r#"in ticks: `interlock exec --no-such-flag "x"`, or so"#;
        let long = "first \
                    interlock status";
        let bytes = b"interlock digest";
    "##;
    let literals = string_literals(source);
    let found: Vec<WrittenCommand> = literals
        .iter()
        .flat_map(|literal| commands_in_text(&literal.text, &format!("x:{}", literal.line)))
        .collect();
    let texts: Vec<&str> = found.iter().map(|command| command.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "interlock no-such-command",
            "interlock config set {} on",
            "interlock exec --no-such-flag \"x\"",
            "interlock status",
        ]
    );
    assert_eq!(found[0].place, "x:4");
    assert!(refusal(texts[0], CommandForm::Named).is_some());
    assert!(refusal(texts[2], CommandForm::Named).is_some());
    assert_eq!(refusal(texts[3], CommandForm::Whole), None);
    assert!(filled(&found[1], &mut BTreeSet::new()).is_err());
    let machine = Machine::new();
    assert!(is_known_key(&machine, "tools.exec.node"));
    assert!(!is_known_key(&machine, "tools.exec.noSuchKey"));
    // What a sentence names may lack its arguments, what is to be pasted may not.
    assert_eq!(refusal("interlock exec", CommandForm::Named), None);
    assert!(refusal("interlock exec", CommandForm::Whole).is_some());
    assert_eq!(
        shell_words("a 'b c' \"d\\\"e\" f\\ g"),
        Some(vec![
            "a".to_owned(),
            "b c".to_owned(),
            "d\"e".to_owned(),
            "f g".to_owned(),
        ])
    );
    let page = "Text `interlock no-such` and\n```\ncargo run -p interlock --x\nA=1 interlock status # note\n```\n";
    let texts: Vec<String> = commands_in_page(page, "page")
        .into_iter()
        .map(|command| command.text)
        .collect();
    assert_eq!(texts, ["interlock no-such", "interlock status"]);
}
