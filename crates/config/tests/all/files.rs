//! The state directory and the config file on a real file system, with real processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use interlock_config::{ConfigError, ConfigFile, EditError, KeyPath, StateDir, StateEnvironment};
use serde_json::json;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn environment(state: &str, xdg: &str, home: &str) -> StateEnvironment {
    let set = |value: &str| (value != "-").then(|| OsString::from(value));
    StateEnvironment {
        interlock_state_dir: set(state),
        xdg_state_home: set(xdg),
        home: set(home),
    }
}

#[test]
fn the_state_directory_is_found_by_the_first_place_that_is_set() {
    let table = [
        (
            Some("/explicit"),
            environment("/state", "/xdg", "/home/u"),
            "/explicit",
        ),
        (None, environment("/state", "/xdg", "/home/u"), "/state"),
        (None, environment("", "/xdg", "/home/u"), "/xdg/interlock"),
        (
            None,
            environment("-", "relative", "/home/u"),
            "/home/u/.interlock",
        ),
        (None, environment("-", "", "/home/u"), "/home/u/.interlock"),
    ];
    for (explicit, environment, expected) in table {
        let found = StateDir::locate(explicit.map(Path::new), &environment).unwrap();
        assert_eq!(found, PathBuf::from(expected), "{environment:?}");
    }
    let relative = StateDir::locate(Some(Path::new("x")), &environment("-", "-", "-")).unwrap();
    assert_eq!(relative, std::env::current_dir().unwrap().join("x"));
    for nowhere in [
        environment("-", "-", "-"),
        environment("", "", ""),
        environment("-", "-", "home"),
    ] {
        assert_eq!(
            StateDir::locate(None, &nowhere).unwrap_err().code(),
            "STATE_DIR_UNKNOWN"
        );
    }
}

#[test]
fn a_new_state_directory_is_private() {
    let parent = directory();
    let path = parent.path().join("a/b");
    let state = StateDir::open(Some(&path), &StateEnvironment::default()).unwrap();
    assert_eq!((state.path(), mode(&path)), (path.as_path(), 0o700));
    assert_eq!(state.config_path(), path.join("interlock.json"));
    assert_eq!(
        StateDir::open(Some(&path), &StateEnvironment::default()).unwrap(),
        state
    );
}

#[test]
fn a_state_directory_that_others_can_write_is_refused_with_the_command_that_helps() {
    let parent = directory();
    for (bits, writers) in [
        (0o770, "its group"),
        (0o702, "every user"),
        (0o1777, "its group and every user"),
    ] {
        let path = parent.path().join(format!("it's {bits:o}"));
        std::fs::create_dir(&path).unwrap();
        set_mode(&path, bits);
        let error = StateDir::open(Some(&path), &StateEnvironment::default()).unwrap_err();
        assert_eq!(error.code(), "STATE_DIR_UNSAFE");
        let expected = format!(
            "state directory {} can be written by {writers} (mode {bits:04o})",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
        // The remedy is a real command: a shell runs it, and then all is well.
        assert!(
            Command::new("sh")
                .args(["-c", &error.remedy()])
                .status()
                .unwrap()
                .success()
        );
        StateDir::open(Some(&path), &StateEnvironment::default()).unwrap();
    }
    let path = parent.path().join("readable");
    std::fs::create_dir(&path).unwrap();
    set_mode(&path, 0o755);
    StateDir::open(Some(&path), &StateEnvironment::default()).unwrap();
}

#[test]
fn a_state_directory_of_another_user_is_refused() {
    if !is_root() {
        println!("skipped: only root can give a directory to another user");
        return;
    }
    let parent = directory();
    let path = parent.path().join("theirs");
    std::fs::create_dir(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
    let error = StateDir::open(Some(&path), &StateEnvironment::default()).unwrap_err();
    assert_eq!(error.code(), "STATE_DIR_UNSAFE");
    assert!(
        error
            .to_string()
            .ends_with("belongs to user 12345, not to user 0"),
        "{error}"
    );
    assert!(
        error.remedy().starts_with("name a directory of your own"),
        "{}",
        error.remedy()
    );
}

#[test]
fn a_file_in_the_place_of_the_state_directory_is_refused() {
    let parent = directory();
    let path = parent.path().join("file");
    std::fs::write(&path, "").unwrap();
    let error = StateDir::open(Some(&path), &StateEnvironment::default()).unwrap_err();
    assert_eq!(error.code(), "STATE_DIR_UNSAFE");
    let below = StateDir::open(Some(&path.join("x")), &StateEnvironment::default()).unwrap_err();
    assert_eq!(below.code(), "STATE_DIR_UNREADABLE");
}

#[test]
fn a_state_directory_that_cannot_be_read_or_made_is_reported() {
    if is_root() {
        println!("skipped: root can read and write everything");
        return;
    }
    let parent = directory();
    let path = parent.path().join("closed");
    std::fs::create_dir(&path).unwrap();
    set_mode(&path, 0o000);
    let error = StateDir::open(Some(&path), &StateEnvironment::default()).unwrap_err();
    assert_eq!(error.code(), "STATE_DIR_UNREADABLE");
    set_mode(parent.path(), 0o500);
    let error = StateDir::open(
        Some(&parent.path().join("new")),
        &StateEnvironment::default(),
    )
    .unwrap_err();
    assert_eq!(error.code(), "STATE_DIR_NOT_CREATED");
    set_mode(parent.path(), 0o700);
}

fn path(text: &str) -> KeyPath {
    KeyPath::parse(text).unwrap()
}

#[test]
fn a_missing_file_is_an_empty_config_and_is_not_created_by_loading() {
    let directory = directory();
    let file = directory.path().join("interlock.json");
    assert_eq!(
        *ConfigFile::load(&file).unwrap().config(),
        interlock_config::Config::default()
    );
    assert!(!file.exists());
}

#[test]
fn an_edit_keeps_comments_and_makes_the_file_private() {
    let directory = directory();
    let file = directory.path().join("interlock.json");
    std::fs::write(&file, "// mine\n{\n  gateway: { port: 1 }, // one\n}\n").unwrap();
    set_mode(&file, 0o644);
    let edited =
        ConfigFile::edit(&file, |text| text.set(&path("gateway.port"), &json!(2))).unwrap();
    assert_eq!(edited.config().gateway.port, Some(2));
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "// mine\n{\n  gateway: { port: 2 }, // one\n}\n"
    );
    assert_eq!(mode(&file), 0o600);
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "only the file and its lock: {names:?}");
}

#[test]
fn a_first_edit_creates_the_file() {
    let directory = directory();
    let file = directory.path().join("interlock.json");
    ConfigFile::edit(&file, |text| {
        text.set(&path("agents.list[0]"), &json!({"id": "main"}))
    })
    .unwrap();
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "{\n  agents: {\n    list: [\n      {\n        id: \"main\"\n      }\n    ]\n  }\n}\n"
    );
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn what_does_not_validate_is_not_written() {
    let directory = directory();
    let file = directory.path().join("interlock.json");
    std::fs::write(&file, "{ gateway: { port: 1 } }").unwrap();
    let inode = std::fs::metadata(&file).unwrap().ino();
    let edits: [(&str, _); 3] = [
        ("gateway.port", json!("x")),
        ("gatewya.port", json!(1)),
        ("gateway.port", json!(0)),
    ];
    for (at, value) in edits {
        let error = ConfigFile::edit(&file, |text| text.set(&path(at), &value)).unwrap_err();
        assert!(matches!(error, ConfigError::Invalid(_)), "{error}");
    }
    let refused =
        ConfigFile::edit(&file, |text| text.set(&path("gateway.port.x"), &json!(1))).unwrap_err();
    assert!(
        matches!(refused, ConfigError::Edit(EditError::NotAnObject { .. })),
        "{refused}"
    );
    ConfigFile::edit(&file, |_| Ok(())).unwrap();
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "{ gateway: { port: 1 } }"
    );
    assert_eq!(std::fs::metadata(&file).unwrap().ino(), inode);
}

#[test]
fn a_file_that_does_not_validate_can_be_repaired() {
    let directory = directory();
    let file = directory.path().join("interlock.json");
    std::fs::write(&file, "{ gatewya: {}, commands: {} }").unwrap();
    assert_eq!(ConfigFile::load(&file).unwrap_err().code(), "UNKNOWN_KEY");
    ConfigFile::edit(&file, |text| text.unset(&path("gatewya")).map(|_| ())).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{ commands: {} }");
}

#[test]
fn files_that_are_no_config_are_refused() {
    let directory = directory();
    let file = directory.path().join("interlock.json");
    let large = vec![b' '; 5 * 1024 * 1024];
    let table: [(&[u8], &str); 5] = [
        (b"", "JSON5_SYNTAX"),
        (b"{\0}", "JSON5_SYNTAX"),
        (b"{ a: '\xff' }", "NOT_UTF8"),
        (b"[]", "WRONG_TYPE"),
        (&large, "TEXT_TOO_LARGE"),
    ];
    for (bytes, code) in table {
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(ConfigFile::load(&file).unwrap_err().code(), code);
        assert_eq!(
            ConfigFile::edit(&file, |_| Ok(())).unwrap_err().code(),
            code
        );
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
    }
    assert_eq!(
        ConfigFile::load(directory.path()).unwrap_err().code(),
        "CONFIG_UNREADABLE"
    );
    assert_eq!(
        ConfigFile::load(Path::new("/dev/zero")).unwrap_err().code(),
        "CONFIG_UNREADABLE"
    );
    let pipe = directory.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(
        ConfigFile::load(&pipe).unwrap_err().code(),
        "CONFIG_UNREADABLE"
    );
}

#[test]
fn a_link_is_followed_and_stays_a_link() {
    let directory = directory();
    let (file, link) = (
        directory.path().join("real.json"),
        directory.path().join("interlock.json"),
    );
    std::fs::write(&file, "{}").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    ConfigFile::edit(&link, |text| text.set(&path("gateway.port"), &json!(2))).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        ConfigFile::load(&file).unwrap().config().gateway.port,
        Some(2)
    );
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_and_nothing_changes() {
    let directory = directory();
    let file = directory.path().join("interlock.json");
    std::fs::write(&file, "{}").unwrap();
    set_mode(directory.path(), 0o500);
    if std::fs::write(directory.path().join("probe"), "").is_ok() {
        println!("skipped: this user can write into read-only directories (root)");
        return;
    }
    let error =
        ConfigFile::edit(&file, |text| text.set(&path("gateway.port"), &json!(2))).unwrap_err();
    assert_eq!(error.code(), "CONFIG_UNWRITABLE");
    assert!(error.remedy().unwrap().contains("ls -ld"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}");
}

const WORKER: &str = "INTERLOCK_CONFIG_TEST_WORKER";

fn count_up(file: &Path) {
    ConfigFile::edit(file, |text| {
        let port = text
            .get(&path("gateway.port"))
            .and_then(|port| port.as_u64())
            .unwrap_or(0);
        text.set(&path("gateway.port"), &json!(port + 1))
    })
    .unwrap();
}

/// Not a test of its own: the body of the processes that the next test starts.
#[test]
fn worker_process() {
    if let Some(file) = std::env::var_os(WORKER) {
        (0..10).for_each(|_| count_up(Path::new(&file)));
    }
}

#[test]
fn two_writers_never_lose_an_update() {
    let directory = directory();
    let file = directory.path().join("interlock.json");
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "files::worker_process"])
            .env(WORKER, &file);
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut workers: Vec<_> = (0..3).map(|_| start()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..10).for_each(|_| count_up(&file)));
        // A reader never sees half a file.
        while workers
            .iter_mut()
            .any(|worker| worker.try_wait().unwrap().is_none())
        {
            ConfigFile::load(&file).unwrap();
        }
    });
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(
        ConfigFile::load(&file).unwrap().config().gateway.port,
        Some(40)
    );
}
