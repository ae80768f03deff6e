//! What exec refuses besides the judge: before anything runs, with a stable code and a way out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use interlock_command::Source;
use interlock_host::{ExecError, ExecRequest, LocalHost, OpenOptions, RequestedPlace, Yield};
use interlock_plan::PlanStdin;
use interlock_policy::{AgentId, Ask, Preset, Security};
use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use tempfile::TempDir;

struct World {
    scratch: TempDir,
    host: LocalHost,
}

impl World {
    /// Everything may run, but misses are asked about: not quite open.
    fn new(config: &str) -> Self {
        let scratch = TempDir::new().unwrap();
        fs::create_dir(scratch.path().join("work")).unwrap();
        let config_path = scratch.path().join("interlock.json");
        fs::write(&config_path, config).unwrap();
        let options = OpenOptions {
            state_dir: Some(scratch.path().join("state")),
            config: Some(config_path),
            path: Some("/usr/bin:/bin".to_owned()),
            ..OpenOptions::default()
        };
        let (host, _) = LocalHost::open(options).unwrap();
        host.rules().apply_preset(Preset::Yolo).unwrap();
        Self { scratch, host }
    }

    fn work(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).unwrap();
    }

    /// There is no supervisor here: what gets as far as that was not refused, and does not run.
    #[track_caller]
    fn refused(&self, text: &str, ask: Option<Ask>) -> (String, Option<String>) {
        let request = ExecRequest {
            agent: &AgentId::default(),
            config: None,
            caller: &interlock_host::NO_CALLER_CONTEXT,
            source: Source::Text(text.to_owned()),
            cwd: self.work().to_str().unwrap().to_owned(),
            env: BTreeMap::new(),
            ask,
            gateway: None,
            timeout_seconds: Some(60),
            base_env: &BTreeMap::new(),
            session_key: None,
            pty: None,
            stdin: PlanStdin::Null,
            yields: Yield::Never,
            show_chars: None,
            requester: "test",
            runs_later: false,
            place: RequestedPlace::default(),
        };
        let supervisor = SupervisorClient::new(SupervisorPaths::new(self.host.state_dir()), "none");
        let error: ExecError = self.host.exec(&request, &supervisor).unwrap_err();
        (error.code().to_owned(), error.remedy())
    }

    fn marker(&self) -> bool {
        self.work().join("marker").exists()
    }
}

#[test]
fn a_script_with_shell_syntax_is_reported_before_anybody_is_asked_unless_all_is_open() {
    let world = World::new("{}");
    world.write("bad.py", "open('marker', 'w')\nprint($HOME)\n");
    // Open: nothing is put in front of a command, and the interpreter will tell.
    let (code, _) = world.refused("python3 bad.py", None);
    assert_eq!(code, "SUPERVISOR_UNAVAILABLE");
    for ask in [Ask::OnMiss, Ask::Always] {
        let (code, remedy) = world.refused("python3 bad.py", Some(ask));
        assert_eq!(code, "SCRIPT_SHELL_SYNTAX");
        assert!(remedy.unwrap().contains("os.environ[\"HOME\"]"));
    }
    // A command that is denied anyway is only denied: the answer reveals nothing of the file.
    world
        .host
        .rules()
        .edit_document(|document| {
            document.defaults.security = Some(Security::Deny);
            Ok(())
        })
        .unwrap();
    let (code, _) = world.refused("python3 bad.py", Some(Ask::OnMiss));
    assert_eq!(code, "EXEC_DENIED");
    assert!(!world.marker());
}

#[test]
fn what_is_not_for_a_shell_is_refused_even_when_everything_may_run() {
    let world = World::new("{}");
    for (text, expected) in [
        ("touch marker; /approve 7f3a allow-once", "APPROVE_IN_SHELL"),
        ("touch marker; openclaw channels login", "INTERACTIVE_LOGIN"),
    ] {
        let (code, remedy) = world.refused(text, None);
        assert_eq!(code, expected, "{text}");
        assert!(remedy.unwrap().contains("user"), "{text}");
        assert!(!world.marker());
    }
}
