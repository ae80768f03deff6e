//! What sessions are set to, and how far readers of all events have come.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_store::{AuditFilter, Author, EventKind, NewEvent, SessionSettings, Store};
use serde_json::json;

fn set(store: &Store, key: &str, settings: &SessionSettings, now_ms: i64) {
    let author = Author::new("bob").unwrap();
    store
        .change(|change| change.set_session_settings(key, "main", settings, &author, now_ms))
        .unwrap();
}

fn event(store: &Store, key: &str, run: &str, now_ms: i64) {
    let event = NewEvent {
        session_key: key,
        agent: "main",
        kind: EventKind::Finished,
        run_id: run,
        text: "x",
        payload: &json!({}),
        wakes: true,
        now_ms,
    };
    let id = store.change(|change| change.append_event(&event)).unwrap();
    assert!(id.is_some());
}

#[test]
fn settings_are_kept_and_every_change_of_them_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let settings = SessionSettings {
        security: Some("deny".to_owned()),
        label: Some("night".to_owned()),
        ..SessionSettings::default()
    };
    set(&store, "agent:main:a", &settings, 10);
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.session_settings("agent:main:a").unwrap(), settings);
    assert!(store.session_settings("agent:main:b").unwrap().is_empty());
    event(&store, "agent:main:b", "r1", 20);
    let known = store.known_sessions().unwrap();
    let keys: Vec<_> = known
        .iter()
        .map(|one| (one.session_key.as_str(), one.at_ms))
        .collect();
    assert_eq!(keys, [("agent:main:b", 20), ("agent:main:a", 10)]);
    assert_eq!(known[1].settings, settings);
    set(&store, "agent:main:a", &SessionSettings::default(), 30);
    assert_eq!(store.known_sessions().unwrap().len(), 1);
    let records = store.audit_log(&AuditFilter::default()).unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].body["settings"], json!({}));
    assert_eq!(
        records[1].body,
        json!({
            "document": "session",
            "agent": "main",
            "sessionKey": "agent:main:a",
            "settings": { "label": "night", "security": "deny" },
            "who": "bob",
        })
    );
}

#[test]
fn a_reader_of_events_begins_with_what_comes_and_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.last_event().unwrap(), 0);
    event(&store, "s", "r1", 1);
    assert_eq!(store.events_reader("wake").unwrap(), 1);
    event(&store, "s", "r2", 2);
    event(&store, "t", "r3", 3);
    assert_eq!(store.last_event().unwrap(), 3);
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.events_reader("wake").unwrap(), 1);
    store.events_read("wake", 3).unwrap();
    store.events_read("wake", 2).unwrap();
    assert_eq!(store.events_reader("wake").unwrap(), 3);
    let of = |key, after| {
        let events = store.events_of(key, after, 10).unwrap();
        events.iter().map(|event| event.id).collect::<Vec<_>>()
    };
    assert_eq!(
        (of("s", 0), of("s", 1), of("t", 0)),
        (vec![1, 2], vec![2], vec![3])
    );
}
