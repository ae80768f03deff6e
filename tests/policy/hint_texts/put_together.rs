//! Commands whose texts are put together when they are shown, and what they can become.

use std::collections::BTreeSet;

use super::commands::{CommandForm, WrittenCommand};

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
        "interlock channels login {channel}",
        &[
            "interlock channels login matrix",
            "interlock channels login telegram",
        ],
    ),
    (
        "interlock config unset {key}.execApprovals.approvers",
        &["interlock config unset channels.matrix.execApprovals.approvers"],
    ),
    (
        "interlock sandbox explain --verify --agent {agent}",
        &["interlock sandbox explain --verify --agent main"],
    ),
    (
        "interlock config set 'agents.list[{}].id' {agent}",
        &["interlock config set 'agents.list[0].id' main"],
    ),
    (
        "interlock config set {key} {}",
        &[
            "interlock config set channels.telegram.accounts.main.tokenFile /srv/state/telegram.token",
        ],
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
        "interlock config set {} auto",
        &["interlock config set tools.exec.host auto"],
    ),
    (
        "interlock config set '{}' auto",
        &["interlock config set 'agents.list[0].tools.exec.host' auto"],
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
        "interlock config set {} minimal",
        &[
            "interlock config set agents.defaults.sandbox.view minimal",
            "interlock config set 'agents.list[0].sandbox.view' minimal",
        ],
    ),
    (
        "interlock config set {shown} gateway",
        &[
            "interlock config set tools.exec.host gateway",
            "interlock config set 'agents.list[0].tools.exec.host' gateway",
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
        "interlock {kind} install{flags}",
        &[
            "interlock gateway install",
            "interlock node install --host HOST",
        ],
    ),
    (
        "interlock {subcommand} -- 'git status'",
        &[
            "interlock exec -- 'git status'",
            "interlock explain -- 'git status'",
        ],
    ),
    (
        "interlock {self} run{}",
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

/// The written command with values in place of its placeholders. Which rows were used is noted.
pub(super) fn filled(
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

/// The rows of all tables.
pub(super) fn table_rows() -> impl Iterator<Item = &'static str> {
    let rows = PLACEHOLDERS.iter().map(|(row, _)| *row);
    let rows = rows.chain(PUT_TOGETHER.iter().map(|(row, _)| *row));
    rows.chain(NOT_COMMANDS.iter().map(|(row, _)| *row))
}
