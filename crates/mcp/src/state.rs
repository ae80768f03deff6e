//! The state that a client returns with an answer. It is authenticated and of no use to another
//! client.

use std::time::Duration;

use interlock_access::token::TokenError;
use rmcp::model::{RequestStateCodec, SealOptions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::caller::McpCaller;

/// As long as an approval waits.
const TIME: Duration = Duration::from_mins(30);

/// Seals state with a key of this process. After a restart the client asks again; its earlier
/// question still waits for an answer at other surfaces.
pub(super) struct States(RequestStateCodec);

impl std::fmt::Debug for States {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("States")
    }
}

/// A question that was given to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientQuestion {
    pub(super) approval: String,
    /// The digest of the plan that was shown.
    pub(super) plan_digest: String,
    /// The surface that showed the question.
    pub(super) surface: String,
}

impl States {
    pub(super) fn new() -> Result<Self, TokenError> {
        let mut key = [0_u8; 32];
        getrandom::fill(&mut key).map_err(|error| TokenError::Random(error.to_string()))?;
        let codec = RequestStateCodec::try_new(key);
        let codec = codec.map_err(|error| TokenError::Random(error.to_string()))?;
        Ok(Self(codec))
    }

    pub(super) fn seal<T: Serialize>(&self, state: &T, caller: &McpCaller) -> Option<String> {
        let owner = owner(caller);
        let options = SealOptions::new().associated_data(&owner).ttl(TIME);
        self.0.seal_json_with(state, &options).ok()
    }

    /// `None` for a state that was altered, is too old, or was given to another client.
    pub(super) fn open<T: DeserializeOwned>(&self, sealed: &str, caller: &McpCaller) -> Option<T> {
        self.0.open_json_with(sealed, &owner(caller)).ok()
    }
}

fn owner(caller: &McpCaller) -> Vec<u8> {
    format!("{}\n{}", caller.owner, caller.agent).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlock_policy::AgentId;

    fn caller(owner: &str, agent: &str) -> McpCaller {
        McpCaller {
            agent: AgentId::new(agent).unwrap(),
            session_key: None,
            owner: owner.to_owned(),
            elicitation: true,
            cwd: None,
            program: None,
            sender: None,
        }
    }

    #[test]
    fn a_state_is_of_use_only_as_it_is_and_to_whom_it_was_given() {
        let states = States::new().unwrap();
        let asked = ClientQuestion {
            approval: "a".to_owned(),
            plan_digest: "d".to_owned(),
            surface: "s".to_owned(),
        };
        let own = caller("token", "main");
        let sealed = states.seal(&asked, &own).unwrap();
        assert_eq!(states.open(&sealed, &own), Some(asked));
        assert_eq!(
            states.open::<ClientQuestion>(&sealed, &caller("other", "main")),
            None
        );
        assert_eq!(
            states.open::<ClientQuestion>(&sealed, &caller("token", "other")),
            None
        );
        assert_eq!(
            States::new().unwrap().open::<ClientQuestion>(&sealed, &own),
            None
        );
        for position in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[position] = if changed[position] == b'A' {
                b'B'
            } else {
                b'A'
            };
            let changed = String::from_utf8(changed).unwrap();
            if changed != sealed {
                assert_eq!(
                    states.open::<ClientQuestion>(&changed, &own),
                    None,
                    "{position}"
                );
            }
        }
        assert_eq!(states.open::<ClientQuestion>("", &own), None);
    }
}
