//! Who could change a file, in words.

use crate::errors;
use rustix::io::Errno;
use serde::Serialize;

/// The owner of a file, and why its path cannot be trusted, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ownership {
    /// The user id of the file at the end of all links.
    pub owner: u32,
    /// Its permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// The part of the path that an account other than root could change; `None` if the path is
    /// protected.
    pub why_unprotected: Option<String>,
}

/// The first part of a path that an account other than root could change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weakness {
    pub path: Vec<u8>,
    pub flaw: Flaw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    Owner(u32),
    LinkOwner(u32),
    WritableByGroup(u32),
    WritableByOthers,
    AccessControlList,
    /// The found path contains `..`: its text does not say in which directory the file is, so a
    /// pattern for that directory must not match it.
    ParentComponent,
    /// The system did not answer. When in doubt, the path is not protected.
    Unknown(Errno),
}

impl Weakness {
    /// Describes the weakness in one sentence without a full stop. Reads the user and group tables.
    pub fn describe(&self) -> String {
        let path = visible(&self.path);
        match self.flaw {
            Flaw::Owner(user) => format!("{path} is owned by {}", user_name(user)),
            Flaw::LinkOwner(user) => format!("the link {path} is owned by {}", user_name(user)),
            Flaw::WritableByGroup(group) => {
                format!("{path} is writable by {}", group_name(group))
            }
            Flaw::WritableByOthers => format!("{path} is writable by everyone"),
            Flaw::AccessControlList => format!("{path} has an access control list"),
            Flaw::ParentComponent => format!("{path} contains `..`"),
            Flaw::Unknown(error) => format!(
                "the permissions of {path} cannot be read: {}",
                errors::reason(error)
            ),
        }
    }
}

/// The path as text that cannot disturb a terminal.
pub(crate) fn visible(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    interlock_command::display::visible(&text).replace('\n', "\\u{A}")
}

fn user_name(id: u32) -> String {
    name_in_table("/etc/passwd", id)
        .map_or_else(|| format!("user {id}"), |name| format!("user {name}"))
}

fn group_name(id: u32) -> String {
    name_in_table("/etc/group", id)
        .map_or_else(|| format!("group {id}"), |name| format!("group {name}"))
}

/// Finds a name in a table. Both tables have the name first and the number third. Names of a
/// directory service are missing; callers show the number instead.
fn name_in_table(table: &str, id: u32) -> Option<String> {
    let text = std::fs::read(table).ok()?;
    String::from_utf8_lossy(&text).lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == id).then(|| visible(name.as_bytes()))
    })
}
