//! Directories whose programs count as the system's own.

/// `/bin` and `/usr/bin`; the config may add others, PATH never does.
pub const TRUSTED_DIRS: &[&str] = &["/bin", "/usr/bin"];

/// Whether the program called `name` is the system's own. The canonical path must lie directly in
/// a trusted directory; and so must the path as found, unless both go by the same name:
/// otherwise `/tmp/x/head -> /usr/bin/python3` would pass for `head`.
pub fn in_trusted_dir(name: &str, found: &str, canonical: &str, dirs: &[String]) -> bool {
    let directly_in_one = |path: &str| {
        path.rsplit_once('/')
            .is_some_and(|(dir, _)| dirs.iter().any(|trusted| trusted == dir))
    };
    let same_name = canonical.rsplit('/').next() == Some(name);
    directly_in_one(canonical) && (directly_in_one(found) || same_name)
}
