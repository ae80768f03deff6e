//! Packages: what is installed, and that man pages and completions are those of this program. The static binary and the
//! image are made by `tests/run-heavy packaging`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::BINARY;
use testkit::{Machine, finish};

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

fn script(name: &str) -> Command {
    let mut command = Command::new(format!("{PACKAGING}/{name}"));
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/nonexistent");
    command
}

/// Every file below a directory, relative to it.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap();
                found.push(name.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// What a package must hold.
#[track_caller]
fn assert_complete(root: &Path) {
    let all = files(root);
    for expected in [
        "usr/bin/interlock",
        "usr/share/bash-completion/completions/interlock",
        "usr/share/doc/interlock/changelog.gz",
        "usr/share/doc/interlock/copyright",
        "usr/share/fish/vendor_completions.d/interlock.fish",
        "usr/share/man/man1/interlock.1.gz",
        "usr/share/man/man1/interlock-approvals-watch.1.gz",
        "usr/share/man/man1/interlock-security-audit.1.gz",
        "usr/share/zsh/vendor-completions/_interlock",
    ] {
        assert!(
            all.iter().any(|name| name == expected),
            "{expected}: {all:#?}"
        );
    }
    let bash = root.join("usr/share/bash-completion/completions/interlock");
    let bash = fs::read_to_string(bash).unwrap();
    assert!(bash.contains("openclaw") && bash.contains("--dry-run"));
}

#[test]
fn the_package_holds_program_man_pages_and_completions() {
    if !Path::new("/usr/bin/dpkg-deb").exists() {
        println!("skipped: /usr/bin/dpkg-deb is not installed");
        return;
    }
    let machine = Machine::new();
    let mut script = script("build-deb");
    script.arg(BINARY).arg(machine.root());
    let built = finish(script.env("DEB_COMPRESSION", "none"));
    assert_eq!(built.code, 0, "{built:#?}");
    let package = PathBuf::from(built.stdout.trim());
    let name = package.file_name().unwrap().to_str().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(name.starts_with(&format!("interlock_{version}_")), "{name}");
    let dpkg = |arguments: &[&str]| {
        let run = finish(Command::new("/usr/bin/dpkg-deb").args(arguments));
        assert_eq!(run.code, 0, "{run:#?}");
        run.stdout
    };
    let path = package.to_str().unwrap();
    let fields = dpkg(&["--field", path]);
    assert!(fields.contains("Package: interlock\n"), "{fields}");
    // Nothing runs when it is installed, and every file belongs to root.
    let control = machine.root().join("control");
    dpkg(&["--control", path, control.to_str().unwrap()]);
    assert_eq!(files(&control), ["control"]);
    let listed = dpkg(&["--contents", path]);
    for line in listed.lines() {
        assert_eq!(
            line.split_ascii_whitespace().nth(1),
            Some("root/root"),
            "{line}"
        );
        assert!(
            !line.split_ascii_whitespace().next().unwrap()[1..].contains(['s', 'S']),
            "{line}"
        );
    }
    let root = machine.root().join("unpacked");
    dpkg(&["--extract", path, root.to_str().unwrap()]);
    assert_complete(&root);
    let installed = finish(Command::new(root.join("usr/bin/interlock")).arg("version"));
    assert_eq!(installed.stdout, format!("interlock {version}\n"));
}

/// The archive of the image: whose files are whose.
#[test]
fn the_image_is_laid_out_for_an_account_that_is_not_root() {
    let machine = Machine::new();
    // A stand-in for docker keeps what it was given.
    let kept = machine.root().join("kept");
    fs::create_dir(&kept).unwrap();
    let stand_in = format!(
        "#!/bin/sh\necho \"$*\" >{0}/called\nfor context; do :; done\ncp \"$context\"/* {0}/\n",
        kept.display()
    );
    let docker = machine.script("docker", &stand_in);
    let mut script = script("build-image");
    let built = finish(
        script
            .arg(BINARY)
            .arg("interlock:test")
            .env("DOCKER", docker),
    );
    assert_eq!(built.code, 0, "{built:#?}");
    assert_eq!(built.stdout, "interlock:test\n");
    let called = fs::read_to_string(kept.join("called")).unwrap();
    assert!(
        called.starts_with("build --build-arg BASE=scratch --tag interlock:test "),
        "{called}"
    );
    let listed = finish(
        Command::new("/bin/tar")
            .args(["--numeric-owner", "-tvf"])
            .arg(kept.join("rootfs.tar")),
    );
    let line = |name: &str| {
        let mut lines = listed.stdout.lines();
        let line = lines.find(|line| line.ends_with(name));
        line.unwrap_or_else(|| panic!("{name}: {listed:#?}"))
            .to_owned()
    };
    assert!(line(" usr/bin/interlock").starts_with("-rwxr-xr-x 0/0"));
    assert!(line(" var/lib/interlock/").starts_with("drwx------ 65532/65532"));
    assert!(line(" tmp/").starts_with("drwxrwxrwt 0/0"));
    let recipe = fs::read_to_string(kept.join("Dockerfile")).unwrap();
    assert!(recipe.contains("USER 65532:65532"), "{recipe}");
}

#[test]
fn the_readme_names_the_rust_version_of_the_workspace() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let readme = fs::read_to_string(format!("{root}/README.md")).unwrap();
    let version = env!("CARGO_PKG_RUST_VERSION");
    assert!(
        readme.contains(&format!("Rust {version} or newer")),
        "{version}"
    );
    assert!(readme.contains("cargo install --path crates/cli --locked"));
}
