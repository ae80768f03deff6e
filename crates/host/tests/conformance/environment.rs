//! Variables: what a caller may set, what is inherited, what a sandbox gets.

use std::collections::{BTreeMap, BTreeSet};

use interlock_policy::env::{
    check_override, check_overrides, for_sandbox, for_shell_wrapper, host_exec, inherited,
};
use serde_json::Value;

use crate::comparison::{Answer, Comparison, Direction, Row, unreadable};
use crate::world::environment;

pub fn ask(row: Row<'_>) -> Answer {
    let answer = match row.text("context").unwrap_or_default() {
        "override" => one(row, |key, value| check_override(key, value).is_ok()),
        "inherited" => one(row, |key, value| {
            let env = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            inherited(&env).contains_key(key)
        }),
        "host-exec" => host(row),
        "shell-wrapper" => {
            let kept = for_shell_wrapper(&environment(row.get("overrides")));
            Some(kept_variables(
                &environment(row.expect().get("kept")),
                &kept,
            ))
        }
        "sandbox" => {
            let sorted = for_sandbox(&environment(row.get("env")));
            let expected = environment(row.expect().get("allowed"));
            Some(kept_variables(&expected, &sorted.allowed))
        }
        "host-run" => {
            let rejection = check_overrides(&environment(Row(row.get("request")).get("env"))).err();
            let got = rejection.map(|rejection| rejection.to_string());
            let expected = row.expect().text("errorMessage").map(str::to_owned);
            let otherwise = match (&expected, &got) {
                (Some(_), None) => Direction::Looser,
                (None, Some(_)) => Direction::Stricter,
                _ => Direction::Different,
            };
            Some(Comparison::values(&expected, &got, otherwise))
        }
        _ => Some(Answer::NotOurs),
    };
    answer.unwrap_or_else(unreadable)
}

fn one(row: Row<'_>, kept: impl Fn(&str, &str) -> bool) -> Option<Answer> {
    let expected = match row.text("expect")? {
        "kept" => true,
        "dropped" | "rejected" => false,
        _ => return None,
    };
    // A value that is no string is no part of an environment.
    let got = match row.get("value") {
        Value::String(value) => kept(row.text("key")?, value),
        _ => false,
    };
    Some(Comparison::permission(expected, got))
}

fn host(row: Row<'_>) -> Option<Answer> {
    let host = host_exec(
        &environment(row.get("base")),
        &environment(row.get("overrides")),
    );
    let expect = row.expect();
    let keys = |key: &str| -> BTreeSet<String> {
        expect.argv(key).unwrap_or_default().into_iter().collect()
    };
    let (mut blocked, mut invalid) = (BTreeSet::new(), BTreeSet::new());
    if let Some(rejection) = host.rejection() {
        blocked.extend(rejection.blocked_keys().map(str::to_owned));
        invalid.extend(rejection.invalid_keys().map(str::to_owned));
    }
    expect.get("env").as_object()?;
    Some(Comparison::worst([
        kept_variables(&environment(expect.get("env")), host.remaining()),
        refused_keys(&keys("rejectedKeys"), &blocked),
        refused_keys(&keys("invalidKeys"), &invalid),
    ]))
}

fn kept_variables(expected: &BTreeMap<String, String>, got: &BTreeMap<String, String>) -> Answer {
    let fewer = got.iter().all(|pair| expected.get(pair.0) == Some(pair.1));
    let otherwise = if fewer {
        Direction::Stricter
    } else {
        Direction::Looser
    };
    Comparison::values(expected, got, otherwise)
}

fn refused_keys(expected: &BTreeSet<String>, got: &BTreeSet<String>) -> Answer {
    let otherwise = if expected.is_subset(got) {
        Direction::Stricter
    } else {
        Direction::Looser
    };
    Comparison::values(expected, got, otherwise)
}
