//! Reads the description of a call that an agent program passes to its hook.

use std::path::{Path, PathBuf};

use interlock_arguments::AgentProgram;
use interlock_policy::AgentId;
use serde_json::{Map, Value};

/// The format in which an agent program describes a call of its shell tool.
struct HookForm {
    /// The names of its shell tools.
    tools: &'static [&'static str],
    /// Fields that change neither what runs nor where.
    harmless: &'static [&'static str],
    /// The field that names another directory, relative to the directory of the session.
    directory: Option<&'static str>,
    /// The variable in which the program names the directory of the project.
    project: Option<&'static str>,
}

const CLAUDE_CODE: HookForm = HookForm {
    tools: &["Bash", "Monitor"],
    harmless: &[
        "command",
        "description",
        "timeout",
        "timeout_ms",
        "run_in_background",
        "persistent",
    ],
    directory: None,
    project: Some("CLAUDE_PROJECT_DIR"),
};

const CODEX: HookForm = HookForm {
    tools: &["Bash"],
    harmless: &["command"],
    directory: None,
    project: None,
};

const GEMINI: HookForm = HookForm {
    tools: &["run_shell_command"],
    harmless: &["command", "description", "is_background"],
    directory: Some("dir_path"),
    project: Some("GEMINI_PROJECT_DIR"),
};

/// One call of a shell tool.
#[derive(Debug, PartialEq, Eq)]
pub struct HookCall {
    pub command: String,
    /// The directory of the call, absolute and canonical.
    pub cwd: String,
    /// The directory of the project, if the agent program names one. The directory of the call must
    /// not count as a workspace, because the model can choose it.
    pub project: Vec<PathBuf>,
    /// The agent program's name for the conversation.
    session: String,
    /// Fields that Interlock does not know, one line each.
    pub unknown: Vec<String>,
}

impl HookCall {
    /// Reads a call. An error names the field and what was expected.
    pub fn read(program: AgentProgram, input: &[u8]) -> Result<Self, String> {
        let form = match program {
            AgentProgram::ClaudeCode => &CLAUDE_CODE,
            AgentProgram::Codex => &CODEX,
            AgentProgram::Gemini => &GEMINI,
            AgentProgram::Opencode | AgentProgram::Goose => {
                return Err(format!("{} has no hooks", program.title()));
            }
        };
        let call: Value = serde_json::from_slice(input)
            .map_err(|error| format!("standard input does not hold one JSON object: {error}"))?;
        let text = |name: &str| {
            let value = call[name].as_str();
            value.ok_or_else(|| format!("`{name}` is missing, or is not a text"))
        };
        let tool = text("tool_name")?;
        if !form.tools.contains(&tool) {
            return Err(format!(
                "`tool_name` is {tool:?}; this hook judges {}",
                form.tools.join(" and ")
            ));
        }
        let Some(given) = call["tool_input"].as_object() else {
            return Err("`tool_input` is missing, or is not an object".to_owned());
        };
        let Some(command) = given.get("command").and_then(Value::as_str) else {
            return Err("`tool_input.command` is missing, or is not a text".to_owned());
        };
        let project = form.project.and_then(std::env::var_os);
        Ok(Self {
            command: command.to_owned(),
            cwd: directory(text("cwd")?, form, given)?,
            project: project.map(PathBuf::from).into_iter().collect(),
            session: call["session_id"].as_str().unwrap_or_default().to_owned(),
            unknown: unknown(form, given),
        })
    }

    /// The session key of the conversation. `main` replaces a name with unexpected characters.
    pub fn session_key(&self, agent: &AgentId) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let fits = (1..=64).contains(&self.session.len()) && self.session.chars().all(is_plain);
        let name = if fits { &self.session } else { "main" };
        format!("agent:{agent}:{name}")
    }
}

/// The directory in which the command would run, with links resolved.
fn directory(cwd: &str, form: &HookForm, given: &Map<String, Value>) -> Result<String, String> {
    let session = Path::new(cwd);
    if !session.is_absolute() {
        return Err(format!("`cwd` is {cwd:?}, not an absolute path"));
    }
    let named = form.directory.and_then(|field| given.get(field));
    let path = match named {
        None | Some(Value::Null) => session.to_owned(),
        Some(Value::String(named)) => session.join(named),
        Some(_) => return Err("the directory of the call is not a text".to_owned()),
    };
    let real = std::fs::canonicalize(&path)
        .map_err(|error| format!("the directory {} cannot be used: {error}", path.display()))?;
    let text = real.to_str().map(str::to_owned);
    text.ok_or_else(|| format!("the directory {} is not valid UTF-8", real.display()))
}

fn unknown(form: &HookForm, given: &Map<String, Value>) -> Vec<String> {
    let is_known = |name: &str| form.harmless.contains(&name) || form.directory == Some(name);
    let fields = given.iter().filter(|(name, _)| !is_known(name));
    fields
        .map(|(name, value)| format!("the call also says {name} = {value}"))
        .collect()
}
