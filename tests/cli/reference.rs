//! The committed reference pages are what the program says of itself.
//!
//! `UPDATE_REFERENCE=1 cargo test -p interlock --test cli reference` writes them anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

#[track_caller]
fn compare(name: &str, generated: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let path = directory.join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::create_dir_all(&directory).unwrap();
        fs::write(&path, generated).unwrap();
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = committed
        .lines()
        .zip(generated.lines())
        .find(|(committed, generated)| committed != generated);
    assert!(
        committed == generated,
        "docs/reference/{name} is out of date (first difference: {differs:?}).\n\
         Update it: UPDATE_REFERENCE=1 cargo test -p interlock --test cli reference"
    );
}

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    compare("cli.md", &interlock::reference::cli_page());
}

#[test]
fn the_page_of_the_protocol_is_up_to_date() {
    compare("protocol.md", &interlock_wire::reference::protocol_page());
}

#[test]
fn the_page_of_the_config_is_up_to_date() {
    compare("config.md", &interlock_config::schema::reference_page());
}
