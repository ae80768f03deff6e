//! Who could change a file on its way from `/`?

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{ORDINARY_USER, Scratch, is_root, set_mode};
use interlock_plan::{Exposure, FsResolver, Ownership};
use interlock_programs::{Executable, Resolver};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown};
use std::path::Path;
use tempfile::TempDir;

const ELF: &[u8] = b"\x7fELF\x02\x01\x01\0";
/// A user and group that no machine has a name for.
const STRANGER: u32 = 54321;

fn resolver() -> FsResolver {
    FsResolver::from_path_value("/usr/bin:/bin", None)
}

fn executable(path: &str) -> Executable {
    let lookup = resolver().executable(path, "/");
    lookup
        .found()
        .unwrap_or_else(|| panic!("{path}: {lookup:?}"))
        .clone()
}

/// A directory of root's on a way that is root's alone, if this machine has one to offer.
fn protected_scratch() -> Option<Scratch> {
    if !is_root() {
        return None;
    }
    for parent in [env!("CARGO_TARGET_TMPDIR"), "/run", "/var/lib", "/root"] {
        if resolver().why_unprotected(parent).is_none()
            && let Ok(directory) = TempDir::new_in(parent)
        {
            return Some(Scratch::of(directory));
        }
    }
    eprintln!("skipped: no directory here is on a protected way");
    None
}

#[test]
fn the_same_holds_for_an_ordinary_user() {
    crate::support::run_again_as_ordinary_user(
        module_path!(),
        "the_same_holds_for_an_ordinary_user",
    );
}

#[test]
fn what_could_change_before_it_is_used_is_told_apart_by_way_and_content() {
    let scratch = TempDir::new().unwrap();
    let own = scratch.path().join("file");
    fs::write(&own, "").unwrap();
    let own = own.to_str().unwrap();
    let way = executable("/usr/bin/env");
    let system = if is_root() || way.mutable || !way.protected {
        Exposure::Way
    } else {
        Exposure::None
    };
    assert_eq!(Exposure::of_file("/usr/bin/env"), system);
    assert_eq!(Exposure::of_empty_place("/usr/bin/no-such-file"), system);
    assert_eq!(Exposure::of_empty_place("/usr/bin/no-such/file"), system);
    let look_up = |search_path: &str| Exposure::of_look_up("env", "/usr/bin/env", search_path);
    assert_eq!(look_up("/usr/sbin:/usr/bin"), system);
    assert_eq!(
        look_up(&format!("/usr/bin:{}", scratch.path().display())),
        Exposure::None
    );

    assert_eq!(Exposure::of_file(own), Exposure::Way);
    assert_eq!(Exposure::of_file("/no/such/file"), Exposure::Way);
    assert_eq!(
        Exposure::of_empty_place(&format!("{own}.new")),
        Exposure::Way
    );
    assert_eq!(Exposure::of_empty_place("relative"), Exposure::Way);
    for search_path in ["", ".:/usr/bin", "/usr/sbin", &format!("{own}s:/usr/bin")] {
        assert_eq!(look_up(search_path), Exposure::Way, "{search_path}");
    }
}

#[test]
fn a_system_program_is_protected_when_its_way_is_roots_alone() {
    let env = executable("/usr/bin/env");
    let is_roots = |path: &Path| {
        let metadata = fs::symlink_metadata(path).unwrap();
        metadata.uid() == 0 && (metadata.is_symlink() || metadata.mode() & 0o022 == 0)
    };
    // Enough where neither `/usr` nor `/usr/bin` is a link, as everywhere.
    let way_is_roots = [&env.found, &env.canonical]
        .into_iter()
        .all(|path| Path::new(path).ancestors().all(is_roots));
    assert_eq!(env.protected, way_is_roots);
    assert_eq!(
        resolver().why_unprotected("/usr/bin/env").is_none(),
        way_is_roots
    );
    if way_is_roots {
        assert_eq!(env.mutable, is_root());
    }
    assert_eq!(executable("env").protected, way_is_roots);
}

#[test]
fn a_path_that_goes_up_is_never_protected() {
    let env = executable("/usr/bin/../bin/env");
    assert!(!env.protected);
    assert_eq!(env.canonical, executable("/usr/bin/env").canonical);
    assert_eq!(
        resolver().why_unprotected("/usr/bin/../bin/env").as_deref(),
        Some("/usr/bin/../bin/env contains `..`")
    );
}

#[test]
fn each_weak_place_on_the_way_is_found_and_named() {
    let Some(scratch) = protected_scratch() else {
        return;
    };
    let root = scratch.text().to_owned();
    let tool = scratch.file("real/tool", ELF, 0o755);
    scratch.directory("links");
    let link = scratch.link("links/tool", "hop");
    scratch.link("links/hop", "../real/tool");
    for directory in ["real", "links"] {
        set_mode(scratch.at(directory), 0o755);
    }
    let check = |expected: Option<String>| {
        assert_eq!(resolver().why_unprotected(&link), expected);
        let executable = executable(&link);
        assert_eq!(executable.protected, expected.is_none());
        assert!(executable.mutable, "root can always");
        assert_eq!(
            resolver().ownership(&link).unwrap().why_unprotected,
            expected
        );
    };
    check(None);

    let rows = [
        ("", 0o720, "is writable by group 54321"),
        ("real", 0o775, "is writable by group 54321"),
        ("real", 0o1775, "is writable by group 54321"),
        ("real", 0o757, "is writable by everyone"),
        ("real", 0o1777, "is writable by everyone"),
        ("links", 0o777, "is writable by everyone"),
        ("real/tool", 0o775, "is writable by group 54321"),
        ("real/tool", 0o757, "is writable by everyone"),
    ];
    for (name, mode, why) in rows {
        let path = if name.is_empty() {
            root.clone()
        } else {
            scratch.at(name)
        };
        let before = fs::metadata(&path).unwrap().mode() & 0o7777;
        chown(&path, None, Some(STRANGER)).unwrap();
        check(None);
        set_mode(&path, mode);
        check(Some(format!("{path} {why}")));
        set_mode(&path, before);
        check(None);
    }

    for name in ["real", "links", "real/tool"] {
        let path = scratch.at(name);
        chown(&path, Some(STRANGER), None).unwrap();
        check(Some(format!("{path} is owned by user 54321")));
        chown(&path, Some(0), None).unwrap();
    }
    for name in ["links/tool", "links/hop"] {
        let path = scratch.at(name);
        lchown(&path, Some(STRANGER), None).unwrap();
        check(Some(format!("the link {path} is owned by user 54321")));
        lchown(&path, Some(0), None).unwrap();
    }
    check(None);
    assert!(executable(&tool).protected);
}

#[test]
fn an_access_control_list_ends_protection() {
    let Some(scratch) = protected_scratch() else {
        return;
    };
    let tool = scratch.file("bin/tool", ELF, 0o755);
    set_mode(scratch.at("bin"), 0o755);
    for path in [tool.clone(), scratch.at("bin")] {
        assert_eq!(resolver().why_unprotected(&tool), None);
        let name = "system.posix_acl_access";
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::setxattr(&path, name, &access_control_list(), flags) {
            eprintln!("skipped: this file system has no access control lists: {error}");
            return;
        }
        // The list gives the stranger nothing that the mode would not show.
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
        assert_eq!(
            resolver().why_unprotected(&tool),
            Some(format!("{path} has an access control list"))
        );
        assert!(!executable(&tool).protected);
        rustix::fs::removexattr(&path, name).unwrap();
    }
    assert!(executable(&tool).protected);
}

/// Version 2; tag, permissions and id for the owner, the stranger, the group, the mask, others.
fn access_control_list() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (0x01_u16, 7_u16, u32::MAX),
        (0x02, 5, STRANGER),
        (0x04, 5, u32::MAX),
        (0x10, 5, u32::MAX),
        (0x20, 5, u32::MAX),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn groups_and_users_are_called_by_their_names() {
    let Some(scratch) = protected_scratch() else {
        return;
    };
    let named = |table: &str| -> (String, u32) {
        let text = fs::read_to_string(table).unwrap();
        text.lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .map(|fields| (fields[0].to_owned(), fields[2].parse().unwrap()))
            .find(|(_, id)| *id != 0)
            .unwrap()
    };
    let tool = scratch.file("tool", ELF, 0o775);
    let (group, group_id) = named("/etc/group");
    chown(&tool, None, Some(group_id)).unwrap();
    assert_eq!(
        resolver().why_unprotected(&tool),
        Some(format!("{tool} is writable by group {group}"))
    );
    let (user, user_id) = named("/etc/passwd");
    chown(&tool, Some(user_id), None).unwrap();
    assert_eq!(
        resolver().ownership(&tool),
        Some(Ownership {
            owner: user_id,
            mode: 0o775,
            why_unprotected: Some(format!("{tool} is owned by user {user}"))
        })
    );
}

#[test]
fn what_cannot_be_followed_is_not_protected() {
    let rows = [
        (
            "/nowhere/at/all",
            "/nowhere/at/all cannot be followed: it does not exist",
        ),
        ("usr/bin/env", "usr/bin/env is not an absolute path"),
        ("", " is not an absolute path"),
        ("/\0", "/\\u{0} is not an absolute path"),
        (
            "/usr/bin/env/",
            "/usr/bin/env/ cannot be followed: a part of the path is not a directory",
        ),
    ];
    for (path, why) in rows {
        assert_eq!(resolver().why_unprotected(path).as_deref(), Some(why));
        assert_eq!(resolver().ownership(path), None);
    }
}

#[test]
fn a_reason_cannot_disturb_a_terminal() {
    let scratch = Scratch::new();
    let path = scratch.at("\u{1B}[2Jodd");
    let why = resolver().why_unprotected(&path).unwrap();
    assert!(!why.contains(char::is_control), "{why:?}");
    assert!(why.contains("\\u{1B}[2Jodd"), "{why:?}");
}

#[test]
fn a_user_can_alter_what_they_own_or_could_put_another_file_for() {
    let scratch = Scratch::new();
    let own = scratch.file("own", ELF, 0o555);
    assert!(executable(&own).mutable);
    // The program is not theirs, but the way to it is.
    let link = scratch.link("link", "/usr/bin/env");
    let through_link = executable(&link);
    assert!(through_link.mutable);
    assert!(!through_link.protected);
}

/// Root lays out the cases, the ordinary user looks at each.
const CASE: &str = "INTERLOCK_TEST_MUTABLE_CASE";

#[test]
fn one_right_on_the_way_is_enough_to_alter_a_file() {
    if let Ok(case) = std::env::var(CASE) {
        let (expected, path) = case.split_once(' ').unwrap();
        assert_eq!(executable(path).mutable.to_string(), expected);
        return;
    }
    let Some(scratch) = protected_scratch() else {
        return;
    };
    let tool = scratch.file("bin/tool", ELF, 0o755);
    let bin = scratch.at("bin");
    let is_open = |path: &Path| fs::metadata(path).unwrap().mode() & 0o001 != 0;
    set_mode(scratch.path(), 0o755);
    if !scratch.path().ancestors().all(is_open) {
        eprintln!("skipped: the protected directory is closed to others");
        return;
    }
    let rows = [
        // Owner and mode of the directory, then of the file.
        ((0, 0o755), (0, 0o755), false),
        ((0, 0o755), (STRANGER, 0o755), false),
        ((0, 0o755), (0, 0o757), true),
        ((0, 0o757), (0, 0o755), true),
        ((0, 0o1777), (0, 0o755), true),
        // The owner can change the mode.
        ((0, 0o755), (ORDINARY_USER, 0o555), true),
        ((ORDINARY_USER, 0o555), (0, 0o755), true),
    ];
    for ((bin_owner, bin_mode), (tool_owner, tool_mode), expected) in rows {
        chown(&bin, Some(bin_owner), None).unwrap();
        set_mode(&bin, bin_mode);
        chown(&tool, Some(tool_owner), None).unwrap();
        set_mode(&tool, tool_mode);
        assert!(executable(&tool).mutable, "root can always");
        crate::support::run_tests_as_ordinary_user(
            &[
                "--exact",
                "protection::one_right_on_the_way_is_enough_to_alter_a_file",
            ],
            &[(CASE, &format!("{expected} {tool}"))],
        );
    }
}
