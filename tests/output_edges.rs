//! Output at its edges: much, odd, late, and where it cannot be kept. No byte is lost unseen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod sessions;
mod support;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use interlock_run::spool::{Cursor, Outcome, SpoolReader, Stream};
use interlock_run::supervisor::{Client, Manner, Place, Waited};
use interlock_run::{Leftovers, Signal, Status};
use sessions::plans::{self, Mark, has};
use sessions::{State, Transcript, end_of, eventually, is_alive, patient};
use support::Machine;

const MUCH: u64 = 100_000_000;

/// `seq 1 …` up to so many bytes, as this process writes it.
fn numbers(bytes: u64) -> Vec<u8> {
    use std::io::Write as _;
    let size = usize::try_from(bytes).unwrap();
    let mut text = Vec::with_capacity(size + 20);
    for number in 1.. {
        if text.len() >= size {
            break;
        }
        writeln!(text, "{number}").unwrap();
    }
    text.truncate(size);
    text
}

#[test]
fn a_hundred_megabytes_come_whole() {
    let state = State::new();
    let plan = state.shell(&format!("seq 1 100000000 | head -c {MUCH}"));
    let conversation = state.start(&plan, &patient()).unwrap();
    let ended = end_of(&conversation);
    assert_eq!(ended.outcome.status, Status::Exited(0));
    let expected = numbers(MUCH);
    let (totals, shown) = (&ended.totals, &ended.shown);
    assert_eq!(
        (totals.bytes, totals.dropped_bytes, totals.lost_bytes),
        (MUCH, 0, 0)
    );
    let newlines = expected.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(totals.lines, newlines as u64);
    assert_eq!(shown.total_bytes, MUCH);
    assert_eq!(shown.shown_bytes + shown.omitted_bytes, MUCH);
    assert_eq!((shown.shown_bytes, shown.gone_bytes), (200_000, 0));
    let (head, tail) = (&expected[..100_000], &expected[expected.len() - 100_000..]);
    assert!(shown.text.as_bytes().starts_with(head));
    assert!(shown.text.as_bytes().ends_with(tail));
    let all = state.transcript(&conversation.started().session.name);
    assert!(all.bytes == expected && all.gap == 0);
}

/// Bytes in a file, and what a run that writes them to its output leaves behind.
#[test]
fn bytes_of_every_kind_come_as_they_are() {
    let state = State::new();
    let every: Vec<u8> = (0..=255_u8).cycle().take(100_000).collect();
    let cut = "€".repeat(40_000).into_bytes();
    let kinds: &[(&str, Vec<u8>)] = &[
        ("nothing", Vec::new()),
        ("no newline", b"no newline".to_vec()),
        ("one newline", b"\n".to_vec()),
        ("zeros", vec![0; 70_000]),
        ("every byte", every),
        ("only newlines", vec![b'\n'; 66_000]),
        ("one long line", vec![b'x'; 1_000_000]),
        // Between the reads a character is cut in two.
        ("long text", cut[1..].to_vec()),
        ("a broken end", b"good \xe2\x82".to_vec()),
        ("a surrogate", b"\xed\xa0\x80".to_vec()),
        ("an escape", b"\x1b[2J\x07\r\n".to_vec()),
    ];
    for (name, bytes) in kinds {
        let file = state.work().join("bytes");
        fs::write(&file, bytes).unwrap();
        let plan = state.shell("cat bytes");
        let conversation = state.start(&plan, &patient()).unwrap();
        let ended = end_of(&conversation);
        assert_eq!(ended.totals.bytes, bytes.len() as u64, "{name}");
        assert_eq!(ended.fault, None);
        let text = String::from_utf8_lossy(bytes);
        if text.chars().count() <= 200_000 {
            assert_eq!(ended.shown.text, text, "{name}");
            assert_eq!(ended.shown.omitted_bytes, 0, "{name}");
        }
        // Those whose result was not taken are kept.
        let session = conversation.started().session.name.clone();
        drop(conversation);
        // It is kept from now on.
        eventually("its status", || {
            state
                .client
                .list()
                .iter()
                .any(|one| one.session.name == session)
        });
        state.end_of(&session);
        assert!(state.transcript(&session).bytes == *bytes, "{name}");
    }
}

#[test]
fn a_reader_that_takes_its_time_slows_nobody_down_and_misses_nothing() {
    let state = State::new();
    let conversation = state
        .start(&state.shell("seq 1 300000; touch written"), &patient())
        .unwrap();
    // Nobody reads, and still it gets to its end.
    eventually("all of it written", || {
        state.work().join("written").exists()
    });
    end_of(&conversation);
    let directory = state
        .client
        .place()
        .session(&conversation.started().session.name);
    let spool = SpoolReader::open(&directory).unwrap();
    let mut cursor = Cursor::START;
    let mut read = Vec::new();
    // A little at a time.
    loop {
        let batch = spool.read_from(cursor, 1).unwrap();
        assert!(batch.gap.is_empty());
        if batch.next == cursor {
            break;
        }
        cursor = batch.next;
        for chunk in batch.chunks {
            read.extend(chunk.bytes);
        }
    }
    assert!(read == numbers(read.len() as u64) && read.ends_with(b"\n300000\n"));
}

/// A reader of `interlock exec` that stops reading in between gets the rest later.
#[test]
fn a_pipe_that_is_full_for_a_while_loses_nothing() {
    let machine = Machine::open();
    let mut child = machine
        .command(&["exec", "--", "seq 1 400000 && touch written"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("all of it written", || {
        machine.work().join("written").exists()
    });
    let mut text = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(text == numbers(text.len() as u64) && text.ends_with(b"\n400000\n"));
}

/// Each line is seen before the next one is written, so that there is an order to be kept.
#[test]
fn standard_output_and_error_stay_in_their_order() {
    let state = State::new();
    let text = "for i in 1 2 3 4 5 6 7 8; do
        echo out $i; until [ -e out$i ]; do sleep 0.002; done
        echo err $i >&2; until [ -e err$i ]; do sleep 0.002; done
    done";
    let session = state.begin(text);
    let mut expected = String::new();
    for number in 1..=8 {
        for stream in ["out", "err"] {
            expected.push_str(&format!("{stream} {number}\n"));
            eventually("the line", || {
                state.transcript(&session.name).text() == expected
            });
            fs::write(state.work().join(format!("{stream}{number}")), "").unwrap();
        }
    }
    state.end_of(&session.name);
    let directory = state.client.place().session(&session.name);
    let spool = SpoolReader::open(&directory).unwrap();
    let chunks = spool.read_from(Cursor::START, 1 << 20).unwrap().chunks;
    for (index, chunk) in chunks.iter().enumerate() {
        let stream = if index % 2 == 0 {
            Stream::Stdout
        } else {
            Stream::Stderr
        };
        assert_eq!((chunk.stream, chunk.sequence), (stream, index as u64));
        assert!(chunk.time_ms >= chunks[index.saturating_sub(1)].time_ms);
    }
    assert_eq!(chunks.len(), 16);
    // One pipe for both keeps the order without any help.
    let both = state.run("for i in 1 2 3; do echo out $i; echo err $i >&2; done 2>&1");
    assert_eq!(
        both.shown.text,
        "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    );
    // And each stream keeps its own in any case.
    let two = state.run("for i in 1 2 3 4 5 6 7 8 9; do echo $i; echo $i >&2; done");
    assert_eq!(two.totals.bytes, 36);
}

/// A run ends with its process. What is in the pipe by then is read; for others it is waited a
/// moment, and not longer.
#[test]
fn what_others_write_after_the_end_is_read_for_a_moment() {
    let state = State::new();
    let seen = AtomicUsize::new(0);
    // Writes as soon as its parent is gone; on a busy machine not always in time.
    let late = "sh -c 'while kill -0 $0 2>/dev/null; do :; done; echo late' $$ & exit 4";
    eventually("late words", || {
        let ended = state.run(late);
        assert_eq!(ended.outcome.status, Status::Exited(4));
        if ended.shown.text == "late\n" {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        seen.load(Ordering::Relaxed) > 0
    });
    // Somebody who never lets go of the pipe holds nothing up.
    let mut plan = state.shell("echo early; sleep 600 & exit 5");
    let mark = Mark::on(&mut plan);
    let ended = state.run_plan(&plan, &patient());
    assert_eq!(ended.outcome.status, Status::Exited(5));
    assert_eq!(ended.shown.text, "early\n");
    assert_eq!(ended.outcome.leftovers.len(), 1);
    mark.wait_until_none();
    // Nor does somebody who never stops writing.
    let mut plan = state.shell("yes & echo $! > pid; until [ -s pid ]; do :; done; exit 6");
    let mark = Mark::on(&mut plan);
    let ended = state.run_plan(&plan, &patient());
    assert_eq!(ended.outcome.status, Status::Exited(6));
    mark.wait_until_none();
}

/// Words of a daemon that may stay go nowhere, and do not end it.
#[test]
fn a_daemon_that_is_kept_may_go_on_writing() {
    let state = State::new();
    let text = "sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo a line of output $i; done; \
        echo $i > written; exec sleep 600' & exit 0";
    let mut plan = state.shell(text);
    let mark = Mark::on(&mut plan);
    let manner = Manner {
        leftovers: Leftovers::Keep,
        ..patient()
    };
    state.run_plan(&plan, &manner);
    assert_eq!(state.lines("written", 1), ["3000"]);
    assert_eq!(mark.processes().len(), 1);
    let daemon = sessions::processes().into_iter().find(|process| {
        process.name == "sleep"
            && fs::read(format!("/proc/{}/environ", process.pid)).is_ok_and(|environment| {
                let mark = plan.env["INTERLOCK_TEST_MARK"].as_bytes();
                environment.windows(mark.len()).any(|part| part == mark)
            })
    });
    sessions::kill(daemon.unwrap().pid);
    mark.wait_until_none();
}

#[test]
fn six_hundred_short_runs_lose_no_byte() {
    let state = State::new();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let client = state.client_of(sessions::VERSION);
                client.prepare();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= 600 {
                        return;
                    }
                    // Small ones, ones as large as a pipe, and ones that end by a signal.
                    let size = [0, 1, 4_096, 65_536, 65_537, 150_000][number % 6];
                    let text = format!(
                        "printf '%{size}s' | tr ' ' {}; exit {}",
                        number % 10,
                        number % 7
                    );
                    let order = State::order(&state.shell(&text), &patient());
                    let conversation = client.start(&order).unwrap();
                    let ended = end_of(&conversation);
                    let code = i32::try_from(number % 7).unwrap();
                    assert_eq!(ended.outcome.status, Status::Exited(code), "{number}");
                    // `printf` does not know a width of 0.
                    let expected = (number % 10).to_string().repeat(size);
                    assert_eq!(ended.totals.bytes, size as u64, "{number}");
                    assert!(ended.shown.text == expected, "{number}");
                    conversation.taken().unwrap();
                }
            });
        }
    });
}

#[test]
fn a_run_that_is_over_at_once_is_whole() {
    let state = State::new();
    for _ in 0..50 {
        let ended = state.run_plan(&plans::plan("true", &state.work()), &patient());
        assert_eq!(
            (ended.outcome.status, ended.totals.bytes),
            (Status::Exited(0), 0)
        );
        let ended = state.run("kill -9 $$");
        assert_eq!(ended.outcome.status, Status::Signaled(9));
    }
    // In the background too: nobody is told of a session that then is not there.
    for _ in 0..50 {
        let session = state.begin("echo x; exit 9");
        let listed = state.end_of(&session.name);
        assert_eq!(listed.status.outcome, Outcome::Exited { code: 9 });
        assert!(listed.status.ended_ms.unwrap() >= listed.status.started_ms);
        assert_eq!(state.transcript(&session.name).text(), "x\n");
    }
}

#[test]
fn what_cannot_be_started_is_refused_and_leaves_no_session() {
    let state = State::new();
    let refused = |plan, code: &str, says: &str| {
        let refusal = state.start(&plan, &patient()).unwrap_err();
        assert_eq!(refusal.code(), code, "{refusal}");
        assert!(refusal.to_string().contains(says), "{refusal}");
    };
    let tool = state.work().join("tool");
    let line = tool.to_str().unwrap();
    plans::executable(&tool, b"#!/bin/sh\necho hello\n");
    let plan = plans::plan(line, &state.work());
    assert_eq!(state.run_plan(&plan, &patient()).shown.text, "hello\n");
    // Another file is no longer the one of the plan; the same one may not be executable.
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o644)).unwrap();
    let error = state.start(&plan, &patient()).unwrap_err();
    assert!(
        ["START_FAILED", "APPROVAL_DRIFT"].contains(&error.code()),
        "{error}"
    );
    fs::remove_file(&tool).unwrap();
    refused(plan, "APPROVAL_DRIFT", line);
    plans::executable(&tool, b"#!/no/such/interpreter\n");
    let plan = plans::plan(line, &state.work());
    refused(plan, "START_FAILED", "no such file or directory");
    // The working directory vanishes, or is another one, between plan and start.
    let place = state.work().join("place");
    fs::create_dir(&place).unwrap();
    let plan = plans::plan("true", &place);
    fs::remove_dir(&place).unwrap();
    refused(plan.clone(), "APPROVAL_DRIFT", "place");
    std::os::unix::fs::symlink("/", &place).unwrap();
    refused(plan, "APPROVAL_DRIFT", "place");
    if !sessions::is_root() {
        let closed = state.work().join("closed");
        fs::create_dir(&closed).unwrap();
        let plan = plans::plan("true", &closed);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        refused(plan, "START_FAILED", "permission denied");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(state.client.list(), []);
}

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

/// Everybody gets an equal part of what there is for all: a session that writes much has no more
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
        sessions::guards(state.path()).is_empty()
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
        sessions::guards(state.path()).is_empty()
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
    assert_eq!(ended.outcome.status, Status::Exited(3));
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
    if !sessions::is_root() || !has("unshare") || !has("mount") {
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
        .env("BINARY", sessions::binary())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_over = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    eventually("the script", || work.join("done").exists() || is_over());
    // From here the supervisor is seen as it is there, but not its disk.
    let place = Place::new(&state);
    let client = Client::new(place, env!("CARGO_PKG_VERSION"));
    for about in client.supervisors() {
        sessions::kill(about.pid);
    }
    eventually("the end of both", || sessions::guards(&state).is_empty());
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
    // Those with a machine are elsewhere shown for this user; many sessions need no second look.
    sessions::again_as_ordinary_user(&["all_of_it_holds", "a_pipe_that_is_full", "many_sessions"]);
}

/// The end of a run is told at its end, not when somebody takes the last of its output.
#[test]
fn a_result_is_not_held_up_by_its_size() {
    let state = State::new();
    let plan = state.shell("seq 1 1000000");
    let manner = Manner {
        show_chars: 2_000_000,
        ..patient()
    };
    let conversation = state.start(&plan, &manner).unwrap();
    let name = conversation.started().session.name.clone();
    // The result is larger than any buffer, and nobody reads it yet.
    let listed = state.end_of(&name);
    assert_eq!(listed.status.outcome, Outcome::Exited { code: 0 });
    let Waited::Ended(ended) = conversation.wait().unwrap() else {
        panic!("it went to the background");
    };
    assert_eq!(ended.shown.shown_bytes, 2_000_000);
    conversation.taken().unwrap();
}
