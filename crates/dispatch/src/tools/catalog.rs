//! The names, parameters and results of the tools, for models and programs.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::Tool;

/// The description of a tool for callers.
#[derive(Debug)]
pub struct Described {
    pub tool: Tool,
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub input: Value,
    pub output: Value,
    /// Whether the tool may change or remove existing data.
    pub is_destructive: bool,
    /// Whether the tool may reach other machines.
    pub is_open_world: bool,
}

pub static CATALOG: LazyLock<Vec<Described>> = LazyLock::new(|| {
    vec![
        Described {
            tool: Tool::Exec,
            name: "exec",
            title: "Run a command",
            description: "Runs a shell command on the machine, if the owner's policy allows it; a person may \
                be asked first. Short commands return their output; longer ones go on in the background and \
                return a sessionId for the process tool. Plain commands need the fewest approvals: one \
                program with literal arguments, joined with && || ; or | where needed. Loops, $(...), \
                variables, heredocs and redirections to files are asked about each time; 2>&1 and \
                >/dev/null are fine. Use workdir instead of cd, separate calls instead of long lines, and \
                apply_patch to write files. Reading in the workspace (ls, cat, head, tail, wc, rg, grep, \
                find, git status, diff, log, show) is usually allowed without a prompt.",
            input: exec_input(),
            output: exec_output(),
            is_destructive: true,
            is_open_world: true,
        },
        Described {
            tool: Tool::Process,
            name: "process",
            title: "Background sessions",
            description: "Looks at and steers commands that run in the background: list, poll, log, write, \
                send-keys, submit, paste, screen, kill, clear, remove.",
            input: process_input(),
            output: json!({
                "type": "object",
                "properties": {
                    "status": { "type": "string" },
                    "sessionId": { "type": "string" },
                    "sessions": { "type": "array", "items": { "type": "object" } },
                },
                "required": ["status"],
            }),
            is_destructive: true,
            is_open_world: false,
        },
        Described {
            tool: Tool::ApplyPatch,
            name: "apply_patch",
            title: "Change files",
            description: "Applies a patch to files in the workspace, all or nothing. The patch is \
                `*** Begin Patch`, then `*** Add File: PATH`, `*** Update File: PATH` (with `@@` hunks) or \
                `*** Delete File: PATH`, then `*** End Patch`.",
            input: json!({
                "type": "object",
                "properties": {
                    "input": { "type": "string", "description": "The whole patch." },
                    "dryRun": { "type": "boolean", "description": "Only check whether it would apply." },
                    "model": { "type": "string", "description": "The name of the model that makes this call. Needed where the owner allows certain models only." },
                },
                "required": ["input"],
                "additionalProperties": false,
            }),
            output: json!({
                "type": "object",
                "properties": {
                    "status": { "type": "string", "enum": ["completed", "approval-pending", "denied", "failed"] },
                    "summary": { "type": "object" },
                    "approvalId": { "type": "string" },
                    "code": { "type": "string" },
                },
                "required": ["status"],
            }),
            is_destructive: true,
            is_open_world: false,
        },
    ]
});

fn exec_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": { "type": "string", "description": "Shell command text." },
            "workdir": { "type": "string", "description": "Where it starts; relative to the session's directory." },
            "env": { "type": "object", "additionalProperties": { "type": "string" }, "description": "Variables over the inherited environment." },
            "yieldMs": { "type": "number", "minimum": 10, "maximum": 120_000, "description": "Goes on in the background after this long (10000)." },
            "background": { "type": "boolean", "description": "In the background at once." },
            "timeout": { "type": "number", "minimum": 0, "description": "Seconds until it is ended with all it started (1800); 0 is no limit." },
            "timeoutSeconds": { "type": "number", "minimum": 0, "description": "Another name for timeout." },
            "pty": { "type": "boolean", "description": "On a terminal of its own." },
            "host": { "type": "string", "enum": ["auto", "sandbox", "gateway", "node"], "description": "Where it runs." },
            "ask": { "type": "string", "enum": ["off", "on-miss", "always"], "description": "Asks a person more often than the policy does." },
            "security": { "type": "string", "description": "Accepted and ignored." },
            "node": { "type": "string", "description": "The node for host=node: id, name, address or a prefix of the id." },
            "elevated": { "type": "boolean", "description": "Outside the sandbox, where the owner permits it." },
            "retryOf": { "type": "string", "description": "With elevated: the run (sandbox.runId) that the sandbox denied something to. An approver decides." },
            "justification": { "type": "string", "description": "With retryOf: why the command has to run outside, in your words." },
            "effects": { "type": "string", "enum": ["preview", "direct"], "description": "`preview`: runs once without a network on a copy of the workspace; an approver decides whether its changes are committed. `direct`: for real; where the owner wants previews, an approver decides first." },
            "stdin": { "type": "string", "enum": ["null", "pipe"], "description": "`pipe` keeps the input open for process write." },
        },
        "required": ["command"],
        "additionalProperties": false,
    })
}

fn exec_output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": { "type": "string", "enum": ["completed", "running", "approval-pending", "denied", "failed"] },
            "exitCode": { "type": ["integer", "null"] },
            "timedOut": { "type": "boolean" },
            "signal": { "type": "string" },
            "durationMs": { "type": "integer" },
            "cwd": { "type": "string" },
            "host": { "type": "string" },
            "totalBytes": { "type": "integer", "description": "Of the output, which is in the text." },
            "shownBytes": { "type": "integer" },
            "omittedBytes": { "type": "integer" },
            "sessionId": { "type": "string" },
            "approvalId": { "type": "string" },
            "code": { "type": "string" },
        },
        "required": ["status"],
    })
}

fn process_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "action": {
                "type": "string",
                "enum": ["list", "poll", "log", "write", "send-keys", "submit", "paste", "screen", "kill", "clear", "remove"],
            },
            "sessionId": { "type": "string", "description": "The session, for every action but list." },
            "timeout": { "type": "number", "minimum": 0, "maximum": 30_000, "description": "poll: milliseconds to wait for something new." },
            "offset": { "type": "number", "minimum": 0, "description": "log: the first line." },
            "limit": { "type": "number", "minimum": 1, "description": "log: how many lines. list: how many sessions." },
            "cursor": { "type": "string", "description": "list: nextCursor of the page before." },
            "data": { "type": "string", "description": "write: input." },
            "eof": { "type": "boolean", "description": "write: no more input follows." },
            "keys": { "type": "array", "items": { "type": "string" }, "description": "send-keys: Enter, C-c, M-x, Up, F5, …" },
            "literal": { "type": "string", "description": "send-keys: text as it is." },
            "hex": { "type": "array", "items": { "type": "string" }, "description": "send-keys: bytes." },
            "text": { "type": "string", "description": "paste: the text." },
            "bracketed": { "type": "boolean", "description": "paste: as a bracketed paste (true)." },
            "signal": { "type": "string", "description": "kill: none ends everything; INT and others go to the foreground." },
        },
        "required": ["action"],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlock_host::parameters::{ExecParameters, PatchParameters};
    use interlock_sessions::ProcessParameters;

    /// A call with every parameter of the catalog is understood: the catalog lists no parameter in
    /// vain.
    #[test]
    fn every_parameter_that_is_told_of_is_known() {
        for described in CATALOG.iter() {
            assert_eq!(described.tool.name(), described.name);
            for name in described.input["properties"].as_object().unwrap().keys() {
                let call = json!({ name: null });
                let problem = match described.tool {
                    Tool::Exec => ExecParameters::parse(&call).err(),
                    Tool::Process => ProcessParameters::parse(&call).err(),
                    Tool::ApplyPatch => PatchParameters::parse(&call).err(),
                };
                let code = problem.map(|problem| problem.code());
                assert_ne!(code, Some("PARAMETER_UNKNOWN"), "{name}");
            }
        }
    }
}
