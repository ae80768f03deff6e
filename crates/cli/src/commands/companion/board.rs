//! Which notifications stand on the desktop, and what a button on one of them means.
//!
//! Nothing here talks to a bus or decides. A button counts for the approval whose notification it stood on,
//! if the server that shows it says so, and not before the approver can have read it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use interlock_approvals::ApprovalSummary;

/// What appears by itself may meet a click that was meant for something else.
pub(super) const UNEXPECTED: Duration = Duration::from_millis(700);

/// More approvals at once are one notification with their number.
const MOST_CARDS: usize = 3;

/// The number is changed at most so often.
const COUNT_PAUSE: Duration = Duration::from_secs(1);

/// A flood whose notification was dismissed is shown again for new approvals after this time.
const FLOOD_PAUSE: Duration = Duration::from_secs(10);

/// What is to be done on the desktop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BoardStep {
    /// Closes a notification by its number.
    Close(u32),
    /// Shows an approval by its id.
    Show(String),
    /// Shows how many wait, in place of the notification with this number.
    ShowCount {
        ids: BTreeSet<String>,
        replaces: u32,
    },
}

/// A notification that stands on the desktop: its number, and the server that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedNotification {
    pub number: u32,
    /// The unique name of the server on the bus; no other connection can have it.
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

/// What a press means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BoardPress {
    /// A button of this approval, by its id. Its notification is gone from the board.
    Approval(String, DesktopButton),
    /// The number of those that wait.
    Count,
    /// The press came before it can have been meant. The notification is to be shown again.
    TooSoon(u32),
    /// Another program's notification, or none.
    Unknown,
}

/// The notifications of this process.
#[derive(Debug, Default)]
pub(super) struct DesktopBoard {
    cards: BTreeMap<String, PlacedNotification>,
    /// Approvals whose notification was dismissed, or pressed: they are not shown again.
    dismissed: BTreeSet<String>,
    flood: Option<ApprovalFlood>,
}

/// More approvals than are shown one by one.
#[derive(Debug, Default)]
struct ApprovalFlood {
    ids: BTreeSet<String>,
    /// None while its notification is dismissed.
    placed: Option<PlacedNotification>,
    /// What the notification says.
    shown: BTreeSet<String>,
    last: Option<Instant>,
}

impl DesktopBoard {
    /// What is to be done now that these approvals wait.
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

    /// An approval's notification stands on the desktop.
    pub fn placed(&mut self, id: &str, placed: PlacedNotification) {
        self.cards.insert(id.to_owned(), placed);
    }

    /// The number of those that wait stands on the desktop.
    pub fn placed_count(&mut self, ids: BTreeSet<String>, placed: PlacedNotification) {
        if let Some(flood) = &mut self.flood {
            flood.last = Some(placed.appeared);
            flood.shown = ids;
            flood.placed = Some(placed);
        }
    }

    /// An approval that cannot be shown is not tried again.
    pub fn give_up(&mut self, id: &str) {
        self.dismissed.insert(id.to_owned());
    }

    /// The approvals that are shown one by one.
    pub fn shown(&self) -> impl Iterator<Item = (&str, &PlacedNotification)> {
        self.cards.iter().map(|(id, placed)| (id.as_str(), placed))
    }

    /// A server says that a button was pressed.
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

    /// A server says that a notification is gone. That decides nothing.
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

    /// An approval is to be shown once more.
    pub fn show_again(&mut self, id: &str) {
        self.cards.remove(id);
        self.dismissed.remove(id);
    }

    /// The server is another one: what the old one showed is gone.
    pub fn server_changed(&mut self) {
        self.cards.clear();
        if let Some(flood) = &mut self.flood
            && flood.placed.take().is_some()
        {
            flood.shown.clear();
            flood.last = None;
        }
    }

    /// Everything that stands on the desktop.
    pub fn numbers(&self) -> Vec<u32> {
        let flood = self.flood.as_ref().and_then(|flood| flood.placed.as_ref());
        let all = self.cards.values().chain(flood);
        all.map(|placed| placed.number).collect()
    }
}

impl ApprovalFlood {
    /// What is to be done to its notification.
    fn step(&mut self, now: Instant) -> Option<BoardStep> {
        if self.ids.is_empty() {
            let placed = self.placed.take();
            return placed.map(|placed| BoardStep::Close(placed.number));
        }
        let since = self.last.map(|last| now.duration_since(last));
        let is_due = match &self.placed {
            Some(_) => self.ids != self.shown && since.is_none_or(|since| since >= COUNT_PAUSE),
            None => {
                // Only new approvals bring a dismissed one back.
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
