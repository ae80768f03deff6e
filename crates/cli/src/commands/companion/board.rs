//! Tracks the notifications on the desktop, and what a button on one of them means.
//!
//! Nothing here talks to a bus or decides. A press counts only for the approval whose notification
//! has the button, only if it comes from the server that shows the notification, and not before the
//! approver can have read the notification.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use interlock_approvals::ApprovalSummary;

/// How long the buttons of a new notification do not count: the click may have been meant for
/// something else.
pub(super) const UNEXPECTED: Duration = Duration::from_millis(700);

/// The most approvals with separate notifications. More approvals share one notification with a
/// count.
const MOST_CARDS: usize = 3;

/// How often the count may change.
const COUNT_PAUSE: Duration = Duration::from_secs(1);

/// How long a dismissed count stays away before new approvals bring it back.
const FLOOD_PAUSE: Duration = Duration::from_secs(10);

/// A change of the notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BoardStep {
    /// Closes a notification by its number.
    Close(u32),
    /// Shows an approval by its id.
    Show(String),
    /// Shows how many approvals are pending, in place of the notification with this number.
    ShowCount {
        ids: BTreeSet<String>,
        replaces: u32,
    },
}

/// A notification on the desktop: its number, and the server that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedNotification {
    pub number: u32,
    /// The unique name of the server on the bus. No other connection can have this name.
    pub server: String,
    pub appeared: Instant,
}

impl PlacedNotification {
    fn is(&self, number: u32, server: &str) -> bool {
        self.number == number && self.server == server
    }
}

/// A button of an approval's notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DesktopButton {
    Review,
    Deny,
    AllowOnce,
}

impl DesktopButton {
    pub const ALL: [Self; 3] = [Self::Review, Self::Deny, Self::AllowOnce];

    /// The key that the server sends back.
    pub fn key(self) -> &'static str {
        match self {
            Self::Review => "review",
            Self::Deny => "deny",
            Self::AllowOnce => "allow-once",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Review => "Review",
            Self::Deny => "Deny",
            Self::AllowOnce => "Allow once",
        }
    }
}

/// The meaning of a press.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BoardPress {
    /// The button of the approval with this id. Its notification is removed from the board.
    Approval(String, DesktopButton),
    /// The notification with the count.
    Count,
    /// The press came too soon to be meant. The notification must be shown again.
    TooSoon(u32),
    /// A notification of another program, or an unknown one.
    Unknown,
}

/// The notifications of this process.
#[derive(Debug, Default)]
pub(super) struct DesktopBoard {
    cards: BTreeMap<String, PlacedNotification>,
    /// Approvals whose notification was dismissed or pressed. They are not shown again.
    dismissed: BTreeSet<String>,
    flood: Option<ApprovalFlood>,
}

/// The approvals that share one notification because there are too many.
#[derive(Debug, Default)]
struct ApprovalFlood {
    ids: BTreeSet<String>,
    /// `None` while the notification is dismissed.
    placed: Option<PlacedNotification>,
    /// The approvals that the notification counts.
    shown: BTreeSet<String>,
    last: Option<Instant>,
}

impl DesktopBoard {
    /// Computes the changes for these pending approvals.
    pub fn look(&mut self, waiting: &[ApprovalSummary], now: Instant) -> Vec<BoardStep> {
        let ids: BTreeSet<&str> = waiting.iter().map(|one| one.id.as_str()).collect();
        let mut steps = Vec::new();
        self.cards.retain(|id, placed| {
            let stays = ids.contains(id.as_str());
            if !stays {
                steps.push(BoardStep::Close(placed.number));
            }
            stays
        });
        self.dismissed.retain(|id| ids.contains(id.as_str()));
        if let Some(flood) = &mut self.flood {
            flood.ids.retain(|id| ids.contains(id.as_str()));
        }
        let is_known = |id: &&str| {
            let flood = self.flood.as_ref();
            self.cards.contains_key(*id)
                || self.dismissed.contains(*id)
                || flood.is_some_and(|flood| flood.ids.contains(*id))
        };
        let mut new = ids.iter().filter(|id| !is_known(id));
        let new: Vec<String> = new.by_ref().map(|id| (*id).to_owned()).collect();
        if self.flood.is_none() && self.cards.len() + new.len() <= MOST_CARDS {
            steps.extend(new.into_iter().map(BoardStep::Show));
            return steps;
        }
        let flood = self.flood.get_or_insert_default();
        for (id, placed) in std::mem::take(&mut self.cards) {
            steps.push(BoardStep::Close(placed.number));
            flood.ids.insert(id);
        }
        flood.ids.extend(new);
        steps.extend(flood.step(now));
        if flood.ids.is_empty() {
            self.flood = None;
        }
        steps
    }

    /// Records that the notification of an approval is on the desktop.
    pub fn placed(&mut self, id: &str, placed: PlacedNotification) {
        self.cards.insert(id.to_owned(), placed);
    }

    /// Records that the notification with the count is on the desktop.
    pub fn placed_count(&mut self, ids: BTreeSet<String>, placed: PlacedNotification) {
        if let Some(flood) = &mut self.flood {
            flood.last = Some(placed.appeared);
            flood.shown = ids;
            flood.placed = Some(placed);
        }
    }

    /// Records that an approval cannot be shown, so that it is not tried again.
    pub fn give_up(&mut self, id: &str) {
        self.dismissed.insert(id.to_owned());
    }

    /// The approvals with separate notifications.
    pub fn shown(&self) -> impl Iterator<Item = (&str, &PlacedNotification)> {
        self.cards.iter().map(|(id, placed)| (id.as_str(), placed))
    }

    /// Handles a server's report that a button was pressed.
    pub fn press(&mut self, number: u32, server: &str, key: &str, now: Instant) -> BoardPress {
        let is_ripe =
            |placed: &PlacedNotification| now.duration_since(placed.appeared) >= UNEXPECTED;
        if let Some(flood) = &mut self.flood
            && let Some(placed) = flood.placed.take_if(|placed| placed.is(number, server))
        {
            if !is_ripe(&placed) {
                flood.shown.clear();
                flood.last = None;
                return BoardPress::TooSoon(number);
            }
            return BoardPress::Count;
        }
        let mut cards = self.cards.iter();
        let Some((id, placed)) = cards.find(|(_, placed)| placed.is(number, server)) else {
            return BoardPress::Unknown;
        };
        let mut buttons = DesktopButton::ALL.into_iter();
        let Some(button) = buttons.find(|button| button.key() == key) else {
            return BoardPress::Unknown;
        };
        let (id, is_ripe) = (id.clone(), is_ripe(placed));
        self.cards.remove(&id);
        if !is_ripe {
            return BoardPress::TooSoon(number);
        }
        self.dismissed.insert(id.clone());
        BoardPress::Approval(id, button)
    }

    /// Handles a server's report that a notification was closed. That decides nothing.
    pub fn closed(&mut self, number: u32, server: &str) {
        if let Some(flood) = &mut self.flood
            && flood
                .placed
                .take_if(|placed| placed.is(number, server))
                .is_some()
        {
            return;
        }
        let mut cards = self.cards.iter();
        let found = cards.find(|(_, placed)| placed.is(number, server));
        if let Some(id) = found.map(|(id, _)| id.clone()) {
            self.cards.remove(&id);
            self.dismissed.insert(id);
        }
    }

    /// Makes an approval show up again.
    pub fn show_again(&mut self, id: &str) {
        self.cards.remove(id);
        self.dismissed.remove(id);
    }

    /// Forgets all notifications, because another server took over and the old ones are gone.
    pub fn server_changed(&mut self) {
        self.cards.clear();
        if let Some(flood) = &mut self.flood
            && flood.placed.take().is_some()
        {
            flood.shown.clear();
            flood.last = None;
        }
    }

    /// The numbers of all notifications on the desktop.
    pub fn numbers(&self) -> Vec<u32> {
        let flood = self.flood.as_ref().and_then(|flood| flood.placed.as_ref());
        let all = self.cards.values().chain(flood);
        all.map(|placed| placed.number).collect()
    }
}

impl ApprovalFlood {
    /// The next change of the notification with the count.
    fn step(&mut self, now: Instant) -> Option<BoardStep> {
        if self.ids.is_empty() {
            let placed = self.placed.take();
            return placed.map(|placed| BoardStep::Close(placed.number));
        }
        let since = self.last.map(|last| now.duration_since(last));
        let is_due = match &self.placed {
            Some(_) => self.ids != self.shown && since.is_none_or(|since| since >= COUNT_PAUSE),
            None => {
                // Only new approvals bring a dismissed notification back.
                !self.ids.is_subset(&self.shown) && since.is_none_or(|since| since >= FLOOD_PAUSE)
            }
        };
        is_due.then(|| BoardStep::ShowCount {
            ids: self.ids.clone(),
            replaces: self.placed.as_ref().map_or(0, |placed| placed.number),
        })
    }
}

#[cfg(test)]
mod tests;
