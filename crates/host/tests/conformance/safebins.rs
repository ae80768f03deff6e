//! Safe bins: names, directories, arguments.

use std::collections::BTreeMap;

use interlock_policy::safe_bin::{
    Profiles, SafeBinProfile, SafeBinView, check, is_interpreter_like,
};
use interlock_programs::{in_trusted_dir, trusted_dirs};
use serde_json::Value;

use crate::comparison::{Answer, Comparison, Direction, Row, strings, unreadable};

/// Stands in for `${TMP}` where no file is looked at.
const SOMEWHERE: &str = "/tmp/somewhere";

pub fn ask(row: Row<'_>) -> Answer {
    let answer = match row.kind() {
        "" => arguments(row),
        "trusted-dirs" => directories(row),
        "trusted-dir" => directory(row),
        "interpreter-like" => interpreter(row),
        "semantics" => semantics(row),
        "runtime-policy" => view(row),
        _ => Some(Answer::NotOurs),
    };
    answer.unwrap_or_else(unreadable)
}

fn expected(row: Row<'_>) -> Option<bool> {
    match row.text("expect")? {
        "allow" => Some(true),
        "deny" => Some(false),
        _ => None,
    }
}

fn arguments(row: Row<'_>) -> Option<Answer> {
    let name = row.text("bin")?;
    let argv = row.argv("argv")?;
    let profiles = match row.get("profile") {
        Value::Null => Profiles::built_in(),
        profile => {
            let profile: SafeBinProfile = serde_json::from_value(profile.clone()).ok()?;
            Profiles::with_custom(&BTreeMap::from([(name.to_owned(), profile)]))
        }
    };
    let named = row
        .argv("safeBins")
        .is_none_or(|names| names.iter().any(|safe| safe == name));
    let trusted = row.text("resolved").is_none_or(|found| {
        let canonical = row.text("realPath").unwrap_or(found);
        let dirs = trusted_dirs(&row.argv("trustedDirs").unwrap_or_default());
        in_trusted_dir(found, canonical, name, &dirs)
    });
    let fits = check(name, &argv, &vec![true; argv.len()], &profiles).is_ok();
    let got = named && trusted && fits;
    Some(Comparison::permission(expected(row)?, got))
}

fn directories(row: Row<'_>) -> Option<Answer> {
    let extra = strings(Row(row.get("input")).get("extraDirs")).unwrap_or_default();
    let expected = row.expect().argv("dirs")?;
    let got = trusted_dirs(&extra);
    let otherwise = if got.iter().all(|dir| expected.contains(dir)) {
        Direction::Stricter
    } else {
        Direction::Looser
    };
    Some(Comparison::values(&expected, &got, otherwise))
}

fn directory(row: Row<'_>) -> Option<Answer> {
    let path = row.text("resolved")?.replace("${TMP}", SOMEWHERE);
    let name = path.rsplit('/').next()?;
    let dirs: Vec<String> = row
        .argv("trustedDirs")?
        .iter()
        .map(|dir| dir.replace("${TMP}", SOMEWHERE))
        .collect();
    let got = in_trusted_dir(&path, &path, name, &trusted_dirs(&dirs));
    Some(Comparison::permission(expected(row)?, got))
}

fn interpreter(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().get("interpreterLike").as_bool()?;
    let got = is_interpreter_like(row.text("bin")?);
    Some(Comparison::suspicion(expected, got))
}

fn semantics(row: Row<'_>) -> Option<Answer> {
    let name = row.text("bin")?;
    let mut argv = vec![name.to_owned()];
    argv.extend(row.argv("positional").unwrap_or_default());
    let verdict = check(name, &argv, &vec![true; argv.len()], &Profiles::built_in());
    Some(Comparison::permission(expected(row)?, verdict.is_ok()))
}

fn view(row: Row<'_>) -> Option<Answer> {
    let config = Row(row.get("config"));
    // An agent's list replaces the global one.
    let scope = |key: &str| {
        let of = |scope: &str| strings(Row(config.get(scope)).get(key));
        of("local").or_else(|| of("global"))
    };
    let mut profiles = BTreeMap::new();
    for scope in ["global", "local"] {
        let Some(custom) = Row(config.get(scope)).get("safeBinProfiles").as_object() else {
            continue;
        };
        for (name, profile) in custom {
            let profile: SafeBinProfile = serde_json::from_value(profile.clone()).ok()?;
            profiles.insert(name.clone(), profile);
        }
    }
    let view = SafeBinView::new(
        scope("safeBins").as_deref(),
        &scope("safeBinTrustedDirs").unwrap_or_default(),
        &Profiles::with_custom(&profiles),
    );
    let interpreters: Vec<String> = view.unprofiled_interpreters().map(str::to_owned).collect();
    let expect = row.expect();
    let same = |key: &str, got: &Vec<String>| match expect.argv(key) {
        Some(mut expected) => {
            let mut got = got.clone();
            expected.sort();
            got.sort();
            Comparison::values(&expected, &got, Direction::Different)
        }
        None => Answer::NotOurs,
    };
    Some(Comparison::worst([
        same("safeBins", &view.safe_bins),
        same("unprofiled", &view.unprofiled),
        same("unprofiledInterpreters", &interpreters),
        same("trustedDirs", &view.trusted_dirs),
    ]))
}
