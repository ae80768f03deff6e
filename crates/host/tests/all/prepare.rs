//! What a plan pins, and how wrappers and shells appear in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use interlock_command::Source;
use interlock_host::{RunSettings, prepare};
use interlock_plan::{FsResolver, PlanAction, PlanPipeline, PlanProgram, PlanStdin, RunPlan};
use interlock_policy::{
    AgentId, CallerInput, Entry, Layer, Levels, PolicyParts, PolicySource as LayerSource,
    RunRequest, Security, evaluate,
};

const PATH: &str = "/usr/bin:/bin";

fn plan(text: &str, security: Security) -> RunPlan {
    let layer = Layer::new(LayerSource::Host, "", Some(security), None);
    let policy = PolicyParts {
        levels: Some(Levels::join(&[layer])),
        entries: std::iter::once((Entry::for_pattern("*"), "allowlist[0]".to_owned())).collect(),
        ..PolicyParts::default()
    };
    let policy = policy.assemble(None).unwrap();
    let resolver = FsResolver::from_path_value(PATH, Some("/".to_owned()));
    let request = RunRequest {
        source: Source::Text(text.to_owned()),
        cwd: "/".to_owned(),
        env: BTreeMap::new(),
        input: CallerInput::None,
        workspace: Vec::new(),
        now_ms: 0,
    };
    let evaluation = evaluate(request, &policy, &resolver).unwrap();
    assert!(
        evaluation.verdict.outcome.is_allow(),
        "{:?}",
        evaluation.verdict.reason
    );
    let base_env = BTreeMap::from([
        ("LD_PRELOAD".to_owned(), "x".to_owned()),
        ("KEPT".to_owned(), "1".to_owned()),
    ]);
    let settings = RunSettings {
        agent: &AgentId::default(),
        session_key: None,
        account: None,
        base_env: &base_env,
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

fn direct(plan: &RunPlan) -> &[PlanPipeline] {
    match &plan.program {
        PlanProgram::Direct { pipelines } => pipelines,
        _ => panic!("not direct"),
    }
}

/// Files and arguments of every program, in order.
fn programs(pipelines: &[PlanPipeline]) -> Vec<(String, Vec<String>)> {
    let stages = pipelines.iter().flat_map(|pipeline| &pipeline.stages);
    stages
        .flat_map(|stage| match &stage.action {
            PlanAction::Execute {
                executable, argv, ..
            } => vec![(executable.found.clone(), argv.clone())],
            PlanAction::Group { pipelines } => programs(pipelines),
            PlanAction::Builtin {
                name, arguments, ..
            } => {
                let words = std::iter::once(name.clone()).chain(arguments.clone());
                vec![("builtin".to_owned(), words.collect())]
            }
        })
        .collect()
}

fn shown(text: &str) -> Vec<String> {
    let plan = plan(text, Security::Allowlist);
    let programs = programs(direct(&plan));
    programs
        .into_iter()
        .map(|(file, argv)| format!("{file}: {}", argv.join(" ")))
        .collect()
}

#[test]
fn programs_are_pinned_and_keep_their_name() {
    assert_eq!(
        shown("cat x | head -3"),
        ["/usr/bin/cat: cat x", "/usr/bin/head: head -3"]
    );
    assert_eq!(
        shown("cd /usr && cat x"),
        ["builtin: cd /usr", "/usr/bin/cat: cat x"]
    );
}

#[test]
fn wrappers_get_the_absolute_path_of_what_they_start() {
    assert_eq!(shown("env cat x"), ["/usr/bin/cat: cat x"]);
    assert_eq!(
        shown("nice -n 5 cat x"),
        ["/usr/bin/nice: nice -n 5 /usr/bin/cat x"]
    );
    assert_eq!(
        shown("timeout 5 nice cat x"),
        ["/usr/bin/timeout: timeout 5 /usr/bin/nice /usr/bin/cat x"]
    );
    assert_eq!(shown("env LC_ALL=C cat x"), ["/usr/bin/cat: cat x"]);
    assert_eq!(
        shown("timeout 5 env LC_ALL=C nice cat x"),
        ["/usr/bin/timeout: timeout 5 /usr/bin/nice /usr/bin/cat x"]
    );
    assert_eq!(
        shown("timeout 5 sh -c 'cat x'"),
        ["/usr/bin/timeout: timeout 5 /usr/bin/cat x"]
    );
    let wrapped = plan("nice cat x", Security::Allowlist);
    assert_eq!(wrapped.executables()[0].found, "/usr/bin/nice");
    assert_eq!(wrapped.passed_on()[0].found, "/usr/bin/cat");
}

#[test]
fn text_behind_a_shell_becomes_a_group_without_the_shell() {
    assert_eq!(
        shown("sh -c 'cat x && wc -l' 2>&1"),
        ["/usr/bin/cat: cat x", "/usr/bin/wc: wc -l"]
    );
}

#[test]
fn the_environment_is_exactly_what_the_rules_leave() {
    let plan = plan("TZ=UTC env CI=0 CI=1 cat x", Security::Allowlist);
    assert_eq!(plan.env.get("KEPT").map(String::as_str), Some("1"));
    assert!(!plan.env.contains_key("LD_PRELOAD"));
    assert_eq!(plan.env["INTERLOCK_SHELL"], "exec");
    assert_eq!(plan.env["PATH"], PATH);
    let PlanAction::Execute { env, .. } = &direct(&plan)[0].stages[0].action else {
        panic!()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    // In order: the last value of a name is the one that the program gets.
    let expected = [pair("TZ", "UTC"), pair("CI", "0"), pair("CI", "1")];
    assert_eq!(env, &expected);
    // The allowlist allows it without a terminal.
    assert_eq!(plan.env["PAGER"], "cat");
    assert_eq!(plan.env["LESSSECURE"], "1");
}

#[test]
fn text_that_is_not_plain_is_run_by_a_shell_as_it_is() {
    let text = "for f in a b; do cat $f; done";
    let PlanProgram::Shell { text: planned, .. } = plan(text, Security::Full).program else {
        panic!("not by a shell");
    };
    assert_eq!(planned, text);
}
