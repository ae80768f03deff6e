//! What was approved is what runs: plans for approvals, and what happens to their files before and
//! during the run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use interlock_command::Source;
use interlock_engine::{
    AuthorizationKey, OpenedPlan, OutputSink, PlanPermission, Run, RunStatus, Settings, StartError,
    StreamKind, start,
};
use interlock_host::{PrepareError, RunSettings, prepare};
use interlock_plan::{BindingKind, BoundRole, FsResolver, PlanDigest, PlanStdin, RunPlan};
use interlock_policy::{
    AgentId, Ask, CallerInput, Entry, Layer, Levels, Outcome, PolicyParts,
    PolicySource as LayerSource, RunRequest, Security, evaluate,
};
use tempfile::TempDir;

const PATH: &str = "/usr/bin:/bin";

fn work() -> TempDir {
    let work = TempDir::new().unwrap();
    write(work.path(), "x.sh", "#!/bin/sh\necho safe >ran\n");
    work
}

fn write(work: &Path, name: &str, content: &str) {
    let path = work.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The plan that a human would be asked about.
fn asked(text: &str, work: &Path) -> RunPlan {
    let layer = Layer::new(
        LayerSource::Host,
        "",
        Some(Security::Full),
        Some(Ask::Always),
    );
    plan(text, work, layer, |outcome| outcome == Outcome::Ask)
}

fn plan(text: &str, work: &Path, layer: Layer, expected: fn(Outcome) -> bool) -> RunPlan {
    let policy = PolicyParts {
        levels: Some(Levels::join(&[layer])),
        ..PolicyParts::default()
    };
    let policy = policy.assemble(None).unwrap();
    let resolver = FsResolver::from_path_value(PATH, None);
    let request = RunRequest {
        source: Source::Text(text.to_owned()),
        cwd: work.to_str().unwrap().to_owned(),
        env: BTreeMap::new(),
        input: CallerInput::None,
        workspace: Vec::new(),
        now_ms: 0,
    };
    let evaluation = evaluate(request, &policy, &resolver).unwrap();
    assert!(expected(evaluation.verdict.outcome));
    let settings = RunSettings {
        agent: &AgentId::default(),
        session_key: None,
        account: None,
        base_env: &BTreeMap::new(),
        env: &BTreeMap::new(),
        path: PATH,
        pty: None,
        stdin: PlanStdin::Null,
        timeout_ms: None,
        shield: interlock_plan::PlanShield::Off,
        sandbox: None,
        elevated: interlock_plan::Elevation::Off,
        retry: None,
        tree: None,
        path_prepend: &[],
    };
    prepare(&evaluation.analysis, &evaluation.verdict, &settings).unwrap()
}

/// Stands for the verdict or the claim of a host.
struct Permitted(PlanDigest);

impl PlanPermission for Permitted {
    fn into_permitted_digest(self) -> PlanDigest {
        self.0
    }
}

struct DiscardedOutput;

impl OutputSink for DiscardedOutput {
    fn output(&self, _: StreamKind, _: &[u8]) {}
}

fn begin(plan: &RunPlan) -> Result<Run, StartError> {
    let key = AuthorizationKey::from_bytes([7; 32]);
    let authorized = key
        .authorize(plan.clone(), Permitted(plan.digest()))
        .unwrap();
    start(
        OpenedPlan::open(plan.clone()),
        authorized.authorization(),
        &key,
        &Settings::default(),
        DiscardedOutput,
    )
}

fn ran(work: &Path) -> Option<String> {
    fs::read_to_string(work.join("ran")).ok()
}

const FORMS: [&str; 5] = [
    "./x.sh",
    "sh ./x.sh",
    "sh -c ./x.sh",
    "nice ./x.sh",
    "for i in 1; do sh ./x.sh; done",
];

#[test]
fn a_bound_file_that_did_not_change_runs() {
    for form in FORMS {
        let work = work();
        let run = begin(&asked(form, work.path())).unwrap();
        assert_eq!(run.wait().status, RunStatus::Exited(0), "{form}");
        assert_eq!(ran(work.path()).as_deref(), Some("safe\n"), "{form}");
    }
}

#[test]
fn a_bound_file_that_changed_before_the_run_is_refused() {
    for form in FORMS {
        let work = work();
        let plan = asked(form, work.path());
        assert!(
            plan.binding
                .files
                .iter()
                .any(|bound| bound.role == BoundRole::Script),
            "{form}"
        );
        write(work.path(), "x.sh", "#!/bin/sh\necho evil >ran\n");
        let error = begin(&plan).err().unwrap_or_else(|| panic!("{form} ran"));
        assert!(matches!(error, StartError::Drift(_)), "{form}: {error}");
        assert!(error.to_string().contains("x.sh"), "{form}: {error}");
        assert_eq!(ran(work.path()), None, "{form}");
    }
}

#[test]
fn an_earlier_command_of_the_line_cannot_change_a_bound_file() {
    let work = work();
    write(work.path(), "evil", "#!/bin/sh\necho evil >ran\n");
    let plan = asked("cp evil x.sh && sh ./x.sh", work.path());
    let run = begin(&plan).unwrap();
    assert_ne!(run.wait().status, RunStatus::Exited(0));
    assert_eq!(ran(work.path()), None);
}

#[test]
fn the_binding_is_part_of_the_digest() {
    let work = work();
    let before = asked("sh ./x.sh", work.path());
    assert_eq!(before.binding.kind, BindingKind::File);
    let mut after = before.clone();
    after.binding.files[0].file.sha256 = Some("0".repeat(64));
    assert_ne!(before.digest(), after.digest());
    let mut after = before.clone();
    after.binding.kind = BindingKind::Native;
    assert_ne!(before.digest(), after.digest());
}

#[test]
fn what_the_policy_allows_by_itself_may_write_its_own_files() {
    let work = work();
    write(work.path(), "other", "#!/bin/sh\necho other >ran\n");
    let layer = Layer::new(LayerSource::Host, "", Some(Security::Full), Some(Ask::Off));
    let line = "cp other x.sh; sh ./x.sh";
    let plan = plan(line, work.path(), layer, Outcome::is_allow);
    assert!(plan.binding.files.is_empty());
    let run = begin(&plan).unwrap();
    assert_eq!(run.wait().status, RunStatus::Exited(0));
    assert_eq!(ran(work.path()).as_deref(), Some("other\n"));
}

/// The plan of a script that an entry holds by its content, after something happened to it.
fn held(work: &Path, after_judging: impl FnOnce()) -> Result<RunPlan, PrepareError> {
    let layer = || {
        Layer::new(
            LayerSource::Host,
            "",
            Some(Security::Allowlist),
            Some(Ask::OnMiss),
        )
    };
    let policy = |entries: Vec<Entry>| {
        let entries = entries.into_iter();
        let parts = PolicyParts {
            levels: Some(Levels::join(&[layer()])),
            entries: entries.map(|entry| (entry, "a".to_owned())).collect(),
            ..PolicyParts::default()
        };
        parts.assemble(None).unwrap()
    };
    let resolver = FsResolver::from_path_value(PATH, None);
    let judge = |entries: Vec<Entry>| {
        let request = RunRequest {
            source: Source::Text("./x.sh".to_owned()),
            cwd: work.to_str().unwrap().to_owned(),
            env: BTreeMap::new(),
            input: CallerInput::None,
            workspace: Vec::new(),
            now_ms: 0,
        };
        evaluate(request, &policy(entries), &resolver).unwrap()
    };
    let asked = judge(Vec::new());
    let allowed = judge(asked.verdict.remember.entries);
    assert!(allowed.verdict.outcome.is_allow());
    after_judging();
    let settings = RunSettings {
        agent: &AgentId::default(),
        session_key: None,
        account: None,
        base_env: &BTreeMap::new(),
        env: &BTreeMap::new(),
        path: PATH,
        pty: None,
        stdin: PlanStdin::Null,
        timeout_ms: None,
        shield: interlock_plan::PlanShield::Off,
        sandbox: None,
        elevated: interlock_plan::Elevation::Off,
        retry: None,
        tree: None,
        path_prepend: &[],
    };
    prepare(&allowed.analysis, &allowed.verdict, &settings)
}

#[test]
fn a_script_that_an_entry_holds_is_pinned_with_the_content_that_was_judged() {
    let work = work();
    let plan = held(work.path(), || {}).unwrap();
    let roles: Vec<BoundRole> = plan.binding.files.iter().map(|file| file.role).collect();
    assert_eq!(roles, [BoundRole::Script, BoundRole::Interpreter]);
    assert!(plan.binding.files[0].file.sha256.is_some());
    write(work.path(), "x.sh", "#!/bin/sh\necho other >ran\n");
    assert!(matches!(begin(&plan), Err(StartError::Drift(_))));
    assert!(!work.path().join("ran").exists());
}

#[test]
fn a_script_that_changes_between_judge_and_plan_gets_no_plan() {
    let work = work();
    let edit = || write(work.path(), "x.sh", "#!/bin/sh\necho other >ran\n");
    let error = held(work.path(), edit).unwrap_err();
    assert!(matches!(error, PrepareError::Drift(_)), "{error}");
    // Touched, and the same content.
    let touch = || write(work.path(), "x.sh", "#!/bin/sh\necho other >ran\n");
    assert!(held(work.path(), touch).is_ok());
}
