//! The plan and what it pins.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use interlock_plan::{
    BindingKind, Drift, FsResolver, PinnedDirectory, PinnedFile, PlanAction, PlanBinding, PlanNext,
    PlanPipeline, PlanProgram, PlanShield, PlanStage, PlanStdin, PtySize, RaceFreedom, RunPlan,
};
use interlock_programs::{Lookup, Resolver};

fn executable(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn pin(path: &Path) -> PinnedFile {
    let resolver = FsResolver::new(Vec::new(), None);
    match resolver.executable(path.to_str().unwrap(), "/") {
        Lookup::Found(found) => PinnedFile::of(&found).unwrap(),
        Lookup::Missing(missing) => panic!("{missing}"),
    }
}

fn plan(pinned: PinnedFile) -> RunPlan {
    RunPlan {
        agent_id: "main".to_owned(),
        session_key: None,
        account: None,
        command: "tool x".to_owned(),
        program: PlanProgram::Direct {
            pipelines: vec![PlanPipeline {
                stages: vec![PlanStage {
                    action: PlanAction::Execute {
                        executable: pinned,
                        argv: vec!["tool".to_owned(), "x".to_owned()],
                        env: Vec::new(),
                        cwd: "/".to_owned(),
                        passes_on: Vec::new(),
                        paths: Vec::new(),
                    },
                    redirections: Vec::new(),
                }],
                timed: None,
                next: PlanNext::End,
            }],
        },
        cwd: PinnedDirectory {
            requested: "/".to_owned(),
            canonical: "/".to_owned(),
            device: 1,
            inode: 2,
        },
        directories: Vec::new(),
        libraries: Vec::new(),
        unknown_libraries: Vec::new(),
        binding: PlanBinding::of_kind(BindingKind::Native),
        env: BTreeMap::new(),
        overrides: Vec::new(),
        pty: None,
        stdin: PlanStdin::Null,
        timeout_ms: None,
        race_freedom: None,
        shield: PlanShield::User,
        sandbox: None,
        elevated: interlock_plan::Elevation::Off,
        retry: None,
        tree: None,
    }
}

#[test]
fn every_field_changes_the_digest_and_storage_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let tool = directory.path().join("tool");
    executable(&tool, b"#!/bin/sh\n");
    let original = plan(pin(&tool));
    let stored: RunPlan = serde_json::from_str(&serde_json::to_string(&original).unwrap()).unwrap();
    assert_eq!(stored, original);
    assert_eq!(stored.digest(), original.digest());
    let changes: [fn(&mut RunPlan); 14] = [
        |plan| plan.directories.push(plan.cwd.clone()),
        |plan| {
            plan.libraries
                .extend(plan.executables().into_iter().cloned().collect::<Vec<_>>());
        },
        |plan| plan.unknown_libraries.push(String::new()),
        |plan| plan.race_freedom = Some(RaceFreedom::RaceFree),
        |plan| plan.agent_id.push('x'),
        |plan| plan.session_key = Some("s".to_owned()),
        |plan| plan.command.push(' '),
        |plan| plan.cwd.inode += 1,
        |plan| plan.stdin = PlanStdin::Pipe,
        |plan| plan.timeout_ms = Some(1),
        |plan| plan.shield = PlanShield::Without,
        |plan| {
            plan.pty = Some(PtySize {
                columns: 80,
                rows: 24,
            });
        },
        |plan| {
            plan.env.insert("A".to_owned(), "1".to_owned());
        },
        |plan| {
            let PlanProgram::Direct { pipelines } = &mut plan.program else {
                panic!()
            };
            let PlanAction::Execute { argv, .. } = &mut pipelines[0].stages[0].action else {
                panic!()
            };
            argv.push(String::new());
        },
    ];
    let mut digests = vec![original.digest()];
    for change in changes {
        let mut altered = original.clone();
        change(&mut altered);
        digests.push(altered.digest());
    }
    let count = digests.len();
    digests.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    digests.dedup();
    assert_eq!(digests.len(), count);
}

#[test]
fn an_unchanged_file_passes_and_every_change_is_drift() {
    let directory = tempfile::tempdir().unwrap();
    let tool = directory.path().join("tool");
    executable(&tool, b"#!/bin/sh\necho 1\n");
    let pinned = pin(&tool);
    assert_eq!(pinned.check(), Ok(()));
    assert!(pinned.sha256.is_some(), "its owner could alter it");

    executable(&tool, b"#!/bin/sh\necho 2\n");
    assert!(matches!(pinned.check(), Err(Drift::Changed(_))));

    std::fs::remove_file(&tool).unwrap();
    assert!(matches!(pinned.check(), Err(Drift::Gone(_))));

    executable(&tool, b"#!/bin/sh\necho 1\n");
    assert!(matches!(
        pinned.check(),
        Err(Drift::Replaced(_) | Drift::Changed(_))
    ));
}

#[test]
fn a_link_that_leads_elsewhere_is_drift() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two, link] = ["one", "two", "link"].map(|name| directory.path().join(name));
    executable(&one, b"#!/bin/sh\n");
    executable(&two, b"#!/bin/sh\n");
    symlink(&one, &link).unwrap();
    let pinned = pin(&link);
    assert_eq!(pinned.check(), Ok(()));
    std::fs::remove_file(&link).unwrap();
    symlink(&two, &link).unwrap();
    assert!(matches!(pinned.check(), Err(Drift::Moved { .. })));
}

#[test]
fn a_pipe_in_place_of_the_file_is_drift_and_does_not_hang() {
    let directory = tempfile::tempdir().unwrap();
    let tool = directory.path().join("tool");
    executable(&tool, b"#!/bin/sh\n");
    let pinned = pin(&tool);
    std::fs::remove_file(&tool).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(&tool)
        .status()
        .unwrap();
    assert!(made.success());
    assert!(pinned.check().is_err());
}
