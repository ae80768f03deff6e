//! Allowlist entries with their origins. A document may hold ten thousand entries, so its lists are
//! moved here as a whole: no entry is copied, and origins are formatted only when they are needed.

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
    /// The origin of each entry.
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

    /// Returns the entry at a position, counted over all lists.
    pub(crate) fn get(&self, position: usize) -> Option<&Entry> {
        let (list, index) = self.place(position)?;
        list.entries.get(index)
    }

    /// Returns where the entry at a position is written, such as `agents.main.allowlist[3]`.
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
