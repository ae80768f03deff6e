//! Programs that allowlisted runs start on the host: `tools.exec.tree`.

use serde_json::{Value, json};
use testkit::Machine;

/// Ends in `Linux` where the program that it does not name literally is started.
const HIDDEN: &str = "exec(\"/usr/bin/una\" . \"me\") or print \"no\\n\";\n";

/// Runs a test on a machine of this user and, where this is root, on one of an ordinary user. An entry allows
/// `perl`, and `tree` has this level.
fn everywhere(level: &str, more: &str, test: impl Fn(&Machine)) {
    let machines = [Some(Machine::new()), Machine::of_ordinary_user()];
    for machine in machines.into_iter().flatten() {
        machine.start();
        machine.configure(&format!(
            "{{ tools: {{ exec: {{ security: 'allowlist', ask: 'off', tree: '{level}', {more} }} }} }}"
        ));
        machine.ok(&["approvals", "allowlist", "add", "perl"]);
        machine.write_private(&machine.work().join("hidden.pl"), HIDDEN);
        test(&machine);
    }
}

fn says(machine: &Machine, text: &str) -> String {
    let run = machine.run(&["exec", "--", text]);
    format!("{}{}", run.stdout, run.stderr)
}

fn result(machine: &Machine, text: &str) -> Value {
    machine.run(&["exec", "--json", "--", text]).json()
}

#[test]
fn only_listed_programs_start() {
    everywhere("enforce", "", |machine| {
        assert_eq!(says(machine, "perl hidden.pl"), "no\n");
        // Copies, files of the run's own and files in memory.
        let copies = r#"
            for my $place ("copy", "/tmp/host-tree-$$") {
                system { "/usr/bin/cp" } "cp"; open(my $in, "<", "/usr/bin/id"); open(my $out, ">", $place); local $/;
                print {$out} <$in>; close $out; chmod 0755, $place;
                my $done = system { $place } "id"; print $done == -1 ? "no\n" : "RAN\n"; unlink $place;
            }
            my $fd = syscall(319, my $name = "x", 0); print $fd < 0 ? "no\n" : "MADE\n";
        "#;
        machine.write_private(&machine.work().join("copies.pl"), copies);
        assert_eq!(says(machine, "perl copies.pl"), "no\nno\nno\n");
        // What an entry names may start.
        machine.ok(&["approvals", "allowlist", "add", "uname"]);
        assert_eq!(says(machine, "perl hidden.pl"), "Linux\n");
        let result = result(machine, "perl hidden.pl");
        assert_eq!(result["tree"], json!("enforce"), "{result:#}");
        let log = machine.ok(&["audit", "log", "--json", "--kind", "run-started"]);
        let log = log.json();
        let body = &log["records"].as_array().unwrap().last().unwrap()["body"];
        assert_eq!(body["tree"], json!("enforce"), "{body:#}");
        let explained = machine.run(&["explain", "--", "perl hidden.pl"]).stdout;
        assert!(explained.contains("tools.exec.tree"), "{explained}");
    });
}

/// Pipelines, helpers and scripts with interpreters go on; so do runs that no entry allows.
#[test]
fn usual_work_goes_on() {
    everywhere("enforce", "", |machine| {
        for name in ["/usr/bin/git", "/usr/bin/wc", "tool"] {
            let path = machine.work().join("tool");
            machine.write_private(&path, "#!/usr/bin/env perl\nprint \"tool\\n\";\n");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(&path, mode).unwrap();
            let named = if name == "tool" {
                path.display().to_string()
            } else {
                name.to_owned()
            };
            machine.ok(&["approvals", "allowlist", "add", &named]);
        }
        let status = says(
            machine,
            "/usr/bin/git init -q . && /usr/bin/git status | /usr/bin/wc -l",
        );
        let lines: usize = status.trim().parse().unwrap_or_default();
        assert!(
            lines > 2,
            "{status}: {}",
            says(machine, "/usr/bin/git status")
        );
        assert_eq!(says(machine, "./tool"), "tool\n");
        machine.configure("{ tools: { exec: { security: 'full', ask: 'off', tree: 'enforce' } } }");
        let set =
            machine.set_document("{ version: 1, defaults: { security: 'full', ask: 'off' } }");
        assert_eq!(set.code, 0, "{set:#?}");
        assert_eq!(says(machine, "x=una; /usr/bin/${x}me"), "Linux\n");
    });
}

#[test]
fn every_program_is_logged_and_denied_ones_do_not_start() {
    everywhere("log", "", |machine| {
        let ran = result(machine, "perl hidden.pl");
        assert_eq!(ran["output"]["text"], "Linux\n", "{ran:#}");
        let list = ran["programs"]["list"].as_array().unwrap();
        let uname = list.iter().find(|one| {
            let path = one["path"].as_str().unwrap();
            path.ends_with("/uname")
        });
        let parent = uname.unwrap()["parent"].as_str().unwrap();
        assert!(parent.contains("perl"), "{ran:#}");
        let audit = machine.ok(&["audit", "log", "--json"]).stdout;
        assert!(audit.contains("/uname\""), "{audit}");
        machine.ok(&["deny", "add", "uname"]);
        assert_eq!(says(machine, "perl hidden.pl"), "no\n");
    });
}

/// Without the shield a set-user-id program would gain what rules and filters do not hold.
#[test]
fn a_program_that_gains_privileges_is_refused() {
    for level in ["log", "enforce"] {
        everywhere(level, "shield: 'off'", |machine| {
            let state = std::fs::metadata(machine.state()).unwrap();
            let is_of_root = std::os::unix::fs::MetadataExt::uid(&state) == 0;
            machine.ok(&["approvals", "allowlist", "add", "mount"]);
            let run = machine.run(&["exec", "--json", "--", "mount --version"]);
            if is_of_root {
                assert_eq!(run.code, 0, "{run:#?}");
            } else {
                let all = format!("{}{}", run.stdout, run.stderr);
                assert!(all.contains("TREE_UNAVAILABLE"), "{run:#?}");
            }
        });
    }
}
