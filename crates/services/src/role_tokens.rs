//! Mints, lists and revokes the tokens of a role. The text of a token is printed once; only its
//! hash is stored.

use std::process::ExitCode;

use interlock_arguments::StateArguments;
use interlock_client::outside_runs;
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::{LocalHost, RoleToken, TokenRole};
use serde_json::json;

/// The tokens of one role, and the command that lists them.
#[derive(Debug)]
pub struct RoleTokens {
    pub role: TokenRole,
    pub list: &'static str,
}

impl RoleTokens {
    /// Makes a token. A process of a run must not make tokens.
    pub fn mint(&self, host: &LocalHost) -> Result<(String, RoleToken), Failure> {
        outside_runs(host.state_dir())?;
        Ok(host.mint_role_token(self.role)?)
    }

    /// Prints a new token: only its text goes to stdout, notes go to stderr.
    pub fn tell(
        &self,
        state: &StateArguments,
        (text, token): &(String, RoleToken),
        json: bool,
        hint: Option<&str>,
    ) {
        if json {
            let role = self.role.as_str();
            output::print_json(&json!({ "id": token.id, "role": role, "token": text }));
            return;
        }
        output::print(&format!("{text}\n"));
        let revoke = state.in_command(&format!("{} --revoke {}", self.list_flags(), token.id));
        output::note(&format!(
            "interlock: printed once and kept as a hash; to end it: {revoke}"
        ));
        if let Some(hint) = hint {
            output::note(&format!("interlock: {hint}"));
        }
    }

    /// The listing command without `--list`.
    fn list_flags(&self) -> &'static str {
        self.list.trim_end_matches(" --list")
    }

    /// Prints the ids of the tokens, or `hint` if there are none.
    pub fn list(&self, host: &LocalHost, json: bool, hint: &str) -> CommandOutcome {
        let tokens = host.role_tokens(self.role)?;
        if json {
            let rows = tokens
                .iter()
                .map(|token| json!({ "id": token.id, "createdAtMs": token.created_at_ms }));
            output::print_json(&json!({ "tokens": rows.collect::<Vec<_>>() }));
        } else if tokens.is_empty() {
            output::print(&format!(
                "no token of role {}; {hint}\n",
                self.role.as_str()
            ));
        } else {
            let rows: Vec<Vec<String>> = tokens
                .iter()
                .map(|token| {
                    let made = interlock_console::time(token.created_at_ms);
                    vec![token.id.clone(), format!("made {made}")]
                })
                .collect();
            output::print(&output::table(&rows, ""));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Revokes a token. A process of a run must not revoke tokens.
    pub fn revoke(
        &self,
        state: &StateArguments,
        host: &LocalHost,
        id: &str,
        json: bool,
    ) -> CommandOutcome {
        outside_runs(host.state_dir())?;
        if !host.revoke_role_token(self.role, id)? {
            let list = state.in_command(self.list);
            let message = format!(
                "there is no token of role {} with the id `{}`",
                self.role.as_str(),
                output::visible(id)
            );
            return Err(
                Failure::refused("TOKEN_NOT_FOUND", message).with_hint(format!("see them: {list}"))
            );
        }
        if json {
            output::print_json(&json!({ "id": id, "revoked": true }));
        } else {
            output::note("interlock: the token is worth nothing now; its connections end");
        }
        Ok(ExitCode::SUCCESS)
    }
}
