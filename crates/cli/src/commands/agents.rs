//! `interlock agents`: lists agents, and mints and revokes the tokens with which they call tools.

use std::process::ExitCode;

use interlock_arguments::{
    AgentsCommand, AgentsListArguments, AgentsRevokeArguments, AgentsTokenArguments, StateArguments,
};
use interlock_client::{agent_id, known_agent, open};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_policy::AgentId;
use serde_json::{Value, json};

pub fn run(state: &StateArguments, command: &AgentsCommand) -> CommandOutcome {
    match command {
        AgentsCommand::List(arguments) => list(state, arguments),
        AgentsCommand::Token(arguments) => token(state, arguments),
        AgentsCommand::Revoke(arguments) => revoke(state, arguments),
    }
}

fn list(state: &StateArguments, arguments: &AgentsListArguments) -> CommandOutcome {
    let host = open(state)?;
    let config = host.config()?;
    let mut names = vec![AgentId::MAIN.to_owned()];
    for agent in &config.config().agents.list {
        let id = agent.id.to_ascii_lowercase();
        if !names.contains(&id) {
            names.push(id);
        }
    }
    let tokens = host.agent_tokens()?;
    for token in &tokens {
        if !names.contains(&token.agent) {
            names.push(token.agent.clone());
        }
    }
    let of = |name: &str| {
        tokens
            .iter()
            .filter(move |token| token.agent == name)
            .collect::<Vec<_>>()
    };
    if arguments.json {
        let agents = names.iter().map(|name| {
            let tokens = of(name).into_iter().map(|token| {
                json!({
                    "id": token.id,
                    "createdAtMs": token.created_at_ms,
                    "elicitation": token.elicitation,
                })
            });
            json!({ "id": name, "tokens": tokens.collect::<Vec<_>>() })
        });
        output::print_json(
            &json!({ "total": names.len(), "agents": agents.collect::<Vec<Value>>() }),
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = Vec::new();
    for name in &names {
        let own = of(name);
        if own.is_empty() {
            rows.push(vec![name.clone(), "no token".to_owned()]);
        }
        for token in own {
            let asks = if token.elicitation {
                ", shows prompts"
            } else {
                ""
            };
            rows.push(vec![name.clone(), format!("token {}{asks}", token.id)]);
        }
    }
    output::print(&output::table(&rows, ""));
    Ok(ExitCode::SUCCESS)
}

fn token(state: &StateArguments, arguments: &AgentsTokenArguments) -> CommandOutcome {
    agent_id(&arguments.agent)?;
    let host = open(state)?;
    let agent = known_agent(&host, &arguments.agent)?;
    interlock_client::outside_runs(host.state_dir())?;
    let (text, token) = host.mint_agent_token(&agent, arguments.elicitation)?;
    if arguments.json {
        output::print_json(&json!({ "agent": token.agent, "id": token.id, "token": text }));
    } else {
        output::print(&format!("{text}\n"));
        let revoke = state.in_command(&format!("interlock agents revoke {}", token.id));
        output::note(&format!(
            "interlock: kept nowhere, so keep it; to end it: {revoke}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn revoke(state: &StateArguments, arguments: &AgentsRevokeArguments) -> CommandOutcome {
    let host = open(state)?;
    interlock_client::outside_runs(host.state_dir())?;
    if !host.revoke_agent_token(&arguments.id)? {
        let list = state.in_command("interlock agents list");
        let message = format!(
            "there is no token with the id `{}`",
            output::visible(&arguments.id)
        );
        return Err(
            Failure::refused("TOKEN_NOT_FOUND", message).with_hint(format!("see them: {list}"))
        );
    }
    if arguments.json {
        output::print_json(&json!({ "id": arguments.id, "revoked": true }));
    } else {
        output::note("interlock: the token is useless now");
    }
    Ok(ExitCode::SUCCESS)
}
