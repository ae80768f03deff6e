//! Where is that directory, and where is home?

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::Scratch;
use interlock_plan::FsResolver;
use interlock_programs::Resolver;

fn resolver() -> FsResolver {
    FsResolver::new([], None)
}

#[test]
fn the_same_holds_for_an_ordinary_user() {
    crate::support::run_again_as_ordinary_user(
        module_path!(),
        "the_same_holds_for_an_ordinary_user",
    );
}

#[test]
fn a_directory_is_given_by_its_canonical_path() {
    let scratch = Scratch::new();
    let deep = scratch.directory("real/deep");
    scratch.file("file", b"", 0o755);
    scratch.link("link", "real/deep");
    scratch.link("dangling", "nowhere");
    scratch.link("to-file", "file");
    scratch.link("top", "/");
    let real = scratch.at("real");
    let rows = [
        ("real/deep", Some(deep.as_str())),
        ("./real//deep/", Some(&deep)),
        ("link", Some(&deep)),
        ("link/", Some(&deep)),
        ("link/.", Some(&deep)),
        ("link/..", Some(&real)),
        ("link/../..", Some(scratch.text())),
        (".", Some(scratch.text())),
        ("top", Some("/")),
        ("top/..", Some("/")),
        ("/", Some("/")),
        ("/../..", Some("/")),
        ("", None),
        ("file", None),
        ("file/", None),
        ("file/..", None),
        ("to-file", None),
        ("dangling", None),
        ("nowhere", None),
        ("nowhere/..", None),
        ("real\0", None),
    ];
    for (path, expected) in rows {
        assert_eq!(
            resolver().directory(path, scratch.text()).as_deref(),
            expected,
            "{path:?}"
        );
    }
    assert_eq!(resolver().directory("real", "relative"), None);
}

#[test]
fn home_is_what_was_given_if_it_is_absolute() {
    let home = |home: &str| FsResolver::new([], Some(home.to_owned())).home();
    assert_eq!(home("/home/someone").as_deref(), Some("/home/someone"));
    assert_eq!(home("somewhere"), None);
    assert_eq!(home(""), None);
    assert_eq!(FsResolver::new([], None).home(), None);
}
