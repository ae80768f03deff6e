use serde_json::{Value, json};

use super::BLOCK_RECORDS;
use crate::audit::{
    AuditFilter, AuditKind, AuditOrder, AuditRecord, AuditVerification, ChainProblem,
};
use crate::{Change, Store, StoreError};

/// Several blocks, and records behind the last one.
const RECORDS: u64 = 3 * BLOCK_RECORDS + 100;

/// A time now and then before the one of earlier records, as if the clock had been set back.
fn time_of(number: u64) -> i64 {
    let back = if number.is_multiple_of(7) { 500 } else { 0 };
    number.cast_signed() * 10 - back * 10
}

fn append_record(change: &Change<'_>, number: u64) -> Result<(), StoreError> {
    let body = match number % 5 {
        0 => json!({ "number": number }),
        1 => json!({ "agent": number }),
        2 if number.is_multiple_of(701) => json!({ "agent": "rare \"one\"" }),
        _ => json!({ "agent": "main" }),
    };
    let kind = AuditKind::ALL[usize::try_from(number % 13).unwrap().min(8)];
    change.append(kind, &body, time_of(number)).map(drop)
}

fn filled(records: u64) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store
        .change(|change| (1..=records).try_for_each(|number| append_record(change, number)))
        .unwrap();
    (directory, store)
}

/// All records that match, without the index.
fn expected(all: &[AuditRecord], filter: &AuditFilter) -> Vec<AuditRecord> {
    let matches = |record: &&AuditRecord| {
        let agent = filter.agent.as_deref().map(Value::from);
        filter.kind.is_none_or(|kind| record.kind == kind)
            && agent.is_none_or(|agent| record.body.get("agent") == Some(&agent))
            && filter.since_ms.is_none_or(|since| record.time_ms >= since)
    };
    let mut found: Vec<AuditRecord> = all.iter().filter(matches).cloned().collect();
    if filter.order == AuditOrder::NewestFirst {
        found.reverse();
    }
    found
}

fn all_records(store: &Store) -> Vec<AuditRecord> {
    let mut all = Vec::new();
    let mut from_seq = Some(1);
    while from_seq.is_some() {
        let page = store.audit_page(&AuditFilter {
            from_seq,
            order: AuditOrder::OldestFirst,
            ..AuditFilter::default()
        });
        let page = page.unwrap();
        assert_eq!(page.total, RECORDS);
        all.extend(page.records);
        from_seq = page.next_seq;
    }
    all
}

fn filters() -> Vec<AuditFilter> {
    let agents = [None, Some("main"), Some("rare \"one\""), Some("unknown")];
    let kinds = [None, Some(AuditKind::Verdict), Some(AuditKind::Patch)];
    let times = [
        None,
        Some(time_of(RECORDS / 2)),
        Some(time_of(RECORDS) - 50),
        Some(i64::MAX),
    ];
    let mut filters = Vec::new();
    for agent in agents {
        for kind in kinds {
            for since_ms in times {
                for order in [AuditOrder::NewestFirst, AuditOrder::OldestFirst] {
                    filters.push(AuditFilter {
                        kind,
                        agent: agent.map(str::to_owned),
                        since_ms,
                        from_seq: None,
                        order,
                        limit: Some(300),
                    });
                }
            }
        }
    }
    filters
}

#[test]
fn every_filter_finds_all_its_records_page_by_page_and_counts_them() {
    let (_directory, store) = filled(RECORDS);
    let all = all_records(&store);
    assert_eq!(all.len() as u64, RECORDS);
    for mut filter in filters() {
        let expected = expected(&all, &filter);
        let mut found = Vec::new();
        loop {
            let page = store.audit_page(&filter).unwrap();
            assert_eq!(page.total, expected.len() as u64, "{filter:?}");
            assert_eq!(page.records, store.audit_log(&filter).unwrap());
            found.extend(page.records);
            filter.from_seq = page.next_seq;
            if page.next_seq.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{filter:?}");
    }
}

#[test]
fn a_page_may_be_empty_and_still_says_the_total() {
    let (_directory, store) = filled(20);
    let page = store.audit_page(&AuditFilter {
        limit: Some(0),
        ..AuditFilter::default()
    });
    let page = page.unwrap();
    assert_eq!((page.total, page.next_seq), (20, Some(20)));
    assert_eq!(page.records, []);
}

/// What a process of an older version does that has the database open.
#[test]
fn blocks_that_were_left_out_are_indexed_with_the_next_one() {
    let (_directory, store) = filled(2 * BLOCK_RECORDS);
    let connection = store.connection();
    connection.execute("DELETE FROM audit_block", []).unwrap();
    drop(connection);
    let last = 3 * BLOCK_RECORDS;
    store
        .change(|change| {
            let mut numbers = 2 * BLOCK_RECORDS + 1..=last;
            numbers.try_for_each(|number| append_record(change, number))
        })
        .unwrap();
    assert!(matches!(
        store.verify_audit(None).unwrap(),
        AuditVerification::Intact(head) if head.seq == last
    ));
}

#[test]
fn an_index_that_was_changed_is_found_by_verify_and_shows_no_wrong_record() {
    let (_directory, store) = filled(2 * BLOCK_RECORDS + 1);
    let keep = "CREATE TEMP TABLE kept AS SELECT * FROM audit_block";
    store.connection().execute_batch(keep).unwrap();
    let changes = [
        "DELETE FROM audit_block WHERE block = 1 AND agent_key = 'agent:main'",
        "UPDATE audit_block SET positions = '[4]' WHERE block = 1 AND agent_key = 'agent:main'",
        "UPDATE audit_block SET records = records - 1 WHERE block = 1",
        "INSERT INTO audit_block VALUES ('agent:eve', 1, 'verdict', 2, 0, 99, '[4,900]')",
    ];
    for change in changes {
        store.connection().execute_batch(change).unwrap();
        let eve = AuditFilter {
            agent: Some("eve".to_owned()),
            ..AuditFilter::default()
        };
        assert_eq!(store.audit_log(&eve).unwrap(), []);
        let AuditVerification::Broken(broken) = store.verify_audit(None).unwrap() else {
            panic!("{change}");
        };
        assert!(
            matches!(broken.problem, ChainProblem::NotIndexed { through } if through == 2 * BLOCK_RECORDS),
            "{change}: {broken}"
        );
        let undo = "DELETE FROM audit_block; INSERT INTO audit_block SELECT * FROM kept";
        store.connection().execute_batch(undo).unwrap();
    }
    assert!(matches!(
        store.verify_audit(None).unwrap(),
        AuditVerification::Intact(_)
    ));
}

/// The statement of the migration stands in the schema, the one for new blocks here.
#[test]
fn the_migration_indexes_a_database_as_new_records_do() {
    let (_directory, store) = filled(2 * BLOCK_RECORDS + 1);
    let connection = store.connection();
    connection.execute("DELETE FROM audit_block", []).unwrap();
    let migration = include_str!("../../schema.rs");
    let from = migration.find("INSERT INTO audit_block").unwrap();
    let end = from + migration[from..].find(';').unwrap();
    connection.execute_batch(&migration[from..end]).unwrap();
    drop(connection);
    assert!(matches!(
        store.verify_audit(None).unwrap(),
        AuditVerification::Intact(_)
    ));
}
