//! Orders to the supervisor: nothing runs without an authorization for exactly its plan.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write as _;
use std::path::Path;

use interlock_engine::AuthorizationKey;
use interlock_plan::{PlanAction, PlanProgram, PlanStdin, PtySize, RunPlan};
use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use serde_json::{Value, json};
use testkit::plans;
use testkit::supervised::wire::{connect, frame, hello, receive, refusal};
use testkit::supervised::{Order, State, eventually, patient};

#[track_caller]
fn serves(state: &State) {
    assert_eq!(state.run("echo served").shown.text, "served\n");
}

fn served() -> State {
    let state = State::new();
    serves(&state);
    state
}

/// A run that leaves a trace.
fn touching(state: &State) -> RunPlan {
    plans::plan("touch marker", &state.work())
}

#[track_caller]
fn nothing_ran(state: &State) {
    assert!(!state.work().join("marker").exists());
    // What was taken goes in a moment.
    eventually("no session", || state.client.list().is_empty());
}

/// One change of a plan, and what it is called.
type Change = (&'static str, fn(&mut RunPlan));

/// Everything of a plan that an attacker could want to be different.
const CHANGES: &[Change] = &[
    ("argv", |plan| {
        let PlanProgram::Direct { pipelines } = &mut plan.program else {
            panic!("not direct");
        };
        let PlanAction::Execute { argv, .. } = &mut pipelines[0].stages[0].action else {
            panic!("no program");
        };
        argv[1].push('2');
    }),
    ("program", |plan| {
        plan.program = PlanProgram::Shell {
            shell: plans::pin("/bin/sh", "/"),
            options: Vec::new(),
            text: plan.command.clone(),
        };
    }),
    ("env", |plan| {
        plan.env.insert("LD_PRELOAD".to_owned(), "x".to_owned());
    }),
    ("less env", |plan| {
        plan.env.remove("LC_ALL");
    }),
    ("cwd", |plan| plan.cwd = plans::directory(Path::new("/"))),
    ("time limit", |plan| plan.timeout_ms = Some(1_000_000)),
    ("agent", |plan| plan.agent_id.push('2')),
    ("session key", |plan| {
        plan.session_key = Some("x".to_owned());
    }),
    ("command", |plan| plan.command.push(' ')),
    ("stdin", |plan| plan.stdin = PlanStdin::Pipe),
    ("terminal", |plan| {
        plan.pty = Some(PtySize {
            columns: 80,
            rows: 24,
        });
    }),
];

#[test]
fn an_authorization_is_for_one_plan_and_for_no_other() {
    let state = served();
    let plan = touching(&state);
    let order = State::order(&plan, &patient());
    // No client of this program sends another plan than the authorized one: this is done by hand.
    for (name, change) in CHANGES {
        let mut changed = plan.clone();
        change(&mut changed);
        assert_ne!(changed, plan, "{name}");
        let mut sent = json_of(&order);
        sent["plan"] = json!(changed);
        let refused = ordered(&state, &sent);
        assert_eq!(refused.as_deref(), Some("NOT_AUTHORIZED"), "{name}");
        nothing_ran(&state);
    }
    // Of another plan, and of the same plan with another key.
    let mut other = json_of(&State::order(&state.shell("true"), &patient()));
    other["plan"] = json!(plan);
    assert_eq!(ordered(&state, &other).as_deref(), Some("NOT_AUTHORIZED"));
    let key = AuthorizationKey::from_bytes([8; 32]);
    let foreign = plans::authorized(&key, &plan);
    let refused = state.client.start(foreign, &patient()).unwrap_err();
    assert_eq!(refused.code(), "NOT_AUTHORIZED");
    nothing_ran(&state);
    // A tag that says it is for the right one.
    let mut forged = json_of(&order);
    forged["authorization"]["tag"][0] = json!(0);
    forged["authorization"]["tag"][1] = json!(1);
    forged["authorization"]["tag"][2] = json!(2);
    assert_eq!(ordered(&state, &forged).as_deref(), Some("NOT_AUTHORIZED"));
    nothing_ran(&state);
    state.run_plan(&plan, &patient());
    assert!(state.work().join("marker").exists());
}

/// Both parts of an order in one value.
fn json_of(order: &Order) -> Value {
    let authorized = order.authorized();
    json!({
        "plan": order.plan,
        "authorization": authorized.authorization(),
        "manner": order.manner,
    })
}

/// The two messages of an order. What is not an object is sent instead of the first.
fn messages_of(order: &Value) -> Vec<u8> {
    let mut go = order.clone();
    let plan = match go.as_object_mut() {
        Some(fields) => fields.remove("plan").unwrap_or_default(),
        None => order.clone(),
    };
    [frame(&hello(&json!("start"))), frame(&plan), frame(&go)].concat()
}

/// Sends an order as it is.
fn ordered(state: &State, order: &Value) -> Option<String> {
    refusal(state, &messages_of(order))
}

#[test]
fn an_order_that_is_not_whole_runs_nothing() {
    let state = served();
    let order = json_of(&State::order(&touching(&state), &patient()));
    let without = |field: &str| {
        let mut order = order.clone();
        order.as_object_mut().unwrap().remove(field).unwrap();
        order
    };
    let mut more = order.clone();
    more["more"] = json!(1);
    for broken in [
        without("authorization"),
        without("plan"),
        without("manner"),
        more,
        json!(null),
        json!([]),
        json!({}),
    ] {
        assert_eq!(
            ordered(&state, &broken).as_deref(),
            Some("ORDER_UNREADABLE"),
            "{broken}"
        );
        nothing_ran(&state);
    }
    // Cut off, or with a length that promises too much.
    let whole = messages_of(&order);
    let start = frame(&hello(&json!("start"))).len();
    let plan = start + frame(&order["plan"]).len();
    for end in [
        start,
        start + 4,
        start + 8,
        start + 100,
        plan - 1,
        plan,
        plan + 8,
        whole.len() - 1,
    ] {
        refusal(&state, &whole[..end]);
        nothing_ran(&state);
    }
    let mut huge = frame(&hello(&json!("start")));
    huge.extend([u32::MAX.to_le_bytes(), 0_u32.to_le_bytes()].concat());
    assert_eq!(refusal(&state, &huge).as_deref(), Some("ORDER_UNREADABLE"));
    nothing_ran(&state);
    serves(&state);
}

/// A plan may be shown before it may run: that alone does nothing.
#[test]
fn an_announced_plan_runs_only_with_its_own_authorization() {
    let state = served();
    let client = state.client.clone();
    let announced = |plan: &RunPlan| {
        client.prepare();
        client.announce(plan).unwrap()
    };
    let plan = touching(&state);
    let order = State::order(&plan, &patient());
    drop(announced(&plan));
    nothing_ran(&state);

    let other = State::order(&state.shell("true"), &patient());
    let error = client.start_announced(announced(&plan), other.authorized(), &patient());
    assert_eq!(error.unwrap_err().code(), "NOT_AUTHORIZED");
    let error = client.start_announced(announced(&other.plan), order.authorized(), &patient());
    assert_eq!(error.unwrap_err().code(), "NOT_AUTHORIZED");
    nothing_ran(&state);

    let conversation = client.start_announced(announced(&plan), order.authorized(), &patient());
    conversation.unwrap().wait().unwrap();
    assert!(state.work().join("marker").exists());
}

/// However early the files were opened: what counts is what they are when they are executed.
#[test]
fn a_file_that_changes_after_the_announcement_is_refused() {
    let state = served();
    let client = state.client.clone();
    let program = state.work().join("program");
    let changes: [fn(&Path); 3] = [
        |program| fs::write(program, "#!/bin/sh\ntouch other; true\n").unwrap(),
        |program| fs::remove_file(program).unwrap(),
        |program| {
            let beside = program.with_extension("new");
            fs::copy("/bin/true", &beside).unwrap();
            fs::rename(&beside, program).unwrap();
        },
    ];
    for change in changes {
        fs::copy("/bin/echo", &program).unwrap();
        let plan = plans::plan("./program hello", &state.work());
        let order = State::order(&plan, &patient());
        client.prepare();
        let announced = client.announce(&order.plan).unwrap();
        change(&program);
        let error = client
            .start_announced(announced, order.authorized(), &patient())
            .unwrap_err();
        assert_eq!(error.code(), "APPROVAL_DRIFT", "{error}");
    }
}

#[test]
fn without_a_usable_key_nothing_runs() {
    let state = served();
    let order = State::order(&touching(&state), &patient());
    let key = state.client.place().run_key();
    for broken in [None, Some(&[][..]), Some(&[7; 31][..]), Some(&[7; 33][..])] {
        let _ = fs::remove_file(&key);
        if let Some(bytes) = broken {
            fs::write(&key, bytes).unwrap();
        }
        let error = order.start(&state.client).unwrap_err();
        assert_eq!(error.code(), "RUN_KEY_UNUSABLE", "{broken:?}");
        nothing_ran(&state);
    }
    // An authorization of the key before it is worth nothing.
    fs::write(&key, [9; 32]).unwrap();
    let error = order.start(&state.client).unwrap_err();
    assert_eq!(error.code(), "NOT_AUTHORIZED");
    nothing_ran(&state);
    fs::write(&key, [7; 32]).unwrap();
    order.start(&state.client).unwrap().wait().unwrap();
}

/// Requests that no client sends do no harm to the session they are sent to, nor to others.
#[test]
fn odd_requests_to_a_session_are_its_own_matter() {
    let state = served();
    let session = state.begin("sleep 600");
    let link = json!({ "session": { "name": session.name } });
    for bytes in [
        vec![],
        vec![0xff; 8],
        frame(&json!({ "kill": { "signal": 12345 } })),
        frame(&json!({ "kill": { "signal": -9 } })),
        frame(&json!({ "unknown": 1 })),
        frame(&json!("screen")),
        frame(&json!({ "resize": { "size": { "columns": 0, "rows": 65535 } } })),
    ] {
        let mut stream = connect(&state);
        stream.write_all(&frame(&hello(&link))).unwrap();
        assert_eq!(receive(&stream).unwrap(), json!({ "Ok": null }));
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        while receive(&stream).is_some() {}
    }
    assert!(testkit::supervised::is_alive(session.pid));
    let link = state.client.session(&session.name).unwrap();
    link.kill(interlock_engine::Signal::KILL).unwrap();
    session.mark.wait_until_none();
}

/// A client without a program to start finds no supervisor, and says so.
#[test]
fn a_missing_supervisor_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let client = SupervisorClient::new(SupervisorPaths::new(directory.path()), "test");
    let plan = plans::shell_plan("/bin/sh", &[], "true", directory.path());
    let error = State::order(&plan, &patient()).start(&client).unwrap_err();
    assert_eq!(error.code(), "SUPERVISOR_UNAVAILABLE");
    assert_eq!((client.list(), client.supervisors()), (vec![], vec![]));
    assert_eq!(
        client.session("calm-harbor").unwrap_err().code(),
        "SESSION_NOT_RUNNING"
    );
    // A program that is no guard.
    for program in ["/bin/true", "/bin/false", "/no/such/program"] {
        let client = client.clone().starting(program.into(), ["x"]);
        let error = State::order(&plan, &patient()).start(&client).unwrap_err();
        assert_eq!(error.code(), "SUPERVISOR_UNAVAILABLE", "{program}");
    }
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    testkit::supervised::again_as_ordinary_user(module_path!(), &["all_of_it_holds"]);
}

/// The processes that hold what runs of sandboxes share, below the supervisor of a state.
fn keepers(state: &State) -> usize {
    let supervisor = state.supervisor().pid;
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|pid| {
            let stat = stat(pid);
            let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            let parent = rest.split_whitespace().nth(1).unwrap_or_default();
            parent == supervisor.to_string() && stat.contains("(interlock-keep)")
        })
        .count()
}

#[test]
fn nothing_is_made_for_a_sandbox_before_its_run_is_authorized() {
    let state = served();
    let directory = state.work().join("scope");
    fs::create_dir(&directory).unwrap();
    let mut plan = touching(&state);
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    plan.shield = serde_json::from_value(json!("sandbox")).unwrap();
    plan.sandbox = Some(
        serde_json::from_value(json!({
            "backend": "native", "scope": "agent main", "scopeId": "x", "scopeDirectory": directory,
            "view": "minimal", "workspaceAccess": "none", "workspace": state.work(),
            "user": { "uid": uid, "gid": gid, "hostUid": uid, "hostGid": gid },
            "cwd": "/", "mounts": [], "unixSockets": "none", "limits": { "tmpBytes": 65536 },
        }))
        .unwrap(),
    );
    // Announced, and authorized for another plan.
    let mut order = json_of(&State::order(&state.shell("true"), &patient()));
    order["plan"] = json!(plan);
    assert_eq!(ordered(&state, &order).as_deref(), Some("NOT_AUTHORIZED"));
    // Announced, and never authorized.
    let mut announced = connect(&state);
    let hello = frame(&hello(&json!("start")));
    announced
        .write_all(&[hello, frame(&json!(plan))].concat())
        .unwrap();
    serves(&state);
    assert_eq!(keepers(&state), 0);
    drop(announced);
    // The same plan with its own authorization is set up. Its empty view runs nothing.
    let own = json_of(&State::order(&plan, &patient()));
    assert_ne!(ordered(&state, &own).as_deref(), Some("NOT_AUTHORIZED"));
    assert_eq!(keepers(&state), 1);
}
