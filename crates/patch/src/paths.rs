//! Resolves the paths of a patch as text, before any link is followed.

use std::path::{Component, Path, PathBuf};

/// Returns the path that `name` means in a patch for `root`: absolute, without `.` and `..`.
pub(crate) fn absolute(root: &Path, name: &str) -> PathBuf {
    let mut path = PathBuf::from("/");
    for component in root.join(name).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => {
                path.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_by_their_text() {
        // name in the patch, meaning below /w
        let cases = [
            ("a.txt", "/w/a.txt"),
            ("./a//b.txt", "/w/a/b.txt"),
            ("a/../b.txt", "/w/b.txt"),
            ("../x", "/x"),
            ("../../../x", "/x"),
            ("../w/x", "/w/x"),
            ("/etc/passwd", "/etc/passwd"),
            ("/w/./y", "/w/y"),
            ("..notes", "/w/..notes"),
        ];
        for (name, meaning) in cases {
            assert_eq!(
                absolute(Path::new("/w"), name),
                Path::new(meaning),
                "{name}"
            );
        }
    }
}
