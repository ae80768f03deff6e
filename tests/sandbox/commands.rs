//! `interlock sandbox`, and what people see of a sandbox: row P35.

use std::fs;

use testkit::Machine;

use crate::site::{USUAL, everywhere, with_every_backend};

/// `tests/run-heavy sandbox` sets it.
fn is_long_run() -> bool {
    std::env::var_os("INTERLOCK_TEST_ALL_MASKS").is_some()
}

/// P35: the probe holds in every configuration.
#[test]
fn the_promises_hold_in_every_configuration() {
    with_every_backend(USUAL, |site| {
        for view in ["minimal", "host"] {
            for access in ["none", "ro", "rw", "cow"] {
                for sockets in ["own", "none"] {
                    // Backends differ in who makes namespaces alone: all of it in the long run.
                    let is_usual = sockets == "own" && ["ro", "cow"].contains(&access);
                    if site.is_bubblewrap() && !is_usual && !is_long_run() {
                        continue;
                    }
                    site.configure(&format!(
                        "mode: 'all', view: '{view}', workspaceAccess: '{access}', network: {{ unixSockets: '{sockets}' }}"
                    ));
                    let run = site
                        .machine
                        .run(&["sandbox", "explain", "--verify", "--json"]);
                    assert_eq!(run.code, 0, "{view} {access} {sockets}: {run:#?}");
                    let told = run.json();
                    assert_eq!(told["verified"]["holds"], true, "{told:#}");
                    assert!(told["verified"]["tests"].as_array().unwrap().len() > 12);
                }
            }
        }
    });
}

/// P35: a mask that is not there is found, whichever it is.
#[test]
fn p35_the_probe_fails_when_any_one_mask_is_missing() {
    with_every_backend(USUAL, |site| {
        site.owned(&site.home().join(".ssh/id_x"), "SECRET");
        site.owned(&site.work().join(".git/config"), "x");
        site.owned(&site.work().join(".git/hooks/pre-push"), "x");
        site.owned(&site.work().join(".vscode/tasks.json"), "x");
        // The workspace holds the state directory, and a repository at its root.
        site.machine.configure(&format!(
            "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {}, view: 'host', protect: ['work/.vscode'] }} }} }} }}",
            site.machine.root().display(),
            site.settings(USUAL)
        ));
        let explain = |flags: &[&str]| {
            let mut arguments = vec!["sandbox", "explain", "--json"];
            arguments.extend(flags);
            site.machine.run(&arguments)
        };
        let run = explain(&["--verify"]);
        assert_eq!(run.code, 0, "{run:#?}");
        let told = explain(&[]).json();
        let sandbox = &told["sandbox"];
        let masks: Vec<String> = sandbox["mounts"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|mount| mount.get("cover").or(mount.get("hold")))
            .map(|mask| mask["target"].as_str().unwrap().to_owned())
            .filter(|target| fs::symlink_metadata(target).is_ok_and(|found| !found.is_symlink()))
            .collect();
        let state = site.machine.state().display().to_string();
        assert!(masks.contains(&state) && masks.len() > 6, "{masks:?}");
        let hook =
            std::path::Path::new(sandbox["scopeDirectory"].as_str().unwrap()).join("test-unmask");
        // All of them in a long run; a few of each kind here.
        let rounds = match (is_long_run(), site.is_bubblewrap()) {
            (true, _) => masks.len(),
            (false, false) => 5,
            (false, true) => 0,
        };
        let of_work = masks.iter().filter(|mask| mask.contains("/work/"));
        let mut chosen: Vec<&String> = of_work.chain([&state]).chain(&masks).collect();
        chosen.dedup();
        for mask in chosen.into_iter().take(rounds + 3) {
            site.owned(&hook, mask);
            let run = explain(&["--verify"]);
            let told = run.json();
            assert!(
                run.code == 1 && told["verified"]["holds"] == false,
                "{mask}: {told:#}"
            );
            let failed = told["verified"]["tests"].to_string();
            assert!(
                failed.contains(&format!("FAIL {mask} ")) || failed.contains("FAIL the state"),
                "{failed}"
            );
        }
        fs::remove_file(&hook).unwrap();
        assert_eq!(explain(&["--verify"]).code, 0);
    });
}

/// Without a sandbox in the config, one run gets the usual one: the directory is copy-on-write.
#[test]
fn one_run_gets_a_sandbox_without_any_config() {
    let check = |machine: &Machine| {
        fs::write(machine.work().join("f"), "text").unwrap();
        let run = machine.run(&[
            "exec",
            "--sandbox",
            "--",
            "cat f; touch x; echo y > /workspace/y && cat /workspace/y",
        ]);
        assert_eq!(run.stdout, "texty\n", "{run:#?}");
        assert!(machine.work().join("x").exists() && machine.work().join("y").exists());
        let plain = machine.run(&["sandbox", "explain"]);
        assert!(
            plain
                .stdout
                .contains("is not sandboxed: sandbox.mode is off"),
            "{plain:#?}"
        );
        machine
            .run(&["sandbox", "explain", "--verify"])
            .refused(1, "SANDBOX_UNAVAILABLE");
    };
    check(&Machine::new());
    if let Some(machine) = Machine::of_ordinary_user() {
        check(&machine);
    }
}

#[test]
fn scopes_are_listed_and_removed() {
    everywhere(USUAL, |site| {
        site.says("echo x > $HOME/x; mkdir -p $HOME/d; chmod 0 $HOME/d");
        let listed = site.machine.ok(&["sandbox", "list", "--json"]).json();
        assert_eq!(listed["scopes"].as_array().unwrap().len(), 1, "{listed:#}");
        assert_eq!(listed["scopes"][0]["scope"], "agent main");
        // Nothing is old enough.
        assert_eq!(site.machine.ok(&["sandbox", "prune"]).stdout, "removed 0\n");
        // What runs keeps its directories.
        site.machine
            .ok(&["exec", "--background", "--", "exec sleep 600"]);
        assert_eq!(site.machine.run(&["sandbox", "recreate", "--all"]).code, 1);
        let sessions = site.machine.ok(&["process", "list", "--json"]).json();
        let id = sessions["sessions"][0]["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        site.machine.ok(&["process", "kill", &id]);
        testkit::eventually("the scope to be free", || {
            site.machine
                .run(&["sandbox", "recreate", "--agent", "main"])
                .code
                == 0
        });
        assert_eq!(site.inside("cat $HOME/x").code, 1);
    });
}

/// The user of root's runs is another one for each scope, and owns nothing on the host.
#[test]
fn root_is_never_root_inside() {
    if !testkit::is_root() {
        println!("skipped: only root has to be another user");
        return;
    }
    let machine = Machine::new();
    machine.start();
    machine
        .configure("{ agents: { defaults: { sandbox: { mode: 'all', workspaceAccess: 'rw' } } } }");
    let run = machine.ok(&[
        "exec",
        "--",
        "cat /proc/self/uid_map; touch made; cat /etc/hostname /root/.profile; true",
    ]);
    let map: Vec<&str> = run.stdout.split_whitespace().take(3).collect();
    assert!(map[1].parse::<u32>().unwrap() > 2_000_000_000, "{run:#?}");
    // Files of the workspace keep their owner.
    let made = fs::metadata(machine.work().join("made")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), 0);
}
