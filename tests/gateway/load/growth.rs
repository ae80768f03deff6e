//! What grows: sessions, allowlist entries, audit records, remembered answers. Figures are printed; with
//! `INTERLOCK_GROWTH_BARS` set, which only makes sense for an optimized build on a quiet machine, they
//! must be within the bars of SPECIFICATION.md.

use std::fs;
use std::time::{Duration, Instant};

use interlock_store::{AuditKind, DATABASE_NAME, Store, StoreError};
use serde_json::{Value, json};
use testkit::ws::{EVERYTHING, Gateway, WsClient, now_ms};
use testkit::{Machine, eventually};

use super::calls::{Times, size};

/// How often each thing is measured.
const TIMES: usize = 20;

/// Memory may stay this much above what it was before: by a half, in KiB.
fn is_back(now: u64, idle: u64) -> bool {
    now * 2 <= idle * 3
}

/// The times of some calls; the first one, which may have to read everything, does not count.
fn timed(mut call: impl FnMut()) -> Times {
    call();
    let times = (0..TIMES).map(|_| {
        let began = Instant::now();
        call();
        began.elapsed()
    });
    Times::of(times.collect())
}

fn check_bar(what: &str, times: &Times, bar: Duration) {
    println!("{what}: {times}");
    if std::env::var_os("INTERLOCK_GROWTH_BARS").is_some() {
        assert!(times.at(0.5) <= bar, "{what}: {times}");
    }
}

fn invoke(client: &mut WsClient, tool: &str, args: &Value) -> Value {
    let call = json!({ "name": tool, "args": args });
    client.ok("tools.invoke", &call)["output"].take()
}

fn name(number: usize) -> String {
    let letter = |place: u32| {
        let letter = u8::try_from(number / 26_usize.pow(place) % 26).unwrap();
        char::from(b'a' + letter)
    };
    let word: String = (0..4).rev().map(letter).collect();
    format!("calm-{word}")
}

#[test]
fn a_list_of_many_sessions_takes_little_time_and_room() {
    let sessions = size("INTERLOCK_GROWTH_SESSIONS", 400);
    let machine = Machine::unguarded();
    let newest = now_ms() - 60_000;
    for number in 0..sessions {
        let started = newest - u64::try_from(number).unwrap();
        machine.leave_session(&name(number), started, &json!({}));
    }
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let page = invoke(&mut client, "process", &json!({ "action": "list" }));
    assert_eq!(page["details"]["total"], sessions);
    assert!(page.to_string().len() <= 8 * 1024);
    let bar = Duration::from_millis(20);
    let list = timed(|| {
        invoke(&mut client, "process", &json!({ "action": "list" }));
    });
    check_bar(
        &format!("process list to an agent, {sessions} sessions"),
        &list,
        bar,
    );
    let command = timed(|| {
        machine.ok(&["process", "list"]);
    });
    check_bar(
        &format!("interlock process list, {sessions} sessions"),
        &command,
        bar,
    );
    println!("gateway: {:?} KiB now and at most", gateway.memory());
}

#[test]
fn commands_of_a_machine_with_many_entries_take_little_time() {
    let entries = size("INTERLOCK_GROWTH_ENTRIES", 300);
    let machine = Machine::new();
    let program = machine.native("tool");
    let entry = |number: usize| match number % 3 {
        0 => {
            json!({ "pattern": format!("/opt/app{number}/bin/*"), "argPattern": format!("^run [a-z]+{number}$") })
        }
        1 => {
            json!({ "pattern": format!("/usr/local/bin/tool{number}"), "args": ["build", format!("dir{number}/*")] })
        }
        _ => json!({ "pattern": format!("tool{number}"), "cwd": "/src/**" }),
    };
    let mut list: Vec<Value> = (1..entries).map(entry).collect();
    list.push(json!({ "pattern": program.display().to_string() }));
    let document = json!({
        "version": 1,
        "agents": { "main": { "security": "allowlist", "ask": "off", "allowlist": list } },
    });
    let file = machine.file("document.json", document.to_string());
    machine.ok(&["approvals", "set", "--file", &file.display().to_string()]);
    let program = program.display().to_string();
    let bar = Duration::from_millis(15);
    let start = timed(|| {
        machine.ok(&["--version"]);
    });
    println!("interlock --version, what every command takes: {start}");
    let commands: [(&[&str], Option<Duration>); 5] = [
        (&["explain", "--", &program], Some(bar)),
        (&["explain", "--", "nothing", "like", "it"], Some(bar)),
        (&["exec", "--", &program], Some(bar)),
        (&["exec-policy", "show"], Some(bar)),
        (&["approvals", "get"], None),
    ];
    for (arguments, bar) in commands {
        let times = timed(|| {
            machine.ok(arguments);
        });
        let what = format!("interlock {}, {entries} entries", arguments.join(" "));
        check_bar(&what, &times, bar.unwrap_or(Duration::MAX));
    }
    // The document was checked as a whole once. Another one is judged by what stands in it, and so is
    // this one where the mark was changed.
    let mark = machine.state().join("approvals.accepted");
    let written = fs::read_to_string(&mark).unwrap();
    let other = file.display().to_string();
    let without = document.to_string().replace(&program, "/nothing/here");
    fs::write(&file, without).unwrap();
    machine.ok(&["approvals", "set", "--file", &other]);
    for mark_text in [written.as_str(), "", "1-0.1.0 forged\n"] {
        fs::write(&mark, mark_text).unwrap();
        machine
            .run(&["exec", "--", &program])
            .refused(3, "EXEC_DENIED");
    }
}

#[test]
fn many_audit_records_are_searched_fast_and_archived() {
    const AGENTS: usize = 20;
    let records = size("INTERLOCK_GROWTH_RECORDS", 5_000);
    let machine = Machine::unguarded();
    machine.ok(&["approvals", "get"]);
    let began = now_ms() - u64::try_from(records).unwrap();
    {
        let store = Store::open(&machine.state()).unwrap();
        let numbers: Vec<usize> = (0..records).collect();
        for piece in numbers.chunks(10_000) {
            let written = store.change(|change| {
                for number in piece {
                    let body = json!({
                        "agent": format!("agent{}", number % AGENTS), "command": "cargo test --workspace",
                        "runId": format!("run-{number}"), "cwd": "/home/user/project", "verdict": "allow",
                    });
                    let kind = [AuditKind::Verdict, AuditKind::RunStarted, AuditKind::RunEnded][number % 3];
                    let time = i64::try_from(began).unwrap() + i64::try_from(*number).unwrap();
                    change.append(kind, &body, time)?;
                }
                Ok::<_, StoreError>(())
            });
            written.unwrap();
        }
    }
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let searches = [
        ("by agent", json!({ "agentId": "agent7", "limit": 50 })),
        ("by kind", json!({ "kind": "run-ended", "limit": 50 })),
        ("by time", json!({ "after": began + 1, "limit": 50 })),
        (
            "by agent and kind",
            json!({ "agentId": "agent7", "kind": "verdict", "limit": 50 }),
        ),
        ("of no agent", json!({ "agentId": "missing", "limit": 50 })),
    ];
    for (what, filter) in searches {
        let times = timed(|| {
            client.ok("audit.list", &filter);
        });
        check_bar(
            &format!("audit.list {what}, {records} records"),
            &times,
            Duration::from_millis(20),
        );
    }
    let size_of = || {
        fs::metadata(machine.state().join(DATABASE_NAME))
            .unwrap()
            .len()
    };
    let (before, started) = (size_of(), Instant::now());
    let mut files = 0;
    eventually("all records are old enough", || {
        let archived = machine.ok(&["audit", "archive", "--before", "1s", "--json"]);
        files += archived.json()["archived"].as_array().unwrap().len();
        files >= 1
    });
    println!(
        "audit archive: {files} files in {:.1} s, database {before} to {} bytes",
        started.elapsed().as_secs_f64(),
        size_of()
    );
    assert!(records < 100_000 || size_of() < before / 10);
    machine.ok(&["audit", "verify"]);
    // The gateway goes on with the same chain.
    invoke(&mut client, "exec", &json!({ "command": "echo on" }));
    machine.ok(&["audit", "verify"]);
}

#[test]
fn large_answers_of_one_token_are_not_kept_for_long() {
    let answers = size("INTERLOCK_GROWTH_ANSWERS", 40);
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    invoke(&mut client, "exec", &json!({ "command": "true" }));
    let idle = idle_memory(&gateway);
    for number in 0..answers {
        let call = json!({
            "name": "exec", "idempotencyKey": format!("key-{number}"),
            "args": { "command": "head -c 200000 /dev/zero | tr '\\0' x" },
        });
        client.ok("tools.invoke", &call);
    }
    let (after, most) = gateway.memory();
    println!("{answers} large answers: idle {idle} KiB, then {after}, at most {most}");
    expect_back(&gateway, idle);
}

#[test]
fn every_kind_of_call_for_a_while_leaves_no_memory_behind() {
    let seconds = u64::try_from(size("INTERLOCK_SOAK_SECONDS", 5)).unwrap();
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let mut decider = gateway.connect(EVERYTHING);
    for number in 0..10 {
        round(&machine, &mut client, &mut decider, number);
    }
    let idle = idle_memory(&gateway);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 10;
    while Instant::now() < until {
        round(&machine, &mut client, &mut decider, rounds);
        rounds += 1;
    }
    let (after, most) = gateway.memory();
    println!("{rounds} rounds in {seconds} s: idle {idle} KiB, then {after}, at most {most}");
    expect_back(&gateway, idle);
}

/// One call of each kind.
fn round(machine: &Machine, client: &mut WsClient, decider: &mut WsClient, number: usize) {
    let exec = json!({ "command": "echo hello; head -c 5000 /dev/zero | tr '\\0' y" });
    invoke(client, "exec", &exec);
    let call = json!({ "name": "exec", "idempotencyKey": format!("soak-{number}"), "args": { "command": "date" } });
    client.ok("tools.invoke", &call);
    let started = invoke(
        client,
        "exec",
        &json!({ "command": "cat", "background": true, "stdin": "pipe" }),
    );
    let id = started["details"]["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{started}"))
        .to_owned();
    let on_session = |action: &str| json!({ "action": action, "sessionId": id });
    let mut write = on_session("write");
    write["data"] = "line\n".into();
    invoke(client, "process", &write);
    for action in ["poll", "log", "kill", "remove"] {
        invoke(client, "process", &on_session(action));
    }
    invoke(client, "process", &json!({ "action": "list" }));
    let patch = format!("*** Begin Patch\n*** Add File: soak-{number}.txt\n+hello\n*** End Patch");
    invoke(client, "apply_patch", &json!({ "input": patch }));
    let _ = fs::remove_file(machine.work().join(format!("soak-{number}.txt")));
    let question = json!({ "command": format!("make {number}"), "cwd": "/tmp", "twoPhase": true });
    let asked = client.ok("exec.approval.request", &question);
    decider.ok("exec.approval.get", &json!({ "id": asked["id"] }));
    let decision = json!({ "id": asked["id"], "decision": "deny" });
    decider.ok("exec.approval.resolve", &decision);
    for (method, params) in [
        ("status", json!({})),
        ("health", json!({})),
        ("exec.approval.list", json!({})),
        ("process.list", json!({})),
        ("tasks.list", json!({})),
        ("sessions.list", json!({})),
        ("audit.list", json!({ "limit": 20 })),
        ("audit.head", json!({})),
        ("config.get", json!({})),
        ("exec.approvals.get", json!({})),
        ("node.list", json!({})),
    ] {
        client.ok(method, &params);
    }
    // A connection comes and goes, over MCP too.
    if number.is_multiple_of(10) {
        machine.ok(&["process", "list"]);
        machine.ok(&["status"]);
    }
}

/// What the gateway has in use once nothing changes any more.
fn idle_memory(gateway: &Gateway) -> u64 {
    let mut last = 0;
    eventually("the memory stays the same", || {
        std::thread::sleep(Duration::from_millis(500));
        let (now, _) = gateway.memory();
        let is_same = now == last;
        last = now;
        is_same
    });
    last
}

/// Within a minute, as SPECIFICATION.md says; on a machine with much to do, within three.
fn expect_back(gateway: &Gateway, idle: u64) {
    let began = Instant::now();
    let is_strict = std::env::var_os("INTERLOCK_GROWTH_BARS").is_some();
    let most = Duration::from_secs(if is_strict { 75 } else { 180 });
    while !is_back(gateway.memory().0, idle) {
        assert!(
            began.elapsed() < most,
            "idle {idle} KiB, now {:?}",
            gateway.memory()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    println!(
        "back to {} KiB after {:.0} s",
        gateway.memory().0,
        began.elapsed().as_secs_f64()
    );
}
