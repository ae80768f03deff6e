//! Allowlist entries with where they are written. A document may hold ten thousand: its lists are
//! taken over as they are, and no entry is copied or given a text of its own.

use crate::entry::Entry;

/// Lists of entries, in the order in which they apply.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EntryLists(Vec<EntryList>);

#[derive(Debug, PartialEq, Eq)]
struct EntryList {
    entries: Vec<Entry>,
    origin: ListOrigin,
}

#[derive(Debug, PartialEq, Eq)]
enum ListOrigin {
    /// The path of the list, such as `agents.main.allowlist`.
    Path(String),
    /// Where each entry is written.
    Each(Vec<String>),
}

impl EntryLists {
    /// Adds a list that is written at this path.
    pub fn push(&mut self, path: String, entries: Vec<Entry>) {
        let origin = ListOrigin::Path(path);
        self.0.push(EntryList { entries, origin });
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|list| list.entries.len()).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().flat_map(|list| &list.entries)
    }

    /// The entry at a position in all of the lists.
    pub(crate) fn get(&self, position: usize) -> Option<&Entry> {
        let (list, index) = self.place(position)?;
        list.entries.get(index)
    }

    /// Where the entry at a position is written, such as `agents.main.allowlist[3]`.
    pub(crate) fn origin(&self, position: usize) -> String {
        let origin = self
            .place(position)
            .map(|(list, index)| match &list.origin {
                ListOrigin::Path(path) => format!("{path}[{index}]"),
                ListOrigin::Each(origins) => origins.get(index).cloned().unwrap_or_default(),
            });
        origin.unwrap_or_default()
    }

    fn place(&self, position: usize) -> Option<(&EntryList, usize)> {
        let mut index = position;
        for list in &self.0 {
            match index.checked_sub(list.entries.len()) {
                None => return Some((list, index)),
                Some(behind) => index = behind,
            }
        }
        None
    }
}

impl FromIterator<(Entry, String)> for EntryLists {
    fn from_iter<I: IntoIterator<Item = (Entry, String)>>(written: I) -> Self {
        let (entries, origins) = written.into_iter().unzip();
        let origin = ListOrigin::Each(origins);
        Self(vec![EntryList { entries, origin }])
    }
}
