//! What does a glob expand to? The cases by hand; `glob_shells` compares with real shells.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{Scratch, glob, is_root, set_mode};
use interlock_plan::FsResolver;
use interlock_programs::{Glob, GlobBudget, GlobError, GlobToken, MAX_GLOB_PATHS, Resolver};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

fn expand(pattern: &str, cwd: &str) -> Result<Vec<String>, GlobError> {
    FsResolver::new([], None).glob(&glob(pattern), cwd, &mut GlobBudget::default())
}

#[test]
fn the_same_holds_for_an_ordinary_user() {
    crate::support::run_again_as_ordinary_user(
        module_path!(),
        "the_same_holds_for_an_ordinary_user",
    );
}

#[test]
fn patterns_expand_as_in_a_shell() {
    let scratch = Scratch::new();
    for name in ["abc/b/x", "axx/b/y", ".hid/x"] {
        scratch.file(name, b"", 0o644);
    }
    for name in ["afile", "B", "a b", "a*", ".dot", "-n", "é"] {
        scratch.file(name, b"", 0o644);
    }
    scratch.link("alink", "abc");
    scratch.link("adangling", "nowhere");
    let all_a = ["a b", "a*", "abc", "adangling", "afile", "alink", "axx"];
    let rows: &[(&str, &[&str])] = &[
        ("a*", &all_a),
        ("a**", &all_a),
        ("?", &["B", "é"]),
        ("??", &["-n", "a*"]),
        ("[A-C]", &["B"]),
        ("[!a-z]", &["B", "é"]),
        ("[à-ï]", &["é"]),
        ("a\\**", &["a*"]),
        ("a[*]", &["a*"]),
        (".*", &[".dot", ".hid"]),
        ("..*", &[]),
        ("[.]dot", &[]),
        ("*dot", &[]),
        ("a*/", &["abc/", "alink/", "axx/"]),
        ("a*//", &["abc/", "alink/", "axx/"]),
        ("adangling*/", &[]),
        ("./B*", &["./B"]),
        (".//B*", &[".//B"]),
        ("*/b", &["abc/b", "alink/b", "axx/b"]),
        ("**/b", &["abc/b", "alink/b", "axx/b"]),
        ("*//b", &["abc/b", "alink/b", "axx/b"]),
        ("*/b/*", &["abc/b/x", "alink/b/x", "axx/b/y"]),
        ("*/b/y", &["axx/b/y"]),
        ("a?c//b/*", &["abc/b/x"]),
        ("abc//b/*", &["abc//b/x"]),
        ("ax*/.", &["axx/."]),
        ("ax*/../B*", &["axx/../B"]),
        ("afile*/..", &[]),
        ("afile/*", &[]),
        ("nowhere/*", &[]),
        (".h*/*", &[".hid/x"]),
        ("z*", &[]),
        ("abc", &["abc"]),
        ("abc/", &["abc/"]),
        ("afile/", &[]),
        ("adangling", &["adangling"]),
        ("nowhere", &[]),
        ("", &[]),
    ];
    for (pattern, expected) in rows {
        assert_eq!(
            expand(pattern, scratch.text()).unwrap(),
            *expected,
            "{pattern}"
        );
    }
    let absolute = format!("{}/a?c", scratch.text());
    assert_eq!(expand(&absolute, "/nowhere").unwrap(), [scratch.at("abc")]);
    assert_eq!(expand("/us[r]", "/nowhere").unwrap(), ["/usr"]);
    assert_eq!(expand("//us[r]/b*n", "/nowhere").unwrap(), ["//usr/bin"]);
}

#[test]
fn a_set_never_stands_for_a_slash() {
    let scratch = Scratch::new();
    scratch.file("a/b", b"", 0o644);
    let between = GlobToken::Set {
        negated: false,
        ranges: vec![('/', '/')],
    };
    let tokens = vec![GlobToken::Literal('a'), between, GlobToken::Literal('b')];
    let resolver = FsResolver::new([], None);
    assert_eq!(
        resolver.glob(&Glob { tokens }, scratch.text(), &mut GlobBudget::default()),
        Ok(Vec::new())
    );
}

#[test]
fn a_nul_matches_nothing() {
    let scratch = Scratch::new();
    scratch.file("a", b"", 0o644);
    assert_eq!(expand("a\0*", scratch.text()), Ok(Vec::new()));
    assert_eq!(expand("a\0", scratch.text()), Ok(Vec::new()));
}

#[test]
fn too_many_results_are_an_error_and_the_limit_itself_is_not() {
    let scratch = Scratch::new();
    for index in 0..MAX_GLOB_PATHS {
        fs::write(scratch.path().join(format!("f{index}")), b"").unwrap();
    }
    assert_eq!(expand("f*", scratch.text()).unwrap().len(), MAX_GLOB_PATHS);
    scratch.file("f", b"", 0o644);
    assert_eq!(expand("f*", scratch.text()), Err(GlobError::TooMany));
    // Many names on the way are not many results.
    assert_eq!(expand("f*[!0-9]", scratch.text()), Ok(Vec::new()));
}

#[test]
fn a_walk_over_too_many_names_ends() {
    let scratch = Scratch::new();
    for index in 0..520 {
        scratch.directory(&format!("d{index}"));
    }
    assert_eq!(
        expand("*/../*/nowhere", scratch.text()),
        Err(GlobError::TooMany)
    );
    assert_eq!(expand("*/nowhere", scratch.text()), Ok(Vec::new()));
}

/// Each word alone is small; what counts is the line.
#[test]
fn the_words_of_a_line_share_one_budget() {
    let scratch = Scratch::new();
    for index in 0..1500 {
        fs::write(scratch.path().join(format!("f{index}")), b"").unwrap();
    }
    let resolver = FsResolver::new([], None);
    let mut budget = GlobBudget::default();
    let mut next = || resolver.glob(&glob("f*"), scratch.text(), &mut budget);
    assert_eq!(next().unwrap().len(), 1500);
    assert_eq!(next().unwrap().len(), 1500);
    assert_eq!(next(), Err(GlobError::TooMany));
    // And never again: a line that is not plain does not become so by a later word.
    assert_eq!(next(), Err(GlobError::TooMany));
}

/// Long paths are as costly as many.
#[test]
fn the_bytes_of_the_paths_are_counted() {
    let scratch = Scratch::new();
    for index in 0..200 {
        scratch.directory(&format!("{}{index:04}", "d".repeat(200)));
    }
    let pattern = format!("*/{}../*/nowhere", "./".repeat(1500));
    assert_eq!(expand(&pattern, scratch.text()), Err(GlobError::TooMany));
}

#[test]
fn a_pattern_of_many_components_is_no_danger() {
    let scratch = Scratch::new();
    scratch.directory("d");
    assert_eq!(
        expand(&"*/../".repeat(500), scratch.text()).unwrap(),
        ["d/../".repeat(500)]
    );
    // Longer than the system takes.
    assert_eq!(
        expand(&"*/../".repeat(10_000), scratch.text()),
        Ok(Vec::new())
    );
    assert_eq!(
        expand(&"../".repeat(20_000), scratch.text()),
        Ok(Vec::new())
    );
    assert_eq!(expand(&"*".repeat(60_000), scratch.text()).unwrap(), ["d"]);
}

#[test]
fn a_result_that_is_not_utf8_is_an_error() {
    let scratch = Scratch::new();
    scratch.file("plain/x", b"", 0o644);
    let odd = scratch.path().join(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(&odd).unwrap();
    assert_eq!(expand("*", scratch.text()), Err(GlobError::NotUtf8));
    assert_eq!(expand("odd?", scratch.text()), Err(GlobError::NotUtf8));
    assert_eq!(expand("p*", scratch.text()).unwrap(), ["plain"]);
    // On the way to nothing it does no harm.
    assert_eq!(expand("*/x", scratch.text()).unwrap(), ["plain/x"]);
    fs::write(odd.join("x"), b"").unwrap();
    assert_eq!(expand("*/x", scratch.text()), Err(GlobError::NotUtf8));
}

#[test]
fn what_cannot_be_listed_is_empty() {
    let scratch = Scratch::new();
    scratch.file("closed/x", b"", 0o644);
    scratch.file("open/x", b"", 0o644);
    set_mode(scratch.at("closed"), 0o311);
    let expected: &[&str] = if is_root() {
        &["closed/x", "open/x"]
    } else {
        &["open/x"]
    };
    assert_eq!(expand("*/*", scratch.text()).unwrap(), expected);
    // Not to be listed, but to be entered.
    assert_eq!(
        expand("*/x", scratch.text()).unwrap(),
        ["closed/x", "open/x"]
    );
    assert_eq!(
        expand("../*/x", &scratch.at("closed")).unwrap(),
        ["../closed/x", "../open/x"]
    );
    assert_eq!(
        expand("*", &scratch.at("closed")).unwrap().len(),
        usize::from(is_root())
    );
}

#[test]
fn a_working_directory_that_is_not_there_is_an_error() {
    let scratch = Scratch::new();
    for cwd in ["relative", "", &scratch.at("nowhere"), "/\0"] {
        assert!(
            matches!(expand("*", cwd), Err(GlobError::Unreadable { .. })),
            "{cwd:?}"
        );
    }
}
