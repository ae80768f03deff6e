//! What waits, which of it is looked at, and when a key may decide that.
//!
//! A decision is for what a person sees. So the selection follows an approval by its id, whatever
//! comes and goes around it; when the one that is looked at ends, nothing is selected until the
//! person moves; and what got in front of the person by itself takes no keys for a moment.

use std::time::{Duration, Instant};

use interlock_approvals::{ApprovalDecision, ApprovalSummary, PendingApproval};
use interlock_policy::AlwaysForm;

use super::filter::Filter;

/// What appears by itself may meet keys that were meant for something else.
const UNEXPECTED: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub(super) struct Inbox {
    /// Everything that waits.
    all: Vec<ApprovalSummary>,
    /// What of it the filter lets through.
    pub rows: Vec<ApprovalSummary>,
    filter: Filter,
    pub selection: Selection,
    pub mode: Mode,
    /// What the last key did, or why it did nothing.
    pub message: String,
}

#[derive(Debug)]
pub(super) enum Selection {
    Nothing,
    Open(Box<OpenApproval>),
    /// The one that was looked at, and how it ended.
    Ended {
        short_id: String,
        how: String,
        /// Where it stood in the list.
        index: usize,
    },
}

/// The approval that is looked at.
#[derive(Debug)]
pub(super) struct OpenApproval {
    pub approval: PendingApproval,
    pub is_revealed: bool,
    /// Lines of the pane that are above its upper edge.
    pub scroll: usize,
    /// All of the command has been on the screen.
    pub is_command_seen: bool,
    /// Keys decide it from then on.
    pub decides_from: Instant,
    /// A decision is for all that ask the same.
    pub is_for_equal: bool,
}

/// A decision as it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub decision: ApprovalDecision,
    /// How much `allow-always` stores.
    pub form: AlwaysForm,
    /// Why it is denied; the caller reads it.
    pub reason: Option<String>,
}

impl Wish {
    pub fn plain(decision: ApprovalDecision) -> Self {
        Self {
            decision,
            form: AlwaysForm::Exact,
            reason: None,
        }
    }

    /// *Always* in a form that the approval offers.
    pub fn always(form: AlwaysForm) -> Self {
        Self {
            form,
            ..Self::plain(ApprovalDecision::AllowAlways)
        }
    }

    /// No, with words for the caller.
    pub fn deny(reason: &str) -> Self {
        let reason = reason.trim();
        Self {
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            ..Self::plain(ApprovalDecision::Deny)
        }
    }

    /// Whether it may be taken for several approvals at once. What is stored is chosen one by one.
    pub fn is_for_several(&self) -> bool {
        matches!(
            self.decision,
            ApprovalDecision::AllowOnce | ApprovalDecision::AllowSession | ApprovalDecision::Deny
        )
    }
}

/// What the next key is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Looking,
    /// `y` decides these approvals this way, anything else does not.
    Confirming {
        wish: Wish,
        ids: Vec<String>,
    },
    /// A duration is being typed.
    Leasing(String),
    /// The reason of a denial is being typed.
    Denying(String),
    /// A form of *always* is being chosen, by its number.
    Choosing(Vec<AlwaysForm>),
    /// A filter is being typed.
    Filtering(String),
}

/// How an approval came to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    ByPerson,
    ByItself,
}

impl Inbox {
    pub fn new(filter: Filter) -> Self {
        Self {
            all: Vec::new(),
            rows: Vec::new(),
            filter,
            selection: Selection::Nothing,
            mode: Mode::Looking,
            message: String::new(),
        }
    }

    /// Takes a new list. Returns the id of the selected approval if it is not in it any more: then
    /// [`Self::ended`] has to be called.
    pub fn update(&mut self, rows: Vec<ApprovalSummary>) -> Option<String> {
        let before = self.index();
        self.all = rows;
        self.apply_filter();
        let gone = match &self.selection {
            Selection::Open(open) => {
                let is_there = self.all.iter().any(|row| row.id == open.approval.id);
                (!is_there).then(|| open.approval.id.clone())
            }
            _ => None,
        };
        if gone.is_some()
            && let Selection::Open(open) = &self.selection
        {
            let short_id = open.approval.short_id.clone();
            self.selection = Selection::Ended {
                short_id,
                how: String::new(),
                index: before.unwrap_or(0),
            };
            self.leave_decision();
        }
        gone
    }

    /// Another approval is looked at: what was being decided is not decided. A filter that is being
    /// typed is for no approval.
    fn leave_decision(&mut self) {
        if !matches!(self.mode, Mode::Filtering(_)) {
            self.mode = Mode::Looking;
        }
    }

    fn apply_filter(&mut self) {
        let shown = self.all.iter().filter(|row| self.filter.lets_through(row));
        self.rows = shown.cloned().collect();
    }

    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// How many wait, shown or not.
    pub fn waiting(&self) -> usize {
        self.all.len()
    }

    /// Shows what another filter lets through. What it hides is not looked at any more.
    pub fn set_filter(&mut self, filter: Filter) {
        self.filter = filter;
        self.apply_filter();
        if self.index().is_none() {
            self.selection = Selection::Nothing;
        }
    }

    /// The ids of those that ask the same as the selected one, which is the first. Those that the filter
    /// hides are not among them.
    pub fn equal_ids(&self) -> Vec<String> {
        let Some(selected) = self.index().map(|at| &self.rows[at]) else {
            return Vec::new();
        };
        let others = self.rows.iter().filter(|row| row.id != selected.id);
        let equal = others.filter(|row| row.asks_the_same(selected));
        std::iter::once(selected)
            .chain(equal)
            .map(|row| row.id.clone())
            .collect()
    }

    /// Whether a decision is for all that ask the same.
    pub fn is_for_equal(&self) -> bool {
        matches!(&self.selection, Selection::Open(open) if open.is_for_equal)
    }

    pub fn ended(&mut self, words: String) {
        if let Selection::Ended { how, .. } = &mut self.selection {
            *how = words;
        }
    }

    /// The approval to begin with, where nothing was ever looked at.
    pub fn first(&self) -> Option<String> {
        let is_new = matches!(self.selection, Selection::Nothing);
        self.rows
            .first()
            .filter(|_| is_new)
            .map(|row| row.id.clone())
    }

    /// The approval so many places further, which is to be opened.
    pub fn neighbour(&self, step: isize) -> Option<String> {
        let last = self.rows.len().checked_sub(1)?;
        let at = match &self.selection {
            // The next one has moved up to its place.
            Selection::Ended { index, .. } if step > 0 => *index,
            Selection::Ended { index, .. } => index.saturating_add_signed(step),
            _ => self.index().unwrap_or(0).saturating_add_signed(step),
        };
        self.rows.get(at.min(last)).map(|row| row.id.clone())
    }

    /// Where the selected one stands in the list.
    pub fn index(&self) -> Option<usize> {
        let Selection::Open(open) = &self.selection else {
            return None;
        };
        self.rows.iter().position(|row| row.id == open.approval.id)
    }

    pub fn open(&mut self, approval: PendingApproval, chosen: Chosen, now: Instant) {
        let wait = match chosen {
            Chosen::ByPerson => Duration::ZERO,
            Chosen::ByItself => UNEXPECTED,
        };
        self.leave_decision();
        self.selection = Selection::Open(Box::new(OpenApproval {
            approval,
            is_revealed: false,
            scroll: 0,
            is_command_seen: false,
            decides_from: now + wait,
            is_for_equal: false,
        }));
    }

    /// The same approval with its secrets shown, or hidden again.
    pub fn reveal(&mut self, shown: PendingApproval, is_revealed: bool) {
        if let Selection::Open(open) = &mut self.selection
            && open.approval.id == shown.id
        {
            open.approval = shown;
            open.is_revealed = is_revealed;
            open.scroll = 0;
            open.is_command_seen = false;
        }
    }

    pub fn scroll(&mut self, lines: isize) {
        if let Selection::Open(open) = &mut self.selection {
            open.scroll = open.scroll.saturating_add_signed(lines);
        }
    }

    /// The approval that a key may decide now in this way, or why it may not.
    pub fn decidable(
        &self,
        decision: ApprovalDecision,
        now: Instant,
    ) -> Result<&PendingApproval, String> {
        let open = match &self.selection {
            Selection::Nothing => return Err("nothing waits".to_owned()),
            Selection::Ended { short_id, how, .. } => {
                return Err(format!(
                    "{short_id} has ended ({how}); choose the next one first"
                ));
            }
            Selection::Open(open) => open,
        };
        if now < open.decides_from {
            return Err("it has just appeared: look first".to_owned());
        }
        if !open.approval.offers(decision) {
            let why = open.approval.no_always.as_deref();
            let why = why.filter(|_| decision == ApprovalDecision::AllowAlways);
            return Err(format!(
                "{} is not offered: {}",
                decision.as_str(),
                why.unwrap_or("nothing of it can be pinned")
            ));
        }
        if decision != ApprovalDecision::Deny && !open.is_command_seen {
            return Err("the command goes on below: read it first (PgDn)".to_owned());
        }
        Ok(&open.approval)
    }
}

/// The forms of *always* that an approval offers, the narrowest first.
pub(super) fn always_forms(approval: &PendingApproval) -> Vec<AlwaysForm> {
    if !approval.offers(ApprovalDecision::AllowAlways) {
        return Vec::new();
    }
    let wider = approval.wider.iter().map(|wider| wider.form);
    std::iter::once(AlwaysForm::Exact).chain(wider).collect()
}

/// Whether a decision reaches further than the one run that is shown, or holds less than it seems.
pub(super) fn is_broad(approval: &PendingApproval, decision: ApprovalDecision) -> bool {
    match decision {
        ApprovalDecision::Deny => false,
        ApprovalDecision::AllowOnce => approval.binding == "unbound",
        _ => true,
    }
}

#[cfg(test)]
mod tests;
