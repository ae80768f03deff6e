//! Writers that die and disks that are full.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use interlock_transcript::{
    ChunkStream, Cursor, Gap, LineRange, SessionOutcome, TranscriptLimits, TranscriptReader,
    TranscriptWriter,
};

use crate::common::{Account, Place, newlines, numbered, sizes};

/// What a child process of this test binary is to do, and where.
const CHILD: &str = "INTERLOCK_SPOOL_TEST_CHILD";

/// The work of child processes. Does nothing in a normal test run.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else {
        return;
    };
    let (work, dir) = orders.split_once('|').unwrap();
    let dir = PathBuf::from(dir);
    match work {
        "write" => write_for_ever(&dir),
        "limited" => write_to_limited_files(&dir),
        "full" => write_to_a_full_disk(&dir),
        _ => panic!("{work}?"),
    }
}

fn orders(command: &mut Command, work: &str, dir: &Path) -> Child {
    command
        .env(CHILD, format!("{work}|{}", dir.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// This test binary, with arguments to run `child` only.
fn this_binary() -> [String; 4] {
    [
        std::env::current_exe().unwrap().display().to_string(),
        "faults::child".to_string(),
        "--exact".to_string(),
        "--nocapture".to_string(),
    ]
}

fn write_for_ever(dir: &Path) {
    let mut writer = TranscriptWriter::create(dir, TranscriptLimits::default()).unwrap();
    // Enough for any run of the test: the parent kills this process long before.
    let all = numbered(64 << 20);
    let mut done = 0;
    for size in sizes() {
        let end = (done + size).min(all.len());
        writer.append(ChunkStream::Stdout, &all[done..end]);
        done = end;
        if done == all.len() {
            break;
        }
    }
}

#[test]
fn a_killed_writer_leaves_all_complete_chunks() {
    let place = Place::new();
    let [binary, arguments @ ..] = this_binary();
    let mut child = orders(Command::new(binary).args(arguments), "write", &place.dir);
    let reader = loop {
        if let Ok(reader) = TranscriptReader::open(&place.dir) {
            break reader;
        }
        assert!(child.try_wait().unwrap().is_none(), "the writer ended");
    };
    let mut cursor = Cursor::START;
    let mut account = Account::default();
    while account.end < 300_000 {
        account.step(&reader, &mut cursor, 50_000);
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    while account.step(&reader, &mut cursor, 50_000) {}
    assert_eq!(account.gap, Gap::default());
    account.check_against(&numbered(usize::try_from(account.end).unwrap()));
    // Who reads from the start sees the same, and every view works.
    assert_eq!(Account::of(&reader, 1 << 16), account);
    let shown = reader.head_and_tail(1_000).unwrap();
    assert_eq!(shown.total_bytes, account.end);
    let page = reader.by_lines(LineRange::default(), 1 << 20).unwrap();
    let (_, run) = &account.runs[0];
    assert!(page.text.as_bytes().ends_with(&run[run.len() - 10..]));
    let mut status = reader.status().unwrap();
    assert_eq!(status.outcome, SessionOutcome::Running);
    // The next supervisor says what it knows.
    status.outcome = SessionOutcome::Lost;
    status.write(&place.dir).unwrap();
    assert_eq!(reader.status().unwrap(), status);
    assert_eq!(Account::of(&reader, 1 << 16), account);
}

/// No file may grow beyond 64 KiB here.
fn write_to_limited_files(dir: &Path) {
    let all = numbered(300_000);
    let mut writer = TranscriptWriter::create(dir, TranscriptLimits::default()).unwrap();
    let (mut kept, mut lost) = (0, 0);
    for chunk in all.chunks(7_000) {
        let appended = writer.append(ChunkStream::Stdout, chunk);
        assert_eq!(appended.kept + appended.lost, chunk.len() as u64);
        kept += appended.kept;
        lost += appended.lost;
    }
    assert!(kept > 0 && kept <= 64 * 1024, "{kept}");
    assert_eq!(kept + lost, 300_000);
    let fault = writer.fault().unwrap();
    assert_eq!(fault.lost.bytes, lost);
    assert!(
        fault.reason.to_lowercase().contains("large"),
        "{}",
        fault.reason
    );
    let status = writer.finish(SessionOutcome::Exited { code: 0 }).unwrap();
    assert_eq!(
        (status.totals.bytes, status.totals.lost_bytes),
        (300_000, lost)
    );
}

#[test]
fn what_a_file_size_limit_refuses_is_counted_as_lost() {
    let place = Place::new();
    let [binary, arguments @ ..] = this_binary();
    // `ulimit -f` counts blocks of 512 bytes in POSIX, of 1024 in bash's own mode.
    let script = "trap '' XFSZ; ulimit -f $BLOCKS; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, &binary]).args(arguments);
    let output = orders(command.env("BLOCKS", "64"), "limited", &place.dir)
        .wait_with_output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let all = numbered(300_000);
    let reader = TranscriptReader::open(&place.dir).unwrap();
    let account = Account::of(&reader, 10_000);
    account.check_against(&all);
    assert_eq!(account.runs.len(), 1);
    let status = reader.status().unwrap();
    assert_eq!(status.totals.lost_bytes, account.gap.bytes);
    assert!(account.gap.bytes > 200_000);
    // The views count the end that was never written.
    let shown = reader.head_and_tail(1 << 20).unwrap();
    assert_eq!(
        (shown.total_bytes, shown.omitted_bytes, shown.gone_bytes),
        (300_000, account.gap.bytes, account.gap.bytes)
    );
    assert_eq!(shown.omitted_lines, account.gap.lines);
    let page = reader
        .by_lines(
            LineRange {
                offset: Some(0),
                limit: None,
            },
            1 << 20,
        )
        .unwrap();
    assert_eq!(page.omitted, account.gap);
    assert_eq!(page.next_line, None);
}

/// On a small file system of its own, which only this process sees.
fn write_to_a_full_disk(mount: &Path) {
    let filler = mount.join("filler");
    fs::write(&filler, vec![0; 200 * 1024]).unwrap();
    let dir = mount.join("transcript");
    let all = numbered(1_500_000);
    let (first, second) = all.split_at(1_000_000);
    let mut writer = TranscriptWriter::create(
        &dir,
        TranscriptLimits {
            max_spool_bytes: 256 * 1024,
        },
    )
    .unwrap();
    let reader = TranscriptReader::open(&dir).unwrap();
    for chunk in first.chunks(5_000) {
        let appended = writer.append(ChunkStream::Stdout, chunk);
        assert_eq!(appended.kept + appended.lost, chunk.len() as u64);
    }
    let lost = writer.totals().lost_bytes;
    assert!(lost > 0 && writer.fault().is_some());
    // Room again: writing goes on by itself, and the gap shows to readers.
    fs::remove_file(&filler).unwrap();
    for chunk in second.chunks(5_000) {
        assert_eq!(writer.append(ChunkStream::Stdout, chunk).lost, 0);
    }
    assert_eq!(writer.fault(), None);
    let account = Account::of(&reader, 10_000);
    account.check_against(&all);
    let totals = writer.totals();
    assert_eq!(totals.lost_bytes, lost);
    assert_eq!(totals.dropped_bytes + lost, account.gap.bytes);
    assert_eq!(totals.lines, newlines(&all));
    // Full to the last block: the status still finds a place.
    let mut block = 64 * 1024;
    let mut number = 0;
    while block > 0 {
        let path = mount.join(format!("more-{number}"));
        number += 1;
        if fs::write(&path, vec![0; block]).is_err() {
            let _ = fs::remove_file(path);
            block /= 2;
        }
    }
    assert!(fs::write(mount.join("nothing"), b"x").is_err());
    let _ = fs::remove_file(mount.join("nothing"));
    let status = writer.finish(SessionOutcome::Exited { code: 7 }).unwrap();
    assert_eq!(reader.status().unwrap(), status);
    println!("full disk: done");
}

#[test]
fn a_full_disk_loses_only_what_does_not_fit() {
    let temp = tempfile::tempdir().unwrap();
    let mount =
        "mount -t tmpfs -o size=256k,mode=700 none \"$MOUNT\" || exit 77; exec \"$0\" \"$@\"";
    let [binary, arguments @ ..] = this_binary();
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", mount])
        .arg(&binary)
        .args(&arguments)
        .env("MOUNT", temp.path());
    let mut probe = Command::new("unshare");
    probe
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg("mount -t tmpfs none \"$MOUNT\"")
        .env("MOUNT", temp.path())
        .stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        println!("skipped: no mount namespaces for this user");
        return;
    }
    let output = orders(&mut command, "full", temp.path())
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("full disk: done"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
