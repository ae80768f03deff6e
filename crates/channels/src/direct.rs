//! The direct chat of each person, in which a platform delivers private messages.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Direct chats that were found or created, by person. Each is looked up once, because platforms
/// limit the rate.
#[derive(Debug, Default)]
pub(crate) struct DirectChats(Mutex<HashMap<String, String>>);

impl DirectChats {
    pub(crate) fn of(&self, person: &str) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(person).cloned()
    }

    pub(crate) fn remember(&self, person: &str, chat: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(person.to_owned(), chat.to_owned());
    }
}
