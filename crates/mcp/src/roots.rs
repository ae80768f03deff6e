//! The directories that a client says it works in (`roots/list`). Their effect depends on the
//! client: see [`super::connection::McpConnection::context`].

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::{Peer, RoleServer};
use tokio::sync::Mutex;

/// A client that takes longer has no roots.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Further roots are ignored.
const MAX_ROOTS: usize = 16;

/// The roots of one connection. They are requested with its first call, and again after the client
/// reports a change.
#[derive(Debug, Default)]
pub(super) struct ClientRoots(Mutex<Option<Vec<PathBuf>>>);

impl ClientRoots {
    #[expect(deprecated, reason = "the protocol versions that have roots keep them")]
    pub(super) async fn get(&self, peer: &Peer<RoleServer>) -> Vec<PathBuf> {
        let mut known = self.0.lock().await;
        if let Some(known) = &*known {
            return known.clone();
        }
        let listed = tokio::time::timeout(ANSWER_TIME, peer.list_roots()).await;
        let roots = match listed {
            Ok(Ok(listed)) => listed
                .roots
                .iter()
                .filter_map(|root| path_of(&root.uri))
                .take(MAX_ROOTS)
                .collect(),
            // Without an answer there are no roots, and the client's working directory or the
            // configured workspace counts.
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        *known = Some(roots.clone());
        roots
    }

    /// Handles the client's notification that its roots changed.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

/// The absolute path of a `file:` URI on this machine.
fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let is_hexadecimal = digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(&digits).ok()?;
        let decoded = is_hexadecimal.then(|| u8::from_str_radix(digits, 16).ok())??;
        if decoded == 0 {
            return None;
        }
        bytes.push(decoded);
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_uris_of_this_machine_are_paths() {
        for (uri, path) in [
            ("file:///srv/app", Some("/srv/app")),
            ("file://localhost/srv/app", Some("/srv/app")),
            ("file:///srv/it%27s%20here", Some("/srv/it's here")),
            ("file://elsewhere/srv", None),
            ("file:srv", None),
            ("https://example.com/srv", None),
            ("/srv", None),
            ("file:///srv%00", None),
            ("file:///srv%2", None),
            ("file:///srv%+1", None),
            ("file:///srv?x", None),
        ] {
            assert_eq!(path_of(uri), path.map(PathBuf::from), "{uri}");
        }
    }
}
