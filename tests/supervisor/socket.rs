//! The socket of the supervisor: who may connect, what may be sent there, and that nothing runs
//! without an authorization for exactly its plan.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use testkit::plans::has;
use testkit::supervised::wire::{connect, frame, hello, receive, refusal};
use testkit::supervised::{State, eventually};

#[track_caller]
fn serves(state: &State) {
    assert_eq!(state.run("echo served").shown.text, "served\n");
}

fn served() -> State {
    let state = State::new();
    serves(&state);
    state
}

/// A first message, and the code with which it is refused; none: the connection is closed.
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
            frame(&hello(&json!("about")))[..20].to_vec(),
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
            frame(&hello(&json!("everything"))),
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
    // What was taken goes in a moment.
    eventually("no session", || state.client.list().is_empty());
}

#[test]
fn a_session_that_is_not_there_is_said_so_whatever_its_name() {
    let state = served();
    let outside = state.work().join("outside");
    fs::create_dir(&outside).unwrap();
    let kept = state.begin("echo kept");
    state.end_of(&kept.name);
    // Its process is still there for a moment.
    eventually("no session", || state.client.session(&kept.name).is_err());
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

/// Many peers that connect and send nothing, or only the beginning, keep no other client out.
#[test]
fn silence_keeps_no_client_out() {
    let state = served();
    let supervisor = state.supervisor();
    // Every shim that waits has one.
    let own = || {
        let open = testkit::supervised::descriptors(supervisor.pid).unwrap();
        open.saturating_sub(testkit::supervised::children(supervisor.pid).len())
    };
    let before = testkit::supervised::settled(own);
    let beginning = &frame(&hello(&json!("about")))[..10];
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
    // Peers that asked for a run and never send a plan hold no client up either.
    let waiting: Vec<UnixStream> = (0..40)
        .map(|_| {
            let mut stream = connect(&state);
            stream.write_all(&frame(&hello(&json!("start")))).unwrap();
            stream
        })
        .collect();
    serves(&state);
    drop((silent, waiting));
    serves(&state);
    eventually("nothing kept of them", || own() <= before);
}

/// Connections at the same moment, from many sides, some of whose owners end at once.
#[test]
fn no_client_is_refused_because_others_come_and_go() {
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
                        .env(SOCKET, state.socket(testkit::supervised::VERSION))
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

/// Not a test: a process of its own that connects and notes the answer.
#[test]
#[ignore = "a process of its own, started by others"]
fn the_visitor() {
    let path = std::env::var_os(SOCKET).unwrap();
    let answer = std::env::var(ANSWER).unwrap();
    fs::write(format!("{answer}.sign"), "").unwrap();
    let told = match UnixStream::connect(path) {
        Err(error) => error.kind().to_string(),
        Ok(mut stream) => {
            let _ = stream.write_all(&frame(&hello(&json!("about"))));
            match receive(&stream) {
                None => "closed".to_owned(),
                Some(answer) if answer["Ok"].is_object() => "welcome".to_owned(),
                Some(answer) => answer["Err"]["code"].as_str().unwrap().to_owned(),
            }
        }
    };
    fs::write(answer, format!("{told}\n")).unwrap();
}

const VISITOR: &str = "--exact socket::the_visitor --ignored --nocapture";

#[test]
fn another_user_is_not_let_in() {
    if !testkit::supervised::is_root() || !has("setpriv") {
        return println!("skipped: only root can take another account");
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
            .env(SOCKET, state.socket(testkit::supervised::VERSION))
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
    open(&state.socket(testkit::supervised::VERSION), 0o666);
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
        for (key, value) in [
            (SOCKET, state.socket(testkit::supervised::VERSION)),
            (ANSWER, answer),
        ] {
            plan.env
                .insert(key.to_owned(), value.to_str().unwrap().to_owned());
        }
        let session = testkit::supervised::begin_by(&state.client, plan);
        let told = state.lines(&format!("answer of {name}"), 1);
        assert_eq!(told, ["PEER_REFUSED"], "{name}");
        if let Ok(link) = state.client.session(&session.name) {
            let _ = link.kill(interlock_engine::Signal::KILL);
        }
        session.mark.wait_until_none();
    }
    // The same program from outside is welcome.
    let answer = state.work().join("answer");
    let run = Command::new(&visitor)
        .args(VISITOR.split(' '))
        .env(SOCKET, state.socket(testkit::supervised::VERSION))
        .env(ANSWER, &answer)
        .output()
        .unwrap();
    assert_eq!(fs::read_to_string(answer).unwrap(), "welcome\n", "{run:?}");
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    testkit::supervised::again_as_ordinary_user(module_path!(), &["all_of_it_holds"]);
}
