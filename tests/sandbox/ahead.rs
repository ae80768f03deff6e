//! Sandboxes that are made ahead: a gateway's next run of a scope finds one ready, and it is what would be
//! made at that moment.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::ws::{EVERYTHING, WsClient};
use testkit::{Machine, eventually};

use crate::site::{Site, USUAL, everywhere};

/// The whole root is shown, so that there is something to hide.
const WIDE: &str = "mode: 'all', workspaceAccess: 'rw', view: 'host'";

/// Processes 1 of sandboxes that belong to a machine, with a run or without.
fn inits(machine: &Machine) -> Vec<i32> {
    let supervisors = machine.supervisors();
    let stat = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = |pid: i32| -> i32 {
        let stat = stat(pid);
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        rest.split_whitespace()
            .nth(1)
            .and_then(|parent| parent.parse().ok())
            .unwrap_or(0)
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| stat(*pid).contains("(interlock-init)"))
        .filter(|pid| supervisors.contains(&parent(parent(*pid))))
        .collect()
}

fn exec(client: &mut WsClient, command: &str) -> Value {
    let call =
        json!({ "name": "exec", "args": { "command": command }, "sessionKey": "agent:main:main" });
    let answer = client.call("tools.invoke", &call).unwrap();
    answer["output"].clone()
}

fn output(client: &mut WsClient, command: &str) -> String {
    let details = &exec(client, command)["details"];
    assert_eq!(details["status"], "completed", "{details:#}");
    details["aggregated"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The processes of a run, as the kernel names their namespace.
const NAMESPACE: &str = "readlink /proc/self/ns/pid";

/// Runs until the sandbox of a further run is there, and returns the namespace of its processes. Only runs
/// that end at once are followed by one.
fn next_is_ready(site: &Site, client: &mut WsClient) -> String {
    let mut ready = String::new();
    eventually("the next sandbox to be made", || {
        let last = output(client, NAMESPACE);
        let until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until {
            let inits = inits(&site.machine).into_iter();
            let mut others = inits
                .filter_map(|init| fs::read_link(format!("/proc/{init}/ns/pid")).ok())
                .map(|link| link.display().to_string())
                .filter(|link| *link != last.trim());
            if let Some(other) = others.next() {
                ready = other;
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    });
    ready
}

fn configured(site: &Site, settings: &str) {
    let settings = site.settings(settings);
    let work = site.work().display().to_string();
    site.machine.configure(&format!(
        "{{ agents: {{ defaults: {{ workspace: '{work}', sandbox: {{ {settings} }} }} }} }}"
    ));
}

#[test]
fn the_next_run_of_a_scope_uses_the_sandbox_that_was_made_ahead() {
    everywhere(USUAL, |site| {
        configured(site, USUAL);
        let gateway = site.machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        output(&mut client, "echo kept > /tmp/kept");
        eventually("a run in the sandbox that was made ahead", || {
            let ready = next_is_ready(site, &mut client);
            let look = format!("cat /tmp/kept; {NAMESPACE}; ls -d /proc/[0-9]* | wc -l");
            let seen = output(&mut client, &look);
            let lines: Vec<&str> = seen.lines().collect();
            assert_eq!(lines[0], "kept", "{seen}");
            assert!(lines[2].parse::<u32>().unwrap() < 6, "{seen}");
            lines[1] == ready
        });
        // A run that leaves something behind is ended with it, and the next one finds nothing of it.
        next_is_ready(site, &mut client);
        let left = exec(
            &mut client,
            "setsid sleep 600 </dev/null >/dev/null 2>&1 & exit 0",
        );
        assert!(left.to_string().contains("sleep 600"), "{left:#}");
        assert_eq!(output(&mut client, "pgrep -x sleep | wc -l"), "0\n");
    });
}

/// What appears after a sandbox was made ahead is hidden and protected as in one that is made later.
#[test]
fn a_sandbox_that_was_made_ahead_shows_nothing_that_one_made_now_would_hide() {
    everywhere(WIDE, |site| {
        configured(site, WIDE);
        let gateway = site.machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        next_is_ready(site, &mut client);
        let secret = site.home().join(".netrc");
        site.owned(&secret, "SECRET");
        let read = format!("cat {}", secret.display());
        let seen = exec(&mut client, &read);
        assert!(!seen.to_string().contains("SECRET"), "{seen:#}");
        next_is_ready(site, &mut client);
        site.owned(&site.work().join(".vscode/tasks.json"), "{}");
        exec(
            &mut client,
            "echo x > .vscode/tasks.json; echo x > .vscode/more",
        );
        let written = fs::read_to_string(site.work().join(".vscode/tasks.json")).unwrap();
        assert_eq!(written, "{}");
        assert!(!site.work().join(".vscode/more").exists());
        next_is_ready(site, &mut client);
        let path = site.work().join("host.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let connect =
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"host.sock\")'";
        let details = exec(&mut client, connect);
        assert_ne!(details["details"]["exitCode"], 0, "{details:#}");
        assert!(
            listener.accept().is_err(),
            "the socket of the host was reached"
        );
    });
}

/// One that waits for a run keeps the owner from nothing, and goes with the gateway's connection.
#[test]
fn a_sandbox_without_a_run_holds_nothing_up() {
    everywhere(USUAL, |site| {
        configured(site, USUAL);
        let gateway = site.machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        output(&mut client, "echo here > ~/here");
        next_is_ready(site, &mut client);
        eventually("the scope to be removed", || {
            site.machine.run(&["sandbox", "recreate", "--all"]).code == 0
        });
        assert!(!inits(&site.machine).is_empty(), "it was waited for");
        let details = exec(&mut client, "cat ~/here");
        assert_ne!(
            details["details"]["exitCode"], 0,
            "it belongs to the old scope: {details:#}"
        );
        next_is_ready(site, &mut client);
        drop(client);
        drop(gateway);
        eventually("the sandbox to be gone", || inits(&site.machine).is_empty());
    });
}
