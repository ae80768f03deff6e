//! A probe that runs inside a sandbox and checks whether its promises hold: a script for `sh`, made
//! from the value that the sandbox was set up with.

use interlock_plan::{MountAccess, SandboxBackend, SandboxMount, SandboxPlan};
use interlock_policy::quote;

/// Defines named tests. Each prints one line, and the exit code is that of the worst test.
const HEAD: &str = r#"f=0
t() { n=$1; shift; if "$@" >/dev/null 2>&1; then printf 'ok   %s\n' "$n"; else printf 'FAIL %s\n' "$n"; f=1; fi; }
fixed() { if [ -d "$1" ]; then ! touch "$1/.interlock-probe"; else ! sh -c ': >> "$1"' sh "$1"; fi; }
writable() { touch "$1/.interlock-probe" && rm "$1/.interlock-probe"; }
empty() { [ ! -e "$1" ] || { [ -d "$1" ] && [ -z "$(ls -A "$1")" ]; } || [ ! -s "$1" ]; }
mounted() { while read -r _ _ _ _ p _; do [ "$p" = "$1" ] && return 0; done </proc/self/mountinfo; return 1; }
hidden() { empty "$1" && { [ ! -e "$1" ] || [ -L "$1" ] || mounted "$2"; }; }
held() { { [ ! -e "$1" ] && [ ! -L "$1" ]; } || mounted "$2"; }
locked() { held "$1" "$2" && { [ -L "$1" ] || fixed "$1"; }; }
status() { grep -q "^$1:[[:space:]]*$2\$" /proc/self/status; }
core_is_off() { grep -qE '^Max core file size +1 +1 ' /proc/self/limits; }
is_alone() { [ "$(cat /proc/1/comm)" = interlock-init ] && [ "$(ls -d /proc/[0-9]* | wc -l)" -lt 20 ]; }
has_loopback_only() { [ "$(grep -c : /proc/net/dev)" = 1 ] && grep -q '^ *lo:' /proc/net/dev; }
is_unprivileged() { read -r _ outside _ </proc/self/uid_map && [ "$outside" != 0 ]; }
"#;

/// Returns a path as the kernel's list of mounts writes it.
fn as_listed(path: &str) -> String {
    let mut listed = String::new();
    for character in path.chars() {
        match character {
            ' ' => listed.push_str("\\040"),
            '\t' => listed.push_str("\\011"),
            '\n' => listed.push_str("\\012"),
            '\\' => listed.push_str("\\134"),
            other => listed.push(other),
        }
    }
    listed
}

/// Returns the script. It fails on the host, without the sandbox.
pub fn probe_script(plan: &SandboxPlan, state_dir: &str) -> String {
    if plan.ssh.is_some() {
        return format!(
            "{HEAD}t 'the workspace of the far side can be written to' writable .\nexit $f\n"
        );
    }
    if plan.backend == SandboxBackend::Landlock {
        return restricted_script(plan, state_dir);
    }
    let mut script = HEAD.to_owned();
    let mut test = |name: &str, words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        script.push_str(&format!("t {} {}\n", quote(name), words.join(" ")));
    };
    test("no capability is left", &["status", "CapBnd", "0*"]);
    test("no capability is in force", &["status", "CapEff", "0*"]);
    test(
        "programs gain no privileges",
        &["status", "NoNewPrivs", "1"],
    );
    test("system calls are filtered", &["status", "Seccomp", "2"]);
    test("only its own processes exist", &["is_alone"]);
    test(
        "there is a loopback and no other network",
        &["has_loopback_only"],
    );
    if plan.user.host_uid != 0 {
        test("the run is not root on the host", &["is_unprivileged"]);
    }
    test(
        "no namespace can be made",
        &["sh", "-c", "! unshare -U true"],
    );
    test("the state directory is hidden", &["empty", state_dir]);
    test("no handler takes core files", &["core_is_off"]);
    test(
        "/proc/sys cannot be written to",
        &["fixed", "/proc/sys/kernel/core_pattern"],
    );
    test("/usr cannot be written to", &["fixed", "/usr"]);
    test("/etc cannot be written to", &["fixed", "/etc"]);
    test("the root cannot be written to", &["fixed", "/"]);
    test("/tmp can be written to", &["writable", "/tmp"]);
    for mount in &plan.mounts {
        match mount {
            SandboxMount::Cover { target, .. } => {
                let listed = as_listed(target);
                test(&format!("{target} is hidden"), &["hidden", target, &listed]);
            }
            SandboxMount::Hold { target, access, .. } => {
                let listed = as_listed(target);
                let (promise, check) = match access {
                    MountAccess::Ro => ("is read-only and stays where it is", "locked"),
                    MountAccess::Rw => ("stays where it is", "held"),
                };
                test(&format!("{target} {promise}"), &[check, target, &listed]);
            }
            SandboxMount::Bind {
                target,
                access: MountAccess::Ro,
                reason,
                ..
            } if reason != "the system" => {
                test(&format!("{target} is read-only"), &["fixed", target]);
            }
            _ => {}
        }
    }
    script.push_str("exit $f\n");
    script
}

/// Defines the tests for runs that no namespaces confine, about which `/proc` says nothing.
const RESTRICTED_HEAD: &str = r#"closed() { [ ! -e "$1" ] || { if [ -d "$1" ]; then ! ls "$1"; else ! cat "$1"; fi; }; }
unowned() { ! chmod "$(stat -c %a "$1")" "$1"; }
no_socket() { ! bash -c ': </dev/tcp/127.0.0.1/9' 2>"$TMPDIR/.interlock-probe"; grep -qE 'not supported|denied' "$TMPDIR/.interlock-probe"; r=$?; rm -f "$TMPDIR/.interlock-probe"; return $r; }
alone() { ! kill -0 "$PPID" && ! kill -0 1; }
dumped() { [ ! -x /usr/bin/setpriv ] || setpriv --dump | grep -qE "$1"; }
"#;

/// Returns the script for the backend `landlock`.
fn restricted_script(plan: &SandboxPlan, state_dir: &str) -> String {
    let mut script = format!("{HEAD}{RESTRICTED_HEAD}");
    let mut test = |name: &str, words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        script.push_str(&format!("t {} {}\n", quote(name), words.join(" ")));
    };
    test(
        "programs gain no privileges",
        &["dumped", "no_new_privs: 1"],
    );
    // An ordinary user has no capabilities, and cannot empty the set that programs could gain.
    if plan.user.host_uid == 0 {
        test(
            "no capability is left",
            &["dumped", "bounding set: \\[none\\]"],
        );
    }
    test("no process outside can be signalled", &["alone"]);
    test("no process can be looked at", &["closed", "/proc"]);
    test("no process can be traced", &["closed", "/proc/1/environ"]);
    test(
        "no namespace can be made",
        &["sh", "-c", "! unshare -U true"],
    );
    if std::path::Path::new("/bin/bash").exists() {
        test("there is no network", &["no_socket"]);
    }
    test("the state directory is hidden", &["closed", state_dir]);
    let record = format!("{}/scope.json", plan.scope_directory);
    test("the record of the scope is hidden", &["closed", &record]);
    test("its mode cannot be changed", &["unowned", &record]);
    for path in [
        "/etc/shadow",
        "/etc/sudoers",
        "/root",
        "/home",
        "/var",
        "/tmp",
    ] {
        test(&format!("{path} is hidden"), &["closed", path]);
    }
    for path in ["/", "/usr", "/etc", "/tmp", "/dev"] {
        test(&format!("{path} cannot be written to"), &["fixed", path]);
    }
    for mount in &plan.mounts {
        match mount {
            SandboxMount::Bind {
                target,
                access: MountAccess::Ro,
                reason,
                ..
            } if reason != "the system" => {
                test(&format!("{target} is read-only"), &["fixed", target]);
            }
            SandboxMount::Bind {
                target,
                access: MountAccess::Rw,
                ..
            } if std::path::Path::new(target).is_dir() => {
                test(
                    &format!("{target} can be written to"),
                    &["writable", target],
                );
            }
            _ => {}
        }
    }
    script.push_str("exit $f\n");
    script
}
