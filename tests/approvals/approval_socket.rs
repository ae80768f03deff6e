//! The local approval socket, with a foreign companion, and with peers that are no companion.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use testkit::companion::{
    Companion, Prompt, deliveries, failed, forget_deliveries, now_ms, states,
};
use testkit::{Machine, Run, eventually};

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

/// `interlock exec` that asks, and the companion that is asked.
fn asking(machine: &Machine, companion: &Companion) -> (Child, Prompt) {
    let child = exec(machine);
    (child, companion.asked())
}

fn exec(machine: &Machine) -> Child {
    let mut command = machine.command(&["exec", "--", "touch marker"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end(child: Child) -> Run {
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Another approver decides, and the caller goes on. Then all is as it was before.
fn approve_elsewhere(machine: &Machine, child: Child) {
    let id = machine.pending_ids().pop().unwrap();
    machine.ok(&["approvals", "approve", &id]);
    let run = end(child);
    assert_eq!(run.code, 0, "{run:#?}");
    fs::remove_file(machine.work().join("marker")).unwrap();
    forget_deliveries(machine);
}

#[test]
fn a_companion_is_shown_the_question_and_its_answer_decides() {
    let machine = started();
    let companion = Companion::listen(&machine);
    let (child, mut prompt) = asking(&machine, &companion);
    let listed = &machine.pending()[0];
    assert_eq!(prompt.approval(), listed);
    assert_eq!(prompt.request["waits"], true);
    prompt.say(&json!({ "type": "received" }));
    eventually("sent", || states(&machine) == ["sent"]);
    prompt.say(&json!({ "type": "shown" }));
    eventually("seen", || states(&machine).len() == 2);
    assert_eq!(
        prompt.answer("allow-once"),
        json!({ "type": "result", "ok": true })
    );
    assert_eq!(prompt.hear().unwrap()["type"], "ended");
    assert!(prompt.hear().is_none());
    let run = end(child);
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(
        run.stderr
            .contains("allow-once by a test (companion of uid"),
        "{run:#?}"
    );
    assert!(machine.work().join("marker").exists());
}

#[test]
fn a_companion_may_deny_and_may_ask_for_secrets() {
    let machine = started();
    let companion = Companion::listen(&machine);
    let secret = "--token=ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let mut command = machine.command(&["exec", "--", &format!("touch {secret}")]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut prompt = companion.asked();
    assert!(!prompt.request.to_string().contains("klmnopqrst"));
    prompt.say(&json!({ "type": "reveal" }));
    let revealed = prompt.hear().unwrap();
    assert_eq!(revealed["command"], format!("touch {secret}"));
    assert_eq!(prompt.answer("deny")["ok"], true);
    let run = end(child);
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("APPROVAL_DENIED"), "{run:#?}");
}

#[test]
fn an_answer_that_does_not_fit_decides_nothing_and_the_right_one_still_does() {
    let machine = started();
    let companion = Companion::listen(&machine);
    let (child, mut prompt) = asking(&machine, &companion);
    let right = prompt.words("allow-once");
    let wrong = [
        (
            "planDigest",
            json!("0".repeat(64)),
            "APPROVAL_REQUEST_MISMATCH",
        ),
        ("id", json!("another"), "APPROVAL_REQUEST_MISMATCH"),
        ("decision", json!("allow"), "ANSWER_INVALID"),
        ("decision", json!("lease"), "ANSWER_INVALID"),
        ("expiresInMs", json!(1000), "ANSWER_INVALID"),
    ];
    for (field, value, code) in wrong {
        let mut answer = right.clone();
        answer[field] = value;
        prompt.say(&answer);
        let result = prompt.hear().unwrap();
        assert_eq!(result["ok"], false, "{field}");
        assert!(result["code"].as_str().unwrap().contains(code), "{result}");
        assert_eq!(machine.pending().len(), 1, "{field}");
    }
    assert_eq!(prompt.answer("allow-once")["ok"], true);
    assert_eq!(end(child).code, 0);
}

#[test]
fn the_first_answer_holds_and_a_later_one_is_told_so() {
    let machine = started();
    let companion = Companion::listen(&machine);
    let (child, mut prompt) = asking(&machine, &companion);
    prompt.say(&json!({ "type": "received" }));
    let id = machine.pending_ids().pop().unwrap();
    machine.ok(&["approvals", "deny", &id]);
    let ended = prompt.hear().unwrap();
    assert_eq!(ended["type"], "ended");
    assert!(
        ended["how"].as_str().unwrap().starts_with("denied by"),
        "{ended}"
    );
    let late = prompt.words("allow-once");
    prompt.say(&late);
    assert!(prompt.hear().is_none());
    assert_eq!(end(child).code, 3);
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn an_answer_after_the_time_is_up_decides_nothing() {
    let machine = started();
    let companion = Companion::listen(&machine);
    let (child, mut prompt) = asking(&machine, &companion);
    prompt.say(&json!({ "type": "received" }));
    eventually("sent", || states(&machine) == ["sent"]);
    let database = machine.database();
    database
        .execute("UPDATE approval SET expires_at_ms = 1", [])
        .unwrap();
    let answer = prompt.words("allow-once");
    prompt.say(&answer);
    // It is told that the time is up, or that the answer came too late, whichever is seen first.
    let said = prompt.hear().unwrap();
    assert!(
        said["how"] == "expired" || said["code"] == "APPROVAL_EXPIRED",
        "{said}"
    );
    assert_eq!(end(child).code, 3);
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn who_does_not_know_the_token_answers_in_vain() {
    let machine = started();
    let companion = Companion::listen(&machine).with_token("not the token at all");
    let (child, mut prompt) = asking(&machine, &companion);
    let answer = prompt.words("allow-once");
    prompt.say(&answer);
    assert!(prompt.hear().is_none());
    failed(&machine, "not authenticated");
    approve_elsewhere(&machine, child);
}

#[test]
fn an_answer_is_not_taken_twice_nor_late_nor_on_another_connection() {
    let machine = started();
    let companion = Companion::listen(&machine);
    // Said again on the same connection.
    let (child, mut prompt) = asking(&machine, &companion);
    let received = json!({ "type": "received" });
    let line = prompt.line(&received, now_ms());
    prompt.say_line(&line);
    prompt.say_line(&line);
    assert!(prompt.hear().is_none());
    failed(&machine, "not authenticated");
    // Kept for the next question, which is the same one.
    let answer = prompt.words("allow-once");
    let kept = prompt.line(&answer, now_ms());
    approve_elsewhere(&machine, child);
    let (child, mut prompt) = asking(&machine, &companion);
    prompt.say_line(&kept);
    assert!(prompt.hear().is_none());
    failed(&machine, "not authenticated");
    approve_elsewhere(&machine, child);
    // Made too long ago, and for later.
    for time in [now_ms() - 60_000, now_ms() + 60_000] {
        let (child, mut prompt) = asking(&machine, &companion);
        let answer = prompt.words("allow-once");
        let line = prompt.line(&answer, time);
        prompt.say_line(&line);
        assert!(prompt.hear().is_none());
        failed(&machine, "too old, or from the future");
        approve_elsewhere(&machine, child);
    }
}

#[test]
fn odd_companions_do_no_harm() {
    let machine = started();
    let companion = Companion::listen(&machine);
    let long = "x".repeat(100_000);
    let cases = [
        ("nonsense\n", ""),
        (
            "{\"protocol\":2,\"nonce\":\"00\"}\n",
            "it speaks protocol 2",
        ),
        ("{\"protocol\":1,\"nonce\":\"00\"}\n", "the nonce"),
        ("\u{1}\u{0}\n", ""),
        (long.as_str(), "longer than"),
        (
            "{\"refused\":\"not \u{202e}today\"}\n",
            "it refused: not \\u{202E}today",
        ),
    ];
    for (said, why) in cases {
        let child = exec(&machine);
        let stream = companion.accept();
        let _ = (&stream).write_all(said.as_bytes());
        failed(&machine, why);
        drop(stream);
        approve_elsewhere(&machine, child);
    }
    // One that hangs up at once.
    let child = exec(&machine);
    drop(companion.accept());
    failed(&machine, "closed");
    approve_elsewhere(&machine, child);
}

#[test]
fn a_socket_without_a_server_is_as_good_as_none() {
    let machine = started();
    drop(UnixListener::bind(machine.state().join("exec-approvals.sock")).unwrap());
    machine.put_down(&["--", "touch marker"]);
    assert_eq!(deliveries(&machine), []);
}

#[test]
fn who_never_answers_does_not_hold_up_a_call_that_does_not_wait() {
    let machine = started();
    let _companion = Companion::listen(&machine);
    machine.put_down(&["--", "touch marker"]);
    failed(&machine, "in time");
}

#[test]
fn a_call_that_does_not_wait_still_delivers() {
    let machine = started();
    let companion = Companion::listen(&machine);
    let asker = std::thread::scope(|scope| {
        let asker = scope.spawn(|| machine.exec("touch marker"));
        let mut prompt = companion.asked();
        assert_eq!(prompt.request["waits"], false);
        // An answer is refused there, and is a receipt all the same.
        let result = prompt.answer("allow-once");
        assert_eq!(result["code"], "APPROVAL_NOT_HERE");
        asker.join().unwrap()
    });
    asker.refused(3, "APPROVAL_PENDING");
    assert_eq!(states(&machine), ["sent"]);
    assert_eq!(machine.pending().len(), 1);
}

#[test]
fn without_a_token_nothing_is_delivered() {
    let machine = started();
    let _listener = UnixListener::bind(machine.state().join("exec-approvals.sock")).unwrap();
    machine.put_down(&["--", "touch marker"]);
    failed(&machine, "no socket token");
}

#[test]
fn the_token_is_made_once_and_shown_only_to_who_asks_for_it() {
    let machine = started();
    let bare = machine.ok(&["approvals", "socket", "--json"]).json();
    assert_eq!(bare["token"], Value::Null);
    let first = machine
        .ok(&["approvals", "socket", "--token", "--json"])
        .json();
    let token = first["token"].as_str().unwrap();
    assert_eq!(token.len(), 64);
    // A document that is set without a token keeps it, and it is not among what is printed.
    assert_eq!(machine.set_document("{ version: 1 }").code, 0);
    assert_eq!(
        machine
            .ok(&["approvals", "socket", "--token", "--json"])
            .json(),
        first
    );
    let printed = machine.ok(&["approvals", "get", "--json"]).stdout;
    let audit = machine.ok(&["audit", "export"]).stdout;
    assert!(!printed.contains(token) && !audit.contains(token));
}
