//! `interlock sandbox`, and what people see of a sandbox: row P35.

use std::fs;

use testkit::Machine;

use crate::site::{USUAL, everywhere};

/// P35: the probe holds in every configuration.
#[test]
fn the_promises_hold_in_every_configuration() {
    everywhere(USUAL, |site| {
        for view in ["minimal", "host"] {
            for access in ["none", "ro", "rw"] {
                for sockets in ["own", "none"] {
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
