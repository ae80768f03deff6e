//! Backends: which one is used, what is said of them, and that a program in the place of bubblewrap weakens
//! nothing. The attacks themselves run with every backend, in the other modules.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::{Machine, Run};

use crate::site::{Site, USUAL, has_bubblewrap};

/// Executes a program for which `unshare` makes no user namespace. bubblewrap makes its own by `clone`: so
/// a security module that trusts bubblewrap alone looks to both.
const WITHOUT_UNSHARE: &str = r#"
import ctypes, os, struct, sys
def step(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
unshare = int(sys.argv[1])
steps = [step(0x20, 0, 0, 0), step(0x15, 0, 3, unshare), step(0x20, 0, 0, 16),
         step(0x45, 0, 1, 0x10000000), step(0x06, 0, 0, 0x00050001), step(0x06, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(steps))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("first", ctypes.c_void_p)]
program = Program(len(steps), ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"#;

fn without_unshare(machine: &Machine, arguments: &[&str]) -> Run {
    let mut command = machine.other_program("/usr/bin/python3");
    command.args(["-c", WITHOUT_UNSHARE, &libc::SYS_unshare.to_string()]);
    command.arg(machine.binary()).args(arguments);
    testkit::finish(&mut command)
}

fn sandbox(machine: &Machine, settings: &str) {
    machine.configure(&format!(
        "{{ agents: {{ defaults: {{ sandbox: {{ {settings} }} }} }} }}"
    ));
}

/// An ordinary user's machine: this user's, or one that root makes.
fn ordinary() -> Option<Machine> {
    if testkit::is_root() {
        Machine::of_ordinary_user()
    } else {
        Some(Machine::new())
    }
}

#[test]
fn bubblewrap_is_used_where_only_it_works() {
    if !has_bubblewrap() || !Path::new("/usr/bin/python3").exists() {
        println!("skipped: bubblewrap or Python is not installed");
        return;
    }
    let Some(machine) = ordinary() else { return };
    let told = without_unshare(&machine, &["doctor", "--json"]).json();
    let health = &told["sandbox"];
    assert_eq!(health["works"], true, "{told:#}");
    assert_eq!(health["backend"], "bwrap", "{told:#}");
    assert_eq!(health["backends"][0]["works"], false, "{told:#}");
    assert!(
        health["why"].as_str().unwrap().contains("user namespace"),
        "{told:#}"
    );
    let text = without_unshare(&machine, &["doctor"]).stdout;
    assert!(
        text.contains("bwrap works here, and is used where no backend is set\n"),
        "{text}"
    );
    sandbox(&machine, USUAL);
    let attempt = "grep -E '^(NoNewPrivs|Seccomp|CapBnd):' /proc/self/status; grep -c : /proc/net/dev; touch /usr/x 2>/dev/null || echo fixed; echo in > made";
    let run = without_unshare(&machine, &["exec", "--", attempt]);
    let words: Vec<&str> = run.stdout.split_whitespace().collect();
    assert_eq!(
        words,
        [
            "CapBnd:",
            "0000000000000000",
            "NoNewPrivs:",
            "1",
            "Seccomp:",
            "2",
            "1",
            "fixed"
        ],
        "{run:#?}"
    );
    assert_eq!(
        fs::read_to_string(machine.work().join("made")).unwrap(),
        "in\n"
    );
    let explained = without_unshare(&machine, &["sandbox", "explain", "--verify", "--json"]).json();
    assert_eq!(explained["sandbox"]["backend"], "bwrap", "{explained:#}");
    assert_eq!(explained["verified"]["holds"], true, "{explained:#}");
    let audit = machine.ok(&["audit", "log", "--json", "--kind", "run-started"]);
    let backend = &audit.json()["records"][0]["body"]["sandbox"]["backend"];
    assert_eq!(backend, "bwrap", "{audit:#?}");
    // What the config names is used or nothing is.
    sandbox(&machine, &format!("{USUAL}, backend: 'native'"));
    let run = without_unshare(&machine, &["exec", "--", "touch trace"]);
    run.refused(1, "SANDBOX_UNAVAILABLE");
    assert!(!machine.work().join("trace").exists());
}

/// P35 with bubblewrap, and what people are shown.
#[test]
fn the_promises_hold_with_bubblewrap() {
    if !has_bubblewrap() {
        return;
    }
    let check = |machine: Machine| {
        let site = Site::started(machine, "");
        for (view, access) in [("minimal", "ro"), ("host", "rw")] {
            sandbox(
                &site.machine,
                &format!(
                    "mode: 'all', view: '{view}', workspaceAccess: '{access}', backend: 'bwrap'"
                ),
            );
            let explained = site
                .machine
                .ok(&["sandbox", "explain", "--verify", "--json"]);
            let explained = explained.json();
            assert_eq!(explained["verified"]["holds"], true, "{explained:#}");
            assert_eq!(explained["sandbox"]["backend"], "bwrap", "{explained:#}");
        }
        // Runs of a scope share files in memory, and no process of bubblewrap stays.
        site.says("echo kept > /tmp/kept");
        assert_eq!(site.says("cat /tmp/kept; hostname"), "kept\nsandbox\n");
        let supervisors = site.machine.supervisors();
        let is_left = fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            comm.trim() == "bwrap"
                && supervisors
                    .iter()
                    .any(|pid| descends(&entry.file_name().to_string_lossy(), &pid.to_string()))
        });
        assert!(!is_left);
        let text = site.machine.ok(&["sandbox", "explain"]).stdout;
        assert!(text.contains("backend    bwrap\n"), "{text}");
    };
    check(Machine::new());
    if let Some(machine) = Machine::of_ordinary_user() {
        check(machine);
    }
}

fn descends(process: &str, from: &str) -> bool {
    let mut at = process.to_owned();
    for _ in 0..32 {
        let stat = fs::read_to_string(format!("/proc/{at}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')');
        let Some(parent) = parent.and_then(|(_, rest)| rest.split_whitespace().nth(1)) else {
            return false;
        };
        if parent == from {
            return true;
        }
        parent.clone_into(&mut at);
    }
    false
}

/// Does as if it had made namespaces.
const IMPOSTOR: &str = r#"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  char c;
  if (fork() == 0) { printf("%d\n", getpid()); fflush(stdout); read(0, &c, 1); return 0; }
  wait(0);
}
"#;

/// Another program at the path of bubblewrap, one that others can change, and one that is root's by its
/// set-user-ID bit.
#[test]
fn a_program_in_the_place_of_bubblewrap_weakens_nothing() {
    if !testkit::is_root() || !has_bubblewrap() || !Path::new("/usr/bin/cc").exists() {
        println!("skipped: needs root, bubblewrap and a C compiler");
        return;
    }
    let machine = Machine::new();
    sandbox(&machine, &format!("{USUAL}, backend: 'bwrap'"));
    let place = |name: &str, mode: u32, from: &str| {
        let path = machine.root().join(name);
        fs::copy(from, &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let source = machine.root().join("impostor.c");
    fs::write(&source, IMPOSTOR).unwrap();
    let impostor = machine.root().join("impostor").display().to_string();
    let mut compile = Command::new("/usr/bin/cc");
    compile.args(["-o", &impostor]).arg(&source);
    assert!(compile.status().unwrap().success());
    let bwrap = "/usr/bin/bwrap";
    for (program, why) in [
        (impostor, "bwrap made no user namespace"),
        (
            place("loose", 0o777, bwrap),
            "/usr/bin/bwrap can be changed by others than root",
        ),
        (
            place("setuid", 0o4755, bwrap),
            "/usr/bin/bwrap has the set-user-ID bit",
        ),
        (
            place("closed", 0o644, bwrap),
            "/usr/bin/bwrap is not a program",
        ),
        (
            place("other", 0o755, "/usr/bin/true"),
            "bwrap made no namespaces",
        ),
    ] {
        let mut command = machine.other_program("/usr/bin/unshare");
        let script = "mount --bind \"$1\" /usr/bin/bwrap; shift; exec \"$@\"";
        command.args(["-m", "sh", "-c", script, "sh", &program]);
        command.arg(machine.binary()).args(["doctor", "--json"]);
        let told = testkit::finish(&mut command).json();
        let found = &told["sandbox"]["backends"][1];
        assert_eq!(found["works"], false, "{told:#}");
        let said = found["why"].as_str().unwrap();
        assert!(said.contains(why), "{why}: {said}");
    }
}
