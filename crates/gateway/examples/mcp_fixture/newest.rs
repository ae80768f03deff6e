//! What only the newest protocol version has: questions that are returned, and what a client must
//! have.

use interlock_mcp as mcp;
use rmcp::model::{
    ClientCapabilities, ErrorCode, InputRequests, InputRequiredResult, InputResponses,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Fixture, read};

/// What a request asks, in rounds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Questions {
    has_state: bool,
    rounds: Vec<serde_json::Map<String, Value>>,
}

/// How far a client has come.
#[derive(Serialize, Deserialize)]
struct Round {
    round: usize,
}

impl Fixture {
    /// The questions that are still to be answered, if the tool or prompt of this name has any.
    pub(super) fn question(
        &self,
        name: &str,
        answers: Option<&InputResponses>,
        state: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<InputRequiredResult>, ErrorData> {
        let questions = &self.offered["questions"][name];
        if questions.is_null() {
            return Ok(None);
        }
        let questions: Questions = read(questions.clone())?;
        let Round { mut round } = match state {
            Some(sealed) => self.connection.open(sealed, context)?,
            None => Round { round: 0 },
        };
        let is_answered = |key: &String| {
            let answer = answers.and_then(|all| all.get(key));
            answer.is_some_and(Value::is_object)
        };
        let asked = questions.rounds.get(round);
        if asked.is_some_and(|asked| asked.keys().all(is_answered)) {
            round += 1;
        }
        let Some(asked) = questions.rounds.get(round) else {
            return Ok(None);
        };
        let capabilities = context.client_capabilities();
        let mut can_answer = asked.clone();
        can_answer.retain(|_, question| can_be_asked(question, capabilities.as_ref()));
        let asked: InputRequests = read(Value::Object(can_answer))?;
        let state = questions.has_state.then_some(Round { round });
        let state = state.and_then(|state| self.connection.seal(&state, context));
        Ok(Some(InputRequiredResult::new(Some(asked), state)))
    }
}

fn can_be_asked(question: &Value, capabilities: Option<&ClientCapabilities>) -> bool {
    match question["method"].as_str() {
        Some("elicitation/create") => mcp::shows_forms(capabilities),
        Some("sampling/createMessage") => capabilities.is_some_and(|all| all.sampling.is_some()),
        _ => capabilities.is_some_and(|all| all.roots.is_some()),
    }
}

/// An error for a client without a model.
pub(super) fn with_model(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let capabilities = context.client_capabilities();
    if capabilities.is_some_and(|all| all.sampling.is_some()) {
        return Ok(());
    }
    Err(ErrorData::new(
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
        "a client with a model is needed",
        Some(json!({ "requiredCapabilities": { "sampling": {} } })),
    ))
}
