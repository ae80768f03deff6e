//! A run must not answer the question that it caused, nor change what judges it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use crate::BINARY;
use serde_json::Value;
use testkit::Machine;

/// Ways to call a program from inside of a run, each further away than the one before. `PROGRAM`
/// stands for the call; its output goes to the file `out`.
const WAYS: &[(&str, &str)] = &[
    ("directly", "PROGRAM > out 2>&1; echo code=$? >> out"),
    (
        "with an empty environment",
        "env -i HOME=\"$HOME\" PROGRAM > out 2>&1; echo code=$? >> out",
    ),
    (
        "in a session of its own",
        "env -i HOME=\"$HOME\" setsid -w PROGRAM > out 2>&1; echo code=$? >> out",
    ),
    // Root may leave the control group of its run; the supervisor is still its ancestor.
    (
        "outside of its control group",
        "for group in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    [ -w $group/cgroup.procs ] && echo $$ > $group/cgroup.procs
done 2> /dev/null
env -i HOME=\"$HOME\" PROGRAM > out 2>&1; echo code=$? >> out",
    ),
    (
        "as an orphan in a session of its own",
        "(setsid sh -c 'sleep 0.05; env -i HOME=\"$HOME\" PROGRAM > new 2>&1; echo code=$? >> new; mv new out' &)
while [ ! -e out ]; do sleep 0.02; done",
    ),
];

#[test]
fn decisions_and_policy_writes_from_a_run_are_refused() {
    let machine = Machine::open();
    machine.switch_shield_off();
    let id = machine.put_down(&["--", "touch marker > x"]);
    machine.file(
        "home/open.json",
        "{ version: 1, defaults: { security: 'full' } }",
    );
    machine.ok(&["config", "set", "tools.exec.node", "n1"]);
    let (_, hash) = machine.document();
    let config = fs::read_to_string(machine.config()).unwrap();
    let calls = [
        format!("approvals approve {id}"),
        format!("approvals approve {id} --always --json"),
        format!("approvals approve {id} --always=program"),
        format!("approvals deny {id}"),
        "approvals watch --plain".to_owned(),
        "companion".to_owned(),
        "companion --allow".to_owned(),
        "companion install --autostart".to_owned(),
        "companion uninstall".to_owned(),
        "approvals socket --token".to_owned(),
        "approvals revoke 0".to_owned(),
        "approvals allowlist add rg".to_owned(),
        "approvals allowlist remove \\*".to_owned(),
        "approvals set --file ../home/open.json".to_owned(),
        "exec-policy preset yolo".to_owned(),
        "exec-policy set --security full".to_owned(),
        "config set tools.exec.security full".to_owned(),
        "config unset tools.exec.node".to_owned(),
        "setup claude-code".to_owned(),
        "setup codex --undo".to_owned(),
    ];
    for (way, text) in WAYS {
        for call in &calls {
            let _ = fs::remove_file(machine.work().join("out"));
            let text = text.replace("PROGRAM", &format!("{BINARY} {call}"));
            machine.script("work/do.sh", &format!("#!/bin/sh\n{text}\n"));
            let run = machine.exec("./do.sh");
            assert_eq!(run.code, 0, "{way}: {call}: {run:#?}");
            let out = fs::read_to_string(machine.work().join("out")).unwrap();
            assert!(out.contains("DECISION_FROM_RUN"), "{way}: {call}: {out}");
            assert!(out.ends_with("code=1\n"), "{way}: {call}: {out}");
        }
    }
    assert_eq!(machine.document().1, hash);
    assert_eq!(fs::read_to_string(machine.config()).unwrap(), config);
    assert_eq!(machine.pending()[0]["id"], id.as_str());
    // Outside it is decided as ever.
    machine.ok(&["approvals", "approve", &id]);
}

#[test]
fn reading_is_not_deciding() {
    let machine = Machine::open();
    machine.switch_shield_off();
    let text = format!("#!/bin/sh\n{BINARY} approvals pending --json\n{BINARY} audit head\n");
    machine.script("work/do.sh", &text);
    let run = machine.exec("./do.sh");
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(run.stdout.contains("\"approvals\""), "{run:#?}");
}

#[test]
fn the_terminal_of_a_run_is_no_place_where_a_person_sits() {
    let machine = Machine::open();
    machine.switch_shield_off();
    let text = format!(
        "#!/bin/sh
env -i HOME=\"$HOME\" {BINARY} exec -- 'touch marker > x' < /dev/tty &
until {BINARY} approvals pending --json | grep -q touch; do sleep 0.02; done
kill -KILL $!
wait $!
"
    );
    machine.script("work/do.sh", &text);
    let run = machine.run(&["exec", "--pty", "--json", "--", "./do.sh"]);
    let shown = run.json()["output"].to_string();
    assert!(shown.contains("waits for a decision"), "{shown}");
    assert!(!shown.contains("[y]"), "{shown}");
    assert_ne!(machine.pending(), Vec::<Value>::new());
    assert!(!machine.work().join("marker").exists());
}
