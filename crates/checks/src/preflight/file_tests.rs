#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use interlock_command::{Host, analyse};
use interlock_plan::FsResolver;
use tempfile::TempDir;

use super::*;

fn analysis(text: &str, cwd: &Path) -> Analysis {
    let resolver = FsResolver::from_path_value("/usr/bin:/bin", None);
    let host = Host {
        resolver: &resolver,
        trusted_dirs: &["/usr/bin".to_owned(), "/bin".to_owned()],
    };
    let source = Source::Text(text.to_owned());
    analyse(source, cwd.to_str().unwrap(), host).unwrap()
}

#[test]
fn the_file_that_would_run_is_the_one_that_is_checked() {
    let scratch = TempDir::new().unwrap();
    let work = scratch.path().join("work");
    fs::create_dir_all(work.join("sub")).unwrap();
    let write = |name: &str, text: &str| fs::write(work.join(name), text).unwrap();
    write("bad.py", "import os\nprint($HOME)\n");
    write("bad.js", "console.log($HOME)\n");
    write("good.py", "print('$HOME')\n");
    write("sub/bad.py", "\n\n\nprint($HOME)\n");
    write("bad.txt", "print($HOME)\n");
    write("a b.py", "print($HOME)\n");
    let found = |text: &str| preflight(&analysis(text, &work)).map(|mistake| mistake.to_string());
    for (text, expected) in [
        ("python bad.py", Some("bad.py:2: ")),
        ("python3 ./bad.py --flag", Some("./bad.py:2: ")),
        ("python3.11 -u -X dev bad.py", Some("bad.py:2: ")),
        ("python3 -W ignore -- bad.py", Some("bad.py:2: ")),
        ("pypy3 bad.py", Some("bad.py:2: ")),
        ("/usr/bin/python3 bad.py", Some("bad.py:2: ")),
        ("env python3 bad.py", Some("bad.py:2: ")),
        ("A=1 timeout 5 python3 bad.py", Some("bad.py:2: ")),
        ("sudo python3 bad.py", Some("bad.py:2: ")),
        ("cd sub && python3 bad.py", Some("bad.py:4: ")),
        (
            "python3 good.py; python3 sub/bad.py",
            Some("sub/bad.py:4: "),
        ),
        ("python3 'a b.py' | cat", Some("a b.py:1: ")),
        ("bash -c 'python3 bad.py'", Some("bad.py:2: ")),
        ("X=$(date) python3 bad.py", Some("bad.py:2: ")),
        ("python3 bad.py > $OUT", Some("bad.py:2: ")),
        ("node bad.js", Some("bad.js:1: ")),
        ("nodejs --no-warnings --title x bad.js", Some("bad.js:1: ")),
        ("python3 good.py", None),
        ("python3 missing.py", None),
        ("python3 bad.txt", None),
        ("python3 -c 'print($HOME)' bad.py", None),
        ("python3 -m bad bad.py", None),
        ("python3 - bad.py", None),
        ("python3 good.py bad.py", None),
        ("node -e 1 bad.js", None),
        ("node -r bad.js good.js", None),
        ("cat bad.py", None),
        ("echo python3 bad.py", None),
        ("cd $X; python3 bad.py", None),
        ("node bad.py", None),
    ] {
        let answer = found(text);
        assert_eq!(
            answer
                .as_deref()
                .map(|answer| expected.is_some_and(|start| answer.starts_with(start))),
            expected.map(|_| true),
            "{text}: {answer:?}"
        );
    }
}

#[test]
fn files_outside_large_ones_and_what_is_no_text_are_skipped() {
    let scratch = TempDir::new().unwrap();
    let (work, outside) = (scratch.path().join("work"), scratch.path().join("outside"));
    fs::create_dir_all(&work).unwrap();
    fs::create_dir_all(&outside).unwrap();
    let bad = "print($HOME)\n";
    fs::write(outside.join("bad.py"), bad).unwrap();
    fs::write(work.join("inside.py"), bad).unwrap();
    let link =
        |target: &Path, name: &str| std::os::unix::fs::symlink(target, work.join(name)).unwrap();
    link(&outside.join("bad.py"), "out.py");
    link(&outside, "dir");
    link(&work.join("inside.py"), "in.py");
    let size = usize::try_from(MAX_BYTES).unwrap();
    fs::write(
        work.join("full.py"),
        bad.to_owned() + &"#".repeat(size - bad.len()),
    )
    .unwrap();
    fs::write(
        work.join("large.py"),
        bad.to_owned() + &"#".repeat(size + 1 - bad.len()),
    )
    .unwrap();
    fs::write(work.join("latin.py"), b"print($HOME) # \xe9\n").unwrap();
    fs::write(work.join("nul.py"), b"print($HOME)\0\n").unwrap();
    fs::create_dir(work.join("folder.py")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        work.join("pipe.py"),
        rustix::fs::FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .unwrap();
    let absolute = outside.join("bad.py");
    for (name, is_found) in [
        ("inside.py", true),
        ("in.py", true),
        ("dir/../work/inside.py", true),
        ("full.py", true),
        ("large.py", false),
        ("out.py", false),
        ("dir/bad.py", false),
        ("../outside/bad.py", false),
        (absolute.to_str().unwrap(), false),
        ("latin.py", false),
        ("nul.py", false),
        ("folder.py", false),
        ("pipe.py", false),
    ] {
        let mistake = preflight(&analysis(&format!("python3 {name}"), &work));
        assert_eq!(mistake.is_some(), is_found, "{name}: {mistake:?}");
    }
    // The working directory may be a link.
    let through = scratch.path().join("through");
    std::os::unix::fs::symlink(&work, &through).unwrap();
    assert!(preflight(&analysis("python3 inside.py", &through)).is_some());
}
