//! The store through its public face: real files, real connections, real processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use interlock_store::{
    ApprovalsStore, AuditKind, DATABASE_NAME, EventKind, MAX_DOCUMENT_BYTES, MAX_LOG_BYTES,
    NewEvent, Store, StoreError,
};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_store_has_no_document_and_is_private() {
    let directory = directory();
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.document().unwrap(), None);
    store.replace_document(None, "{}").unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_database_that_others_could_read_is_made_private() {
    let directory = directory();
    drop(Store::open(directory.path()).unwrap());
    let path = directory.path().join(DATABASE_NAME);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    drop(Store::open(directory.path()).unwrap());
    assert_eq!(mode(&path), 0o600);
}

/// A large change goes through the log beside the database, which never shrinks by itself.
#[test]
fn the_log_beside_the_database_gives_its_room_back() {
    let directory = directory();
    let store = Store::open(directory.path()).unwrap();
    let size = || {
        let log = directory.path().join(format!("{DATABASE_NAME}-wal"));
        std::fs::metadata(log).unwrap().len()
    };
    let append = |many: usize, bytes: usize| {
        let body = serde_json::json!({ "text": "x".repeat(bytes) });
        let written = store.change(|change| {
            (0..many).try_for_each(|_| change.append(AuditKind::Patch, &body, 1).map(drop))
        });
        written.unwrap_or_else(|error: StoreError| panic!("{error}"));
    };
    append(32, 1 << 20);
    assert!(size() > MAX_LOG_BYTES);
    append(1, 1);
    append(1, 1);
    assert!(size() <= MAX_LOG_BYTES, "{}", size());
}

#[test]
fn a_document_is_stored_in_canonical_form_with_its_hash() {
    let directory = directory();
    let stored = Store::open(directory.path())
        .unwrap()
        .replace_document(None, "{ \"b\": [1, 2],\n \"a\": {\"d\": 1, \"c\": \"é\"} }")
        .unwrap();
    assert_eq!(stored.text, r#"{"a":{"c":"é","d":1},"b":[1,2]}"#);
    assert_eq!(stored.hash, sha256(&stored.text));
    assert!(stored.updated_at_ms > 1_600_000_000_000);
    assert_eq!(
        Store::open(directory.path()).unwrap().document().unwrap(),
        Some(stored)
    );
}

/// By the system's own tool, so that the hash is not compared with itself.
fn sha256(text: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let output = Command::new("sha256sum")
        .arg(file.path())
        .output()
        .expect("sha256sum");
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn only_who_has_seen_the_present_document_can_replace_it() {
    let directory = directory();
    let store = Store::open(directory.path()).unwrap();
    let first = store.replace_document(None, "{\"n\":1}").unwrap();
    let second = store
        .replace_document(Some(&first.hash), "{\"n\":2}")
        .unwrap();
    for stale in [None, Some(first.hash.as_str()), Some("")] {
        let error = store.replace_document(stale, "{\"n\":3}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "exec approvals changed; reload and retry"
        );
        assert_eq!(error.code(), "DOCUMENT_CHANGED");
        let StoreError::DocumentChanged { current_hash } = error else {
            panic!("{error}")
        };
        assert_eq!(current_hash.as_ref(), Some(&second.hash));
    }
    assert_eq!(store.document().unwrap(), Some(second));
}

#[test]
fn a_base_is_refused_where_there_is_no_document() {
    let directory = directory();
    let error = Store::open(directory.path())
        .unwrap()
        .replace_document(Some("00"), "{}")
        .unwrap_err();
    assert!(
        matches!(error, StoreError::DocumentChanged { current_hash: None }),
        "{error:?}"
    );
}

#[test]
fn the_same_document_again_changes_nothing() {
    let directory = directory();
    let store = Store::open(directory.path()).unwrap();
    let first = store.replace_document(None, "{\"a\":1,\"b\":2}").unwrap();
    assert_eq!(
        store
            .replace_document(Some(&first.hash), "{\"b\":2, \"a\":1}")
            .unwrap(),
        first
    );
}

#[test]
fn what_is_not_json_is_refused() {
    let directory = directory();
    let store = Store::open(directory.path()).unwrap();
    let deep = "[".repeat(100_000);
    for text in [
        "",
        "{",
        "{a:1}",
        "{} {}",
        "\u{0}",
        "NaN",
        "{\"a\":1e999}",
        deep.as_str(),
    ] {
        assert_eq!(
            store.replace_document(None, text).unwrap_err().code(),
            "DOCUMENT_INVALID"
        );
    }
    let large = format!("{:?}", "x".repeat(MAX_DOCUMENT_BYTES));
    assert_eq!(
        store.replace_document(None, &large).unwrap_err().code(),
        "DOCUMENT_TOO_LARGE"
    );
    assert_eq!(store.document().unwrap(), None);
}

#[test]
fn a_file_that_is_no_database_is_reported_and_left_alone() {
    let directory = directory();
    let path = directory.path().join(DATABASE_NAME);
    std::fs::write(
        &path,
        "this is not a database, but long enough to look like one. ".repeat(100),
    )
    .unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = Store::open(directory.path()).unwrap_err();
    assert_eq!(error.code(), "STORE_CORRUPT");
    assert!(error.remedy().contains("mv "), "{}", error.remedy());
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_truncated_database_is_reported() {
    let directory = directory();
    let store = Store::open(directory.path()).unwrap();
    let large = format!("{:?}", "x".repeat(200_000));
    store.replace_document(None, &large).unwrap();
    drop(store); // everything is in the main file now
    let path = directory.path().join(DATABASE_NAME);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(8192)
        .unwrap();
    let outcome = Store::open(directory.path()).and_then(|store| store.document());
    assert_eq!(outcome.unwrap_err().code(), "STORE_CORRUPT");
}

#[test]
fn a_database_of_a_newer_version_is_refused() {
    let directory = directory();
    drop(Store::open(directory.path()).unwrap());
    let connection = rusqlite::Connection::open(directory.path().join(DATABASE_NAME)).unwrap();
    for version in [99, -1] {
        connection
            .pragma_update(None, "user_version", version)
            .unwrap();
        let error = Store::open(directory.path()).unwrap_err();
        assert_eq!(error.code(), "STORE_NEWER");
        assert!(
            error.remedy().contains("newer Interlock"),
            "{}",
            error.remedy()
        );
    }
}

#[test]
fn a_missing_directory_is_reported() {
    let directory = directory();
    let error = Store::open(&directory.path().join("nowhere")).unwrap_err();
    assert_eq!(error.code(), "STORE_UNREADABLE");
}

#[test]
fn a_directory_in_the_place_of_the_database_is_reported() {
    let directory = directory();
    std::fs::create_dir(directory.path().join(DATABASE_NAME)).unwrap();
    assert_eq!(
        Store::open(directory.path()).unwrap_err().code(),
        "STORE_UNREADABLE"
    );
}

#[test]
fn a_read_only_directory_is_reported() {
    let directory = directory();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o500)).unwrap();
    let writable_anyway = std::fs::write(directory.path().join("probe"), "").is_ok();
    if writable_anyway {
        println!("skipped: this user can write into read-only directories (root)");
        return;
    }
    assert_eq!(
        Store::open(directory.path()).unwrap_err().code(),
        "STORE_UNREADABLE"
    );
}

/// Adds one to a counter in the document, starting over whenever another writer was faster.
fn count_up(store: &Store) {
    loop {
        let current = store.document().unwrap();
        let base = current.as_ref().map(|document| document.hash.as_str());
        let count: u64 = current.as_ref().map_or(0, |document| {
            document
                .text
                .trim_start_matches("{\"count\":")
                .trim_end_matches('}')
                .parse()
                .unwrap()
        });
        match store.replace_document(base, &format!("{{\"count\":{}}}", count + 1)) {
            Ok(_) => return,
            Err(StoreError::DocumentChanged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn threads_with_their_own_connections_lose_no_update() {
    let directory = directory();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            // Opened at once, so the first start is raced too.
            scope.spawn(|| {
                let store = Store::open(directory.path()).unwrap();
                (0..10).for_each(|_| count_up(&store));
            });
        }
    });
    assert_eq!(
        Store::open(directory.path())
            .unwrap()
            .document()
            .unwrap()
            .unwrap()
            .text,
        "{\"count\":40}"
    );
}

#[test]
fn a_writer_is_not_starved_by_one_that_never_pauses() {
    let directory = directory();
    let store = Store::open(directory.path()).unwrap();
    let greedy = Store::open(directory.path()).unwrap();
    let append = |store: &Store| store.append(AuditKind::Verdict, &serde_json::json!({}), 0);
    let (ended, greedy_writes) = (AtomicBool::new(false), AtomicUsize::new(0));
    // Only while the other one is in full stride.
    let append_in_between = |_: i32| {
        let before = greedy_writes.load(Ordering::Relaxed);
        while greedy_writes.load(Ordering::Relaxed) < before + 3 && !ended.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        append(&store)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let outcome = append(&greedy);
                ended.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome.unwrap();
                greedy_writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let outcome: Result<Vec<_>, _> = (0..30).map(append_in_between).collect();
        ended.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
}

#[test]
fn a_database_of_the_first_version_is_brought_up_to_date() {
    let directory = directory();
    let connection = rusqlite::Connection::open(directory.path().join(DATABASE_NAME)).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE approvals_document (
                only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
                text TEXT NOT NULL, hash TEXT NOT NULL, updated_at_ms INTEGER NOT NULL
             ) STRICT;
             PRAGMA user_version = 1;",
        )
        .unwrap();
    connection
        .execute(
            "INSERT INTO approvals_document VALUES (1, '{}', ?1, 5)",
            [sha256("{}")],
        )
        .unwrap();
    drop(connection);
    let store = Store::open(directory.path()).unwrap();
    let document = store.document().unwrap().unwrap();
    assert_eq!((document.text.as_str(), document.updated_at_ms), ("{}", 5));
    // Its document was written before there were records: it is recorded now.
    assert_eq!(store.audit_head().unwrap().seq, 1);
    store.replace_document(Some(&document.hash), "[]").unwrap();
    assert_eq!(store.audit_head().unwrap().seq, 2);
}

const WORKER: &str = "INTERLOCK_STORE_TEST_WORKER";

/// Not a test of its own: the body of the processes that the next test starts.
#[test]
fn worker_process() {
    if let Some(directory) = std::env::var_os(WORKER) {
        let store = Store::open(Path::new(&directory)).unwrap();
        (0..10).for_each(|_| count_up(&store));
    }
}

#[test]
fn processes_lose_no_update() {
    let directory = directory();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "store::worker_process"])
            .env(WORKER, directory.path());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let workers: Vec<_> = (0..4).map(|_| start()).collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(
        Store::open(directory.path())
            .unwrap()
            .document()
            .unwrap()
            .unwrap()
            .text,
        "{\"count\":40}"
    );
}

#[test]
fn a_database_behind_a_link_is_written_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (real, state) = (
        directory.path().join("real"),
        directory.path().join("state"),
    );
    for one in [&real, &state] {
        std::fs::create_dir(one).unwrap();
    }
    drop(Store::open(&real).unwrap());
    std::os::unix::fs::symlink(real.join(DATABASE_NAME), state.join(DATABASE_NAME)).unwrap();
    let store = Store::open(&state).unwrap();
    let watching = Store::open(&real).unwrap();
    let watch = watching.watch().unwrap();
    let event = NewEvent {
        session_key: "agent:main:main",
        agent: "main",
        kind: EventKind::Finished,
        run_id: "run-1",
        text: "done",
        payload: &serde_json::json!({}),
        now_ms: 1,
        wakes: false,
    };
    let stored = store.change(|change| change.append_event(&event));
    assert_eq!(stored.unwrap(), Some(1));
    assert!(
        watch.wait(Duration::from_mins(1)),
        "the watch was not woken"
    );
    assert_eq!(watching.last_event().unwrap(), 1);
}
