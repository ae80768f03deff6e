//! What a short-lived command pays: open the store and read the document.

#![allow(clippy::expect_used)] // a bench that cannot be set up is to stop

use interlock_store::{ApprovalsStore, Store};

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 100, 1000])]
fn open_and_read(bencher: divan::Bencher<'_, '_>, entries: usize) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let entry = r#"{"id":"b0c8c0b3-2c2d-4f8a-9a3c-5a4b3c2d1e0f","pattern":"/usr/bin/rg","lastUsedAt":1737150000000}"#;
    let text = format!(
        r#"{{"agents":{{"main":{{"allowlist":[{}]}}}}}}"#,
        vec![entry; entries].join(",")
    );
    Store::open(directory.path())
        .expect("a store")
        .replace_document(None, &text)
        .expect("a document");
    bencher.bench(|| {
        let store = Store::open(directory.path()).expect("a store");
        store.document().expect("a document")
    });
}
