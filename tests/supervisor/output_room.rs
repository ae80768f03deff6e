//! Where output cannot be kept, or not all of it: quotas, a full disk, no place. Runs go on, and what
//! is missing is counted exactly.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::{Command, Stdio};

use interlock_engine::{RunStatus, Signal};
use interlock_supervisor::{Manner, SupervisorClient, SupervisorPaths};
use testkit::plans::{self, has};
use testkit::supervised::{State, Transcript, end_of, eventually, is_alive, numbers, patient};

#[test]
fn a_small_quota_keeps_head_and_tail_and_counts_the_gap_exactly() {
    const QUOTA: u64 = 64 * 1024;
    let state = State::new();
    let manner = Manner {
        max_spool_bytes: QUOTA,
        ..patient()
    };
    let plan = state.shell("seq 1 200000");
    let conversation = state.start(&plan, &manner).unwrap();
    let ended = end_of(&conversation);
    let name = conversation.started().session.name.clone();
    let expected = numbers(ended.totals.bytes);
    assert!(expected.ends_with(b"\n200000\n"));
    let all = state.transcript(&name);
    let kept = all.bytes.len() as u64;
    assert_eq!(kept + all.gap, ended.totals.bytes);
    assert_eq!(ended.totals.dropped_bytes, all.gap);
    assert_eq!(ended.totals.lost_bytes, 0);
    assert_eq!(ended.shown.gone_bytes, all.gap);
    assert!(kept <= QUOTA && kept > QUOTA / 4, "{kept}");
    let on_disk: u64 = fs::read_dir(state.client.place().session(&name))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk <= QUOTA + 8192, "{on_disk}");
    // Head and tail are what they should be.
    let mut head = 0;
    while head < all.bytes.len() && all.bytes[head] == expected[head] {
        head += 1;
    }
    let tail = all.bytes.len() - head;
    assert!(head > 0 && tail > 0);
    assert!(expected.ends_with(&all.bytes[head..]));
}

/// Each session gets an equal part of what there is for all: a session that writes much has no more
/// room than its part, however much it may have alone.
#[test]
fn many_sessions_share_the_room_there_is() {
    const SESSIONS: usize = 100;
    let state = State::new();
    // An old session that takes half of the total, without taking it on the disk.
    let old = state.begin("echo old");
    state.end_of(&old.name);
    let directory = state.client.place().session(&old.name);
    let claim = fs::File::create(directory.join("claim")).unwrap();
    claim.set_len((5 << 30) - (1 << 20)).unwrap();
    state.client.drain();
    eventually("the end of the first", || {
        testkit::supervised::guards(state.path()).is_empty()
    });
    let others: Vec<_> = (0..SESSIONS).map(|_| state.begin("sleep 600")).collect();
    // 5 GiB for 128: 40 MiB each, counted in powers of two.
    let part: u64 = 32 << 20;
    let plan = state.shell("head -c 60000000 /dev/zero; echo; echo the end");
    let conversation = state.start(&plan, &patient()).unwrap();
    let ended = end_of(&conversation);
    assert_eq!(ended.totals.bytes, 60_000_009);
    assert!(ended.shown.text.ends_with("\nthe end\n"));
    let kept = ended.totals.bytes - ended.totals.dropped_bytes;
    assert!(kept <= part && kept > part / 2, "{kept}");
    let all = state.transcript(&conversation.started().session.name);
    assert_eq!(
        (all.bytes.len() as u64, all.gap),
        (kept, ended.totals.dropped_bytes)
    );
    conversation.taken().unwrap();
    for other in &others {
        let link = state.client.session(&other.name).unwrap();
        link.kill(Signal::KILL).unwrap();
    }
    // Alone again, it has room for all of it.
    let ended = state.run("head -c 60000000 /dev/zero");
    assert_eq!(
        (ended.totals.bytes, ended.totals.dropped_bytes),
        (60_000_000, 0)
    );
}

/// More than half of the total is not for sessions that have ended: the oldest goes first.
#[test]
fn finished_sessions_make_room() {
    let state = State::new();
    let claim = |bytes: u64| {
        let session = state.begin("echo hello");
        state.end_of(&session.name);
        let directory = state.client.place().session(&session.name);
        let file = fs::File::create(directory.join("claim")).unwrap();
        file.set_len(bytes).unwrap();
        session.name
    };
    let names = [claim(3 << 30), claim(1 << 30), claim(1 << 30)];
    state.client.drain();
    eventually("the end of the first", || {
        testkit::supervised::guards(state.path()).is_empty()
    });
    state.run("true");
    eventually("room", || state.client.list().len() == 2);
    let left = state.client.list();
    assert!(left.iter().all(|one| one.session.name != names[0]));
}

/// What stands where the transcripts should be, and what a run does then.
#[test]
fn a_run_whose_output_cannot_be_kept_runs_and_says_so() {
    let state = State::new();
    state.run("true");
    let sessions_path = state.path().join("sessions");
    eventually("no directory", || {
        let _ = fs::remove_dir_all(&sessions_path);
        fs::write(&sessions_path, "in the way").is_ok()
    });
    let ended = state.run("seq 1 1000; touch ran; exit 3");
    assert!(state.work().join("ran").exists());
    assert_eq!(ended.outcome.status, RunStatus::Exited(3));
    assert_eq!((ended.totals.bytes, ended.totals.lines), (3893, 1000));
    assert_eq!(ended.totals.lost_bytes, 3893);
    assert!(ended.fault.is_some_and(|fault| fault.contains("sessions")));
    // As little as that is shown all the same.
    assert!(ended.shown.text.ends_with("\n1000\n"));
    let much = state.run("seq 1 100000");
    assert_eq!(much.totals.lost_bytes, much.totals.bytes);
    assert_eq!(much.shown.gone_bytes, much.totals.bytes);
    // When it is gone, everything is as before.
    fs::remove_file(&sessions_path).unwrap();
    fs::create_dir(&sessions_path).unwrap();
    eventually("a kept run", || {
        let session = state.begin("echo kept");
        eventually("its end", || !is_alive(session.pid));
        let directory = state.client.place().session(&session.name);
        directory.join("status.json").exists() && Transcript::read(&directory).text() == "kept\n"
    });
}

/// In a private mount namespace: transcripts on a disk of one megabyte, which is then full.
const FULL_DISK: &str = r#"
set -e
mkdir -p "$STATE/sessions" "$HOME"
chmod 700 "$STATE"
mount -t tmpfs -o size=1m,mode=700 tmpfs "$STATE/sessions"
"$BINARY" exec-policy preset yolo >/dev/null
"$BINARY" exec -- 'echo warm' > warm
"$BINARY" exec --json -- 'seq 1 200000; touch ran; exit 3' > fills.json 2>&1 || echo $? > fills.code
cat /dev/zero > "$STATE/sessions/filler" 2>/dev/null || true
"$BINARY" exec --json -- 'seq 1 20000; exit 3' > full.json 2>&1 || echo $? > full.code
"$BINARY" exec -- 'echo small' > small 2> small.err || echo $? > small.code
"$BINARY" exec --json --background -- 'exit 4' > background.json 2>&1
rm -rf "$STATE"/sessions/*
"$BINARY" exec --json -- 'seq 1 1000' > after.json 2>&1
echo done > done
until [ -e stop ]; do sleep 0.02; done
"#;

#[test]
fn a_full_disk_stops_no_run_and_is_told() {
    if !testkit::supervised::is_root() || !has("unshare") || !has("mount") {
        return println!("skipped: only root can make a small disk");
    }
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let work = directory.path().join("work");
    for path in [&state, &work] {
        fs::create_dir(path).unwrap();
    }
    let home = directory.path().join("home");
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "/bin/sh", "-c"])
        .arg(FULL_DISK)
        .current_dir(&work)
        .env_clear()
        .envs([("PATH", plans::PATH.as_ref()), ("HOME", home.as_os_str())])
        .envs([("STATE", &state), ("INTERLOCK_STATE_DIR", &state)])
        .env("BINARY", testkit::supervised::binary())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_over = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    eventually("the script", || work.join("done").exists() || is_over());
    // From here the supervisor is seen as it is there, but not its disk.
    let place = SupervisorPaths::new(&state);
    let client = SupervisorClient::new(place, env!("CARGO_PKG_VERSION"));
    for about in client.supervisors() {
        testkit::supervised::kill(about.pid);
    }
    eventually("the end of both", || {
        testkit::supervised::guards(&state).is_empty()
    });
    fs::write(work.join("stop"), "").unwrap();
    let said = child.wait_with_output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said);
    if !work.join("done").exists() && said.contains("mount") {
        return println!("skipped: no small disk can be mounted: {said}");
    }
    let read = |name: &str| fs::read_to_string(work.join(name)).unwrap_or_default();
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_str(&read(name)).unwrap_or_else(|_| panic!("{name}: {}", read(name)))
    };
    assert!(work.join("done").exists(), "{said}");
    assert_eq!(read("warm"), "warm\n");
    assert!(work.join("ran").exists());
    let length = |last: &str| {
        let all = numbers(2_000_000);
        let found = all
            .windows(last.len())
            .position(|part| part == last.as_bytes());
        found.unwrap() as u64 + last.len() as u64
    };
    for (name, total) in [
        ("fills", length("\n200000\n")),
        ("full", length("\n20000\n")),
    ] {
        assert_eq!(read(&format!("{name}.code")), "3\n");
        let result = json(&format!("{name}.json"));
        let count = |field: &str| result["output"][field].as_u64().unwrap();
        assert_eq!(count("totalBytes"), total, "{result}");
        assert_eq!(count("shownBytes") + count("omittedBytes"), total);
        assert!(count("goneBytes") > 0 && count("goneBytes") <= count("omittedBytes"));
        let fault = result["outputFault"].as_str().unwrap_or_default();
        assert!(name == "fills" || fault.contains("space"), "{result}");
    }
    assert_eq!(read("small.code"), "", "{}", read("small.err"));
    assert!(read("small") == "small\n" || read("small.err").contains("could not be kept"));
    assert!(
        ["running", "completed", "failed"]
            .contains(&json("background.json")["status"].as_str().unwrap())
    );
    let after = json("after.json");
    assert_eq!(after["output"]["totalBytes"], 3893);
    assert_eq!(after["output"]["omittedBytes"], 0);
    assert!(after["outputFault"].is_null(), "{}", after["outputFault"]);
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    // Many sessions need no second look.
    testkit::supervised::again_as_ordinary_user(
        module_path!(),
        &["all_of_it_holds", "many_sessions"],
    );
}
