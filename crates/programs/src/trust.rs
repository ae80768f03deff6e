//! The directories where wrappers, shells and safe bins must lie to count as the system's own.

use std::collections::BTreeSet;

/// Directories that are always trusted: only root can write there, and distributions put the
/// filters there.
const BUILT_IN_DIRS: [&str; 2] = ["/bin", "/usr/bin"];

/// Returns the trusted directories, sorted: the built-in ones and those that the config names. PATH
/// never adds any. A directory that is not absolute or contains `..` is left out, because its
/// meaning depends on more than its text.
#[must_use]
pub fn trusted_dirs(extra: &[String]) -> Vec<String> {
    let built_in = BUILT_IN_DIRS.iter().map(|dir| (*dir).to_owned());
    let configured = extra.iter().filter_map(|dir| normalised(dir));
    let all: BTreeSet<String> = built_in.chain(configured).collect();
    all.into_iter().collect()
}

/// Whether the program that will run is the one that `name` promises.
///
/// The file itself (`canonical`) must lie directly in a trusted directory. In addition, either the
/// path as `found` must lie in one too, or the file must have that name. Otherwise a link
/// `/tmp/x/head` to `/usr/bin/python3` would run an interpreter under the name of a filter.
pub fn in_trusted_dir(found: &str, canonical: &str, name: &str, dirs: &[String]) -> bool {
    let (Some((found_dir, found_name)), Some((canonical_dir, canonical_name))) =
        (split(found), split(canonical))
    else {
        return false;
    };
    let trusted = |dir: &str| dirs.iter().any(|trusted| trusted == dir);
    found_name == name && trusted(&canonical_dir) && (trusted(&found_dir) || canonical_name == name)
}

/// Returns the normalized directory and the file name of an absolute path.
fn split(path: &str) -> Option<(String, &str)> {
    let (dir, name) = path.rsplit_once('/')?;
    if matches!(name, "" | "." | "..") {
        return None;
    }
    Some((normalised(if dir.is_empty() { "/" } else { dir })?, name))
}

/// Returns one spelling per absolute directory: no doubled or trailing slashes and no `.`. Returns
/// `None` for `..`.
fn normalised(dir: &str) -> Option<String> {
    if !dir.starts_with('/') || dir.contains('\0') {
        return None;
    }
    let mut clean = String::with_capacity(dir.len());
    for part in dir.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            return None;
        }
        clean.push('/');
        clean.push_str(part);
    }
    if clean.is_empty() {
        clean.push('/');
    }
    Some(clean)
}
