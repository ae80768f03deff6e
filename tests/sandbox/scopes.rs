//! Scopes: what their runs share, what they do not, and what is left when they are over. Rows P26, P33.

use std::fs;
use std::path::Path;

use testkit::{Machine, eventually};

use crate::site::{Site, USUAL, everywhere, names, with_every_backend};

/// A server for one file, and a client: both know no proxy and no Interlock.
const SERVE: &str = "cd /tmp && exec python3 -m http.server 8080 --bind 127.0.0.1";
const FETCH: &str = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8080/greeting\", timeout=5).read().decode())'";

/// The keepers of a machine.
fn keepers(machine: &Machine) -> Vec<String> {
    children_named(machine, "interlock-keep")
}

/// The children of a machine's supervisors that have this name.
pub fn children_named(machine: &Machine, name: &str) -> Vec<String> {
    let supervisors = machine.supervisors();
    let mut found: Vec<String> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let Some((head, rest)) = stat.rsplit_once(')') else {
                return false;
            };
            let parent = rest.split_whitespace().nth(1);
            head.ends_with(&format!("({name}"))
                && parent
                    .and_then(|parent| parent.parse().ok())
                    .is_some_and(|parent| supervisors.contains(&parent))
        })
        .collect();
    found.sort();
    found
}

fn kill(pid: &str) {
    let killed = std::process::Command::new("/usr/bin/kill")
        .args(["-9", pid])
        .status()
        .unwrap();
    assert!(killed.success());
}

#[test]
fn a_server_in_one_run_is_reached_by_another_run_of_the_scope() {
    with_every_backend(USUAL, |site| {
        site.says(
            "echo hello > /tmp/greeting; echo v > /var/tmp/v; echo r > /run/r; echo s > /dev/shm/s",
        );
        let server = site.machine.background(&[], SERVE);
        eventually("the server to answer", || {
            site.inside(FETCH).stdout == "hello\n\n"
        });
        let seen = site.says("cat /var/tmp/v /run/r /dev/shm/s; ls -d /proc/[0-9]* | wc -l; pgrep -x python3 | wc -l; hostname");
        let lines: Vec<&str> = seen.lines().collect();
        assert_eq!(lines[..3], ["v", "r", "s"], "{seen}");
        assert!(lines[3].parse::<u32>().unwrap() < 8, "{seen}");
        assert_eq!(
            lines[4..],
            ["0", "sandbox"],
            "processes of others are not seen: {seen}"
        );
        // What only the first run can end goes on, and signals of another do not reach it.
        assert_eq!(site.inside("pkill -9 python3; kill -9 -1; true").code, 0);
        assert_eq!(site.says(FETCH), "hello\n\n");
        assert_eq!(keepers(&site.machine).len(), 1);
        site.machine.ok(&["process", "kill", &server.id]);
        eventually("the server to be gone", || site.inside(FETCH).code != 0);
        assert_eq!(site.says("cat /tmp/greeting"), "hello\n");
    });
}

/// P33: two agents share neither loopback nor files nor processes.
#[test]
fn agents_reach_nothing_of_each_other() {
    everywhere(USUAL, |site| {
        let config = format!(
            "{{ agents: {{ list: [{{ id: 'a' }}, {{ id: 'b' }}], defaults: {{ sandbox: {{ {USUAL} }} }} }} }}"
        );
        site.machine.configure(&config);
        let go =
            |agent: &str, text: &str| site.machine.run(&["exec", "--agent", agent, "--", text]);
        assert_eq!(go("a", "echo hello > /tmp/greeting").code, 0);
        let server = site.machine.background(&["--agent", "a"], SERVE);
        eventually("the server to answer", || {
            go("a", FETCH).stdout == "hello\n\n"
        });
        for look in [
            FETCH,
            "cat /tmp/greeting",
            "pgrep -x python3",
            "ls /dev/shm/s",
            "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); connect(S, sockaddr_un(\"\\0a\")) or exit 1'",
        ] {
            let other = go("b", look);
            assert!(other.code != 0 && other.stdout.is_empty(), "{other:#?}");
        }
        assert_eq!(keepers(&site.machine).len(), 2);
        site.machine.ok(&["process", "kill", &server.id]);
    });
}

#[test]
fn runs_of_a_scope_end_with_its_keeper_and_the_next_has_a_new_one() {
    with_every_backend(USUAL, |site| {
        site.says("echo old > /tmp/f");
        let background = site.machine.background(&[], "exec sleep 600");
        let before = keepers(&site.machine);
        assert_eq!(before.len(), 1);
        kill(&before[0]);
        eventually("the run to end with its keeper", || {
            let list = site.machine.ok(&["process", "list", "--json"]).json();
            let sessions = list["sessions"].as_array().unwrap().clone();
            sessions
                .iter()
                .all(|one| one["sessionId"] != background.id.as_str() || one["status"] != "running")
        });
        // A new keeper: what the runs of the old one left in memory is gone, and all else works.
        let run = site.inside("cat /tmp/f; echo new > /tmp/f && cat /tmp/f");
        assert_eq!(run.stdout, "new\n", "{run:#?}");
        let after = keepers(&site.machine);
        assert_eq!(after.len(), 1);
        assert_ne!(before, after);
    });
}

#[test]
fn changed_settings_and_recreate_make_another_scope() {
    everywhere(USUAL, |site| {
        site.says("echo old > /tmp/f");
        let old = site.machine.background(&[], "exec sleep 600");
        site.configure(&format!("{USUAL}, limits: {{ tmp: '10m' }}"));
        let run = site.inside("cat /tmp/f; df -k --output=size /tmp | tail -1");
        assert_eq!(run.stdout.trim(), "10240", "{run:#?}");
        // The old one drains: its run goes on.
        assert_eq!(keepers(&site.machine).len(), 2);
        site.machine.ok(&["process", "kill", &old.id]);
        site.says("echo new > /tmp/f");
        eventually("the scopes to be free", || {
            site.machine.run(&["sandbox", "recreate", "--all"]).code == 0
        });
        eventually("the keepers to end", || keepers(&site.machine).is_empty());
        assert_eq!(site.inside("cat /tmp/f").code, 1);
    });
}

/// A keeper is closed: nothing of it can be read, traced or entered by its own user's runs on the host,
/// and it has no more than it needs.
#[test]
fn a_keeper_has_nothing_that_it_does_not_need() {
    with_every_backend(USUAL, |site| {
        site.says("true");
        let keepers = keepers(&site.machine);
        let directory = format!("/proc/{}", keepers[0]);
        let status = fs::read_to_string(format!("{directory}/status")).unwrap();
        for line in [
            "CapEff:\t0000000000000000",
            "CapBnd:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
            "Threads:\t1",
        ] {
            assert!(status.contains(line), "{line}: {status}");
        }
        if testkit::is_root() {
            // The link, nothing and nothing.
            assert_eq!(
                names(Path::new(&format!("{directory}/fd"))),
                ["0", "1", "2"]
            );
            let root = names(Path::new(&format!("{directory}/root")));
            assert_eq!(
                root,
                ["0", "1", "2", "3"],
                "an empty root, with four file systems"
            );
            let switches = |status: &str| -> String {
                let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
                lines.collect()
            };
            let before = switches(&status);
            // Another scope's life does not wake it.
            site.configure(&format!("{USUAL}, limits: {{ tmp: '10m' }}"));
            site.says("true");
            let status = fs::read_to_string(format!("{directory}/status")).unwrap();
            assert_eq!(switches(&status), before, "it sleeps");
        }
    });
}

/// Attack: a run makes room for the mounts of a later one elsewhere, so that what is to be held and
/// covered there would not be found.
#[test]
fn the_way_to_a_workspace_below_tmp_cannot_be_moved_away() {
    everywhere(USUAL, |site: &Site| {
        let work = site.work();
        site.owned(&work.join(".claude/settings.json"), "{}");
        let Ok(below) = work.strip_prefix("/tmp") else {
            println!("skipped: the workspace is not below /tmp");
            return;
        };
        let first = below.components().next().unwrap();
        let first = Path::new("/tmp").join(first);
        let first = first.display();
        let run = site.inside(&format!(
            "cd /; mv {first} /tmp/other && echo MOVED; rmdir {first} && echo REMOVED; \
             mv {} {first}/w && echo MOVED; ln -sfn /etc {first} || true; ls -A /tmp",
            work.display()
        ));
        assert!(!run.stdout.contains("MOVED"), "{run:#?}");
        assert!(!run.stdout.contains("REMOVED"), "{run:#?}");
        let next = site.inside("pwd; echo x > .claude/settings.json || echo HELD");
        assert!(next.stdout.ends_with("HELD\n"), "{next:#?}");
        assert_eq!(fs::read(work.join(".claude/settings.json")).unwrap(), b"{}");
    });
}

/// P26, and the bar: after many runs no process, mount, namespace, control group or file is left.
#[test]
fn many_runs_leave_nothing_behind() {
    let rounds: usize = std::env::var("INTERLOCK_SANDBOX_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100);
    let machine = Machine::new();
    let site = Site::started(machine, USUAL);
    site.says("true");
    let before = Leavings::look(&site);
    let calls = rounds.div_ceil(4);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..calls {
                    let run = site.inside("(setsid sleep 999 &) ; f=$(mktemp); echo x > $f; rm $f");
                    assert_eq!(run.code, 0, "{run:#?}");
                }
            });
        }
    });
    eventually("everything of the runs to be gone", || {
        Leavings::look(&site) == before
    });
    assert_eq!(keepers(&site.machine).len(), 1);
    assert_eq!(site.machine.run(&["sandbox", "recreate", "--all"]).code, 0);
    eventually("the keeper to be gone", || {
        keepers(&site.machine).is_empty()
    });
}

/// What a scope's runs could leave on the host.
#[derive(Debug, PartialEq, Eq)]
struct Leavings {
    processes: usize,
    namespaces: usize,
    mounts: usize,
    files: Vec<String>,
}

impl Leavings {
    fn look(site: &Site) -> Self {
        let supervisors = site.machine.supervisors();
        let mut namespaces = std::collections::BTreeSet::new();
        let mut processes = 0;
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            if !descends(pid, &supervisors) {
                continue;
            }
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            // Shims wait for orders, more or fewer of them.
            if comm.trim() != "interlock-super" {
                processes += 1;
            }
            for kind in ["user", "mnt", "net", "pid"] {
                if let Ok(namespace) = fs::read_link(entry.path().join("ns").join(kind)) {
                    namespaces.insert(namespace);
                }
            }
        }
        let sandboxes = site.machine.state().join("sandboxes");
        let mut files = Vec::new();
        for scope in names(&sandboxes) {
            let directory = sandboxes.join(&scope);
            if directory.is_dir() {
                files.extend(names(&directory));
            }
        }
        Self {
            processes,
            namespaces: namespaces.len(),
            mounts: fs::read_to_string("/proc/self/mounts")
                .unwrap()
                .lines()
                .filter(|line| line.contains("interlock"))
                .count(),
            files,
        }
    }
}

fn descends(mut pid: i32, from: &[i32]) -> bool {
    for _ in 0..32 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        let Some(parent) = parent else { return false };
        if from.contains(&parent) {
            return true;
        }
        pid = parent;
    }
    false
}

/// Directories that a run nested deeper than any path reaches do not keep its scope, nor the layer of a run,
/// from being removed.
#[test]
fn a_tree_of_any_depth_is_removed_with_its_scope() {
    const DEEP: &str =
        "perl -e 'for (1..5000) { mkdir \"d\" or die; chdir \"d\" or die } print \"made\\n\"'";
    everywhere("mode: 'all', workspaceAccess: 'cow'", |site| {
        let made = site.says(&format!("cd $HOME; {DEEP}; cd /tmp; {DEEP}"));
        assert_eq!(made, "made\nmade\n");
        let run = site.inside(DEEP);
        assert!(run.stderr.contains("nothing was committed"), "{run:#?}");
        assert!(run.stderr.len() < 1_000, "{}", run.stderr);
        let listed = site.machine.ok(&["sandbox", "list"]).stdout;
        assert!(listed.len() < 2_000, "{listed}");
        let ended = site.machine.run(&["sandbox", "recreate", "--all"]);
        assert_eq!(ended.code, 0, "{ended:#?}");
        let left = site.machine.ok(&["sandbox", "list", "--json"]).json();
        assert_eq!(left["scopes"].as_array().map(Vec::len), Some(0), "{left:#}");
        assert_eq!(site.says("echo again"), "again\n");
    });
}
