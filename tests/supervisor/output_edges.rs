//! Output at its edges: much, odd, late, and where it cannot be kept. No byte is lost unseen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use interlock_engine::{Leftovers, RunStatus};
use interlock_supervisor::{Manner, Waited};
use interlock_transcript::{ChunkStream, Cursor, SessionOutcome, TranscriptReader};
use testkit::Machine;
use testkit::plans::{self, Mark};
use testkit::supervised::{State, end_of, eventually, numbers, patient};

const MUCH: u64 = 100_000_000;

#[test]
fn a_hundred_megabytes_come_whole() {
    let state = State::new();
    let plan = state.shell(&format!("seq 1 100000000 | head -c {MUCH}"));
    let conversation = state.start(&plan, &patient()).unwrap();
    let ended = end_of(&conversation);
    assert_eq!(ended.outcome.status, RunStatus::Exited(0));
    let expected = numbers(MUCH);
    let (totals, shown) = (&ended.totals, &ended.shown);
    assert_eq!(
        (totals.bytes, totals.dropped_bytes, totals.lost_bytes),
        (MUCH, 0, 0)
    );
    let newlines = String::from_utf8_lossy(&expected).matches('\n').count();
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
fn a_slow_reader_slows_no_run_down_and_misses_nothing() {
    let state = State::new();
    let conversation = state
        .start(&state.shell("seq 1 300000; touch written"), &patient())
        .unwrap();
    // There is no reader, and still it gets to its end.
    eventually("all of it written", || {
        state.work().join("written").exists()
    });
    end_of(&conversation);
    let directory = state
        .client
        .place()
        .session(&conversation.started().session.name);
    let spool = TranscriptReader::open(&directory).unwrap();
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
    let spool = TranscriptReader::open(&directory).unwrap();
    let chunks = spool.read_from(Cursor::START, 1 << 20).unwrap().chunks;
    for (index, chunk) in chunks.iter().enumerate() {
        let stream = if index % 2 == 0 {
            ChunkStream::Stdout
        } else {
            ChunkStream::Stderr
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
        assert_eq!(ended.outcome.status, RunStatus::Exited(4));
        if ended.shown.text == "late\n" {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        seen.load(Ordering::Relaxed) > 0
    });
    // A process that never lets go of the pipe holds nothing up.
    let mut plan = state.shell("echo early; sleep 600 & exit 5");
    let mark = Mark::on(&mut plan);
    let ended = state.run_plan(&plan, &patient());
    assert_eq!(ended.outcome.status, RunStatus::Exited(5));
    assert_eq!(ended.shown.text, "early\n");
    assert_eq!(ended.outcome.leftovers.len(), 1);
    mark.wait_until_none();
    // Nor does a process that never stops writing.
    let mut plan = state.shell("yes & echo $! > pid; until [ -s pid ]; do :; done; exit 6");
    let mark = Mark::on(&mut plan);
    let ended = state.run_plan(&plan, &patient());
    assert_eq!(ended.outcome.status, RunStatus::Exited(6));
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
    let daemon = testkit::supervised::processes()
        .into_iter()
        .find(|process| {
            process.name == "sleep"
                && fs::read(format!("/proc/{}/environ", process.pid)).is_ok_and(|environment| {
                    let mark = plan.env["INTERLOCK_TEST_MARK"].as_bytes();
                    environment.windows(mark.len()).any(|part| part == mark)
                })
        });
    testkit::supervised::kill(daemon.unwrap().pid);
    mark.wait_until_none();
}

#[test]
fn six_hundred_short_runs_lose_no_byte() {
    let state = State::new();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let client = state.client_of(testkit::supervised::VERSION);
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
                    let conversation = order.start(&client).unwrap();
                    let ended = end_of(&conversation);
                    let code = i32::try_from(number % 7).unwrap();
                    assert_eq!(ended.outcome.status, RunStatus::Exited(code), "{number}");
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
            (RunStatus::Exited(0), 0)
        );
        let ended = state.run("kill -9 $$");
        assert_eq!(ended.outcome.status, RunStatus::Signaled(9));
    }
    // In the background too: no caller learns of a session that then is not there.
    for _ in 0..50 {
        let session = state.begin("echo x; exit 9");
        let listed = state.end_of(&session.name);
        assert_eq!(listed.status.outcome, SessionOutcome::Exited { code: 9 });
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
    if !testkit::supervised::is_root() {
        let closed = state.work().join("closed");
        fs::create_dir(&closed).unwrap();
        let plan = plans::plan("true", &closed);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        refused(plan, "START_FAILED", "permission denied");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    }
    // What was taken goes in a moment.
    eventually("no session", || state.client.list().is_empty());
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    testkit::supervised::again_as_ordinary_user(
        module_path!(),
        &["all_of_it_holds", "a_pipe_that_is_full"],
    );
}

/// The end of a run is reported at its end, not when the last of its output is read.
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
    // The result is larger than any buffer, and is not read yet.
    let listed = state.end_of(&name);
    assert_eq!(listed.status.outcome, SessionOutcome::Exited { code: 0 });
    let Waited::Ended(ended) = conversation.wait().unwrap() else {
        panic!("it went to the background");
    };
    assert_eq!(ended.shown.shown_bytes, 2_000_000);
    conversation.taken().unwrap();
}
