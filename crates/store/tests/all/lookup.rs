//! Finding approvals: by what a person types, and as a list.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;

use crate::common::{NOW, answer, code, decided, delivery, digest, request, shown};
use interlock_store::{ApprovalDecision, ApprovalRequest, DATABASE_NAME, DeliveryState, Store};

fn open() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

#[test]
fn an_approval_is_read_back_as_it_was_asked_also_after_a_restart() {
    let (directory, store) = open();
    let mut asked = request("whoami");
    asked.node = Some("node-7".to_owned());
    asked.preview = "whoami \u{202e} \"'\\ \n é".to_owned();
    let created = store.create_approval(&asked).unwrap();
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    let found = store.approval(&created.id).unwrap();
    assert_eq!(found.request, asked);
    assert_eq!((found.id, found.short_id), (created.id, created.short_id));
    assert_eq!(
        (found.deliveries, found.ended, found.claim),
        (vec![], None, None)
    );
}

#[test]
fn an_approval_is_found_by_short_id_and_by_an_unambiguous_beginning() {
    let (_directory, store) = open();
    let created: Vec<_> = (0..200)
        .map(|number| {
            store
                .create_approval(&request(&number.to_string()))
                .unwrap()
        })
        .collect();
    for one in &created {
        let by_short = store.approval(&one.short_id.to_ascii_uppercase()).unwrap();
        assert_eq!(by_short.id, one.id);
        assert_eq!(store.approval(&one.id[..35]).unwrap().id, one.id);
        let beginning = &one.id[..4];
        let same = created
            .iter()
            .filter(|other| other.id.starts_with(beginning));
        match same.count() {
            1 => assert_eq!(store.approval(beginning).unwrap().id, one.id),
            _ => assert_eq!(code(store.approval(beginning)), "APPROVAL_AMBIGUOUS"),
        }
    }
}

#[test]
fn a_beginning_that_two_approvals_share_is_ambiguous() {
    let (directory, store) = open();
    let ids: Vec<_> = ["a", "b"].map(|name| shown(&store, name).id).into();
    let connection = rusqlite::Connection::open(directory.path().join(DATABASE_NAME)).unwrap();
    for (id, end) in ids.iter().zip(["0001", "0002"]) {
        let made = format!("abcd1234-0000-4000-8000-00000000{end}");
        connection
            .execute("UPDATE approval SET id = ?2 WHERE id = ?1", [id, &made])
            .unwrap();
    }
    let error = store.approval("abcd1234").unwrap_err();
    assert_eq!(error.code(), "APPROVAL_AMBIGUOUS");
    assert_eq!(error.to_string(), "several approvals begin with abcd1234");
    let found = store
        .approval("ABCD1234-0000-4000-8000-000000000002")
        .unwrap();
    assert_eq!(found.request.preview, "b");
}

#[test]
fn what_names_no_approval_is_not_found() {
    let (_directory, store) = open();
    let created = shown(&store, "a");
    let beginning = &created.id[..3];
    let long = "a".repeat(100_000);
    for reference in ["", "g", beginning, "%", "____", "zzzzz", "ffff'", &long] {
        let error = store.approval(reference).unwrap_err();
        assert_eq!(error.code(), "APPROVAL_NOT_FOUND", "{reference}");
        assert!(error.to_string().len() < 100);
    }
    for result in [
        store
            .decide(&answer(&created.short_id, ApprovalDecision::Deny))
            .map(drop),
        store
            .claim(&created.id[..8], &digest("a"), "gateway", NOW)
            .map(drop),
        store
            .record_delivery("none", &delivery("x", DeliveryState::Sent, NOW))
            .map(drop),
    ] {
        assert_eq!(code(result), "APPROVAL_NOT_FOUND");
    }
}

#[test]
fn short_ids_are_five_letters_that_cannot_be_confused() {
    let (_directory, store) = open();
    let mut seen = HashSet::new();
    for number in 0..300 {
        let short_id = store
            .create_approval(&request(&number.to_string()))
            .unwrap()
            .short_id;
        assert_eq!(short_id.len(), 5);
        let is_clear = |c: char| c.is_ascii_lowercase() && !"abcdefilooquvr".contains(c);
        assert!(short_id.chars().all(is_clear), "{short_id}");
        assert!(seen.insert(short_id));
    }
}

#[test]
fn the_list_holds_what_waits_unexpired_first_by_pages() {
    let (_directory, store) = open();
    let create = |name: &str, expires_at_ms| {
        let asked = ApprovalRequest {
            expires_at_ms,
            ..request(name)
        };
        store.create_approval(&asked).unwrap();
    };
    for (name, expires) in [
        ("c", 30),
        ("overdue-2", 7),
        ("b", 20),
        ("a", 20),
        ("overdue-1", 5),
    ] {
        create(name, NOW + expires);
    }
    decided(&store, "decided", ApprovalDecision::Deny);
    let page = |offset, limit| {
        let page = store.pending_approvals(NOW + 10, offset, limit).unwrap();
        assert_eq!((page.unexpired, page.overdue), (3, 2));
        page.approvals
            .into_iter()
            .map(|one| one.preview)
            .collect::<Vec<_>>()
    };
    let all = ["b", "a", "c", "overdue-1", "overdue-2"];
    assert_eq!(page(0, 100), all);
    for offset in 0..7 {
        for limit in 0..7 {
            let expected: Vec<_> = all.iter().skip(offset).take(limit).collect();
            assert_eq!(page(offset, limit).iter().collect::<Vec<_>>(), expected);
        }
    }
    assert_eq!(page(usize::MAX, usize::MAX), Vec::<String>::new());
}
