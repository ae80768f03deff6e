//! Questions about runs on nodes that were given back to their callers, who come again with the
//! answer.
//!
//! An allowed plan runs by itself, whether or not a caller comes. A caller that comes before the
//! answer is known gets the result; without one, the session gets an event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlock_host::parameters::ExecParameters;
use tokio::sync::oneshot;

use crate::nodes::Node;
use crate::tools::result::ToolResult;

/// Those that are not answered yet, by the id of the approval.
#[derive(Debug, Default)]
pub(crate) struct Returned(Mutex<HashMap<String, ReturnedQuestion>>);

#[derive(Debug)]
struct ReturnedQuestion {
    node: Arc<Node>,
    parameters: ExecParameters,
    /// The caller, if it has come again.
    caller: Option<oneshot::Sender<ToolResult>>,
}

/// A caller that has come again. Dropped, it does not wait for the result any more.
#[derive(Debug, Clone)]
pub(crate) struct ComesBack(Arc<Mutex<Option<Back>>>);

/// What it called before, and what will come of it.
#[derive(Debug)]
pub(super) struct Back {
    pub(super) node: Arc<Node>,
    pub(super) parameters: ExecParameters,
    pub(super) result: oneshot::Receiver<ToolResult>,
}

impl Returned {
    pub(super) fn put(&self, id: &str, node: Arc<Node>, parameters: ExecParameters) {
        let question = ReturnedQuestion {
            node,
            parameters,
            caller: None,
        };
        self.lock().insert(id.to_owned(), question);
    }

    /// Said before the answer is: none for a question that is answered, or was not about a node.
    pub(crate) fn come_back(&self, id: &str) -> Option<ComesBack> {
        let mut all = self.lock();
        let question = all.get_mut(id)?;
        let (caller, result) = oneshot::channel();
        question.caller = Some(caller);
        let back = Back {
            node: Arc::clone(&question.node),
            parameters: question.parameters.clone(),
            result,
        };
        Some(ComesBack(Arc::new(Mutex::new(Some(back)))))
    }

    /// The answer is known: where the result goes. If no caller has come again, the result has no
    /// receiver.
    pub(super) fn answered(&self, id: &str) -> oneshot::Sender<ToolResult> {
        let question = self.lock().remove(id);
        let caller = question.and_then(|question| question.caller);
        caller.unwrap_or_else(|| oneshot::channel().0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ReturnedQuestion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ComesBack {
    /// Once.
    pub(super) fn take(&self) -> Option<Back> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
