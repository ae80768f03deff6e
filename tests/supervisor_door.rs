//! The door of the supervisor: who is let in, what may be said there, and that nothing runs without
//! an authorization for exactly its plan.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod sessions;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use interlock_plan::{Action, Program, PtySize, RunPlan, Stdin};
use interlock_run::AuthorizationKey;
use interlock_run::supervisor::{Client, Place};
use serde_json::{Value, json};
use sessions::plans::{self, PATIENCE, has};
use sessions::{State, eventually, patient};

/// A message as it goes over the socket: two lengths, JSON, bytes.
fn frame(message: &Value) -> Vec<u8> {
    let text = serde_json::to_vec(message).unwrap();
    let mut frame = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
    frame.extend(0_u32.to_le_bytes());
    frame.extend(text);
    frame
}

fn hello(purpose: Value) -> Value {
    json!({ "protocol": 1, "version": sessions::VERSION, "purpose": purpose })
}

fn connect(state: &State) -> UnixStream {
    UnixStream::connect(state.socket(sessions::VERSION)).unwrap()
}

/// The next message; none when the connection is closed.
fn receive(mut stream: &UnixStream) -> Option<Value> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut header = [0; 8];
    if let Err(error) = stream.read_exact(&mut header) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no answer");
        return None;
    }
    let length = u32::from_le_bytes(header[..4].try_into().unwrap());
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}

/// Says this, and reads the code of the refusal; none where the connection is only closed.
fn refusal(state: &State, bytes: &[u8]) -> Option<String> {
    let mut stream = connect(state);
    // It may be refused before all of it is read.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let answer = receive(&stream)?;
    Some(answer["Err"]["code"].as_str().unwrap().to_owned())
}

#[track_caller]
fn serves(state: &State) {
    assert_eq!(state.run("echo served").shown.text, "served\n");
}

fn served() -> State {
    let state = State::new();
    serves(&state);
    state
}

/// What is said at the door, and the code with which it is refused; none: it is closed.
#[test]
fn what_is_no_hello_is_refused_and_others_are_served() {
    let state = served();
    let wrong_protocol = json!({ "protocol": 2, "version": "test", "purpose": "about" });
    let unknown_field =
        json!({ "protocol": 1, "version": "test", "purpose": "about", "more": true });
    let huge = [u32::MAX.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
    let long = [5_000_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat();
    let bytes = [0_u32.to_le_bytes(), 5_000_u32.to_le_bytes()].concat();
    let cases: Vec<(&str, Vec<u8>, Option<&str>)> = vec![
        ("nothing", Vec::new(), None),
        ("a few bytes", b"GET".to_vec(), None),
        ("text", b"GET / HTTP/1.1\r\n\r\n".to_vec(), None),
        ("zeros", vec![0; 64], Some("HELLO_INVALID")),
        ("ones", vec![0xff; 64], None),
        ("a huge length", huge, None),
        ("a length beyond a hello", long, None),
        ("many bytes", bytes, None),
        (
            "half a hello",
            frame(&hello(json!("about")))[..20].to_vec(),
            None,
        ),
        ("no object", frame(&json!([1, 2])), Some("HELLO_INVALID")),
        ("no fields", frame(&json!({})), Some("HELLO_INVALID")),
        (
            "another field",
            frame(&unknown_field),
            Some("HELLO_INVALID"),
        ),
        (
            "no purpose that is known",
            frame(&hello(json!("everything"))),
            Some("HELLO_INVALID"),
        ),
        (
            "another protocol",
            frame(&wrong_protocol),
            Some("PROTOCOL_MISMATCH"),
        ),
    ];
    for (name, bytes, code) in cases {
        assert_eq!(refusal(&state, &bytes).as_deref(), code, "{name}");
    }
    serves(&state);
    // Noise of all lengths, always the same.
    let mut seed = 12345_u32;
    for length in 0..200 {
        let noise: Vec<u8> = (0..length)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                seed.to_le_bytes()[3]
            })
            .collect();
        refusal(&state, &noise);
    }
    serves(&state);
    assert_eq!(state.client.list(), []);
}

#[test]
fn a_session_that_is_not_there_is_said_so_whatever_its_name() {
    let state = served();
    let outside = state.work().join("outside");
    fs::create_dir(&outside).unwrap();
    let kept = state.begin("echo kept");
    state.end_of(&kept.name);
    let status = state.client.place().session(&kept.name).join("status.json");
    fs::copy(status, outside.join("status.json")).unwrap();
    let long = "x".repeat(3000);
    for name in [
        "",
        ".",
        "..",
        "../../work/outside",
        outside.to_str().unwrap(),
        "a/b",
        "no-session",
        "a\0b",
        "\u{202e}",
        long.as_str(),
        kept.name.as_str(),
    ] {
        let error = state.client.session(name).unwrap_err();
        assert_eq!(error.code(), "SESSION_NOT_RUNNING", "{name:?}");
        let is_kept = name == kept.name;
        assert_eq!(state.client.forget(name), is_kept, "{name:?}");
    }
    assert!(outside.join("status.json").exists());
    serves(&state);
}

/// Many who connect and say nothing, or only the beginning, keep nobody else out.
#[test]
fn silence_keeps_nobody_out() {
    let state = served();
    let supervisor = state.supervisor();
    let before = sessions::descriptors(supervisor.pid);
    let beginning = &frame(&hello(json!("about")))[..10];
    let silent: Vec<UnixStream> = (0..400)
        .map(|number| {
            let mut stream = connect(&state);
            if number % 2 == 0 {
                let _ = stream.write_all(beginning);
            }
            stream
        })
        .collect();
    for _ in 0..20 {
        serves(&state);
    }
    assert_eq!(state.client.supervisors().len(), 1);
    // Those who asked for a run and never order one hold nobody up either.
    let waiting: Vec<UnixStream> = (0..40)
        .map(|_| {
            let mut stream = connect(&state);
            stream.write_all(&frame(&hello(json!("start")))).unwrap();
            stream
        })
        .collect();
    serves(&state);
    drop((silent, waiting));
    serves(&state);
    let shims = || sessions::children(supervisor.pid).len();
    eventually("nothing kept of them", || {
        let now = sessions::descriptors(supervisor.pid).unwrap();
        now - shims() <= before.as_ref().unwrap() - 2
    });
}

/// Connections at the same moment, from many sides, some of whose owners end at once.
#[test]
fn nobody_is_refused_because_others_come_and_go() {
    let state = served();
    let visitor = std::env::current_exe().unwrap();
    // A parent that ends just when its child connects.
    let text = format!(
        "sh -c '{} {VISITOR} >/dev/null 2>&1 & until [ -e \"$0.sign\" ]; do :; done' \"${ANSWER}\" &
         until [ -e \"${ANSWER}.sign\" ]; do :; done",
        visitor.display()
    );
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let name = format!("answer {number}");
                    Command::new("/bin/sh")
                        .args(["-c", &text])
                        .env(SOCKET, state.socket(sessions::VERSION))
                        .env(ANSWER, state.work().join(&name))
                        .status()
                        .unwrap();
                    assert_eq!(state.lines(&name, 1), ["welcome"]);
                }
            });
        }
    });
}

const SOCKET: &str = "INTERLOCK_TEST_SOCKET";
const ANSWER: &str = "INTERLOCK_TEST_ANSWER";

/// Not a test: a process of its own that goes to a door and notes what it is told.
#[test]
#[ignore = "a process of its own, started by others"]
fn the_visitor() {
    let path = std::env::var_os(SOCKET).unwrap();
    let answer = std::env::var(ANSWER).unwrap();
    fs::write(format!("{answer}.sign"), "").unwrap();
    let told = match UnixStream::connect(path) {
        Err(error) => error.kind().to_string(),
        Ok(mut stream) => {
            let _ = stream.write_all(&frame(&hello(json!("about"))));
            match receive(&stream) {
                None => "closed".to_owned(),
                Some(answer) if answer["Ok"].is_object() => "welcome".to_owned(),
                Some(answer) => answer["Err"]["code"].as_str().unwrap().to_owned(),
            }
        }
    };
    fs::write(answer, format!("{told}\n")).unwrap();
}

const VISITOR: &str = "--exact the_visitor --ignored --nocapture";

#[test]
fn another_user_is_not_let_in() {
    if !sessions::is_root() || !has("setpriv") {
        return println!("skipped: only root can be somebody else");
    }
    let state = served();
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = scratch.path().join("visitor");
    let copied = Command::new("/bin/cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let answer = scratch.path().join("answer");
    let told = || {
        let _ = fs::remove_file(&answer);
        let run = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .args(VISITOR.split(' '))
            .env(SOCKET, state.socket(sessions::VERSION))
            .env(ANSWER, &answer)
            .current_dir("/")
            .output()
            .unwrap();
        fs::read_to_string(&answer).unwrap_or_else(|_| panic!("{run:?}"))
    };
    assert_eq!(told(), "permission denied\n");
    // All that a careless owner can open.
    let open = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(state.path().parent().unwrap(), 0o755);
    open(state.path(), 0o755);
    open(&state.path().join("supervisor"), 0o755);
    assert_eq!(told(), "permission denied\n");
    open(&state.socket(sessions::VERSION), 0o666);
    assert_eq!(told(), "PEER_REFUSED\n");
    serves(&state);
}

/// However a process of a run detaches itself, it is one of a run.
#[test]
fn a_run_is_not_let_in() {
    if !has("setsid") {
        return;
    }
    let state = served();
    let visitor = std::env::current_exe().unwrap();
    let visit = format!("{} {VISITOR} >/dev/null 2>&1", visitor.display());
    for (name, text) in [
        ("plain", format!("{visit}; exit 0")),
        ("background", format!("{visit} & wait")),
        ("session", format!("setsid {visit} & wait")),
        (
            "orphan",
            format!("(setsid sh -c '(setsid {visit} &) ; exit' &); sleep 600"),
        ),
        (
            "daemon",
            format!("(exec <&- >&- 2>&-; cd /; umask 0; (setsid {visit} &) & ) ; sleep 600"),
        ),
    ] {
        let mut plan = state.shell(&text);
        let answer = state.work().join(format!("answer of {name}"));
        for (key, value) in [(SOCKET, state.socket(sessions::VERSION)), (ANSWER, answer)] {
            plan.env
                .insert(key.to_owned(), value.to_str().unwrap().to_owned());
        }
        let session = state.begin_by(&state.client, plan);
        let told = state.lines(&format!("answer of {name}"), 1);
        assert_eq!(told, ["PEER_REFUSED"], "{name}");
        if let Ok(link) = state.client.session(&session.name) {
            let _ = link.kill(interlock_run::Signal::KILL);
        }
        session.mark.wait_until_none();
    }
    // The same program from outside is welcome.
    let answer = state.work().join("answer");
    let run = Command::new(&visitor)
        .args(VISITOR.split(' '))
        .env(SOCKET, state.socket(sessions::VERSION))
        .env(ANSWER, &answer)
        .output()
        .unwrap();
    assert_eq!(fs::read_to_string(answer).unwrap(), "welcome\n", "{run:?}");
}

/// A run that leaves a trace.
fn touching(state: &State) -> RunPlan {
    plans::plan("touch marker", &state.work())
}

#[track_caller]
fn nothing_ran(state: &State) {
    assert!(!state.work().join("marker").exists());
    assert_eq!(state.client.list(), []);
}

/// One change of a plan, and what it is called.
type Change = (&'static str, fn(&mut RunPlan));

/// Everything of a plan that somebody could want to be different.
const CHANGES: &[Change] = &[
    ("argv", |plan| {
        let Program::Direct { pipelines } = &mut plan.program else {
            panic!("not direct");
        };
        let Action::Execute { argv, .. } = &mut pipelines[0].stages[0].action else {
            panic!("no program");
        };
        argv[1] = "marker2".to_owned();
    }),
    ("program", |plan| {
        plan.program = Program::Shell {
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
    ("agent", |plan| plan.agent_id = "other".to_owned()),
    ("session key", |plan| {
        plan.session_key = Some("x".to_owned());
    }),
    ("command", |plan| plan.command.push(' ')),
    ("stdin", |plan| plan.stdin = Stdin::Pipe),
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
    for (name, change) in CHANGES {
        let mut changed = order.clone();
        change(&mut changed.plan);
        assert_ne!(changed.plan, plan, "{name}");
        let error = state.client.start(&changed).unwrap_err();
        assert_eq!(error.code(), "NOT_AUTHORIZED", "{name}");
        nothing_ran(&state);
    }
    // Of another plan, and of the same plan with another key.
    let mut other = order.clone();
    other.authorization = State::order(&state.shell("true"), &patient()).authorization;
    assert_eq!(
        state.client.start(&other).unwrap_err().code(),
        "NOT_AUTHORIZED"
    );
    let key = AuthorizationKey::from_bytes([8; 32]);
    other.authorization = key.authorize(&plan.digest());
    assert_eq!(
        state.client.start(&other).unwrap_err().code(),
        "NOT_AUTHORIZED"
    );
    nothing_ran(&state);
    // A tag that says it is for the right one.
    let mut forged = serde_json::to_value(&order).unwrap();
    forged["authorization"]["tag"][0] = json!(0);
    forged["authorization"]["tag"][1] = json!(1);
    forged["authorization"]["tag"][2] = json!(2);
    assert_eq!(ordered(&state, &forged).as_deref(), Some("NOT_AUTHORIZED"));
    nothing_ran(&state);
    state.run_plan(&plan, &patient());
    assert!(state.work().join("marker").exists());
}

/// Sends an order as it is.
fn ordered(state: &State, order: &Value) -> Option<String> {
    let messages = [frame(&hello(json!("start"))), frame(order)].concat();
    refusal(state, &messages)
}

#[test]
fn an_order_that_is_not_whole_runs_nothing() {
    let state = served();
    let order = serde_json::to_value(State::order(&touching(&state), &patient())).unwrap();
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
    let whole = [frame(&hello(json!("start"))), frame(&order)].concat();
    let start = frame(&hello(json!("start"))).len();
    for end in [start, start + 4, start + 8, start + 100, whole.len() - 1] {
        refusal(&state, &whole[..end]);
        nothing_ran(&state);
    }
    let mut huge = frame(&hello(json!("start")));
    huge.extend([u32::MAX.to_le_bytes(), 0_u32.to_le_bytes()].concat());
    assert_eq!(refusal(&state, &huge).as_deref(), Some("ORDER_UNREADABLE"));
    nothing_ran(&state);
    serves(&state);
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
        let error = state.client.start(&order).unwrap_err();
        assert_eq!(error.code(), "RUN_KEY_UNUSABLE", "{broken:?}");
        nothing_ran(&state);
    }
    // An authorization of the key before it is worth nothing.
    fs::write(&key, [9; 32]).unwrap();
    let error = state.client.start(&order).unwrap_err();
    assert_eq!(error.code(), "NOT_AUTHORIZED");
    nothing_ran(&state);
    fs::write(&key, [7; 32]).unwrap();
    state.client.start(&order).unwrap().wait().unwrap();
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
        stream.write_all(&frame(&hello(link.clone()))).unwrap();
        assert_eq!(receive(&stream).unwrap(), json!({ "Ok": null }));
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        while receive(&stream).is_some() {}
    }
    assert!(sessions::is_alive(session.pid));
    let link = state.client.session(&session.name).unwrap();
    link.kill(interlock_run::Signal::KILL).unwrap();
    session.mark.wait_until_none();
}

/// A client without a program to start finds nobody, and says so.
#[test]
fn where_nobody_serves_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let client = Client::new(Place::new(directory.path()), "test");
    let plan = plans::shell_plan("/bin/sh", &[], "true", directory.path());
    let error = client.start(&State::order(&plan, &patient())).unwrap_err();
    assert_eq!(error.code(), "SUPERVISOR_UNAVAILABLE");
    assert_eq!((client.list(), client.supervisors()), (vec![], vec![]));
    assert_eq!(
        client.session("calm-harbor").unwrap_err().code(),
        "SESSION_NOT_RUNNING"
    );
    // A program that is no guard.
    for program in ["/bin/true", "/bin/false", "/no/such/program"] {
        let client = client.clone().starting(program.into(), ["x"]);
        let error = client.start(&State::order(&plan, &patient())).unwrap_err();
        assert_eq!(error.code(), "SUPERVISOR_UNAVAILABLE", "{program}");
    }
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    sessions::again_as_ordinary_user(&["all_of_it_holds"]);
}
