//! Where each command acts if `gateway.remote` names a gateway on another machine.
//!
//! A command must not silently answer for this machine while the owner follows that gateway: it
//! goes there, or says that it does not. Every command has a row; the guide shows the same table.

/// Where a command acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommandReach {
    /// At the gateway.
    Gateway,
    /// At the gateway if `--node` names one of its nodes; otherwise like [`CommandReach::Refused`].
    GatewayWithNode,
    /// On this machine only. Without `--local` the command is refused, because the owner would take
    /// its answer or its change for the gateway's.
    #[default]
    Refused,
    /// On this machine, as the command is meant to. A note beside the answer says so.
    Noted,
    /// On the program and the files of this machine, about which no gateway could answer.
    Machine,
}

/// The row of a command.
#[derive(Debug)]
pub struct ReachRow {
    /// The words of the command after `interlock`.
    pub command: &'static str,
    pub reach: CommandReach,
    /// What the command acts on if it does not go to the gateway.
    pub acts_on: &'static str,
}

const fn gateway(command: &'static str) -> ReachRow {
    ReachRow {
        command,
        reach: CommandReach::Gateway,
        acts_on: "",
    }
}

const fn with_node(command: &'static str, acts_on: &'static str) -> ReachRow {
    ReachRow {
        command,
        reach: CommandReach::GatewayWithNode,
        acts_on,
    }
}

const fn refused(command: &'static str, acts_on: &'static str) -> ReachRow {
    ReachRow {
        command,
        reach: CommandReach::Refused,
        acts_on,
    }
}

const fn noted(command: &'static str, acts_on: &'static str) -> ReachRow {
    ReachRow {
        command,
        reach: CommandReach::Noted,
        acts_on,
    }
}

const fn machine(command: &'static str) -> ReachRow {
    ReachRow {
        command,
        reach: CommandReach::Machine,
        acts_on: "",
    }
}

/// The rows of all commands.
pub const COMMANDS: &[ReachRow] = &[
    gateway("exec"),
    // The gateway has no method that judges for its own machine. Nodes have one.
    with_node("explain", "the policy and the files of this machine"),
    gateway("process list"),
    gateway("process poll"),
    gateway("process log"),
    gateway("process write"),
    gateway("process send-keys"),
    gateway("process submit"),
    gateway("process paste"),
    gateway("process screen"),
    gateway("process kill"),
    gateway("process clear"),
    gateway("process remove"),
    // Only the supervisor of this machine can connect a terminal.
    refused("process attach", "the runs of this machine"),
    // Cases without a policy are judged by the policy of this machine.
    noted("policy test", "the policy of this machine"),
    refused("policy replay", "the audit and the policy of this machine"),
    refused("policy suggest", "the audit and the policy of this machine"),
    refused("policy base show", "the policy of this machine"),
    refused("policy base remove", "the policy of this machine"),
    refused("policy base restore", "the policy of this machine"),
    machine("policy template list"),
    machine("policy template show"),
    refused("policy template apply", "the policy of this machine"),
    refused("policy template remove", "the policy of this machine"),
    gateway("approvals get"),
    gateway("approvals set"),
    gateway("approvals allowlist add"),
    gateway("approvals allowlist remove"),
    gateway("approvals allowlist list"),
    gateway("approvals pending"),
    gateway("approvals approve"),
    gateway("approvals deny"),
    gateway("approvals watch"),
    refused("approvals socket", "the approval socket of this machine"),
    refused("approvals grants", "the grants of this machine"),
    refused("approvals revoke", "the grants of this machine"),
    gateway("deny add"),
    gateway("deny remove"),
    gateway("deny list"),
    // These commands combine the config of this machine with its document.
    refused(
        "exec-policy show",
        "the config and the policy of this machine",
    ),
    refused(
        "exec-policy set",
        "the config and the policy of this machine",
    ),
    refused(
        "exec-policy preset",
        "the config and the policy of this machine",
    ),
    machine("config get"),
    machine("config set"),
    machine("config unset"),
    machine("config validate"),
    machine("config path"),
    gateway("audit log"),
    gateway("audit verify"),
    gateway("audit head"),
    // Only the machine that keeps a chain can write all of it.
    refused("audit export", "the audit of this machine"),
    refused("audit archive", "the audit of this machine"),
    noted("security audit", "this machine"),
    noted("doctor", "this machine"),
    machine("import openclaw"),
    refused("events", "the conversations of this machine"),
    refused("apply-patch", "the files of this machine"),
    noted("gateway status", "the gateway of this machine"),
    noted("gateway token", "tokens for the gateway of this machine"),
    machine("gateway run"),
    machine("gateway stop"),
    machine("gateway install"),
    machine("gateway uninstall"),
    machine("gateway start"),
    machine("gateway restart"),
    gateway("mcp"),
    machine("setup"),
    // The hook judges commands of an agent program on this machine.
    machine("hook"),
    machine("node run"),
    machine("node status"),
    machine("node install"),
    machine("node uninstall"),
    machine("node start"),
    machine("node stop"),
    machine("node restart"),
    // Tokens are minted on the machine that stores them.
    refused("agents list", "the agents and tokens of this machine"),
    refused("agents token", "the agents and tokens of this machine"),
    refused("agents revoke", "the agents and tokens of this machine"),
    gateway("devices list"),
    gateway("devices approve"),
    gateway("devices reject"),
    gateway("devices remove"),
    gateway("devices rotate"),
    gateway("devices revoke"),
    gateway("nodes list"),
    gateway("nodes status"),
    gateway("nodes describe"),
    gateway("nodes rename"),
    gateway("nodes remove"),
    gateway("nodes approve"),
    gateway("nodes reject"),
    gateway("nodes invoke"),
    refused("nodes enroll", "the node tokens of this machine"),
    // Chats belong to the gateway, but `login` stores the token on this machine.
    gateway("channels list"),
    gateway("channels test"),
    machine("channels login"),
    gateway("status"),
    // The code that pairs a browser is only for the owner of the gateway's machine.
    refused("dashboard", "the gateway of this machine"),
    // Notifications appear on the desktop of the machine that has the approvals.
    refused("companion", "the approval socket of this machine"),
    machine("companion install"),
    machine("companion uninstall"),
    refused("sandbox explain", "the sandbox of this machine"),
    refused("sandbox list", "the sandbox of this machine"),
    refused("sandbox recreate", "the sandbox of this machine"),
    refused("sandbox prune", "the sandbox of this machine"),
    refused("sandbox bind", "the sandbox of this machine"),
    refused("sandbox commit", "the sandbox of this machine"),
    refused("sandbox diff", "the sandbox of this machine"),
    refused("sandbox discard", "the sandbox of this machine"),
    refused("sandbox net", "the sandbox of this machine"),
    machine("sandbox setup"),
    machine("completion"),
    machine("man"),
    machine("version"),
];

/// The row of the parsed command.
pub fn of_matches(matches: &clap::ArgMatches) -> Option<&'static ReachRow> {
    let mut words: Vec<&str> = Vec::new();
    let mut at = matches;
    while let Some((name, inner)) = at.subcommand() {
        words.push(name);
        at = inner;
    }
    let words = words.join(" ");
    COMMANDS.iter().find(|row| row.command == words)
}

/// Whether the command names a node.
pub fn names_node(matches: &clap::ArgMatches) -> bool {
    let mut at = matches;
    while let Some((_, inner)) = at.subcommand() {
        at = inner;
    }
    matches!(at.try_get_one::<String>("node"), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Command;

    use super::*;

    fn leaves(command: &Command, path: &str, into: &mut Vec<String>) {
        for inner in command.get_subcommands() {
            let path = format!("{path} {}", inner.get_name());
            let is_leaf = !inner.has_subcommands();
            leaves(inner, &path, into);
            // Some commands also work without a subcommand.
            if is_leaf || !inner.is_subcommand_required_set() {
                into.push(path.trim_start().to_owned());
            }
        }
    }

    #[test]
    fn every_command_has_a_row_and_every_row_a_command() {
        let mut commands = Vec::new();
        leaves(&crate::reference::command_line(), "", &mut commands);
        let commands: BTreeSet<&str> = commands.iter().map(String::as_str).collect();
        let rows: BTreeSet<&str> = COMMANDS.iter().map(|row| row.command).collect();
        assert_eq!(rows, commands);
        assert_eq!(rows.len(), COMMANDS.len(), "a row twice");
    }

    #[test]
    fn a_row_that_stays_here_says_what_it_acts_on() {
        for row in COMMANDS {
            let stays = !matches!(row.reach, CommandReach::Gateway | CommandReach::Machine);
            assert_eq!(stays, !row.acts_on.is_empty(), "{}", row.command);
        }
    }

    #[test]
    fn a_command_without_a_row_would_be_refused() {
        assert_eq!(CommandReach::default(), CommandReach::Refused);
    }
}
