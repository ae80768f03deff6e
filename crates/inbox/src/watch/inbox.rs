//! The pending approvals, the selected one, and when a key may decide it.
//!
//! A key must decide only what the approver sees. So the selection follows an approval by its id
//! while others come and go. If the selected approval ends, nothing is selected until the approver
//! moves. An approval that appears by itself accepts no decision for a moment.

use std::time::{Duration, Instant};

use interlock_approvals::{ApprovalDecision, ApprovalSummary, PendingApproval};
use interlock_policy::AlwaysForm;

use super::filter::Filter;

/// How long an approval that appears by itself accepts no decision: the key may have been meant for
/// something else.
const UNEXPECTED: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub(super) struct Inbox {
    /// All pending approvals.
    all: Vec<ApprovalSummary>,
    /// The pending approvals that the filter shows.
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
    /// The approval that was selected has ended in this way.
    Ended {
        short_id: String,
        how: String,
        /// Its position in the list.
        index: usize,
    },
}

/// The selected approval.
#[derive(Debug)]
pub(super) struct OpenApproval {
    pub approval: PendingApproval,
    pub is_revealed: bool,
    /// How many lines are scrolled out above the pane.
    pub scroll: usize,
    /// Whether all of the command has been on the screen.
    pub is_command_seen: bool,
    /// Keys decide this approval only from this time on.
    pub decides_from: Instant,
    /// Whether a decision is for all approvals that ask for the same.
    pub is_for_equal: bool,
}

/// A decision that the approver chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub decision: ApprovalDecision,
    /// How much `allow-always` stores.
    pub form: AlwaysForm,
    /// The reason of a denial. The caller reads it.
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

    /// `allow-always` in a form that the approval offers.
    pub fn always(form: AlwaysForm) -> Self {
        Self {
            form,
            ..Self::plain(ApprovalDecision::AllowAlways)
        }
    }

    /// A denial with a reason for the caller.
    pub fn deny(reason: &str) -> Self {
        let reason = reason.trim();
        Self {
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            ..Self::plain(ApprovalDecision::Deny)
        }
    }

    /// Whether several approvals can be decided so at once. Decisions that store a rule or a lease
    /// must be made one by one.
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
    /// `y` decides these approvals as chosen; any other key cancels.
    Confirming {
        wish: Wish,
        ids: Vec<String>,
    },
    /// A duration is being typed.
    Leasing(String),
    /// The reason of a denial is being typed.
    Denying(String),
    /// A form of `allow-always` is being chosen by its number.
    Choosing(Vec<AlwaysForm>),
    /// A filter is being typed.
    Filtering(String),
}

/// How an approval came to be selected.
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

    /// Takes a new list. Returns the id of the selected approval if the list no longer contains it;
    /// the caller must then call [`Self::ended`].
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

    /// Cancels the decision that was being entered, because the selection changes. A filter that is
    /// being typed belongs to no approval and stays.
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

    /// How many approvals are pending, shown or not.
    pub fn waiting(&self) -> usize {
        self.all.len()
    }

    /// Sets another filter. A selected approval that it hides is no longer selected.
    pub fn set_filter(&mut self, filter: Filter) {
        self.filter = filter;
        self.apply_filter();
        if self.index().is_none() {
            self.selection = Selection::Nothing;
        }
    }

    /// The ids of the selected approval, which comes first, and of all approvals that ask for the
    /// same. Approvals that the filter hides are not included.
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

    /// Whether a decision is for all approvals that ask for the same.
    pub fn is_for_equal(&self) -> bool {
        matches!(&self.selection, Selection::Open(open) if open.is_for_equal)
    }

    pub fn ended(&mut self, words: String) {
        if let Selection::Ended { how, .. } = &mut self.selection {
            *how = words;
        }
    }

    /// The approval to select first, if nothing is selected.
    pub fn first(&self) -> Option<String> {
        let is_new = matches!(self.selection, Selection::Nothing);
        self.rows
            .first()
            .filter(|_| is_new)
            .map(|row| row.id.clone())
    }

    /// The approval `step` places further in the list.
    pub fn neighbour(&self, step: isize) -> Option<String> {
        let last = self.rows.len().checked_sub(1)?;
        let at = match &self.selection {
            // The next approval has moved up to the position of the ended one.
            Selection::Ended { index, .. } if step > 0 => *index,
            Selection::Ended { index, .. } => index.saturating_add_signed(step),
            _ => self.index().unwrap_or(0).saturating_add_signed(step),
        };
        self.rows.get(at.min(last)).map(|row| row.id.clone())
    }

    /// The position of the selected approval in the list.
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

    /// Replaces the selected approval by the same one with its secrets shown or masked.
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

    /// The selected approval if a key may decide it so now, or else the reason why not.
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

/// The forms of `allow-always` that an approval offers, the narrowest first.
pub(super) fn always_forms(approval: &PendingApproval) -> Vec<AlwaysForm> {
    if !approval.offers(ApprovalDecision::AllowAlways) {
        return Vec::new();
    }
    let wider = approval.wider.iter().map(|wider| wider.form);
    std::iter::once(AlwaysForm::Exact).chain(wider).collect()
}

/// Whether a decision allows more than the one run that is shown, or pins less than it seems to.
/// Such a decision must be confirmed.
pub(super) fn is_broad(approval: &PendingApproval, decision: ApprovalDecision) -> bool {
    match decision {
        ApprovalDecision::Deny => false,
        ApprovalDecision::AllowOnce => approval.binding == "unbound",
        _ => true,
    }
}

#[cfg(test)]
mod tests;
