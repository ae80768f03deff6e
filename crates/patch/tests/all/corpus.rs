//! Agreement with the recorded behaviour of other tools. The corpus is not part of the repository: the variable
//! `INTERLOCK_CORPUS` names the directory that holds `apply-patch.jsonl`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use interlock_patch::{ApplyOptions, Patch, ReservedPaths, apply};
use serde_json::Value;

/// Cases where another outcome is wanted: the other tool loses data there. Each new row needs a
/// reason, and a row that is not needed any more fails the test.
const DEVIATIONS: [(&str, &str); 3] = [
    ("pt-0575d88b28", "renaming onto an existing file is refused"),
    ("pt-7ab16bde2a", "adding an existing file is refused"),
    (
        "pt-4e6ef19ec8",
        "a changed line takes the ending of the line it replaces, not the most common one",
    ),
];

#[test]
fn the_corpus_agrees_but_for_the_listed_deviations() {
    let Some(directory) = std::env::var_os("INTERLOCK_CORPUS") else {
        println!("skipped: INTERLOCK_CORPUS is not set");
        return;
    };
    let text = fs::read_to_string(Path::new(&directory).join("apply-patch.jsonl")).unwrap();
    let (mut agreed, mut deviated, mut wrong) = (0, 0, Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        let expected_deviation = DEVIATIONS.iter().any(|(prefix, _)| id.starts_with(prefix));
        let outcome = run(&case);
        match (&outcome, expected_deviation) {
            (Ok(()), false) => agreed += 1,
            (Err(_), true) => deviated += 1,
            (Ok(()), true) => wrong.push(format!("{id}: agrees now, remove the deviation")),
            (Err(difference), false) => {
                wrong.push(format!("{id} ({}): {difference}", case["note"]));
            }
        }
    }
    println!(
        "corpus: {agreed} agree, {deviated} deviate as listed, {} wrong",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(agreed > 0, "the corpus is empty");
}

fn run(case: &Value) -> Result<(), String> {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().canonicalize().unwrap();
    let filled = |text: &str| text.replace("${TMP}", top.to_str().unwrap());
    if case["kind"] == "target-paths" {
        let found: Vec<String> = case["input"]
            .as_array()
            .unwrap()
            .iter()
            // What cannot be read as a patch touches nothing.
            .filter_map(|input| Patch::parse(input.as_str().unwrap()).ok())
            .flat_map(|patch| patch.target_paths(&top))
            .map(|path| path.display().to_string())
            .collect();
        let expected: Vec<String> = case["expect"]["paths"]
            .as_array()
            .unwrap()
            .iter()
            .map(|path| filled(path.as_str().unwrap()))
            .collect();
        return same("paths", &found, &expected);
    }
    let root = case["cwd"]
        .as_str()
        .map_or(top.join("w"), |cwd| filled(cwd).into());
    fs::create_dir_all(&root).unwrap();
    for (path, content) in case["before"].as_object().into_iter().flatten() {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.as_str().unwrap()).unwrap();
    }
    for item in case["fs"].as_array().into_iter().flatten() {
        let path = filled(item["path"].as_str().unwrap());
        match item["kind"].as_str().unwrap() {
            "dir" => fs::create_dir_all(path).unwrap(),
            "symlink" => symlink(filled(item["target"].as_str().unwrap()), path).unwrap(),
            _ => {
                fs::write(&path, item["content"].as_str().unwrap()).unwrap();
                let mode = u32::from_str_radix(item["mode"].as_str().unwrap_or("644"), 8).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
    let journal = tempfile::tempdir().unwrap();
    let options = ApplyOptions {
        root: root.clone(),
        workspace_only: case["options"]["workspaceOnly"].as_bool().unwrap_or(true),
        journal_dir: journal.path().to_owned(),
        reserved: ReservedPaths::default(),
    };
    let outcome = match Patch::parse(&filled(case["patch"].as_str().unwrap())) {
        Ok(patch) => apply(&patch, &options)
            .map(|_| ())
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let expect = &case["expect"];
    same(
        "error",
        &outcome.is_err(),
        &expect["error"].as_bool().unwrap_or(false),
    )
    .map_err(|difference| format!("{difference}: {outcome:?}"))?;
    let (expected, seen) = match (expect.get("after"), expect.get("afterTree")) {
        (Some(after), _) => (after, &root),
        (None, Some(tree)) => (tree, &top),
        (None, None) => return Ok(()),
    };
    let expected: crate::common::Tree = expected
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, content)| {
            let content = match content["symlink"].as_str() {
                Some(target) => format!("-> {}", filled(target)),
                None => content.as_str().unwrap().to_owned(),
            };
            (path.clone(), content.into_bytes())
        })
        .collect();
    same("files", &crate::common::read(seen), &expected)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: found {found:?}, expected {expected:?}"))
    }
}
