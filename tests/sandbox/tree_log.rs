//! Programs that a run starts: `tree: log`.

use std::fs;

use serde_json::Value;
use testkit::{Machine, eventually};

use crate::site::{Site, everywhere, with_every_backend};

const LOG: &str = "mode: 'all', workspaceAccess: 'rw', tree: 'log'";

fn programs(result: &Value) -> Vec<&Value> {
    let list = result["programs"]["list"].as_array();
    list.unwrap_or_else(|| panic!("{result:#}"))
        .iter()
        .collect()
}

fn find<'a>(result: &'a Value, name: &str) -> &'a Value {
    let programs = programs(result);
    let is_meant = |one: &&&Value| one["path"].as_str().unwrap().ends_with(name);
    programs
        .iter()
        .find(is_meant)
        .copied()
        .unwrap_or_else(|| panic!("{name}: {result:#}"))
}

fn deny(site: &Site, rules: &str) {
    let text =
        format!("{{ version: 1, defaults: {{ security: 'full', ask: 'off', deny: [{rules}] }} }}");
    let set = site.machine.set_document(&text);
    assert_eq!(set.code, 0, "{set:#?}");
}

/// Path, words and parent of every program, also of those that the text does not name.
#[test]
fn every_program_is_in_the_result_and_in_the_audit() {
    with_every_backend(LOG, |site| {
        let result = site
            .result("x=wc; echo a b | $x -w; /usr/bin/env sh -c 'exec /usr/bin/id -u >/dev/null'");
        assert_eq!(result["output"]["text"], "2\n", "{result:#}");
        let shell = programs(&result)[0];
        assert!(
            shell["path"].as_str().unwrap().ends_with("sh"),
            "{result:#}"
        );
        assert!(shell["parent"].is_null(), "{result:#}");
        let wc = find(&result, "/wc");
        assert_eq!(wc["argv"], serde_json::json!(["wc", "-w"]), "{result:#}");
        assert!(wc["parent"].as_str().unwrap().ends_with("sh"), "{result:#}");
        let id = find(&result, "/id");
        assert!(id["parent"].as_str().unwrap().ends_with("sh"), "{result:#}");
        assert_eq!(result["programs"]["leftOut"], 0, "{result:#}");
        let audit = site.machine.ok(&["audit", "log", "--json"]).stdout;
        assert!(
            audit.contains("\"-w\"") && audit.contains("/id\""),
            "{audit}"
        );
    });
}

/// Deny rules hold for every program of the tree, whatever hides its name from the judge.
#[test]
fn denied_programs_and_the_bare_loader_are_refused() {
    with_every_backend(LOG, |site| {
        deny(
            site,
            "{ pattern: 'uname' }, { pattern: 'git', args: ['push', '**'] }, { pattern: 'perl' }",
        );
        site.owned(
            &site.work().join("script"),
            "#!/usr/bin/perl\nprint \"RAN\\n\";\n",
        );
        site.owned(
            &site.work().join("env"),
            "#!/usr/bin/env perl\nprint \"RAN\\n\";\n",
        );
        for text in [
            "x=un; y=ame; $x$y",
            "python3 -c 'import os; os.execv(\"/usr/bin/un\" + \"ame\", [\"other\"])'",
            "cd /usr/bin && x=me; ./una$x",
            "ln -s /usr/bin/uname innocent; ./inno'cent'",
            "exec 9</usr/bin/una'me'; python3 -c 'import os; os.execve(9, [\"x\"], {})'",
            "exec 9</usr/bin/una'me'; /proc/self/fd/9",
            "p=pu; s=sh; git $p$s origin",
            "p=pu; s=sh; git -C . $p$s origin",
            "cp script s; chmod 755 s; ./s",
            "cp env e; chmod 755 e; ./e",
            "l=/lib64/ld-linux-x86-64; ${l}.so.2 /usr/bin/id",
        ] {
            // In a file, where the judge does not look.
            site.owned(&site.work().join("case"), text);
            let result = site.result("sh case");
            let output = result["output"]["text"].as_str().unwrap();
            assert!(
                !output.contains("Linux") && !output.contains("RAN") && !output.contains("uid="),
                "{text}: {result:#}"
            );
            assert_ne!(result["exitCode"], 0, "{text}: {result:#}");
            assert!(
                result["programs"]["refused"].as_u64().unwrap() >= 1,
                "{text}: {result:#}"
            );
            let _ = fs::remove_file(site.work().join("innocent"));
        }
        // What no rule names works.
        assert_eq!(
            site.says("git --version | wc -l; id -u >/dev/null; echo ok"),
            "1\nok\n"
        );
    });
}

/// A run cannot make the log long, and many programs at once go through it.
#[test]
fn the_log_is_bounded_and_complete_in_its_count() {
    everywhere(LOG, |site| {
        let result = site.result(
            "i=0; while [ $i -lt 150 ]; do /usr/bin/true \"$(printf 'x%.0s' $(seq 300))\"; i=$((i+1)); done; \
             seq 200 | xargs -P 8 -n 1 /usr/bin/true; echo done",
        );
        assert_eq!(result["output"]["text"], "done\n", "{}", result["output"]);
        let list = programs(&result);
        assert!(list.len() <= 150, "{}", list.len());
        let left_out = result["programs"]["leftOut"].as_u64().unwrap();
        // `true` 350 times, `seq` 151 times, `xargs` and the shell; and what its profile starts.
        let all = list.len() as u64 + left_out;
        assert!((503..=520).contains(&all), "{all}");
        assert!(result.to_string().len() < 200_000);
    });
}

/// Lines that run without a shell, a terminal, and threads that start programs.
#[test]
fn every_way_to_start_a_run_is_logged() {
    everywhere(LOG, |site| {
        let run = site
            .machine
            .run(&["exec", "--json", "--pty", "--", "/usr/bin/id -u"]);
        let result = run.json();
        assert_eq!(result["exitCode"], 0, "{result:#}");
        find(&result, "/id");
        let result = site.result(
            "python3 -c 'import threading, subprocess\nts = [threading.Thread(target=subprocess.run, args=([\"/usr/bin/true\"],)) for _ in range(20)]\n[t.start() for t in ts]; [t.join() for t in ts]; print(\"ok\")'",
        );
        assert_eq!(result["output"]["text"], "ok\n", "{result:#}");
        let count = programs(&result)
            .iter()
            .filter(|one| one["path"].as_str().unwrap().ends_with("/true"))
            .count();
        assert_eq!(count, 20, "{result:#}");
    });
    let machine = Machine::new();
    let site = Site::started(machine, LOG);
    site.machine.configure(&format!(
        "{{ tools: {{ sandbox: {{ exec: {{ security: 'allowlist' }} }} }}, agents: {{ defaults: {{ sandbox: {{ {LOG} }} }} }} }}"
    ));
    site.machine
        .ok(&["approvals", "allowlist", "add", "/usr/bin/id"]);
    site.machine
        .ok(&["approvals", "allowlist", "add", "/usr/bin/wc"]);
    let result = site.result("/usr/bin/id -u | /usr/bin/wc -l; /usr/bin/id -g");
    assert_eq!(result["exitCode"], 0, "{result:#}");
    assert_eq!(programs(&result).len(), 3, "{result:#}");
}

/// Without the process that is asked, the kernel refuses: nothing hangs, and nothing starts unseen.
#[test]
fn a_log_whose_process_is_gone_lets_nothing_start_and_nothing_wait() {
    everywhere(LOG, |site| {
        let begun = site.machine.background(
            &[],
            "touch ~/begun; while :; do /usr/bin/true || echo x >> /workspace/refused; done",
        );
        let marked = || site.inside("ls ~/begun").code == 0;
        eventually("the run", marked);
        let name = &begun.id;
        let status = site
            .machine
            .state()
            .join("sessions")
            .join(name)
            .join("status.json");
        let status = fs::read_to_string(status).unwrap();
        let shim: Value = serde_json::from_str(&status).unwrap();
        let shim = shim["session"]["shim"].as_i64().unwrap();
        site.host(&["/usr/bin/kill", "-9", &shim.to_string()]);
        eventually("its processes to be gone", || {
            let list = site.machine.run(&["process", "list", "--json"]).json();
            !list.to_string().contains("\"running\"")
        });
        assert_eq!(site.says("echo alive"), "alive\n");
    });
}
