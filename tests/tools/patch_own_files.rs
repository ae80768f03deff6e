//! No patch reaches Interlock's own files, and no agent works where they lie by default.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};
use testkit::ws::{EVERYTHING, WsClient};
use testkit::{Machine, eventually};

/// One of the user who runs the tests, root as a rule, and one of an ordinary user.
fn machines() -> impl Iterator<Item = Machine> {
    let ordinary = testkit::is_root().then(Machine::of_ordinary_user).flatten();
    std::iter::once(Machine::new()).chain(ordinary)
}

fn patch(operations: &str) -> String {
    format!("*** Begin Patch\n{operations}\n*** End Patch\n")
}

/// Refused by every root and setting, and nothing changed.
#[track_caller]
fn reserved(machine: &Machine, root: &Path, operations: &str, witness: &Path) {
    let before = fs::read(witness).ok();
    for flags in [&[][..], &["--dry-run"]] {
        let mut all = vec!["apply-patch", "--root", root.to_str().unwrap()];
        all.extend(flags);
        all.push("-");
        let run = machine.run_with_input(&all, patch(operations).as_bytes());
        run.refused(1, "PATCH_RESERVED");
        assert!(run.stderr.contains("hint: the owner changes"), "{run:#?}");
    }
    assert_eq!(fs::read(witness).ok(), before, "{operations}");
}

#[test]
fn a_patch_never_touches_the_state_the_config_or_the_program() {
    for machine in machines() {
        machine.start();
        machine.ok(&["config", "set", "tools.exec.notifyOnExit", "true"]);
        let (home, work) = (machine.root().join("home"), machine.work());
        let config = machine.config();
        fs::hard_link(&config, work.join("hard.json")).unwrap();
        symlink(&config, work.join("soft.json")).unwrap();
        symlink(machine.state(), work.join("state")).unwrap();
        let rewrite = |path: &str| format!("*** Update File: {path}\n@@\n-{{\n+{{ // evil");
        let full = config.display().to_string();
        for workspace_only in ["true", "false"] {
            let key = "tools.exec.applyPatch.workspaceOnly";
            machine.ok(&["config", "set", key, workspace_only]);
            // The reserved file has no second name any more: the config was written anew.
            let _ = fs::remove_file(work.join("hard.json"));
            fs::hard_link(&config, work.join("hard.json")).unwrap();
            let attacks = [
                (&home, rewrite(".interlock/interlock.json")),
                (&home, "*** Add File: .interlock/new\n+x".to_owned()),
                (&home, "*** Delete File: .interlock/interlock.db".to_owned()),
                (
                    &home,
                    "*** Add File: .INTERLOCK/../.interlock/new\n+x".to_owned(),
                ),
                (&work, rewrite("hard.json")),
                (&work, "*** Delete File: hard.json".to_owned()),
                (&work, rewrite("soft.json")),
                (&work, rewrite(&full)),
                (&work, "*** Add File: state/new\n+x".to_owned()),
                (&work, rewrite("../home/.interlock/interlock.json")),
            ];
            for (root, operations) in &attacks {
                reserved(&machine, root, operations, &config);
            }
            for root in ["/", machine.root().to_str().unwrap()] {
                reserved(&machine, Path::new(root), &rewrite(&full), &config);
            }
            assert!(!machine.state().join("new").exists());
        }
    }
}

#[test]
fn the_program_itself_is_out_of_reach() {
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.start();
    let program = machine.root().join("interlock");
    let user = fs::metadata(machine.work()).unwrap();
    let chown = |path: &Path| {
        std::os::unix::fs::chown(path, Some(user.uid()), Some(user.gid())).unwrap();
    };
    chown(machine.root());
    chown(&program);
    let delete = "*** Delete File: interlock";
    reserved(&machine, machine.root(), delete, &program);
    fs::hard_link(&program, machine.work().join("other-name")).unwrap();
    reserved(
        &machine,
        &machine.work(),
        "*** Delete File: other-name",
        &program,
    );
}

#[test]
fn a_config_elsewhere_is_out_of_reach_and_so_is_one_that_is_not_there_yet() {
    for machine in machines() {
        machine.start();
        let work = machine.work();
        let path = work.join("interlock.json5");
        let flag = path.to_str().unwrap();
        let run = |operations: &str| {
            let arguments = ["--config", flag, "apply-patch", "-"];
            machine.run_with_input(&arguments, patch(operations).as_bytes())
        };
        // A config that was named and is missing stops every command, so that no patch can begin it.
        run("*** Add File: interlock.json5\n+{}").refused(1, "CONFIG_MISSING");
        assert!(!path.exists());
        fs::write(&path, "{}\n").unwrap();
        run("*** Update File: interlock.json5\n@@\n-{}\n+{ }").refused(1, "PATCH_RESERVED");
        run("*** Add File: INTERLOCK.json5\n+{}").refused(1, "PATCH_RESERVED");
        run("*** Update File: interlock.json5\n*** Move to: b").refused(1, "PATCH_RESERVED");
        assert_eq!(run("*** Add File: c\n+x").code, 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n");
    }
}

#[test]
fn deny_closes_the_tool_from_every_source() {
    let machine = Machine::new();
    machine.start();
    let apply = || {
        machine.run_with_input(
            &["apply-patch", "-"],
            patch("*** Add File: x\n+x").as_bytes(),
        )
    };
    machine.ok(&["config", "set", "tools.exec.security", "deny"]);
    apply().refused(3, "PATCH_DENIED");
    assert!(apply().stderr.contains("tools.exec.security"));
    machine.ok(&["config", "unset", "tools.exec.security"]);
    machine.ok(&["exec-policy", "preset", "deny-all"]);
    apply().refused(3, "PATCH_DENIED");
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let call = json!({ "name": "apply_patch", "args": { "input": patch("*** Add File: x\n+x") } });
    client.ok(
        "sessions.patch",
        &json!({ "key": "agent:main:main", "execSecurity": "deny" }),
    );
    let answer = details(&mut client, &call);
    assert_eq!(answer["code"], "PATCH_DENIED", "{answer:#}");
    assert_eq!(answer["status"], "denied", "{answer:#}");
    assert!(!machine.work().join("x").exists());
}

/// What a call of a tool says, whether it was done or not.
fn details(client: &mut WsClient, call: &Value) -> Value {
    let answer = client.call("tools.invoke", call);
    let answer = answer.unwrap_or_else(|refused| refused);
    let found = [
        &answer["output"]["details"],
        &answer["error"]["details"],
        &answer["details"],
    ];
    let found = found.into_iter().find(|details| details.is_object());
    found.unwrap_or_else(|| panic!("{answer:#}")).clone()
}

#[test]
fn models_are_named_or_refused() {
    let machine = Machine::new();
    machine.start();
    let input = patch("*** Add File: x\n+x");
    let apply = |flags: &[&str]| {
        let mut all = vec!["apply-patch", "--dry-run"];
        all.extend(flags);
        all.push("-");
        machine.run_with_input(&all, input.as_bytes())
    };
    assert_eq!(apply(&[]).code, 0);
    machine.ok(&[
        "config",
        "set",
        "tools.exec.applyPatch.allowModels",
        "[\"gpt-5.5\"]",
    ]);
    apply(&[]).refused(3, "PATCH_MODEL_UNNAMED");
    apply(&["--model", "other"]).refused(3, "TOOL_DENIED");
    assert_eq!(apply(&["--model", "GPT-5.5"]).code, 0);
    machine.ok(&["config", "set", "tools.exec.applyPatch.allowModels", "[]"]);
    apply(&["--model", "gpt-5.5"]).refused(3, "TOOL_DENIED");
    machine.ok(&[
        "config",
        "set",
        "tools.exec.applyPatch.allowModels",
        "[\"gpt-5.5\"]",
    ]);
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let mut call = json!({ "name": "apply_patch", "args": { "input": input } });
    let answer = details(&mut client, &call);
    assert_eq!(answer["code"], "PATCH_MODEL_UNNAMED", "{answer:#}");
    call["args"]["model"] = "gpt-5.5".into();
    let answer = client.ok("tools.invoke", &call);
    assert_eq!(
        answer["output"]["details"]["status"], "completed",
        "{answer:#}"
    );
}

#[test]
fn an_agent_without_a_workspace_gets_a_private_directory_of_its_own() {
    for machine in machines() {
        machine.ok(&["exec-policy", "preset", "yolo"]);
        let gateway = machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        let call = |tool: &str, args: Value| json!({ "name": tool, "args": args });
        let pwd = client.ok("tools.invoke", &call("exec", json!({ "command": "pwd" })));
        let own = machine
            .root()
            .join("home/.local/share/interlock/workspaces/main");
        let details = &pwd["output"]["details"];
        assert_eq!(details["cwd"], own.to_str().unwrap(), "{pwd:#}");
        let mode = own.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let input = patch("*** Add File: a.txt\n+x");
        client.ok(
            "tools.invoke",
            &call("apply_patch", json!({ "input": input })),
        );
        assert!(own.join("a.txt").exists());
        machine.ok(&[
            "config",
            "set",
            "agents.list",
            &format!(
                "[{{ id: 'main', workspace: '{}' }}]",
                machine.work().display()
            ),
        ]);
        client.ok(
            "tools.invoke",
            &call("apply_patch", json!({ "input": input })),
        );
        assert!(machine.work().join("a.txt").exists());
    }
}

#[test]
fn data_go_where_the_owner_keeps_data_and_nowhere_without_a_home() {
    let machine = Machine::new();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let data = machine.root().join("data");
    let call = json!({ "name": "exec", "args": { "command": "pwd" } });
    {
        let gateway = machine.gateway_as(
            &["--port", "0"],
            &[("XDG_DATA_HOME", data.to_str().unwrap())],
        );
        let mut client = gateway.connect(EVERYTHING);
        let pwd = client.ok("tools.invoke", &call);
        let own = data.join("interlock/workspaces/main");
        assert_eq!(pwd["output"]["details"]["cwd"], own.to_str().unwrap());
    }
    let state = machine.state().display().to_string();
    let variables = [("HOME", ""), ("INTERLOCK_STATE_DIR", state.as_str())];
    let gateway = machine.gateway_as(&["--port", "0"], &variables);
    let mut client = gateway.connect(EVERYTHING);
    let answer = details(&mut client, &call);
    assert_eq!(answer["code"], "WORKDIR_REQUIRED", "{answer:#}");
    let input = patch("*** Add File: x\n+x");
    let answer = details(
        &mut client,
        &json!({ "name": "apply_patch", "args": { "input": input } }),
    );
    assert_eq!(answer["code"], "WORKDIR_REQUIRED", "{answer:#}");
    let mut named = call.clone();
    named["args"]["workdir"] = machine.work().to_str().unwrap().into();
    let pwd = client.ok("tools.invoke", &named);
    assert_eq!(pwd["output"]["details"]["status"], "completed", "{pwd:#}");
}

/// The gateway does not start.
#[track_caller]
fn not_accepted(machine: &Machine, flags: &[&str]) {
    let mut all = flags.to_vec();
    all.extend(["gateway", "run", "--port", "0"]);
    let run = machine.run(&all);
    assert_eq!(
        (run.code, run.error_code()),
        (1, "CONFIG_IN_WORKSPACE"),
        "{run:#?}"
    );
    assert!(
        run.stderr.contains("move the workspace or the config file"),
        "{run:#?}"
    );
}

#[test]
fn a_wake_command_is_accepted_only_from_a_config_that_no_workspace_contains() {
    for machine in machines() {
        machine.start();
        let wake = "gateway: { wake: { command: ['/bin/true'] } }";
        let with = |workspace: &Path| {
            let agents = format!(
                "agents: {{ list: [{{ id: 'ops', workspace: '{}' }}] }}",
                workspace.display()
            );
            format!("{{ {wake}, {agents} }}")
        };
        let home = machine.root().join("home");
        machine.write_config(&with(&home));
        not_accepted(&machine, &[]);
        machine.write_config(&with(Path::new("~")));
        not_accepted(&machine, &[]);
        let link = machine.work().join("link");
        symlink(&home, &link).unwrap();
        machine.write_config(&with(&link));
        not_accepted(&machine, &[]);
        // A link in the workspace could be set to another file.
        let elsewhere = machine.root().join("elsewhere.json");
        fs::write(&elsewhere, with(&machine.work())).unwrap();
        let there = machine.work().join("config.json");
        symlink(&elsewhere, &there).unwrap();
        not_accepted(&machine, &["--config", there.to_str().unwrap()]);
    }
}

/// The workspace moves around the config while the gateway runs.
#[test]
fn a_wake_command_is_not_started_once_a_workspace_contains_its_config() {
    let machine = Machine::unguarded();
    let woken = machine.root().join("woken");
    let script = machine.script(
        "wake.sh",
        &format!("#!/bin/sh\necho x >> {}\n", woken.display()),
    );
    let config = |workspace: &str| {
        format!(
            "{{ gateway: {{ wake: {{ command: ['{}'] }} }}, agents: {{ defaults: {{ workspace: '{workspace}' }} }} }}",
            script.display()
        )
    };
    machine.write_config(&config(machine.work().to_str().unwrap()));
    let gateway = machine.gateway();
    machine.write_config(&config("~"));
    let mut client = gateway.connect(EVERYTHING);
    let args = json!({ "command": "sleep 0.2; false", "background": true });
    client.ok("tools.invoke", &json!({ "name": "exec", "args": args }));
    eventually("the refusal is recorded", || {
        let log = machine
            .ok(&["audit", "log", "--kind", "delivery", "--json"])
            .json();
        let records = log["records"].as_array().unwrap().clone();
        records.iter().any(|record| {
            let detail = record["body"]["detail"].as_str().unwrap_or_default();
            detail.starts_with("CONFIG_IN_WORKSPACE")
        })
    });
    assert!(!woken.exists());
}
