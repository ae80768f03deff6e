//! The entries that *always* would store, as the approval keeps them.

use interlock_policy::{AlwaysForm, Entry, NotWider, Wider};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The forms that an approver may choose from. Any other form is not stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AlwaysForms {
    /// The entries of the form that applies without a choice.
    pub(crate) exact: Vec<Entry>,
    /// The form of `exact`: exact, or for this project.
    #[serde(default, skip_serializing_if = "AlwaysForm::is_exact")]
    pub(crate) form: AlwaysForm,
    #[serde(default)]
    pub(crate) wider: Vec<Wider>,
    #[serde(default)]
    pub(crate) not_wider: Vec<NotWider>,
}

impl AlwaysForms {
    /// Reads the stored value. A value that cannot be read offers nothing.
    pub(crate) fn read(stored: Option<&Value>) -> Self {
        let Some(stored) = stored else {
            return Self::default();
        };
        let read = match stored {
            // Approvals of versions without forms store a list.
            Value::Array(_) => serde_json::from_value(stored.clone()).map(|exact| Self {
                exact,
                ..Self::default()
            }),
            other => serde_json::from_value(other.clone()),
        };
        read.unwrap_or_default()
    }

    /// The form that a decision means: without a choice, the form that was shown first.
    pub(crate) fn chosen(&self, form: AlwaysForm) -> AlwaysForm {
        if form.is_exact() { self.form } else { form }
    }

    /// The entries of a form; empty if the form is not offered.
    pub(crate) fn entries(&self, form: AlwaysForm) -> &[Entry] {
        match self.chosen(form) {
            chosen if chosen == self.form => &self.exact,
            other => {
                let mut wider = self.wider.iter();
                wider
                    .find(|wider| wider.form == other)
                    .map_or(&[], |wider| &wider.entries)
            }
        }
    }

    /// Why a form is not offered, if a reason is known.
    pub(crate) fn why_not(&self, form: AlwaysForm) -> Option<&str> {
        let word = match form {
            AlwaysForm::Exact => return None,
            AlwaysForm::Project => {
                return Some(
                    "no file of a project decides what it runs, or more than that decides",
                );
            }
            AlwaysForm::Leading(_) => "leading",
            AlwaysForm::Program => "program",
        };
        let mut not_wider = self.not_wider.iter();
        let not = not_wider.find(|not| not.form == word)?;
        Some(&not.why)
    }
}
