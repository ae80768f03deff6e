//! Commands that tell where to look or what to set are run, on a machine on which nothing has been done yet.

use testkit::Machine;

use super::all_commands;
use super::commands::shell_words;

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
    ("companion", Trial::Needs("a desktop")),
    ("companion install", Trial::Needs("a service manager")),
    ("companion uninstall", Trial::Needs("a service manager")),
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
    ("channels list", Trial::Works),
    ("channels login", Trial::Needs("a token")),
    ("channels test", Trial::Needs("a chat")),
    ("sandbox bind", Trial::Needs("a path")),
    ("sandbox commit", Trial::Needs("kept changes of a run")),
    ("sandbox diff", Trial::Needs("kept changes of a run")),
    ("sandbox discard", Trial::Needs("kept changes of a run")),
    ("sandbox net", Trial::Works),
    ("sandbox net --follow", Trial::Needs("an end")),
    ("sandbox setup", Trial::Needs("root, and AppArmor")),
    ("sandbox explain", Trial::Works),
    (
        "sandbox explain --agent ops",
        Trial::Needs("an agent of that name"),
    ),
    (
        "sandbox explain --verify",
        Trial::Needs("a sandboxed conversation"),
    ),
    ("sandbox list", Trial::Works),
    ("sandbox prune", Trial::Works),
    ("sandbox recreate", Trial::Works),
    (
        "sandbox recreate --agent ops",
        Trial::Needs("an agent of that name"),
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
pub(super) fn is_known_key(machine: &Machine, key: &str) -> bool {
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
