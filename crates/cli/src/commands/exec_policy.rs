//! `interlock exec-policy`: shows and changes the config and the document of this host together.

use std::process::ExitCode;

use interlock_arguments::{
    ExecPolicyCommand, ExecPolicySetArguments, ExecPolicyShowArguments, HostArgument,
    PresetArgument, StateArguments,
};
use interlock_client::{known_scope, open, outside_runs};
use interlock_config::{OverruledSandbox, SandboxMode};
use interlock_console::output::{self, Paint};
use interlock_console::{CommandOutcome, Failure, level_row};
use interlock_host::LocalHost;
use interlock_policy::{AgentId, Levels, Preset, deny_rules};
use interlock_sandbox::SandboxCoverage;
use serde_json::{Map, Value, json};

use super::{approvals, nodes};

pub fn run(state: &StateArguments, command: ExecPolicyCommand) -> CommandOutcome {
    match command {
        ExecPolicyCommand::Show(arguments) => show(state, &open(state)?, &arguments),
        ExecPolicyCommand::Set(arguments) => set(state, &arguments),
        ExecPolicyCommand::Preset(arguments) => {
            let preset = match arguments.preset {
                PresetArgument::Yolo => Preset::Yolo,
                PresetArgument::Cautious => Preset::Cautious,
                PresetArgument::DenyAll => Preset::DenyAll,
            };
            let host = open(state)?;
            outside_runs(host.state_dir())?;
            host.rules().apply_preset(preset)?;
            report(state, &host, arguments.json)
        }
    }
}

fn set(state: &StateArguments, arguments: &ExecPolicySetArguments) -> CommandOutcome {
    let exec_host = match arguments.host {
        None => None,
        Some(HostArgument::Auto) => Some("auto"),
        Some(HostArgument::Sandbox) => Some("sandbox"),
        Some(HostArgument::Gateway) => Some("gateway"),
        Some(HostArgument::Node) => {
            return Err(Failure::refused(
                "NODE_POLICY_IS_REMOTE",
                "a node's policy lives on the node, so this command cannot set it",
            )
            .with_hint("interlock approvals set --node NODE --file FILE"));
        }
    };
    let host = open(state)?;
    outside_runs(host.state_dir())?;
    host.rules().set_levels(
        arguments.security.map(Into::into),
        arguments.ask.map(Into::into),
        arguments.ask_fallback.map(Into::into),
        exec_host,
    )?;
    if arguments.no_auto_allow_skills {
        host.rules().disallow_skills()?;
    }
    report(state, &host, arguments.json)
}

/// Shows the policy of the main agent after a change.
fn report(state: &StateArguments, host: &LocalHost, json: bool) -> CommandOutcome {
    let arguments = ExecPolicyShowArguments {
        agent: Some(AgentId::MAIN.to_owned()),
        json,
    };
    show(state, host, &arguments)
}

/// The policy of an agent as it is shown.
struct ShownAgent {
    agent: AgentId,
    exec_host: String,
    levels: Levels,
    /// Which of its conversations are sandboxed, if the config sets it.
    sandbox: Option<SandboxCoverage>,
    /// Set if a sandbox is on, but `tools.exec.host` keeps commands out of it.
    overruled: Option<OverruledSandbox>,
    /// How many deny rules this host's document has. They apply on nodes too.
    deny_rules: usize,
    /// The policy of the node, if the agent's commands run on one.
    node: Option<Result<nodes::NodePolicy, Failure>>,
}

impl ShownAgent {
    /// The layer that this gateway adds to the policy of a node.
    fn gateway_layer(&self) -> Value {
        json!({
            "security": self.levels.security.value(),
            "ask": self.levels.ask.value(),
            "denyRules": self.deny_rules,
        })
    }

    fn gateway_layer_text(&self) -> String {
        let rules = match self.deny_rules {
            0 => "no deny rules".to_owned(),
            1 => "1 deny rule".to_owned(),
            count => format!("{count} deny rules"),
        };
        format!(
            "for runs on a node this gateway's config and document are one more layer: security {}, ask {}, {rules}",
            self.levels.security.value(),
            self.levels.ask.value()
        )
    }
}

fn show(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &ExecPolicyShowArguments,
) -> CommandOutcome {
    let file = host.config()?;
    let config = file.config();
    let (document, _) = host.document()?;
    let configured = config.agents.list.iter().map(|agent| agent.id.clone());
    let named = arguments.agent.as_deref();
    if let Some(named) = named {
        known_scope(host, named)?;
    }
    let agents = approvals::agents(named, document.agents.keys().cloned().chain(configured))?;
    let mut shown: Vec<ShownAgent> = Vec::new();
    for agent in agents {
        let exec_host = config.exec_for(agent.as_str()).host;
        let exec_host = exec_host.map_or_else(
            || "auto".to_owned(),
            |host| json!(host).as_str().unwrap_or("auto").to_owned(),
        );
        let levels = host.levels(&agent, None)?;
        let node = (exec_host == "node").then(|| {
            let node = config.exec_for(agent.as_str()).node;
            nodes::NodePolicy::read(state, host, node.as_deref(), &agent)
        });
        let deny_rules = deny_rules(&document, &agent).len();
        shown.push(ShownAgent {
            sandbox: SandboxCoverage::of_agent(config, agent.as_str()),
            overruled: config.overruled_sandbox(agent.as_str()),
            agent,
            exec_host,
            levels,
            deny_rules,
            node,
        });
    }
    if arguments.json {
        let agents: Map<String, Value> = shown
            .iter()
            .map(|shown| {
                let managed = if shown.node.is_some() {
                    "node"
                } else {
                    "local"
                };
                let mut value = json!({
                    "host": shown.exec_host,
                    "managedBy": managed,
                    "policy": shown.levels,
                });
                if let Some(sandbox) = &shown.sandbox {
                    value["sandbox"] = coverage_json(sandbox);
                }
                if let Some(overruled) = &shown.overruled {
                    value["sandbox"]["fix"] = json!(state.in_command(&overruled.remedy()));
                }
                if shown.node.is_some() {
                    value["gatewayLayer"] = shown.gateway_layer();
                }
                match &shown.node {
                    Some(Ok(node)) => {
                        value["node"] = node.to_json();
                        value["joined"] = node.joined(&shown.levels).to_json();
                    }
                    Some(Err(failure)) => {
                        value["node"] = json!({ "unknown": failure.to_string() });
                    }
                    None => {}
                }
                (shown.agent.to_string(), value)
            })
            .collect();
        output::print_json(&json!({ "agents": agents }));
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    let mut out = String::new();
    for one in &shown {
        let ShownAgent {
            agent,
            exec_host,
            levels,
            node,
            ..
        } = one;
        let separator = if out.is_empty() { "" } else { "\n" };
        out += &format!("{separator}{}\n", paint.strong(&format!("agent {agent}")));
        let mut rows = vec![vec!["host".to_owned(), exec_host.clone()]];
        if let Some(sandbox) = &one.sandbox {
            rows.push(vec!["sandbox".to_owned(), coverage_text(agent, sandbox)]);
        }
        if exec_host == "node" {
            rows.push(vec![
                "policy".to_owned(),
                "node-managed: the node's own document decides at run time".to_owned(),
            ]);
        }
        rows.push(level_row("security", &levels.security));
        rows.push(level_row("ask", &levels.ask));
        rows.push(level_row("askFallback", &levels.ask_fallback));
        out += &output::table(&rows, "  ");
        if let Some(overruled) = &one.overruled {
            let fix = state.in_command(&overruled.remedy());
            let warning = format!("{}; to use it: {fix}", overruled.words());
            out += &format!("  {}\n", paint.warning(&warning));
        }
        if node.is_some() {
            out += &format!("  {}\n", one.gateway_layer_text());
        }
        match node {
            Some(Ok(node)) => {
                let version = node.version.as_deref().unwrap_or("unknown");
                out += &format!(
                    "  on the node {} (version {})\n",
                    node.node.shown(),
                    output::visible(version)
                );
                out += &output::table(&node.rows(), "    ");
                out += &format!("  {}\n", node.joined(levels).shown());
            }
            Some(Err(failure)) => {
                out += &format!("  the node's own policy cannot be read: {failure}\n");
            }
            None => {}
        }
    }
    output::print(&out);
    Ok(ExitCode::SUCCESS)
}

fn coverage_json(sandbox: &SandboxCoverage) -> Value {
    json!({
        "conversations": match sandbox.conversations {
            SandboxMode::Off => "none",
            SandboxMode::NonMain => "non-main",
            SandboxMode::All => "all",
        },
        "key": sandbox.key,
        "value": sandbox.value,
    })
}

fn coverage_text(agent: &AgentId, sandbox: &SandboxCoverage) -> String {
    let held = match sandbox.conversations {
        SandboxMode::Off => "no conversation".to_owned(),
        SandboxMode::NonMain => format!("every conversation but agent:{agent}:main"),
        SandboxMode::All => "every conversation".to_owned(),
    };
    let SandboxCoverage { key, value, .. } = sandbox;
    match sandbox.conversations {
        SandboxMode::Off => format!("{held} ({key} is {value})"),
        _ => format!("{held} ({key} is {value}), by the policy of tools.sandbox.exec"),
    }
}
