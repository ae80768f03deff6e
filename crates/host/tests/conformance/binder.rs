//! What an approval binds, and what is noticed when it changes before the run.

use std::collections::BTreeMap;

use interlock_binding::{BindingKind, BoundRole};
use interlock_command::Source;
use interlock_engine::{
    AuthorizationKey, OpenedPlan, OutputSink, PlanPermission, Settings, StartError, StreamKind,
    start,
};
use interlock_host::{RunSettings, prepare};
use interlock_plan::{PlanAction, PlanDigest, PlanProgram, PlanStdin, RunPlan};
use interlock_policy::{AgentId, Evaluation};

use crate::comparison::{Answer, Comparison, Direction, Row, unreadable};
use crate::world::{World, allowlist_policy, row_policy};

pub fn ask(row: Row<'_>) -> Answer {
    let question = match row.kind() {
        "operand" | "plan" => bound,
        "pin" => pinned,
        "drift" => drifted,
        "host-run" => host_run,
        _ => return Answer::NotOurs,
    };
    match World::make(row) {
        Ok(world) => {
            write_exactly(&world);
            question(&world).unwrap_or_else(unreadable)
        }
        Err(reason) => Answer::Skipped(reason),
    }
}

/// The hashes are of the content as it stands in the row, where a fixture adds a header.
fn write_exactly(world: &World) {
    let files = world.row().get("fs").as_array();
    for file in files.into_iter().flatten().map(Row) {
        if let (Some(path), Some(content)) = (file.text("path"), file.text("content"))
            && path.starts_with(world.root())
        {
            // A file that cannot be written is noticed by the question itself.
            let _ = std::fs::write(path, content);
        }
    }
}

/// Judged where nothing is allowed without a human.
fn judged(world: &World) -> Option<Evaluation> {
    let source = Source::Argv(world.row().argv("argv")?);
    world.judge(&allowlist_policy(&[])?, source, &world.cwd)
}

fn plan(world: &World, evaluation: &Evaluation) -> Option<RunPlan> {
    let path = world.row().argv("path").unwrap_or_default().join(":");
    let settings = RunSettings {
        agent: &AgentId::default(),
        session_key: None,
        account: None,
        base_env: &BTreeMap::new(),
        env: &BTreeMap::new(),
        path: &path,
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
    prepare(&evaluation.analysis, &evaluation.verdict, &settings).ok()
}

/// May it be approved, and if a file is named: is its content held?
fn bound(world: &World) -> Option<Answer> {
    let evaluation = judged(world)?;
    let binding = &evaluation.verdict.binding;
    let expect = world.row().expect();
    let approvable = expect.text("result")? != "refuse";
    let got = binding.kind != BindingKind::Unbound;
    let obstacle = match &binding.unbound {
        Some(unbound) => unbound.found.clone(),
        None => binding.kind.as_str().to_owned(),
    };
    let answer = Comparison::permission(approvable, got);
    if !(approvable && got) || expect.get("operand").is_null() {
        return Some(answer.because(obstacle));
    }
    let operand = Row(expect.get("operand"));
    let index = usize::try_from(operand.get("argvIndex").as_u64()?).ok()?;
    let wanted = (operand.text("path")?, operand.text("sha256")?);
    let plan = plan(world, &evaluation)?;
    let scripts = plan
        .binding
        .files
        .iter()
        .filter(|bound| bound.role == BoundRole::Script);
    let named = scripts
        .filter(|bound| bound.operand == Some(index))
        .map(|bound| &bound.file);
    let executed = plan.executables().into_iter().filter(|_| index == 0);
    let held: Vec<(&str, &str)> = named
        .chain(executed)
        .filter_map(|file| Some((file.canonical.as_str(), file.sha256.as_deref()?)))
        .collect();
    let direction = if held.contains(&wanted) {
        Direction::Same
    } else {
        Direction::Looser
    };
    Some(
        Comparison::answer(format!("{wanted:?}"), format!("{held:?}"), direction).because(obstacle),
    )
}

/// The real file of each program is what runs.
fn pinned(world: &World) -> Option<Answer> {
    let expected = world.row().expect().argv("executedArgv")?;
    let got = executed(&plan(world, &judged(world)?)?)?;
    Some(Comparison::values(&expected, &got, Direction::Different))
}

/// The only program of the plan: its file, then its arguments.
fn executed(plan: &RunPlan) -> Option<Vec<String>> {
    let PlanProgram::Direct { pipelines } = &plan.program else {
        return None;
    };
    let [pipeline] = pipelines.as_slice() else {
        return None;
    };
    let [stage] = pipeline.stages.as_slice() else {
        return None;
    };
    let PlanAction::Execute {
        executable, argv, ..
    } = &stage.action
    else {
        return None;
    };
    let mut words = vec![executable.canonical.clone()];
    words.extend_from_slice(argv.get(1..)?);
    Some(words)
}

/// Approved, then changed, then started.
fn drifted(world: &World) -> Option<Answer> {
    let evaluation = judged(world)?;
    let unbound = evaluation.verdict.binding.kind == BindingKind::Unbound;
    let denied = unbound
        || match plan(world, &evaluation) {
            Some(plan) => {
                change(world)?;
                is_refused(&plan)
            }
            None => true,
        };
    let expected = world.row().expect().text("result")? == "denied";
    Some(Comparison::suspicion(expected, denied))
}

fn host_run(world: &World) -> Option<Answer> {
    let row = world.row();
    let request = Row(row.get("request"));
    let policy = row_policy(row.get("policy"))?;
    let cwd = request.text("cwd").unwrap_or(&world.cwd);
    let evaluation = world.judge(&policy, Source::Argv(request.argv("command")?), cwd)?;
    let plan = plan(world, &evaluation)?;
    let expect = row.expect();
    let allowed = match row.get("change") {
        serde_json::Value::Null => evaluation.verdict.outcome.is_allow(),
        _ => {
            change(world)?;
            !is_refused(&plan)
        }
    };
    let answer = Comparison::permission(expect.text("verdict")? == "allow", allowed);
    let argv = expect.argv("executedArgv");
    let argv =
        argv.map(|argv| Comparison::values(&Some(argv), &executed(&plan), Direction::Different));
    Some(Comparison::worst([answer].into_iter().chain(argv)))
}

/// Does what happens between the approval and the run.
fn change(world: &World) -> Option<()> {
    let change = Row(world.row().get("change"));
    if let Some(directory) = change.text("replaceDirectory") {
        let elsewhere = format!("{directory}-before");
        std::fs::rename(directory, elsewhere).ok()?;
        return std::fs::create_dir(directory).ok();
    }
    let path = change.text("path")?;
    if change.get("delete").as_bool() == Some(true) {
        return std::fs::remove_file(path).ok();
    }
    std::fs::write(path, change.text("content")?).ok()
}

/// Only drift counts: that a program failed is no protection.
fn is_refused(plan: &RunPlan) -> bool {
    let key = AuthorizationKey::from_bytes([7; 32]);
    let authorized = key
        .authorize(plan.clone(), Permitted(plan.digest()))
        .unwrap();
    match start(
        OpenedPlan::open(plan.clone()),
        authorized.authorization(),
        &key,
        &Settings::default(),
        DiscardedOutput,
    ) {
        Ok(run) => {
            run.wait();
            false
        }
        Err(error) => matches!(error, StartError::Drift(_)),
    }
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
