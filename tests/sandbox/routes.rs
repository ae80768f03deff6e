//! Where a sandboxed call goes, and what refuses: rows P27 to P29 and P34.

use std::fs;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::EVERYTHING;

use crate::site::{USUAL, everywhere, with_every_backend};

/// P27: no call leaves the sandbox.
#[test]
fn a_call_does_not_leave_its_sandbox() {
    with_every_backend(USUAL, |site| {
        let trace = site.work().join("trace");
        for (flags, code) in [
            (&["--host", "gateway"][..], "HOST_NOT_ALLOWED"),
            (&["--host", "node"], "HOST_NOT_ALLOWED"),
            (&["--elevated"], "ELEVATED_NOT_ALLOWED"),
            (&["--cwd", "/etc/.."], "WORKDIR_OUTSIDE_SANDBOX"),
        ] {
            let mut arguments = vec!["exec"];
            arguments.extend(flags);
            arguments.extend(["--", "touch trace"]);
            site.machine.run(&arguments).refused(1, code);
            assert!(!trace.exists());
        }
    });
}

#[test]
fn a_gateway_keeps_calls_inside_by_every_way_in() {
    let machine = Machine::new();
    machine.start();
    let config = |host: &str| {
        format!(
            "{{ tools: {{ exec: {{ host: '{host}' }} }}, agents: {{ defaults: {{ workspace: '{}', sandbox: {{ mode: 'non-main', workspaceAccess: 'rw' }} }} }} }}",
            machine.work().display()
        )
    };
    machine.configure(&config("auto"));
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let mut call = |key: &str, args: Value| {
        let call = json!({ "name": "exec", "args": args, "sessionKey": key });
        let answer = client.call("tools.invoke", &call).unwrap();
        answer["output"]["details"].clone()
    };
    let text = "grep Seccomp: /proc/self/status; pwd";
    let inside = call("agent:main:chat", json!({ "command": text }));
    assert!(
        inside["aggregated"]
            .as_str()
            .unwrap()
            .contains("Seccomp:\t2"),
        "{inside:#}"
    );
    assert_eq!(inside["shield"], "in its sandbox", "{inside:#}");
    for (args, code) in [
        (
            json!({ "command": text, "host": "gateway" }),
            "HOST_NOT_ALLOWED",
        ),
        (
            json!({ "command": text, "host": "node" }),
            "HOST_NOT_ALLOWED",
        ),
        (
            json!({ "command": text, "elevated": true }),
            "ELEVATED_NOT_ALLOWED",
        ),
        (
            json!({ "command": text, "workdir": "/etc" }),
            "WORKDIR_OUTSIDE_SANDBOX",
        ),
        (
            json!({ "command": text, "env": { "API_TOKEN": "x" } }),
            "ENV_REJECTED",
        ),
    ] {
        let refused = call("agent:main:chat", args);
        assert_eq!(refused["code"], code, "{refused:#}");
    }
    // The conversation may ask for a host, and stays inside all the same.
    let mut other = gateway.connect(EVERYTHING);
    other.ok(
        "sessions.directive",
        &json!({ "sessionKey": "agent:main:chat", "text": "/exec host=gateway" }),
    );
    let refused = call("agent:main:chat", json!({ "command": text }));
    assert_eq!(refused["code"], "HOST_NOT_ALLOWED", "{refused:#}");
    // A background session, read and ended as everywhere.
    let begun = call(
        "agent:main:two",
        json!({ "command": "echo begun; exec sleep 600", "background": true }),
    );
    assert_eq!(begun["status"], "running", "{begun:#}");
    let id = begun["sessionId"].as_str().unwrap().to_owned();
    let mut process = |args: Value| {
        let call = json!({ "name": "process", "args": args, "sessionKey": "agent:main:two" });
        other.call("tools.invoke", &call).unwrap()["output"].clone()
    };
    testkit::eventually("its output", || {
        let log = process(json!({ "action": "log", "sessionId": id }));
        log.to_string().contains("begun")
    });
    let killed = process(json!({ "action": "kill", "sessionId": id }));
    assert!(!killed.to_string().contains("error"), "{killed:#}");
}

/// `required` holds against the owner's own host, and against a mode that is off.
#[test]
fn a_required_sandbox_is_never_left() {
    everywhere(USUAL, |site| {
        let config = "{ tools: { exec: { host: 'gateway' } }, agents: { defaults: { sandbox: { mode: 'all', required: true } } } }";
        site.machine.configure(config);
        site.inside("touch /workspace/x")
            .refused(1, "HOST_NOT_ALLOWED");
        site.configure("mode: 'off', required: true");
        assert!(site.says("grep Seccomp: /proc/self/status").contains('2'));
    });
}

/// P28: without user namespaces there is no sandbox, and no run.
#[test]
fn without_namespaces_nothing_runs_anywhere() {
    with_every_backend(USUAL, |site| {
        // A user namespace in which no further one can be made.
        let limited = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"";
        let mut command = site.machine.other_program("/usr/bin/unshare");
        command.args(["-Ur", "sh", "-c", limited, "sh"]);
        command.arg(site.machine.binary());
        command.args(["exec", "--", "touch trace"]);
        let run = testkit::finish(&mut command);
        assert!(run.stderr.contains("SANDBOX_UNAVAILABLE"), "{run:#?}");
        assert!(run.stderr.contains("hint: "), "{run:#?}");
        assert!(!site.work().join("trace").exists());
    });
}

/// P29: binds.
#[test]
fn binds_of_blocked_paths_are_refused() {
    with_every_backend(USUAL, |site| {
        let (root, home) = (site.machine.root().display(), site.home());
        site.owned(&home.join(".ssh/id_x"), "SECRET");
        site.owned(&site.work().join("data/file"), "data");
        let link = site.work().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let (up, keys) = (site.work().join("up"), site.work().join("keys"));
        std::os::unix::fs::symlink(site.machine.root(), &up).unwrap();
        std::os::unix::fs::symlink(home.join(".ssh"), &keys).unwrap();
        for source in [
            "/home".to_owned(),
            "/root".to_owned(),
            "/home/".to_owned(),
            "/dev".to_owned(),
            "/sys/fs/cgroup".to_owned(),
            "/run".to_owned(),
            "/var".to_owned(),
            "/var/spool/cron".to_owned(),
            "//etc//".to_owned(),
            "/proc/self/root/etc".to_owned(),
            "/proc/1/root".to_owned(),
            keys.display().to_string(),
            format!("{}/home/.ssh", up.display()),
            format!("{}/home", up.display()),
            format!("{}/home/.interlock", up.display()),
            site.machine.state().parent().unwrap().display().to_string(),
            site.machine.state().display().to_string(),
            format!("{}/../state/..", site.machine.state().display()),
            "/".to_owned(),
            "/etc".to_owned(),
            "/proc".to_owned(),
            "~/.ssh".to_owned(),
            "/var/run/docker.sock".to_owned(),
            "/home/../etc".to_owned(),
            "relative".to_owned(),
            link.display().to_string(),
            format!("{}/ssl", link.display()),
            home.display().to_string(),
            format!("{root}"),
        ] {
            site.configure(&format!("{USUAL}, binds: ['{source}:/data']"));
            let run = site.inside("touch trace");
            assert_ne!(run.code, 0, "{source}");
            run.refused(1, "SANDBOX_BIND");
            assert!(run.stderr.contains(&source), "{run:#?}");
            assert!(!site.work().join("trace").exists());
        }
        // What is shown read-only anyway is not for writing, and nothing reserved is covered.
        site.owned(&site.work().join("data/file"), "data");
        let data = site.work().join("data").display().to_string();
        for bind in [
            "/usr/local:/data:rw".to_owned(),
            "/opt:/data:rw".to_owned(),
            format!("{data}:/etc/x"),
            format!("{data}:/tmp"),
            format!("{data}:/workspace/"),
            format!("{data}:/data/../etc"),
            format!("{data}:/./data"),
            format!("{data}:data"),
            format!("{data}:/data:rwx"),
            format!("{data}:/data:ro:rw"),
            format!("{data}:{}", home.display()),
        ] {
            site.configure(&format!("{USUAL}, binds: ['{bind}']"));
            let run = site.inside("touch trace");
            assert_ne!(run.code, 0, "{bind}");
            run.refused(1, "SANDBOX_BIND");
            assert!(run.stderr.contains(&bind), "{run:#?}");
            assert!(!site.work().join("trace").exists());
        }
        let data = site.work().join("data");
        site.configure(&format!("mode: 'all', binds: ['{}:/data']", data.display()));
        let run = site.inside("cat /data/file; echo x > /data/file");
        assert!(
            run.stdout == "data" && run.stderr.contains("Read-only"),
            "{run:#?}"
        );
        site.configure(&format!(
            "mode: 'all', binds: ['{}:/data:rw']",
            data.display()
        ));
        site.says("echo new > /data/file");
        assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "new\n");
    });
}

/// P34: PATH of a call is data.
#[test]
fn the_path_of_a_call_is_never_a_command() {
    with_every_backend(USUAL, |site| {
        for path in [
            "/x:$(touch /workspace/pwned)",
            "/a'b",
            "/a\"b",
            "/x;touch pwned",
            "`touch pwned`",
            "/x\ntouch pwned\n",
            "/x' ; touch pwned ; '",
            "${HOME:?$(touch pwned)}",
        ] {
            let pair = format!("PATH={path}");
            let run = site
                .machine
                .run(&["exec", "--env", &pair, "--", "echo \"$PATH\""]);
            assert!(run.stdout.starts_with(&format!("{path}:/")), "{run:#?}");
            assert!(!site.work().join("pwned").exists());
        }
    });
}

/// Deny rules hold inside, and the document's strictest words do.
#[test]
fn deny_rules_and_a_closed_document_hold_inside() {
    everywhere(USUAL, |site| {
        site.machine.ok(&["deny", "add", "--", "touch"]);
        let run = site.inside("touch trace");
        assert_eq!(run.code, 3, "{run:#?}");
        assert!(!site.work().join("trace").exists());
        site.says("echo fine > other");
        let closed = r#"{ version: 1, defaults: { security: "deny", ask: "off" } }"#;
        let set = site.machine.set_document(closed);
        assert_eq!(set.code, 0, "{set:#?}");
        assert_eq!(site.inside("true").code, 3);
    });
}

/// A patch changes what the sandbox shows, and nothing under `ro`.
#[test]
fn a_patch_stays_in_the_workspace_of_the_sandbox() {
    with_every_backend(USUAL, |site| {
        let patch = site.machine.file(
            "p.patch",
            "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch\n",
        );
        let patch = patch.to_str().unwrap();
        site.machine.ok(&["apply-patch", patch]);
        assert!(site.work().join("patched").exists());
        site.configure("mode: 'all', workspaceAccess: 'ro'");
        fs::remove_file(site.work().join("patched")).unwrap();
        let run = site.machine.run(&["apply-patch", patch]);
        assert!(
            run.code != 0 && run.stderr.contains("PATCH_READ_ONLY"),
            "{run:#?}"
        );
        assert!(!site.work().join("patched").exists());
    });
}

/// `tools.sandbox.tools` is one more filter, for sandboxed conversations alone.
#[test]
fn the_tools_of_a_sandboxed_conversation_are_filtered_once_more() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let patch = "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch\n";
    let mut code = |filter: &str, key: &str, tool: &str| {
        machine.configure(&format!(
            "{{ tools: {{ sandbox: {{ tools: {{ {filter} }} }} }}, agents: {{ defaults: {{ workspace: '{}', sandbox: {{ mode: 'non-main', workspaceAccess: 'rw' }} }} }} }}",
            machine.work().display()
        ));
        let args = match tool {
            "exec" => json!({ "command": "pwd" }),
            "process" => json!({ "action": "list" }),
            _ => json!({ "input": patch }),
        };
        let call = json!({ "name": tool, "args": args, "sessionKey": key });
        let answer = client.call("tools.invoke", &call).unwrap();
        answer["output"]["details"]["code"]
            .as_str()
            .map(str::to_owned)
    };
    let denied = || Some("TOOL_DENIED".to_owned());
    let (inside, main) = ("agent:main:chat", "agent:main:main");
    assert_eq!(code("deny: ['exec']", inside, "exec"), denied());
    assert_eq!(code("deny: ['exec']", inside, "process"), None);
    assert_eq!(code("allow: ['exec']", inside, "exec"), None);
    assert_eq!(code("allow: ['exec']", inside, "process"), denied());
    assert_eq!(code("allow: ['exec']", inside, "apply_patch"), denied());
    assert!(!machine.work().join("patched").exists());
    let more = "allow: ['exec'], alsoAllow: ['process', 'write']";
    assert_eq!(code(more, inside, "process"), None);
    assert_eq!(code(more, inside, "apply_patch"), None);
    // The main conversation is not sandboxed, and the command line asks the same rule.
    assert_ne!(code("deny: ['exec', 'process']", main, "process"), denied());
    machine.configure("{ tools: { sandbox: { tools: { deny: ['exec'] } } }, agents: { defaults: { sandbox: { mode: 'all' } } } }");
    let run = machine.run(&["exec", "--", "touch trace"]);
    assert!(run.stderr.contains("TOOL_DENIED"), "{run:#?}");
    assert!(run.stderr.contains("tools.sandbox.tools"), "{run:#?}");
}

/// A path that cannot be protected is refused, and a workspace that is gone is an error: nothing runs, inside
/// or outside.
#[test]
fn what_cannot_be_confined_as_configured_does_not_run() {
    everywhere(USUAL, |site| {
        for path in ["../x", "/etc", "a/../b", ""] {
            site.configure(&format!("{USUAL}, protect: ['{path}']"));
            let run = site.inside("touch trace");
            assert_ne!(run.code, 0, "{path}: {run:#?}");
            assert!(run.stderr.contains("protect"), "{run:#?}");
            assert!(!site.work().join("trace").exists());
        }
        let gone = site.machine.root().join("home/gone");
        site.machine.configure(&format!(
            "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {USUAL} }} }} }} }}",
            gone.display()
        ));
        let gateway = site.machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        let trace = site.work().join("trace");
        let args = json!({ "command": format!("touch {}", trace.display()) });
        let call = json!({ "name": "exec", "args": args, "sessionKey": "agent:main:main" });
        let answer = client.call("tools.invoke", &call);
        let text = format!("{answer:?}");
        assert!(text.contains("gone"), "{text}");
        assert!(!trace.exists(), "{text}");
    });
}
