//! Ways around the sandbox that were tried by hand, each closed: links of `/proc`, second mounts, sockets
//! that are bound in odd ways, sources that are exchanged, odd names, and a program that asks the kernel
//! for what it should not get.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::Machine;
use testkit::asking::Waiting;

use crate::site::{Site, USUAL, everywhere, with_every_backend};

/// Prints `CONNECTED` for each Unix socket, of those that follow, that answers.
pub fn connect_to(paths: &[&Path]) -> String {
    let words: Vec<String> = paths
        .iter()
        .map(|path| format!("'{}'", path.display()))
        .collect();
    format!(
        "perl -MSocket -e 'for (@ARGV) {{ socket(S,AF_UNIX,SOCK_STREAM,0); \
         print connect(S, sockaddr_un($_)) ? \"CONNECTED $_\\n\" : \"no $!\\n\" }}' {}",
        words.join(" ")
    )
}

/// Builds the hostile program on the host, in the workspace.
fn attacker(site: &Site) -> bool {
    if !Path::new("/usr/bin/cc").exists() {
        println!("skipped: no C compiler");
        return false;
    }
    let source = site.work().join("attacker.c");
    site.owned(&source, include_str!("attacker.c"));
    let built = site.work().join("attacker");
    let (built, source) = (built.to_str().unwrap(), source.to_str().unwrap());
    site.host(&["/usr/bin/cc", "-w", "-D_GNU_SOURCE", "-o", built, source]);
    true
}

#[test]
fn a_hostile_program_gets_nothing_from_the_kernel() {
    with_every_backend(USUAL, |site| {
        if !attacker(site) {
            return;
        }
        let run = site.machine.run(&["exec", "--pty", "--", "./attacker"]);
        let said: Vec<&str> = run.stdout.lines().map(str::trim_end).collect();
        let end_of = |what: &str| {
            let start = format!("{what} ");
            let line = said.iter().find_map(|line| line.strip_prefix(&start));
            line.unwrap_or_else(|| panic!("{what}: {run:#?}"))
                .to_owned()
        };
        for (what, expected) in [
            ("/proc/1/root/etc", "EACCES"),
            ("/proc/1/cwd", "EACCES"),
            ("/proc/1/exe", "EACCES"),
            ("/proc/1/fd/0", "EACCES"),
            ("/proc/1/mem", "EACCES"),
            ("/proc/1/environ", "EACCES"),
            ("/proc/1/ns/mnt", "EACCES"),
            ("/proc/1/map_files", "EACCES"),
            ("/dev/userfaultfd", "ENOENT"),
            ("/dev/kvm", "ENOENT"),
            ("/dev/fuse", "ENOENT"),
            ("/dev/mem", "ENOENT"),
            ("/dev/vsock", "ENOENT"),
            ("/dev/net/tun", "ENOENT"),
            ("/sys/fs/cgroup/cgroup.procs", "ENOENT"),
            ("mknod-device", "EPERM"),
            ("fchmodat2", "EPERM"),
            ("tmpfile", "EPERM"),
            ("creat", "EPERM"),
            ("mknod-file", "EPERM"),
            ("openat", "EPERM"),
            ("name_to_handle", "EPERM"),
            ("TIOCSTI-wide", "EPERM"),
            ("TIOCLINUX", "EPERM"),
            ("TIOCSETD", "EPERM"),
            ("PR_SET_MM", "EPERM"),
            ("PR_SET_SECUREBITS", "EPERM"),
            ("PR_CAP_AMBIENT", "EPERM"),
            ("personality", "EPERM"),
            ("clone3", "ENOSYS"),
            ("setns-self", "EPERM"),
            ("AF_ALG", "EAFNOSUPPORT"),
            ("AF_VSOCK", "EAFNOSUPPORT"),
            ("AF_PACKET", "EAFNOSUPPORT"),
            ("AF_NETLINK-9", "EAFNOSUPPORT"),
            ("raw", "EPERM"),
            ("sctp", "EPROTONOSUPPORT"),
            ("mptcp", "EPROTONOSUPPORT"),
            ("tcp", "OK"),
            ("SOCK_PACKET", "EAFNOSUPPORT"),
            ("SOCK_PACKET-flags", "EAFNOSUPPORT"),
            ("NS_GET_PARENT", "EPERM"),
            ("SIOCGSKNS", "EPERM"),
            ("unshare-time", "EPERM"),
            ("clone-wide", "EPERM"),
            ("pidfd-ns", "EPERM"),
            ("memfd_secret", "ENOSYS"),
            ("set_mempolicy_home_node", "ENOSYS"),
            ("statmount", "EPERM"),
            ("listmount", "EPERM"),
            ("lsm_set_self_attr", "ENOSYS"),
            ("open_tree_attr", "EPERM"),
            ("file_setattr", "ENOSYS"),
            ("openat2", "ENOSYS"),
            ("clock_settime", "EPERM"),
            ("setuid-0", "EINVAL"),
            ("setgroups", "EPERM"),
            ("no_new_privs-off", "EINVAL"),
            ("capset", "EPERM"),
            ("sched-rr", "EPERM"),
            ("capability-xattr", "EPERM"),
            ("trusted-xattr", "EPERM"),
            ("immutable", "EPERM"),
            ("fchmod-wide", "EPERM"),
            ("mkdirat", "EPERM"),
            ("mknodat", "EPERM"),
            ("lease", "EPERM"),
            ("lease-wide", "EPERM"),
            ("lock", "OK"),
            ("shm-large", "EINVAL"),
            ("shm-huge", "EINVAL"),
            ("shm-small", "OK"),
            ("own-filter", "OK"),
            ("ptrace-after", "EPERM"),
            ("core", "1 1"),
            ("memfd", "LIVED"),
        ] {
            assert_eq!(end_of(what), expected, "{what}: {run:#?}");
        }
        for what in [
            "/proc/sys/kernel/core_pattern",
            "/proc/sysrq-trigger",
            "/proc/sys/user/max_user_namespaces",
            "/sys/devices/system/cpu/cpu0/online",
        ] {
            let end = end_of(what);
            assert!(
                ["EROFS", "EACCES", "ENOENT"].contains(&end.as_str()),
                "{what}: {end}"
            );
        }
        if cfg!(target_arch = "x86_64") {
            assert_eq!(
                (end_of("int80"), end_of("x32")),
                ("KILLED".to_owned(), "KILLED".to_owned())
            );
        }
        let all = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
        let all: u64 = all.trim().parse().unwrap();
        let taken: u64 = end_of("watchers").parse().unwrap();
        assert!(taken <= all / 2, "{taken} of {all}");
    });
}

/// `/proc/self/root` and `/dev/fd` lead to the sandbox, and paths of the host are not there.
#[test]
fn magic_links_stay_inside() {
    with_every_backend(USUAL, |site| {
        let state = site.machine.state();
        let state = state.display();
        let run = site.inside(&format!(
            "ls /proc/self/root{state} /proc/self/cwd/../../{state} /proc/self/task/*/root{state} /dev/fd/../root{state}; \
             cat /proc/self/root/etc/shadow; ls -l /proc/*/fd 2>/dev/null | grep -c {state}; true"
        ));
        assert_eq!(run.stdout.trim(), "0", "{run:#?}");
    });
}

/// A socket of the host may be bound by a relative path, and after the run was planned.
#[test]
fn sockets_are_covered_however_and_whenever_they_were_bound() {
    everywhere(USUAL, |site| {
        let work = site.work();
        let relative = work.join("relative.sock");
        let server = "socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un($ARGV[0])) or die; listen(S,9); \
                      chmod 0666, $ARGV[0]; $|=1; print \"ready\\n\"; accept(C,S); print \"ACCEPTED\\n\"";
        let mut host = site.machine.other_program("/usr/bin/perl");
        host.args(["-MSocket", "-e", server, "relative.sock"]);
        host.current_dir(&work).stdout(Stdio::piped());
        let mut host = host.spawn().unwrap();
        testkit::eventually("the socket", || relative.exists());
        site.machine.configure(&format!(
            "{{ tools: {{ exec: {{ unboundApprovals: 'ask' }}, sandbox: {{ exec: {{ ask: 'always' }} }} }}, agents: {{ defaults: {{ sandbox: {{ {USUAL} }} }} }} }}"
        ));
        let late = work.join("late.sock");
        let copy = Path::new("/workspace/late.sock");
        let text = connect_to(&[&relative, &late, copy]);
        let waiting = Waiting::new(&site.machine, &["--", &text]);
        let listener = UnixListener::bind(&late).unwrap();
        fs::set_permissions(&late, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        listener.set_nonblocking(true).unwrap();
        site.machine.ok(&["approvals", "approve", &waiting.id]);
        let run = waiting.end();
        assert_eq!(run.stdout.lines().count(), 3, "{run:#?}");
        assert!(!run.stdout.contains("CONNECTED"), "{run:#?}");
        assert!(listener.accept().is_err(), "nothing was accepted");
        host.kill().unwrap();
        let said = host.wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8_lossy(&said), "ready\n");
        // What a run binds itself works.
        site.configure(USUAL);
        let own = "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un(\"/tmp/o\")); listen(S,1); \
                   socket(C,AF_UNIX,SOCK_STREAM,0); print connect(C,sockaddr_un(\"/tmp/o\")) ? \"own\" : \"no $!\"'";
        assert_eq!(site.says(own), "own");
    });
}

/// P07: an abstract socket of the host.
#[test]
fn p07_abstract_sockets_of_the_host_do_not_exist() {
    with_every_backend(USUAL, |site| {
        let name = format!("interlock-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let run = site.inside(&format!(
            "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); print connect(S, pack(\"Sxa*\", AF_UNIX, \"{name}\")) ? \"CONNECTED\" : \"no $!\"'"
        ));
        assert_eq!(run.stdout, "no Connection refused", "{run:#?}");
        assert!(listener.accept().is_err());
    });
}

/// A second mount shows the state directory by another path: all of it, what is above it, or a part.
#[test]
fn second_mounts_of_the_state_directory_are_covered_and_refused_as_binds() {
    if !testkit::is_root() {
        println!("skipped: only root mounts");
        return;
    }
    let machine = Machine::new();
    let (root, work) = (machine.root().display().to_string(), machine.work());
    let state = machine.state();
    for name in ["all", "above", "part", "key"] {
        fs::create_dir(work.join(name)).unwrap();
    }
    fs::create_dir_all(&state).unwrap();
    let config = format!("{{ agents: {{ defaults: {{ sandbox: {{ {USUAL} }} }} }} }}");
    machine.write_private(&machine.config(), &config);
    fs::create_dir_all(state.join("sub")).unwrap();
    fs::write(state.join("sub/secret"), "SECRET").unwrap();
    // In mounts of its own, so that the machine keeps its.
    let work = work.display();
    let state = state.display();
    let mounts = format!(
        "mount --bind {state} {work}/all && mount --bind {root}/home {work}/above && mount --bind {state}/sub {work}/part && exec \"$@\""
    );
    let go = |arguments: &[&str]| {
        let mut command = std::process::Command::new("/usr/bin/unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", &mounts, "sh"]);
        let inner = machine.command(arguments);
        command.arg(inner.get_program()).args(inner.get_args());
        for (key, value) in inner.get_envs() {
            if let Some(value) = value {
                command.env(key, value);
            }
        }
        command.current_dir(machine.work());
        testkit::finish(&mut command)
    };
    let look = format!(
        "grep -rl SECRET {work} /workspace 2>/dev/null; find {work} /workspace -name interlock.json; echo end; echo x > {work}/all/x"
    );
    let run = go(&["exec", "--", &look]);
    assert_eq!(run.stdout, "end\n", "{run:#?}");
    for source in ["all", "all/sub", "part"] {
        let bind = format!(
            "{{ agents: {{ defaults: {{ sandbox: {{ {USUAL}, binds: ['{work}/{source}:/data'] }} }} }} }}"
        );
        machine.write_private(&machine.config(), &bind);
        let run = go(&["exec", "--", "true"]);
        run.refused(1, "SANDBOX_BIND");
        assert!(run.stderr.contains("Interlock itself"), "{run:#?}");
    }
}

/// A hidden path that is a link: what it leads to is hidden too.
#[test]
fn credentials_behind_links_are_hidden() {
    for view in ["minimal", "host"] {
        everywhere(USUAL, |site| {
            let home = site.home();
            site.owned(&home.join("dotfiles/aws/credentials"), "SECRET");
            site.owned(&home.join("dotfiles/netrc"), "SECRET");
            for (name, to) in [(".aws", "dotfiles/aws"), (".netrc", "dotfiles/netrc")] {
                let link = home.join(name);
                site.host(&["/usr/bin/ln", "-s", to, link.to_str().unwrap()]);
            }
            site.machine.configure(&format!(
                "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {USUAL}, view: '{view}' }} }} }} }}",
                home.display()
            ));
            let mut command = site
                .machine
                .command(&["exec", "--", "grep -rs SECRET .; echo end"]);
            command.current_dir(&home);
            let run = testkit::finish(&mut command);
            assert_eq!(run.stdout, "end\n", "{run:#?}");
        });
    }
}

/// The source of a bind is exchanged for a link while runs start: what was checked is shown, or nothing.
#[test]
fn a_source_that_is_exchanged_is_never_shown() {
    everywhere(USUAL, |site| {
        let work = site.work();
        site.owned(&work.join("data/file"), "fine");
        site.owned(&site.home().join(".ssh/file"), "SECRET");
        let (data, swap) = (work.join("data"), work.join("swap"));
        std::os::unix::fs::symlink(site.home().join(".ssh"), &swap).unwrap();
        site.configure(&format!("mode: 'all', binds: ['{}:/data']", data.display()));
        let is_over = AtomicBool::new(false);
        let mut shown = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let exchange = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(
                        rustix::fs::CWD,
                        &data,
                        rustix::fs::CWD,
                        &swap,
                        exchange,
                    )
                    .unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
            });
            for _ in 0..12 {
                let run = site.inside("cat /data/file");
                assert!(!run.stdout.contains("SECRET"), "{run:#?}");
                shown += usize::from(run.stdout == "fine");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        println!("{shown} of 12 runs saw the directory");
    });
}

/// Spaces and backslashes are parts of names; a line end, by which a name could pass for two lines, is
/// refused with its key.
#[test]
fn odd_names_are_names() {
    everywhere(USUAL, |site| {
        let odd = site.work().join("da ta\\040x");
        site.owned(&odd.join("file"), "fine");
        let configure = |source: &str, protected: &str| {
            let bind = serde_json::to_string(&format!("{source}:/o dd\\name")).unwrap();
            let protected = serde_json::to_string(protected).unwrap();
            let settings = format!("{USUAL}, protect: [{protected}], binds: [{bind}]");
            let text = format!("{{ agents: {{ defaults: {{ sandbox: {{ {settings} }} }} }} }}");
            site.machine.write_private(&site.machine.config(), &text);
        };
        configure(odd.to_str().unwrap(), "da ta\\040x");
        assert_eq!(site.says("cat '/o dd\\name/file'"), "fine");
        let run = site.machine.run(&["sandbox", "explain", "--verify"]);
        assert_eq!(run.code, 0, "{run:#?}");
        assert!(
            run.stdout.contains("da ta\\040x is read-only and stays"),
            "{run:#?}"
        );
        configure(&format!("{}\nx", odd.display()), "x");
        let run = site.inside("touch trace");
        run.refused(1, "BAD_VALUE");
        assert!(run.stderr.contains("sandbox.binds[0]"), "{run:#?}");
        assert!(!site.work().join("trace").exists());
    });
}

/// A login shell reads the profile of the private home, which an earlier run may have written. What an
/// approver allows is the text that was shown, and nothing before it.
#[test]
fn the_profile_of_the_home_runs_only_where_everything_may() {
    everywhere(USUAL, |site| {
        // Where everything may run, it is the agent's own to use.
        site.says("echo 'echo from the profile; touch /tmp/by-profile' > ~/.profile; cp ~/.profile ~/.bash_profile");
        assert_eq!(
            site.says("rm -f /tmp/by-profile; echo ${HOME:+end}"),
            "from the profile\nend\n"
        );
        let settings = site.settings(USUAL);
        for exec in [
            "security: 'allowlist', ask: 'on-miss'",
            "security: 'full', ask: 'always'",
        ] {
            site.machine.configure(&format!(
                "{{ tools: {{ sandbox: {{ exec: {{ {exec} }} }} }}, agents: {{ defaults: {{ sandbox: {{ {settings} }} }} }} }}"
            ));
            let waiting = Waiting::new(
                &site.machine,
                &["--", "rm -f /tmp/by-profile; echo ${HOME:+end}"],
            );
            site.machine.ok(&["approvals", "approve", &waiting.id]);
            let run = waiting.end();
            assert_eq!(run.stdout, "end\n", "{exec}: {run:#?}");
        }
        site.configure(USUAL);
    });
}

/// A run that closes the directories of its scope to itself stops no later run.
#[test]
fn a_scope_that_a_run_closed_is_opened_again() {
    everywhere("mode: 'all', workspaceAccess: 'none'", |site| {
        for closing in ["chmod 0 .", "chmod 0 ~", "chmod 500 . ~"] {
            assert_eq!(site.inside(closing).code, 0);
            let run = site.inside("echo x > made && echo y > ~/made && cat made ~/made");
            assert_eq!(run.stdout, "x\ny\n", "{closing}: {run:#?}");
        }
    });
}
