//! The filter that chooses which pending approvals are shown.

use interlock_approvals::ApprovalSummary;

/// Words that must all match: `agent:NAME`, `host:NAME` (also the id or name of a node), and any
/// other text, which is searched in the command, the conversation and the short id. Case does not
/// matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Agent(String),
    Host(String),
    Text(String),
}

impl Filter {
    pub fn parse(text: &str) -> Self {
        let term = |word: &str| {
            let word = word.to_lowercase();
            match word.split_once(':') {
                Some(("agent", name)) => Term::Agent(name.to_owned()),
                Some(("host" | "node", name)) => Term::Host(name.to_owned()),
                _ => Term::Text(word),
            }
        };
        Self {
            text: text.trim().to_owned(),
            terms: text.split_whitespace().map(term).collect(),
        }
    }

    /// The filter as the approver typed it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn lets_through(&self, approval: &ApprovalSummary) -> bool {
        let holds = |text: &str, word: &str| text.to_lowercase().contains(word);
        self.terms.iter().all(|term| match term {
            Term::Agent(name) => approval.agent.to_lowercase() == *name,
            Term::Host(name) => {
                let node = approval.node.as_deref().unwrap_or_default();
                holds(&approval.host, name) || holds(node, name)
            }
            Term::Text(word) => {
                holds(&approval.preview, word)
                    || holds(&approval.session_key, word)
                    || holds(&approval.short_id, word)
            }
        })
    }
}
