//! A probe that runs inside a sandbox and says whether its promises hold: a script for `sh`, made of the
//! value that the sandbox was set up by.

use interlock_plan::{MountAccess, SandboxMount, SandboxPlan};
use interlock_policy::quote;

/// Tests with a name. Each prints one line, and the exit code is that of the worst.
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

/// A path as the kernel's list of mounts writes it.
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

/// The script. Without the sandbox, on the host, it fails.
pub fn probe_script(plan: &SandboxPlan, state_dir: &str) -> String {
    if plan.ssh.is_some() {
        return format!(
            "{HEAD}t 'the workspace of the far side can be written to' writable .\nexit $f\n"
        );
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
