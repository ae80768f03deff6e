//! What a session is told of its runs, once each, and what does not count after a denial.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use crate::BINARY;
use interlock_approvals::EventKind;
use interlock_command::Source;
use interlock_host::{EndListener, Exec, ExecRequest, LocalHost, OpenOptions, Running, Yield};
use interlock_plan::PlanStdin;
use interlock_policy::AgentId;
use interlock_supervisor::{SupervisorClient, SupervisorPaths, Waited};
use serde_json::{Value, json};
use testkit::asking::Waiting;
use testkit::{Machine, eventually};

/// The events that the next call of the session is told.
fn told(machine: &Machine) -> Vec<Value> {
    let result = machine.ok(&["exec", "--json", "--", "true"]).json();
    match &result["events"] {
        Value::Null => Vec::new(),
        events => events.as_array().unwrap().clone(),
    }
}

/// As soon as there are any; a deadline that only a failure reaches.
fn eventually_told(machine: &Machine) -> Vec<Value> {
    let events = RefCell::new(Vec::new());
    eventually("something is told", || {
        *events.borrow_mut() = told(machine);
        !events.borrow().is_empty()
    });
    events.into_inner()
}

fn ends(machine: &Machine) -> Vec<Value> {
    let log = machine.ok(&[
        "audit",
        "log",
        "--limit",
        "1000",
        "--kind",
        "run-ended",
        "--json",
    ]);
    let records = log.json()["records"].as_array().unwrap().clone();
    let bodies = records.into_iter().map(|record| record["body"].clone());
    bodies.collect()
}

#[test]
fn the_end_of_a_background_run_is_told_once_and_recorded_once() {
    let machine = Machine::unguarded();
    let session = machine.background(&[], "echo one; echo two >&2; exit 3");
    session.ended();
    let events = told(&machine);
    assert_eq!(events.len(), 1, "{events:#?}");
    let event = &events[0];
    assert_eq!(event["kind"], "exec-finished");
    let run = event["runId"].as_str().unwrap();
    let text = event["text"].as_str().unwrap();
    let first = format!(
        "Exec finished (gateway id={run}, session={}, code 3)",
        session.id
    );
    assert_eq!(text.lines().next(), Some(first.as_str()));
    assert!(text.contains("one") && text.contains("two"), "{text}");
    let payload = &event["payload"];
    assert_eq!(payload["exitCode"], 3);
    assert_eq!(payload["success"], false);
    assert_eq!(payload["session"], session.id.as_str());
    assert!(told(&machine).is_empty());
    let ends: Vec<Value> = ends(&machine);
    let ends: Vec<_> = ends.iter().filter(|body| body["runId"] == run).collect();
    assert_eq!(ends.len(), 1, "{ends:#?}");
    assert_eq!(ends[0]["outcome"]["exitCode"], 3);
    assert_eq!(ends[0]["outcome"]["session"], session.id.as_str());
}

#[test]
fn people_are_told_on_stderr_and_stdout_stays_the_command_s() {
    let machine = Machine::unguarded();
    let session = machine.background(&[], "printf 'a\\033[2Jb'");
    session.ended();
    let run = machine.ok(&["exec", "--", "echo mine"]);
    assert_eq!(run.stdout, "mine\n");
    assert!(
        run.stderr.contains("Exec finished (gateway id="),
        "{run:#?}"
    );
    assert!(run.stderr.contains("a\\u{1B}[2Jb"), "{run:#?}");
    let again = machine.ok(&["exec", "--", "echo mine"]);
    assert_eq!(again.stderr, "");
}

#[test]
fn an_event_shows_the_last_400_characters() {
    let machine = Machine::unguarded();
    let command = "i=0; while [ $i -lt 300 ]; do printf 'é%04d' $i; i=$((i+1)); done";
    machine.background(&[], command).ended();
    let events = told(&machine);
    let output = events[0]["payload"]["output"].as_str().unwrap();
    let expected: Vec<String> = (220..300).map(|number| format!("é{number:04}")).collect();
    assert_eq!(output, expected.concat());
}

#[test]
fn a_call_that_fails_loses_no_event() {
    let machine = Machine::unguarded();
    machine.background(&[], "echo x").ended();
    let refused = machine.run(&["exec", "--json", "--env", "PATH=/x", "--", "true"]);
    assert_eq!(refused.code, 3, "{refused:#?}");
    assert_eq!(told(&machine).len(), 1);
}

#[test]
fn silent_success_is_told_where_it_is_wanted_and_nothing_where_nothing_is() {
    let machine = Machine::unguarded();
    let background = |command: &str| {
        machine.background(&[], command).ended();
        told(&machine).len()
    };
    assert_eq!(background("true"), 0);
    assert_eq!(background("false"), 1);
    assert_eq!(background("echo x"), 1);
    let set = |key: &str, value: &str| {
        let key = format!("tools.exec.{key}");
        machine.ok(&["config", "set", &key, value]);
    };
    set("notifyOnExitEmptySuccess", "true");
    assert_eq!(background("true"), 1);
    set("notifyOnExit", "false");
    assert_eq!(background("false"), 0);
    // The audit knows of all of them.
    let background_ends = ends(&machine)
        .iter()
        .filter(|body| body["outcome"]["session"].is_string() && body["state"] == "finished")
        .count();
    assert!(background_ends >= 5, "{background_ends}");
}

#[test]
fn the_end_of_a_session_that_is_removed_is_recorded_before() {
    let machine = Machine::unguarded();
    let session = machine.background(&[], "sleep 600");
    session.ok("remove", &[]);
    let ended = ends(&machine);
    assert_eq!(ended.len(), 1, "{ended:#?}");
    assert_eq!(ended[0]["outcome"]["status"], "signaled");
    let events = told(&machine);
    assert_eq!(events.len(), 1, "{events:#?}");
    let text = events[0]["text"].as_str().unwrap();
    assert!(text.contains("signal "), "{text}");
}

#[test]
fn a_run_that_outlived_its_waiter_is_told_and_recorded_once() {
    let machine = Machine::unguarded();
    let gate = machine.work().join("gate");
    let command = "while [ ! -e gate ]; do sleep 0.02; done; echo done; exit 4";
    let mut waiter = machine.command(&["exec", "--", command]).spawn().unwrap();
    eventually("it runs", || !machine.sessions(&[]).is_empty());
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    let nothing = told(&machine);
    assert!(nothing.is_empty(), "{nothing:#?}");
    std::fs::write(gate, "").unwrap();
    let events = eventually_told(&machine);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["payload"]["exitCode"], 4);
    let run = &events[0]["runId"];
    let ends = ends(&machine);
    let ends: Vec<_> = ends.iter().filter(|body| body["runId"] == *run).collect();
    assert_eq!(ends.len(), 1, "{ends:#?}");
    assert_eq!(ends[0]["outcome"]["exitCode"], 4);
}

#[test]
fn many_who_look_at_once_record_an_end_once() {
    let machine = Machine::unguarded();
    let session = machine.background(&[], "exit 5");
    session.ended();
    let lookers: Vec<_> = (0..6)
        .map(|_| {
            let mut command = machine.command(&["approvals", "pending"]);
            command.stdout(std::process::Stdio::null());
            command.stderr(std::process::Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    for mut looker in lookers {
        assert!(looker.wait().unwrap().success());
    }
    assert_eq!(ends(&machine).len(), 1);
    assert_eq!(told(&machine).len(), 1);
}

#[test]
fn a_denial_without_a_waiting_caller_is_reported_with_what_it_means() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "true"]);
    let id = machine.put_down(&["--", "touch marker"]);
    machine.ok(&["approvals", "deny", &id]);
    machine.ok(&["approvals", "deny", &id]);
    let events = told(&machine);
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["kind"], "exec-denied");
    assert_eq!(events[0]["runId"], id.as_str());
    assert_eq!(events[0]["payload"]["reason"], "user-denied");
    let text = events[0]["text"].as_str().unwrap();
    let expected = format!(
        "Exec denied (gateway id={id}, user-denied): touch marker\nno output exists for this command; \
         do not reuse output of earlier runs; do not retry"
    );
    assert_eq!(text, expected);
    assert!(told(&machine).is_empty());
}

#[test]
fn a_caller_that_waited_for_a_denial_gets_it_in_the_answer_alone() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "true"]);
    let waiting = Waiting::new(&machine, &["--json", "--", "touch marker"]);
    machine.ok(&["approvals", "deny", &waiting.id]);
    let run = waiting.end();
    assert_eq!(run.code, 3);
    let error = run.stderr.lines().last().unwrap();
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!(error["error"]["code"], "APPROVAL_DENIED");
    let denial = error["error"]["denial"].as_str().unwrap();
    assert!(
        denial.contains("do not reuse output of earlier runs"),
        "{denial}"
    );
    assert!(told(&machine).is_empty());
}

#[test]
fn expiry_and_drift_are_denials() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "true"]);
    let expired = machine.put_down(&["--", "touch marker"]);
    let statement = "UPDATE approval SET expires_at_ms = 1 WHERE id = ?1";
    machine.database().execute(statement, [&expired]).unwrap();
    assert!(machine.pending().is_empty());
    let events = told(&machine);
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["runId"], expired.as_str());
    assert_eq!(events[0]["payload"]["reason"], "approval-timeout");
    let program = machine.native("thing");
    let drifted = machine.approved(&["--", "thing"]);
    testkit::copy("/bin/ls", program.as_ref());
    let run = machine.run_approved(&drifted, &["--json", "--", "thing"]);
    assert!(run.stderr.contains("APPROVAL_DRIFT"), "{run:#?}");
    assert!(run.stderr.contains("no output exists"), "{run:#?}");
    // That was the answer to a call.
    assert!(told(&machine).is_empty());
    let reason: String = machine
        .database()
        .query_row(
            "SELECT json_extract(payload, '$.reason') FROM session_events WHERE run_id = ?1",
            [&drifted],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(reason, "approval-drift");
}

#[test]
fn an_approved_run_that_takes_long_is_announced_once_and_its_end_is_told() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "true"]);
    machine.ok(&["config", "set", "tools.exec.approvalRunningNoticeMs", "1"]);
    let id = machine.approved(&["--", "sleep 600"]);
    let started = machine.run_approved(&id, &["--json", "--background", "--", "sleep 600"]);
    let session = started.json()["sessionId"].as_str().unwrap().to_owned();
    let events = eventually_told(&machine);
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["kind"], "exec-running");
    assert_eq!(events[0]["runId"], id.as_str());
    let text = events[0]["text"].as_str().unwrap();
    // It may be said before the run has its name.
    let named = format!("Exec running (gateway id={id}, session={session}, >0.001s): sleep 600");
    let unnamed = format!("Exec running (gateway id={id}, >0.001s): sleep 600");
    assert!(text == named || text == unnamed, "{text}");
    assert!(told(&machine).is_empty());
    machine.ok(&["process", "kill", &session]);
    let events = told(&machine);
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["kind"], "exec-finished");
    assert_eq!(events[0]["runId"], id.as_str());
    let ends = ends(&machine);
    let ends: Vec<_> = ends
        .iter()
        .filter(|body| body["runId"] == id.as_str())
        .collect();
    assert_eq!(ends.len(), 1);
}

#[test]
fn no_notice_where_it_is_switched_off_and_no_event_for_who_waited() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "true"]);
    machine.ok(&["config", "set", "tools.exec.approvalRunningNoticeMs", "0"]);
    let id = machine.approved(&["--", "sleep 600"]);
    machine.run_approved(&id, &["--background", "--", "sleep 600"]);
    assert!(told(&machine).is_empty());
    let id = machine.approved(&["--", "touch marker"]);
    assert_eq!(machine.run_approved(&id, &["--", "touch marker"]).code, 0);
    assert!(told(&machine).is_empty());
    // It is there for those who look at all events.
    let kinds: Vec<String> = machine
        .database()
        .prepare("SELECT kind FROM session_events WHERE run_id = ?1")
        .unwrap()
        .query_map([&id], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(kinds, ["exec-finished"]);
}

#[test]
fn results_of_before_a_denial_are_stale_and_later_ones_are_not() {
    let machine = Machine::new();
    machine.allow_every_program();
    let command = "echo old";
    let before = machine.background(&[], command);
    before.ended();
    let other = machine.background(&[], "echo other");
    other.ended();
    let log = before.ok("log", &[]);
    assert_eq!(log.stdout, "old\n");
    assert!(before.json("log", &[]).get("stale").is_none());
    let id = machine.put_down(&["--ask", "always", "--", command]);
    machine.ok(&["approvals", "deny", &id]);
    let after = machine.background(&[], command);
    after.ended();
    let stale = |id: &str| {
        let sessions = machine.sessions(&[]);
        let found = sessions.iter().find(|one| one["sessionId"] == id);
        found.unwrap()["stale"] == json!(true)
    };
    assert!(stale(&before.id));
    assert!(!stale(&other.id));
    assert!(!stale(&after.id));
    for action in ["log", "poll"] {
        let shown = before.ok(action, &[]).stdout;
        assert!(shown.starts_with("[stale: "), "{shown}");
        assert!(shown.ends_with("\nold\n"), "{shown}");
        let told = before.json(action, &[]);
        assert_eq!(told["stale"], true, "{told:#}");
        assert!(
            told["note"].as_str().unwrap().contains("denied"),
            "{told:#}"
        );
        let fresh = after.ok(action, &[]).stdout;
        assert_eq!(fresh, "old\n");
    }
}

/// A program that lives longer than one call, as a server does.
struct Server {
    host: LocalHost,
    client: SupervisorClient,
    agent: AgentId,
    base_env: BTreeMap<String, String>,
    cwd: String,
}

const TALK: &str = "agent:main:talk";

impl Server {
    fn new(machine: &Machine) -> Self {
        let options = OpenOptions {
            state_dir: Some(machine.state()),
            path: Some("/usr/bin:/bin".to_owned()),
            ..OpenOptions::default()
        };
        let (host, _) = LocalHost::open(options).unwrap();
        let arguments = [
            OsString::from("guard"),
            "--state-dir".into(),
            machine.state().into(),
        ];
        let client = SupervisorClient::new(
            SupervisorPaths::new(&machine.state()),
            env!("CARGO_PKG_VERSION"),
        );
        Self {
            host,
            client: client.starting(BINARY.into(), arguments),
            agent: AgentId::default(),
            base_env: BTreeMap::new(),
            cwd: machine.work().display().to_string(),
        }
    }

    fn request(&self, text: &str, yields: Yield) -> ExecRequest<'_> {
        ExecRequest {
            config: None,
            place: interlock_host::RequestedPlace::default(),
            agent: &self.agent,
            caller: &interlock_host::NO_CALLER_CONTEXT,
            source: Source::Text(text.to_owned()),
            cwd: self.cwd.clone(),
            env: BTreeMap::new(),
            ask: None,
            gateway: None,
            timeout_seconds: Some(600),
            base_env: &self.base_env,
            session_key: Some(TALK),
            pty: None,
            stdin: PlanStdin::Null,
            yields,
            show_chars: None,
            requester: "connection 7",
            runs_later: false,
        }
    }

    /// Waits for the result, which only the session's events report; returns the session's name.
    fn wait(&self, running: &Running) -> String {
        let waited = running.conversation.wait().unwrap();
        let session = running.conversation.started().session.name.clone();
        self.host
            .record_end(
                &running.ticket,
                &session,
                Ok(&waited),
                EndListener::SessionEvent,
            )
            .unwrap();
        if waited != Waited::Yielded {
            assert!(
                self.host
                    .finish_background(&session, &self.client)
                    .unwrap()
                    .is_none()
            );
        }
        session
    }

    fn told(&self) -> Vec<(EventKind, String)> {
        let taken = self.host.take_events(TALK, 10, &self.client).unwrap();
        let events = taken.events.into_iter();
        events.map(|event| (event.kind, event.run_id)).collect()
    }
}

#[test]
fn an_end_that_cannot_be_recorded_while_others_hold_the_database_is_recorded_afterwards() {
    let machine = Machine::unguarded();
    let server = Server::new(&machine);
    let request = server.request("exit 5", Yield::Never);
    let begun = server.host.exec(&request, &server.client).unwrap();
    let running = begun.started().unwrap();
    let waited = running.conversation.wait().unwrap();
    let session = running.conversation.started().session.name.clone();
    let other = machine.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let recorded =
        server
            .host
            .record_end(&running.ticket, &session, Ok(&waited), EndListener::Caller);
    let error = recorded.expect_err("no writer waits so long");
    assert!(error.to_string().contains("locked"), "{error}");
    assert!(ends(&machine).is_empty());
    other.execute_batch("ROLLBACK").unwrap();
    eventually("the end is recorded", || !ends(&machine).is_empty());
    let recorded = ends(&machine);
    assert_eq!(recorded.len(), 1, "{recorded:#?}");
    assert_eq!(recorded[0]["runId"], running.ticket.run_id);
    assert_eq!(recorded[0]["outcome"]["exitCode"], 5);
}

#[test]
fn a_server_that_watches_a_background_run_records_its_end_once() {
    let machine = Machine::unguarded();
    let server = Server::new(&machine);
    let gate = machine.work().join("gate");
    let command = "while [ ! -e gate ]; do sleep 0.02; done; echo out; exit 6";
    let request = server.request(command, Yield::After(Duration::ZERO));
    let begun = server.host.exec(&request, &server.client).unwrap();
    let session = server.wait(&begun.started().unwrap());
    assert_eq!(
        server
            .host
            .finish_background(&session, &server.client)
            .unwrap(),
        None
    );
    assert!(server.told().is_empty());
    let found = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            server
                .host
                .await_background(&session, &server.client)
                .unwrap()
        });
        std::fs::write(gate, "").unwrap();
        watcher.join().unwrap().unwrap()
    });
    assert_eq!(json!(found.outcome.unwrap())["exitCode"], 6);
    assert!(!found.is_approved);
    assert_eq!(found.session_key, TALK);
    assert_eq!(
        server
            .host
            .finish_background(&session, &server.client)
            .unwrap(),
        None
    );
    assert!(server.host.recover(&server.client).unwrap().is_empty());
    assert_eq!(server.told(), [(EventKind::Finished, found.run_id)]);
    assert_eq!(ends(&machine).len(), 1);
    // Another session is told nothing of it.
    assert!(told(&machine).is_empty());
}

#[test]
fn an_approved_run_without_a_waiting_caller_is_reported_by_events_with_the_approval_s_id() {
    let machine = Machine::new();
    machine.start();
    let server = Server::new(&machine);
    let request = server.request("sleep 0.01", Yield::Never);
    let Exec::Pending(pending) = server.host.exec(&request, &server.client).unwrap() else {
        panic!("not asked");
    };
    let id = pending.approval.id;
    machine.ok(&["approvals", "approve", &id]);
    let approvals = server.host.approvals();
    let running = server
        .host
        .run_approved(&id, &request, &server.client)
        .unwrap();
    let notice = server.host.running_event(&running.ticket).unwrap();
    assert_eq!(notice.after(), Duration::from_secs(10));
    assert!(notice.publish().unwrap());
    assert!(!notice.publish().unwrap());
    server.wait(&running);
    assert!(!notice.publish().unwrap());
    let expected = [(EventKind::Running, id.clone()), (EventKind::Finished, id)];
    assert_eq!(server.told(), expected);
    assert!(server.told().is_empty());
    let all = approvals.events_after(0, 10).unwrap();
    assert!(
        all.iter()
            .all(|event| event.wakes && event.delivered_at_ms.is_some())
    );
}
