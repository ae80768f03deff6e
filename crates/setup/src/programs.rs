//! The settings files of each agent program, and the edits that make it use Interlock.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use interlock_arguments::{AgentProgram, ScopeArgument};
use interlock_console::Failure;
use serde_json::json;

use super::edit::SettingsEdit;
use super::text::SettingsFormat;

/// The name of Interlock's entry among the MCP servers of an agent program.
pub const ENTRY: &str = "interlock";

/// The timeout of one call in the agent program, in seconds. It is never reached: a call waits at
/// most ten minutes for an approval, and a long run goes to the background by itself.
const CALL_SECONDS: u64 = 3600;

/// The timeout of a hook in the agent program, in seconds. The hook must answer earlier, because an
/// agent program runs the command if its hook is late.
const HOOK_SECONDS: u64 = 600;

/// What the owner asked for.
#[derive(Debug, Clone, Copy)]
pub struct SetupWish<'a> {
    pub program: AgentProgram,
    pub scope: ScopeArgument,
    pub only_interlock: bool,
    /// The shell command of the hook, if the owner wants one.
    pub hook: Option<&'a str>,
    /// The program and the arguments of the MCP entry.
    pub command: &'a [String],
}

/// A settings file and its edits.
#[derive(Debug, Clone)]
pub struct PlannedFile {
    pub path: PathBuf,
    pub format: SettingsFormat,
    pub edits: Vec<SettingsEdit>,
}

/// The directories in which settings files are.
#[derive(Debug, Clone)]
pub struct SettingsPlaces {
    pub home: PathBuf,
    pub project: PathBuf,
}

impl SettingsPlaces {
    pub fn from_environment() -> Result<Self, Failure> {
        let home = variable("HOME").ok_or_else(|| {
            Failure::usage("HOME_MISSING", "HOME is not set: no settings can be found")
                .with_hint("set HOME to your home directory")
        })?;
        let project = std::env::current_dir()
            .map_err(|error| Failure::usage("CWD_UNUSABLE", format!("this directory: {error}")))?;
        Ok(Self { home, project })
    }

    /// The directory that a variable names, or else one below the home directory.
    fn directory(&self, name: &str, default: &str) -> PathBuf {
        variable(name).unwrap_or_else(|| self.home.join(default))
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value: &OsString| !value.is_empty())?;
    std::path::absolute(value).ok()
}

/// The files to change, the one with the MCP entry first.
pub fn planned_files(
    wish: &SetupWish<'_>,
    places: &SettingsPlaces,
) -> Result<Vec<PlannedFile>, Failure> {
    if wish.hook.is_some() && !wish.program.has_hooks() {
        let title = wish.program.title();
        let message =
            format!("{title} has no hook that a program could answer before a command runs");
        return Err(
            Failure::usage("HOOK_UNAVAILABLE", message).with_hint(format!(
                "turn its own shell off instead: interlock setup {} --only-interlock",
                wish.program.name()
            )),
        );
    }
    Ok(match wish.program {
        AgentProgram::ClaudeCode => claude_code(wish, places),
        AgentProgram::Codex => vec![codex(wish, places)],
        AgentProgram::Gemini => vec![gemini(wish, places)],
        AgentProgram::Opencode => vec![opencode(wish, places)],
        AgentProgram::Goose => vec![goose(wish, places)?],
    })
}

/// Claude Code reads MCP servers and permissions from two files.
fn claude_code(wish: &SetupWish<'_>, places: &SettingsPlaces) -> Vec<PlannedFile> {
    let (servers, settings) = match wish.scope {
        ScopeArgument::Project => (
            places.project.join(".mcp.json"),
            places.project.join(".claude/settings.json"),
        ),
        ScopeArgument::User => match variable("CLAUDE_CONFIG_DIR") {
            Some(directory) => (
                directory.join(".claude.json"),
                directory.join("settings.json"),
            ),
            None => (
                places.home.join(".claude.json"),
                places.home.join(".claude/settings.json"),
            ),
        },
    };
    let entry = json!({
        "type": "stdio",
        "command": wish.command[0],
        "args": wish.command[1..],
    });
    // Interlock already asks. Without this, Claude Code would ask again for each call.
    let mut edits = vec![SettingsEdit::add(
        &["permissions", "allow"],
        format!("mcp__{ENTRY}"),
    )];
    if wish.scope == ScopeArgument::Project {
        edits.push(SettingsEdit::add(&["enabledMcpjsonServers"], ENTRY));
    }
    if wish.only_interlock {
        edits.extend(
            CLAUDE_SHELL_TOOLS.map(|tool| SettingsEdit::add(&["permissions", "deny"], tool)),
        );
    }
    if let Some(line) = wish.hook {
        let hook = json!({
            "matcher": CLAUDE_SHELL_TOOLS.join("|"),
            "hooks": [{ "type": "command", "command": line, "timeout": HOOK_SECONDS }],
        });
        edits.push(SettingsEdit::add(&["hooks", "PreToolUse"], hook));
    }
    vec![
        PlannedFile {
            path: servers,
            format: SettingsFormat::Json,
            edits: vec![SettingsEdit::set(&["mcpServers", ENTRY], entry)],
        },
        PlannedFile {
            path: settings,
            format: SettingsFormat::Json,
            edits,
        },
    ]
}

/// The tools of Claude Code that run commands: `Monitor` starts one and reports its lines.
const CLAUDE_SHELL_TOOLS: [&str; 2] = ["Bash", "Monitor"];

fn codex(wish: &SetupWish<'_>, places: &SettingsPlaces) -> PlannedFile {
    let directory = match wish.scope {
        ScopeArgument::Project => places.project.join(".codex"),
        ScopeArgument::User => places.directory("CODEX_HOME", ".codex"),
    };
    let entry = json!({
        "command": wish.command[0],
        "args": wish.command[1..],
        "startup_timeout_sec": 60,
        "tool_timeout_sec": CALL_SECONDS,
        // Interlock already asks. Codex would ask again, and refuse without a terminal.
        "default_tools_approval_mode": "approve",
    });
    let mut edits = vec![SettingsEdit::set(&["mcp_servers", ENTRY], entry)];
    if wish.only_interlock {
        for feature in ["shell_tool", "unified_exec"] {
            edits.push(SettingsEdit::set(&["features", feature], false));
        }
    }
    if let Some(line) = wish.hook {
        let hook = json!({
            "matcher": "^Bash$",
            "hooks": [{ "type": "command", "command": line, "timeout": HOOK_SECONDS }],
        });
        edits.push(SettingsEdit::add(&["hooks", "PreToolUse"], hook));
    }
    PlannedFile {
        path: directory.join("config.toml"),
        format: SettingsFormat::Toml,
        edits,
    }
}

fn gemini(wish: &SetupWish<'_>, places: &SettingsPlaces) -> PlannedFile {
    let root = match wish.scope {
        ScopeArgument::Project => places.project.clone(),
        ScopeArgument::User => places.directory("GEMINI_CLI_HOME", ""),
    };
    let entry = json!({
        "command": wish.command[0],
        "args": wish.command[1..],
        "timeout": CALL_SECONDS * 1000,
        // Interlock already asks. Gemini CLI would ask again for each call.
        "trust": true,
    });
    let mut edits = vec![SettingsEdit::set(&["mcpServers", ENTRY], entry)];
    if wish.only_interlock {
        edits.push(SettingsEdit::add(&["tools", "exclude"], GEMINI_SHELL_TOOL));
    }
    if let Some(line) = wish.hook {
        let hook = json!({
            "matcher": format!("^{GEMINI_SHELL_TOOL}$"),
            "hooks": [{ "type": "command", "command": line, "timeout": HOOK_SECONDS * 1000 }],
        });
        edits.push(SettingsEdit::add(&["hooks", "BeforeTool"], hook));
    }
    PlannedFile {
        path: root.join(".gemini/settings.json"),
        format: SettingsFormat::Json,
        edits,
    }
}

const GEMINI_SHELL_TOOL: &str = "run_shell_command";

fn opencode(wish: &SetupWish<'_>, places: &SettingsPlaces) -> PlannedFile {
    let directory = match wish.scope {
        ScopeArgument::Project => places.project.clone(),
        ScopeArgument::User => places
            .directory("XDG_CONFIG_HOME", ".config")
            .join("opencode"),
    };
    let entry = json!({
        "type": "local",
        "command": wish.command,
        "enabled": true,
        "timeout": CALL_SECONDS * 1000,
    });
    let mut edits = vec![SettingsEdit::set(&["mcp", ENTRY], entry)];
    if wish.only_interlock {
        edits.push(SettingsEdit::set(&["tools", "bash"], false));
    }
    PlannedFile {
        path: first_existing(&directory, &["opencode.json", "opencode.jsonc"]),
        format: SettingsFormat::Json,
        edits,
    }
}

/// The first of these files that exists, or else the path of the first name.
fn first_existing(directory: &Path, names: &[&str]) -> PathBuf {
    let mut paths = names.iter().map(|name| directory.join(name));
    let existing = paths.clone().find(|path| path.exists());
    existing.or_else(|| paths.next()).unwrap_or_default()
}

fn goose(wish: &SetupWish<'_>, places: &SettingsPlaces) -> Result<PlannedFile, Failure> {
    if wish.scope == ScopeArgument::Project {
        let message = "Goose reads its extensions from the settings of the user only";
        return Err(Failure::usage("SCOPE_UNAVAILABLE", message)
            .with_hint("set it up for the user: interlock setup goose --scope user"));
    }
    let path = places
        .directory("XDG_CONFIG_HOME", ".config")
        .join("goose/config.yaml");
    let entry = json!({
        "enabled": true,
        "type": "stdio",
        "name": ENTRY,
        "description": "Runs commands under the policy of their owner",
        "cmd": wish.command[0],
        "args": wish.command[1..],
        "envs": {},
        "timeout": CALL_SECONDS,
    });
    let mut edits = vec![SettingsEdit::set(&["extensions", ENTRY], entry)];
    if wish.only_interlock {
        edits.push(goose_developer_off());
    }
    Ok(PlannedFile {
        path,
        format: SettingsFormat::Yaml,
        edits,
    })
}

/// Turns off the developer extension of Goose, which has the shell. Goose adds the extension if the
/// file does not mention it, so the entry must be written even if it is missing.
fn goose_developer_off() -> SettingsEdit {
    SettingsEdit::SetOr {
        path: ["extensions", "developer", "enabled"]
            .map(str::to_owned)
            .to_vec(),
        value: false.into(),
        otherwise: json!({
            "enabled": false,
            "type": "builtin",
            "name": "developer",
            "description": "",
            "display_name": "Developer",
            "timeout": 300,
            "bundled": true,
        }),
    }
}
