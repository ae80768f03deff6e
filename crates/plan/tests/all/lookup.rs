//! Which file is it? Names through PATH, paths against a working directory, kinds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{Scratch, is_root, set_mode};
use interlock_plan::{FsResolver, MAX_HASHED_BYTES};
use interlock_programs::{Executable, FileKind, Lookup, Missing, Resolver};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

const ELF: &[u8] = b"\x7fELF\x02\x01\x01\0";
const SCRIPT: &[u8] = b"#!/bin/sh\n";

fn resolver(path: &[&str]) -> FsResolver {
    FsResolver::new(path.iter().map(|directory| (*directory).to_owned()), None)
}

fn found(lookup: Lookup) -> Executable {
    match lookup {
        Lookup::Found(executable) => executable,
        Lookup::Missing(missing) => panic!("{missing:?}"),
    }
}

fn missing(lookup: Lookup) -> Missing {
    match lookup {
        Lookup::Missing(missing) => missing,
        Lookup::Found(executable) => panic!("{executable:?}"),
    }
}

#[test]
fn the_same_holds_for_an_ordinary_user() {
    crate::support::run_again_as_ordinary_user(
        module_path!(),
        "the_same_holds_for_an_ordinary_user",
    );
}

#[test]
fn a_bare_name_is_the_first_executable_in_path() {
    let scratch = Scratch::new();
    let (empty, first, second) = (
        scratch.directory("empty"),
        scratch.directory("first"),
        scratch.directory("second"),
    );
    scratch.file("first/tool", ELF, 0o755);
    scratch.file("second/tool", SCRIPT, 0o755);
    let resolver = resolver(&[&empty, "/nowhere/at/all", &first, &second]);
    assert_eq!(
        resolver.executable("tool", "/"),
        Lookup::Found(Executable {
            found: format!("{first}/tool"),
            canonical: format!("{first}/tool"),
            kind: FileKind::Native,
            protected: false,
            mutable: true,
        })
    );
}

#[test]
fn what_cannot_be_executed_is_passed_over() {
    let scratch = Scratch::new();
    let path: Vec<String> = ["plain", "directory", "fifo", "dangling", "last"]
        .map(|name| scratch.directory(name))
        .to_vec();
    scratch.file("plain/tool", ELF, 0o644);
    scratch.directory("directory/tool");
    make_fifo(&scratch.at("fifo/tool"));
    scratch.link("dangling/tool", "nowhere");
    scratch.file("last/tool", ELF, 0o755);
    let all = FsResolver::new(path.clone(), None);
    assert_eq!(
        found(all.executable("tool", "/")).found,
        scratch.at("last/tool")
    );
    let without_last = FsResolver::new(path[..4].to_vec(), None);
    assert_eq!(
        missing(without_last.executable("tool", "/")),
        Missing::NotExecutable(scratch.at("plain/tool"))
    );
    let without_plain = FsResolver::new(path[1..4].to_vec(), None);
    assert_eq!(
        missing(without_plain.executable("tool", "/")),
        Missing::NotFound
    );
}

fn make_fifo(path: &str) {
    let status = std::process::Command::new("mkfifo")
        .args(["-m", "0777", path])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn empty_and_relative_path_elements_are_never_searched() {
    let scratch = Scratch::new();
    let bin = scratch.directory("bin");
    scratch.file("here", ELF, 0o755);
    scratch.file("bin/there", ELF, 0o755);
    let resolver = FsResolver::from_path_value(&format!(":.:./bin:bin:..:{bin}::~/bin:"), None);
    assert_eq!(resolver.path(), [bin]);
    assert_eq!(
        missing(resolver.executable("here", scratch.text())),
        Missing::NotFound
    );
    found(resolver.executable("there", "/"));
    assert_eq!(FsResolver::from_path_value("", None).path(), [""; 0]);
}

#[test]
fn a_name_with_a_slash_is_never_searched_in_path() {
    let scratch = Scratch::new();
    let bin = scratch.directory("bin");
    scratch.file("bin/sub/tool", ELF, 0o755);
    let resolver = resolver(&[&bin]);
    assert_eq!(
        missing(resolver.executable("sub/tool", "/")),
        Missing::NotFound
    );
    assert_eq!(
        missing(resolver.executable("tool", &scratch.at("bin/sub"))),
        Missing::NotFound
    );
}

#[test]
fn the_path_as_found_is_absolute_and_keeps_only_parent_components() {
    let scratch = Scratch::new();
    let tool = scratch.file("bin/tool", ELF, 0o755);
    scratch.directory("other");
    let root = scratch.text();
    let rows = [
        ("./tool", "bin", format!("{root}/bin/tool")),
        (".//././tool", "bin/", format!("{root}/bin/tool")),
        ("bin/tool", "", format!("{root}/bin/tool")),
        ("../bin/tool", "other", format!("{root}/other/../bin/tool")),
        (
            "./../bin/tool",
            "other",
            format!("{root}/other/../bin/tool"),
        ),
        (tool.as_str(), "nowhere", tool.clone()),
    ];
    for (name, cwd, expected) in rows {
        let executable = found(resolver(&[]).executable(name, &scratch.at(cwd)));
        assert_eq!(
            (executable.found, executable.canonical),
            (expected, tool.clone()),
            "{name} in {cwd}"
        );
    }
}

#[test]
fn links_are_followed_as_the_kernel_does() {
    let scratch = Scratch::new();
    let tool = scratch.file("real/deep/tool", ELF, 0o755);
    scratch.link("direct", "real/deep/tool");
    scratch.link("absolute", &tool);
    scratch.link("chain", "./absolute");
    scratch.link("folder", "real/deep");
    scratch.link("real/up", "../folder/../deep/./tool");
    scratch.link("top", "/");
    let through_top = format!("top{}/direct", scratch.text());
    for name in [
        "direct",
        "absolute",
        "chain",
        "folder/tool",
        // The parent of the link's target, not of the link.
        "folder/../deep/tool",
        "real/up",
        &through_top,
    ] {
        let executable = found(resolver(&[]).executable(&format!("./{name}"), scratch.text()));
        assert_eq!(executable.canonical, tool, "{name}");
        assert_eq!(executable.found, scratch.at(name), "{name}");
        assert_eq!(executable.kind, FileKind::Native);
        let by_the_library = fs::canonicalize(scratch.at(name)).unwrap();
        assert_eq!(by_the_library.to_str(), Some(tool.as_str()), "{name}");
    }
    assert_eq!(
        missing(resolver(&[]).executable("./folder/../tool", scratch.text())),
        Missing::NotFound
    );
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let scratch = Scratch::new();
    scratch.file("link0", ELF, 0o755);
    for index in 1..=41 {
        scratch.link(&format!("link{index}"), &format!("link{}", index - 1));
    }
    scratch.link("loop", "loop");
    let executable = found(resolver(&[]).executable("./link40", scratch.text()));
    assert_eq!(executable.canonical, scratch.at("link0"));
    for name in ["link41", "loop"] {
        assert_eq!(
            missing(resolver(&[]).executable(&format!("./{name}"), scratch.text())),
            Missing::Unreadable {
                path: scratch.at(name),
                reason: "too many symbolic links".to_owned()
            }
        );
    }
}

#[test]
fn names_that_cannot_be_files_are_missing() {
    let scratch = Scratch::new();
    scratch.file("tool", ELF, 0o755);
    scratch.link("to-a-file-as-a-directory", "tool/");
    let resolver = resolver(&[scratch.text()]);
    let long = "x".repeat(300);
    let endless = "x/".repeat(3000);
    for name in ["", "\0", "tool\0", "./tool\0", ".", "..", "tool ", &long] {
        assert_eq!(
            missing(resolver.executable(name, scratch.text())),
            Missing::NotFound,
            "{name:?}"
        );
    }
    for name in [
        "./tool/",
        "./tool/.",
        "./tool/..",
        "./tool/x",
        "./to-a-file-as-a-directory",
    ] {
        let expected = Missing::NotFound;
        assert_eq!(
            missing(resolver.executable(name, scratch.text())),
            expected,
            "{name}"
        );
        assert_eq!(
            missing(resolver.file(name, scratch.text())),
            expected,
            "{name}"
        );
    }
    assert_eq!(
        missing(resolver.executable("./tool", "relative")),
        Missing::NotFound
    );
    assert!(matches!(
        missing(resolver.executable(&endless, "/")),
        Missing::Unreadable { .. }
    ));
}

#[test]
fn only_a_regular_file_is_a_file() {
    let scratch = Scratch::new();
    scratch.directory("directory");
    make_fifo(&scratch.at("fifo"));
    scratch.link("null", "/dev/null");
    let resolver = resolver(&[]);
    for name in ["directory", "directory/", "fifo", "null"] {
        let name = format!("./{name}");
        let expected = Missing::NotAFile(scratch.at(&name[2..]));
        assert_eq!(missing(resolver.file(&name, scratch.text())), expected);
        assert_eq!(
            missing(resolver.executable(&name, scratch.text())),
            expected
        );
    }
}

#[test]
fn a_file_operand_need_not_be_executable_and_is_never_searched() {
    let scratch = Scratch::new();
    let script = scratch.file("script.sh", b"echo hello\n", 0o644);
    let resolver = resolver(&[scratch.text()]);
    let executable = found(resolver.file("script.sh", scratch.text()));
    assert_eq!(executable.found, script);
    assert_eq!(executable.kind, FileKind::Unknown);
    assert_eq!(missing(resolver.file("script.sh", "/")), Missing::NotFound);
    assert_eq!(
        missing(resolver.file("", scratch.text())),
        Missing::NotFound
    );
    assert_eq!(
        missing(resolver.executable("./script.sh", scratch.text())),
        Missing::NotExecutable(script)
    );
}

#[test]
fn the_kind_comes_from_the_content() {
    let scratch = Scratch::new();
    let resolver = resolver(&["/usr/bin", "/bin"]);
    for (content, kind) in [
        (ELF, FileKind::Native),
        (SCRIPT, FileKind::Script),
        (b"echo hello\n", FileKind::Unknown),
        (b"", FileKind::Unknown),
    ] {
        scratch.file("tool.exe", content, 0o755);
        assert_eq!(
            found(resolver.executable("./tool.exe", scratch.text())).kind,
            kind
        );
    }
    assert_eq!(
        found(resolver.executable("env", "/")).kind,
        FileKind::Native
    );
    let this = std::env::current_exe().unwrap();
    let this = found(resolver.executable(this.to_str().unwrap(), "/"));
    assert_eq!(this.kind, FileKind::Native);
}

#[test]
fn execution_is_decided_for_the_effective_user() {
    let scratch = Scratch::new();
    let resolver = resolver(&[]);
    let tool = scratch.file("tool", ELF, 0o011);
    let lookup = resolver.executable("./tool", scratch.text());
    if is_root() {
        // Any bit will do.
        assert_eq!(found(lookup).kind, FileKind::Native);
        set_mode(&tool, 0o666);
        assert_eq!(
            missing(resolver.executable("./tool", scratch.text())),
            Missing::NotExecutable(tool)
        );
    } else {
        assert_eq!(missing(lookup), Missing::NotExecutable(tool));
    }
}

#[test]
fn a_file_that_may_be_executed_but_not_read_is_of_unknown_kind() {
    let scratch = Scratch::new();
    scratch.file("tool", ELF, 0o111);
    let executable = found(resolver(&[]).executable("./tool", scratch.text()));
    let expected = if is_root() {
        FileKind::Native
    } else {
        FileKind::Unknown
    };
    assert_eq!(executable.kind, expected);
}

#[test]
fn a_directory_that_cannot_be_entered_is_passed_over_in_path_only() {
    if is_root() {
        return;
    }
    let scratch = Scratch::new();
    let (closed, open) = (scratch.directory("closed"), scratch.directory("open"));
    scratch.file("closed/tool", ELF, 0o755);
    scratch.file("open/tool", ELF, 0o755);
    set_mode(&closed, 0o600);
    let resolver = resolver(&[&closed, &open]);
    assert_eq!(
        found(resolver.executable("tool", "/")).found,
        format!("{open}/tool")
    );
    assert_eq!(
        missing(resolver.executable("closed/tool", scratch.text())),
        Missing::Unreadable {
            path: format!("{closed}/tool"),
            reason: "permission denied".to_owned()
        }
    );
    assert_eq!(
        missing(resolver.executable("other", "/")),
        Missing::NotFound
    );
}

#[test]
fn a_canonical_path_that_is_not_utf8_is_said_so() {
    let scratch = Scratch::new();
    let odd = scratch.path().join(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(&odd).unwrap();
    fs::copy(scratch.file("tool", ELF, 0o755), odd.join("tool")).unwrap();
    std::os::unix::fs::symlink(&odd, scratch.at("link")).unwrap();
    let resolver = resolver(&[]);
    assert_eq!(
        missing(resolver.executable("link/tool", scratch.text())),
        Missing::NotUtf8
    );
    assert_eq!(
        missing(resolver.file("link/tool", scratch.text())),
        Missing::NotUtf8
    );
    assert_eq!(resolver.directory("link", scratch.text()), None);
}

/// The links in `/proc/self/fd` lead to open files; their text is only a description.
#[test]
#[cfg(target_os = "linux")]
fn a_link_whose_text_is_not_where_it_leads_is_refused() {
    let scratch = Scratch::new();
    let tool = scratch.file("tool", ELF, 0o755);
    let open = fs::File::open(&tool).unwrap();
    let link = format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd());
    let resolver = resolver(&[]);
    assert_eq!(found(resolver.executable(&link, "/")).canonical, tool);
    fs::remove_file(&tool).unwrap();
    assert!(matches!(
        missing(resolver.executable(&link, "/")),
        Missing::Unreadable { .. }
    ));
    scratch.file("tool (deleted)", SCRIPT, 0o755);
    assert_eq!(
        missing(resolver.executable(&link, "/")),
        Missing::Unreadable {
            path: link.clone(),
            reason: "its links do not lead to the file that the system opens".to_owned()
        }
    );
}

#[test]
fn content_is_read_whole_or_not_at_all() {
    let scratch = Scratch::new();
    let resolver = resolver(&[]);
    let sha256 = |name: &str| {
        let path = scratch.path().join(name).display().to_string();
        resolver.content_sha256(&Executable {
            found: path.clone(),
            canonical: path,
            kind: FileKind::Script,
            protected: false,
            mutable: true,
        })
    };
    fs::write(scratch.path().join("a"), "abc").unwrap();
    assert_eq!(
        sha256("a").as_deref(),
        Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    );
    assert_eq!(sha256("nothing"), None);
    fs::create_dir(scratch.path().join("directory")).unwrap();
    assert_eq!(sha256("directory"), None);
    // A link is another file: the canonical path leads to none.
    std::os::unix::fs::symlink("a", scratch.path().join("link")).unwrap();
    assert_eq!(sha256("link"), None);
    let large = fs::File::create(scratch.path().join("large")).unwrap();
    large.set_len(16 << 20).unwrap();
    assert!(sha256("large").is_some());
    large.set_len(MAX_HASHED_BYTES + 1).unwrap();
    assert_eq!(sha256("large"), None);
    // The size of these says nothing, and reading would never end.
    assert_eq!(
        resolver.content_sha256(&Executable {
            found: "/dev/zero".to_owned(),
            canonical: "/dev/zero".to_owned(),
            kind: FileKind::Script,
            protected: false,
            mutable: true,
        }),
        None
    );
}
