//! The report to the owner: what was changed, whether it works, how to undo it, and what an agent
//! can still do without Interlock.

use interlock_arguments::{AgentProgram, ScopeArgument, SetupArguments, StateArguments};
use interlock_console::output;
use interlock_policy::quote;
use serde_json::{Value, json};

use super::change::{SettingsFileChange, UndoWay, Undone};
use super::scope_name;
use super::verify::{self, CheckResult};

/// The description of one changed file.
#[derive(Debug)]
struct ReportedFile {
    path: String,
    link_target: Option<String>,
    is_new: bool,
    is_made: bool,
    changes: Vec<String>,
}

/// The report of a setup.
#[derive(Debug)]
pub struct SetupReport<'a> {
    arguments: &'a SetupArguments,
    files: Vec<ReportedFile>,
    command: &'a [String],
    undo: String,
    limits: Vec<String>,
    entry: Option<CheckResult>,
    hook: Option<CheckResult>,
    program: Option<(String, CheckResult)>,
}

impl<'a> SetupReport<'a> {
    pub fn new(
        state: &StateArguments,
        arguments: &'a SetupArguments,
        command: &'a [String],
        changes: &[SettingsFileChange],
    ) -> Self {
        let files = changes.iter().map(|change| ReportedFile {
            path: change.found.path.display().to_string(),
            link_target: change
                .found
                .is_linked()
                .then(|| change.found.target.display().to_string()),
            is_new: change.found.content.is_none(),
            is_made: change.is_made(),
            changes: change.describe(),
        });
        let mut undo = format!("interlock setup {}", arguments.program.name());
        if arguments.scope != ScopeArgument::User {
            undo += " --scope project";
        }
        Self {
            arguments,
            files: files.collect(),
            command,
            undo: state.in_command(&format!("{undo} --undo")),
            limits: limits(state, arguments),
            entry: None,
            hook: None,
            program: None,
        }
    }

    /// Makes the test calls.
    pub fn verify(&mut self, command: &[String], hook: Option<&str>) {
        self.entry = Some(verify::call_entry(command));
        self.hook = hook.map(verify::call_hook);
        self.program = verify::ask_program(self.arguments.program);
    }

    /// Whether the entry and the hook passed their test calls. The check by the agent program
    /// itself does not count; the owner reads its output.
    pub fn is_verified(&self) -> bool {
        let checks = [&self.entry, &self.hook];
        checks.into_iter().flatten().all(|check| check.ok)
    }

    pub fn print(&self, json: bool) {
        if json {
            output::print_json(&self.to_json());
        } else {
            output::print(&self.text());
        }
    }

    fn to_json(&self) -> Value {
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|file| {
                json!({
                    "path": file.path,
                    "linkTo": file.link_target,
                    "created": file.is_new,
                    "unchanged": file.is_made,
                    "changes": file.changes,
                })
            })
            .collect();
        let program = self.program.as_ref().map(
            |(command, result)| json!({ "command": command, "ok": result.ok, "text": result.text }),
        );
        json!({
            "program": self.arguments.program.name(),
            "scope": scope_name(self.arguments.scope),
            "agent": self.arguments.agent,
            "dryRun": self.arguments.dry_run,
            "command": self.command,
            "files": files,
            "testCall": self.entry,
            "hookTest": self.hook,
            "programCheck": program,
            "limits": self.limits,
            "undo": self.undo,
        })
    }

    fn text(&self) -> String {
        let title = self.arguments.program.title();
        let verb = if self.arguments.dry_run {
            "would change"
        } else {
            "changed"
        };
        let mut text = format!("{title} acts as the agent {}\n", self.arguments.agent);
        for file in &self.files {
            let path = output::line(&file.path);
            text += &match (file.is_made, file.is_new) {
                (true, _) => format!("{path} is set up already\n"),
                (false, true) if self.arguments.dry_run => format!("would create {path}\n"),
                (false, true) => format!("created {path}\n"),
                (false, false) => format!("{verb} {path}\n"),
            };
            if let Some(target) = &file.link_target {
                text += &format!(
                    "  a link to {}, which is the file that changes\n",
                    output::line(target)
                );
            }
            for change in &file.changes {
                text += &format!("  {}\n", output::line(change));
            }
        }
        let words: Vec<String> = self.command.iter().map(|word| quote(word)).collect();
        text += &format!("entry: {}\n", words.join(" "));
        for (name, check) in [("test call", &self.entry), ("hook test", &self.hook)] {
            if let Some(check) = check {
                text += &line_of(name, check);
            }
        }
        if let Some((command, check)) = &self.program {
            text += &line_of(command, check);
        }
        for limit in &self.limits {
            text += &format!("note: {limit}\n");
        }
        if !self.arguments.dry_run {
            text += &format!("undo: {}\n", self.undo);
        }
        text
    }
}

fn line_of(name: &str, check: &CheckResult) -> String {
    let word = if check.ok { "ok" } else { "FAILED" };
    format!("{name}: {word}, {}\n", check.text)
}

/// Ways around Interlock that the settings leave open.
fn limits(state: &StateArguments, arguments: &SetupArguments) -> Vec<String> {
    let program = arguments.program;
    let title = program.title();
    let shell = program.shell_tool();
    let again = |flag: &str| {
        let scope = match arguments.scope {
            ScopeArgument::Project => " --scope project",
            ScopeArgument::User => "",
        };
        state.in_command(&format!("interlock setup {}{scope} {flag}", program.name()))
    };
    let mut limits = Vec::new();
    if arguments.only_interlock {
        limits.push(format!(
            "{title} has no shell of its own now (off: {shell}); its other tools, MCP servers, plugins and hooks stay, and what they \
             start is not judged"
        ));
    } else if arguments.hook {
        limits.push(format!(
            "{title} runs what its own shell tool ({shell}) is allowed to: Interlock judges the text before, but does not \
             run, bind, shield or limit it"
        ));
    } else {
        limits.push(format!(
            "{title} keeps its own shell ({shell}), and what it runs there does not pass Interlock; turn it off: {}",
            again("--only-interlock")
        ));
    }
    limits.push(
        "an agent that gets a shell under this account could change these settings, or call programs without Interlock; \
         an account of its own for Interlock is the wall: interlock gateway install --run-as USER"
            .to_owned(),
    );
    if arguments.scope == ScopeArgument::Project {
        limits.push(format!(
            "the settings of a project are files that {title} itself can edit; those of the user are further away: --scope user"
        ));
    }
    limits.extend(first_use(program, arguments));
    limits
}

/// What the user of the agent program must confirm before the settings take effect.
fn first_use(program: AgentProgram, arguments: &SetupArguments) -> Option<String> {
    let is_project = arguments.scope == ScopeArgument::Project;
    match program {
        AgentProgram::Codex if arguments.hook => Some(
            "Codex runs a hook only after you have trusted it: open /hooks in Codex and trust this one; until then its shell \
             is not judged"
                .to_owned(),
        ),
        AgentProgram::Codex if is_project => Some(
            "Codex uses the settings of a project once you have trusted the directory in it; until then its own shell is as it \
             was"
                .to_owned(),
        ),
        AgentProgram::ClaudeCode if is_project => Some(
            "Claude Code asks you to trust the directory, and to approve its server, when you start it there".to_owned(),
        ),
        AgentProgram::Gemini => Some(
            "Gemini CLI starts MCP servers, and uses the settings of a project, only in directories that you have trusted in it"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The report of an undo.
#[derive(Debug)]
pub struct UndoReport<'a> {
    arguments: &'a SetupArguments,
    undone: &'a [Undone],
}

impl<'a> UndoReport<'a> {
    pub fn new(arguments: &'a SetupArguments, undone: &'a [Undone]) -> Self {
        Self { arguments, undone }
    }

    pub fn print(&self, json: bool) {
        if json {
            let files: Vec<Value> = self
                .undone
                .iter()
                .map(|undone| {
                    json!({
                        "path": undone.path,
                        "how": undone.way.name(),
                        "original": undone.original,
                    })
                })
                .collect();
            output::print_json(&json!({
                "program": self.arguments.program.name(),
                "scope": scope_name(self.arguments.scope),
                "dryRun": self.arguments.dry_run,
                "files": files,
            }));
            return;
        }
        let mut text = String::new();
        for undone in self.undone {
            let path = output::line(&undone.path.display().to_string());
            let would = if self.arguments.dry_run {
                "would be "
            } else {
                ""
            };
            text += &match undone.way {
                UndoWay::Restored => format!("{path}: {would}restored byte for byte\n"),
                UndoWay::Removed => {
                    format!("{path}: {would}removed; it did not exist before setup\n")
                }
                UndoWay::OnlyOwnKeys => format!(
                    "{path}: was changed since setup; {would}freed of what setup had added, and nothing else\n"
                ),
                UndoWay::SomeStay => format!(
                    "{path}: was changed since setup; {would}freed of what setup had added, but values that were changed \
                     since stay as they are\n"
                ),
                UndoWay::AsBefore => format!("{path}: is already as it was before setup\n"),
                UndoWay::Gone => {
                    let kept = undone
                        .original
                        .as_ref()
                        .map(|path| path.display().to_string());
                    let kept = output::line(&kept.unwrap_or_default());
                    format!(
                        "{path}: does not exist any more; what stood there before setup is in {kept}\n"
                    )
                }
            };
        }
        output::print(&text);
    }
}

impl UndoWay {
    /// The name in JSON output.
    fn name(self) -> &'static str {
        match self {
            Self::Restored => "restored",
            Self::OnlyOwnKeys => "own-keys-removed",
            Self::SomeStay => "changed-values-stay",
            Self::Removed => "removed",
            Self::AsBefore => "as-before",
            Self::Gone => "gone",
        }
    }
}
