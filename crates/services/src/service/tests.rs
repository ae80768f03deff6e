//! Texts and commands, for both managers; neither is needed for it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::manager::{ManagerWork, ServiceScope};
use super::{FoundUnit, ServiceDefinition, ServiceKind, launchd, name, systemd};

/// Every character that means something to one of the two, or to a shell.
const ODD: &str = r#"/opt/a b/100%/$HOME/${x}/"q"/'s'/back\slash/<&>;#/ü"#;

fn service(path: &str) -> ServiceDefinition {
    ServiceDefinition {
        kind: ServiceKind::Gateway,
        name: "interlock-gateway".to_owned(),
        program: PathBuf::from("/opt/a b/100%/$x/interlock"),
        arguments: vec![
            "--state-dir".into(),
            path.into(),
            "gateway".into(),
            "run".into(),
            "".into(),
        ],
        environment: vec![("HOME", path.into()), ("PATH", "/usr/bin:/bin".into())],
        state_dir: PathBuf::from(path),
    }
}

#[test]
fn a_unit_says_what_runs_and_when_it_is_started_again() {
    let text = systemd::unit(&service("/srv/il"), ServiceScope::System).unwrap();
    for line in [
        r#"ExecStart=:"/opt/a b/100%%/$x/interlock" "--state-dir" "/srv/il" "gateway" "run" """#,
        r#"Environment="HOME=/srv/il""#,
        "Restart=on-failure",
        "RestartPreventExitStatus=78",
        "KillMode=process",
        "Delegate=yes",
        "WantedBy=multi-user.target",
        "After=network-online.target",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    let text = systemd::unit(&service("/srv/il"), ServiceScope::User).unwrap();
    assert!(text.contains("WantedBy=default.target"));
    assert!(!text.contains("network-online"));
}

#[test]
fn odd_paths_stand_in_a_unit_as_systemd_reads_them() {
    let text = systemd::unit(&service("/a b/100%/$x/\"q\"/back\\s"), ServiceScope::User).unwrap();
    assert!(
        text.contains(r#" "--state-dir" "/a b/100%%/$x/\"q\"/back\\s" "gateway" "#),
        "{text}"
    );
    assert!(text.contains(r#"Environment="HOME=/a b/100%%/$x/\"q\"/back\\s""#));
}

#[test]
fn what_would_be_two_lines_or_no_text_is_refused() {
    for path in ["/a\nb", "/a\rb", "/a\tb", "/a\u{7f}b", "/a\u{85}b"] {
        let error = systemd::unit(&service(path), ServiceScope::User).unwrap_err();
        assert!(error.to_string().contains("control characters"), "{error}");
        assert_eq!(launchd::property_list(&service(path)).unwrap_err(), error);
    }
    let mut odd = service("/a");
    odd.arguments.push(OsString::from_vec(vec![0xff]));
    let error = systemd::unit(&odd, ServiceScope::User).unwrap_err();
    assert!(error.to_string().contains("not UTF-8"), "{error}");
    assert!(launchd::property_list(&odd).is_err());
}

#[test]
fn a_program_that_systemd_would_not_start_is_refused() {
    for path in ["/a\"b", "/a'b", "/a\\b"] {
        let mut odd = service("/srv");
        odd.program = PathBuf::from(path);
        let error = systemd::unit(&odd, ServiceScope::User).unwrap_err();
        assert!(
            error.to_string().contains("quotes or backslashes"),
            "{error}"
        );
        assert!(launchd::property_list(&odd).is_ok());
    }
}

/// Asks the program itself, where it is installed.
#[test]
fn systemd_finds_nothing_wrong_with_a_unit() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("a b %h $x 'q' \"d\" back\\s");
    std::fs::create_dir(&home).unwrap();
    let mut service = service(home.to_str().unwrap());
    // It looks whether the program is there.
    let programs = directory.path().join("a b %h $x");
    std::fs::create_dir(&programs).unwrap();
    service.program = programs.join("interlock");
    std::os::unix::fs::symlink("/bin/true", &service.program).unwrap();
    for scope in [ServiceScope::User, ServiceScope::System] {
        let text = systemd::unit(&service, scope).unwrap();
        let file = directory.path().join("interlock-test.service");
        std::fs::write(&file, &text).unwrap();
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]);
        if scope == ServiceScope::User {
            // It wants to know where the manager of a user would be.
            verify.arg("--user");
            verify.env("XDG_RUNTIME_DIR", directory.path());
        }
        let verified = verify.arg(&file).stdin(Stdio::null()).output();
        let Ok(output) = verified else {
            println!("skipped: no systemd-analyze here");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let ours: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("interlock-test"))
            .collect();
        assert!(ours.is_empty(), "{ours:#?}\n{text}");
    }
}

/// Asks Python's reader of property lists, where it is installed: there is no launchd here.
#[test]
fn odd_paths_stand_in_a_property_list_as_others_read_them() {
    let text = launchd::property_list(&service(ODD)).unwrap();
    let script =
        "import plistlib,sys,json; json.dump(plistlib.loads(sys.stdin.buffer.read()), sys.stdout)";
    let child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: no python3 here");
        return;
    };
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["Label"], "dev.interlock.interlock-gateway");
    assert_eq!(
        read["ProgramArguments"],
        serde_json::json!([
            "/opt/a b/100%/$x/interlock",
            "--state-dir",
            ODD,
            "gateway",
            "run",
            ""
        ])
    );
    assert_eq!(read["EnvironmentVariables"]["HOME"], ODD);
    assert_eq!(read["AbandonProcessGroup"], true);
    assert_eq!(
        read["KeepAlive"],
        serde_json::json!({ "SuccessfulExit": false })
    );
    assert_eq!(read["Umask"], 0o077);
}

#[test]
fn each_manager_is_called_in_its_own_words() {
    let shown = |steps: Vec<super::manager::ManagerStep>| -> Vec<String> {
        steps
            .iter()
            .map(super::manager::ManagerStep::shown)
            .collect()
    };
    let of_user = |work| shown(systemd::steps(work, ServiceScope::User, "interlock-node"));
    assert_eq!(
        of_user(ManagerWork::Load),
        [
            "systemctl --user daemon-reload",
            "systemctl --user enable interlock-node.service"
        ]
    );
    assert_eq!(
        of_user(ManagerWork::Unload),
        ["systemctl --user disable --now interlock-node.service"]
    );
    let of_root = shown(systemd::steps(
        ManagerWork::Restart,
        ServiceScope::System,
        "interlock-node",
    ));
    assert_eq!(of_root, ["systemctl restart interlock-node.service"]);
    let file = Path::new("/Users/a b/Library/LaunchAgents/x.plist");
    let launchd = |work, scope| shown(launchd::steps(work, scope, 501, "interlock-node", file));
    assert_eq!(
        launchd(ManagerWork::Start, ServiceScope::User),
        [
            "launchctl bootstrap gui/501 '/Users/a b/Library/LaunchAgents/x.plist'",
            "launchctl kickstart gui/501/dev.interlock.interlock-node"
        ]
    );
    assert_eq!(
        launchd(ManagerWork::Stop, ServiceScope::System),
        ["launchctl bootout system/dev.interlock.interlock-node"]
    );
}

#[test]
fn only_a_file_with_our_mark_is_ours() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.service");
    let found = |kind| {
        FoundUnit::at(&file, kind)
            .map_err(|error| error.to_string())
            .unwrap()
    };
    assert_eq!(found(ServiceKind::Gateway), FoundUnit::Nothing);
    let text = systemd::unit(&service("/srv"), ServiceScope::User).unwrap();
    std::fs::write(&file, &text).unwrap();
    assert_eq!(found(ServiceKind::Gateway), FoundUnit::Interlock(text));
    assert_eq!(found(ServiceKind::Node), FoundUnit::Foreign);
    std::fs::write(&file, "[Service]\nExecStart=/bin/true\n").unwrap();
    assert_eq!(found(ServiceKind::Gateway), FoundUnit::Foreign);
    std::fs::remove_file(&file).unwrap();
    // How systemd masks a unit.
    std::os::unix::fs::symlink("/dev/null", &file).unwrap();
    assert_eq!(found(ServiceKind::Gateway), FoundUnit::Foreign);
}

#[test]
fn every_state_directory_has_a_service_of_its_own() {
    let one = name(ServiceKind::Gateway, Path::new("/srv/one"));
    let other = name(ServiceKind::Gateway, Path::new("/srv/other"));
    assert_ne!(one, other);
    assert_eq!(one, name(ServiceKind::Gateway, Path::new("/srv/one")));
    assert!(one.starts_with("interlock-gateway-"), "{one}");
    assert!(name(ServiceKind::Node, Path::new("/srv/one")).starts_with("interlock-node-"));
}

fn companion(path: &str) -> ServiceDefinition {
    ServiceDefinition {
        kind: ServiceKind::Companion,
        name: "interlock-companion".to_owned(),
        arguments: vec!["--state-dir".into(), path.into(), "companion".into()],
        ..service(path)
    }
}

#[test]
fn the_companion_starts_and_ends_with_the_desktop() {
    let text = systemd::unit(&companion("/home/ada/.interlock"), ServiceScope::User).unwrap();
    for line in [
        "After=graphical-session.target",
        "PartOf=graphical-session.target",
        "WantedBy=graphical-session.target",
        "Restart=on-failure",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(!text.contains("default.target"), "{text}");
}

#[test]
fn odd_paths_stand_in_an_autostart_entry_as_desktops_read_them() {
    let text = super::autostart::entry(&companion(r#"/a b/50%/$x/"q"/`t`/b\s"#)).unwrap();
    assert!(
        text.contains(r#" "--state-dir" "/a b/50%%/\\$x/\\"q\\"/\\`t\\`/b\\\\s" "companion""#),
        "{text}"
    );
    assert!(super::autostart::entry(&companion("/a\nExec=evil")).is_err());
}
