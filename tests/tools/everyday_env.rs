//! Everyday calls with variables, terminals and open input stay unasked under a short policy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use testkit::Machine;

const CALLS: &str = include_str!("../cases/everyday-env.jsonl");
const POLICY: &str = include_str!("../cases/everyday-env-policy.json5");

/// At least so many calls, under a policy of at most so many entries.
const LEAST_CALLS: usize = 120;
const MOST_ENTRIES: usize = 15;
/// Of a hundred calls.
const MOST_ASKED: usize = 5;

#[test]
fn a_short_policy_asks_about_at_most_five_of_a_hundred_calls() {
    let machine = Machine::new();
    machine.start();
    let run = machine.set_document(POLICY);
    assert_eq!(run.code, 0, "{run:#?}");
    let (document, _) = machine.document();
    let entries = document["agents"]["*"]["allowlist"].as_array().unwrap();
    assert!(entries.len() <= MOST_ENTRIES, "{} entries", entries.len());

    let run = machine.run_with_input(&["policy", "test", "--json", "-"], CALLS.as_bytes());
    let results: Vec<Value> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let failed: Vec<&Value> = results.iter().filter(|one| one["pass"] != true).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(results.len() >= LEAST_CALLS, "{} calls", results.len());
    let asked = results
        .iter()
        .filter(|one| one["verdict"] != "allow")
        .count();
    println!("everyday with variables: {asked} of {} ask", results.len());
    assert!(
        asked * 100 <= results.len() * MOST_ASKED,
        "{asked} of {} calls ask",
        results.len()
    );
}

/// The attacks are refused to an ordinary user as they are to root.
#[test]
fn every_attack_is_judged_the_same_for_an_ordinary_user() {
    let machine = if testkit::is_root() {
        Machine::of_ordinary_user()
    } else {
        Some(Machine::new())
    };
    let Some(machine) = machine else { return };
    let attacks = include_str!("../cases/attacks.jsonl");
    let run = machine.run_with_input(&["policy", "test", "-"], attacks.as_bytes());
    assert_eq!(run.code, 0, "{run:#?}");
}
