//! Joins paths by their text, without access to the file system.

/// Joins `name` to `base` as an absolute path: the *path as found*.
///
/// Empty components and `.` are removed, since they never change which file is meant. `..` stays:
/// behind a symbolic link only the file system knows where it leads. A path that can only mean a
/// directory (it ends in `/` or `/.`) keeps one final `/`, so that the system still refuses it for
/// a file.
///
/// `None` for a path that cannot name a file: an empty name, a NUL, or a relative path with a base
/// that is not absolute.
pub(crate) fn join(base: &str, name: &str) -> Option<String> {
    if name.is_empty() || name.contains('\0') {
        return None;
    }
    if name.starts_with('/') {
        return Some(clean(&[name]));
    }
    is_absolute(base).then(|| clean(&[base, name]))
}

/// Whether the path starts at `/` and is valid.
pub(crate) fn is_absolute(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0')
}

/// Whether the path contains `..` as a component.
pub(crate) fn has_parent_component(path: &str) -> bool {
    path.split('/').any(|component| component == "..")
}

fn clean(parts: &[&str]) -> String {
    let mut path = String::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
    for component in parts.iter().flat_map(|part| part.split('/')) {
        if !matches!(component, "" | ".") {
            path.push('/');
            path.push_str(component);
        }
    }
    let only_a_directory = parts
        .last()
        .and_then(|part| part.rsplit('/').next())
        .is_some_and(|component| matches!(component, "" | "."));
    if path.is_empty() || only_a_directory {
        path.push('/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn a_joined_path_is_absolute_and_means_the_same_file() {
        let rows = [
            ("/usr/bin", "env", Some("/usr/bin/env")),
            ("/usr/bin/", "env", Some("/usr/bin/env")),
            ("//usr/./bin//", "env", Some("/usr/bin/env")),
            ("/", "env", Some("/env")),
            ("/srv", "./run", Some("/srv/run")),
            ("/srv", "a/./b//c", Some("/srv/a/b/c")),
            ("/srv", "../run", Some("/srv/../run")),
            ("/srv", "a/../b", Some("/srv/a/../b")),
            ("/srv", "/bin//./ls", Some("/bin/ls")),
            ("/srv", "run/", Some("/srv/run/")),
            ("/srv", "run/.", Some("/srv/run/")),
            ("/srv", "run/..", Some("/srv/run/..")),
            ("/srv", ".", Some("/srv/")),
            ("/srv", "/", Some("/")),
            ("/", ".", Some("/")),
            ("/srv", ".hidden", Some("/srv/.hidden")),
            ("/srv", "...", Some("/srv/...")),
            ("relative", "/bin/ls", Some("/bin/ls")),
            ("relative", "ls", None),
            ("", "ls", None),
            ("/srv", "", None),
            ("/srv", "a\0b", None),
            ("/wo\0rk", "a", None),
        ];
        for (base, name, expected) in rows {
            assert_eq!(join(base, name).as_deref(), expected, "{base:?} + {name:?}");
        }
    }
}
