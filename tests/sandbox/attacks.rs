//! Files, sockets, processes and the network of the host: rows P01 to P09, P17 to P20, P25, P26, P33. P07 is
//! in `holes`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::is_alive;

use crate::holes::connect_to;
use crate::site::{Site, USUAL, names, with_every_backend};

/// P01, P03: the state directory, its sockets and keys.
#[test]
fn the_state_directory_does_not_exist_inside() {
    with_every_backend(USUAL, |site| {
        let state = site.machine.state();
        let state = state.display();
        let run = site.inside(&format!(
            "cat {state}/interlock.json; ls {state}; find / -name 'run.key*' 2>/dev/null; \
             for s in $(find / -type s 2>/dev/null); do echo SOCKET $s; done; true"
        ));
        assert_eq!(run.code, 0, "{run:#?}");
        assert_eq!(run.stdout, "", "{run:#?}");
        assert!(run.stderr.contains("No such file"), "{run:#?}");
    });
}

/// P02: the workspace is the home directory, and the state directory lies in it.
#[test]
fn the_state_directory_in_a_workspace_is_hidden_and_stays_where_it_is() {
    with_every_backend(USUAL, |site| {
        let home = site.home();
        let config = format!(
            "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {} }} }} }} }}",
            home.display(),
            site.settings(USUAL)
        );
        site.machine.configure(&config);
        let before = names(&site.machine.state());
        let mut command = site.machine.command(&[
            "exec",
            "--",
            "ls -A .interlock; cat .interlock/interlock.json; mv .interlock x; rmdir .interlock; \
             mkdir .interlock/new; touch .interlock/y; rm -rf .interlock; echo x > ok; true",
        ]);
        command.current_dir(&home);
        let run = testkit::finish(&mut command);
        assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:#?}");
        for words in ["No such file", "busy", "Read-only"] {
            assert!(run.stderr.contains(words), "{words}: {run:#?}");
        }
        let after = names(&site.machine.state());
        assert!(before.iter().all(|name| after.contains(name)), "{after:?}");
        assert!(site.machine.config().is_file());
        assert!(
            home.join("ok").is_file(),
            "the rest of it can be written to"
        );
    });
}

/// P04: a socket of a container engine, and any other one of the host in what is shown.
#[test]
fn sockets_of_the_host_cannot_be_reached() {
    for view in ["minimal", "host"] {
        let settings = format!("{USUAL}, view: '{view}'");
        with_every_backend(&settings, |site| {
            let path = site.work().join("docker.sock");
            let listener = UnixListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            let run = site.inside(&format!(
                "python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.connect(\"{}\")' || \
                 perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); connect(S, sockaddr_un(\"{}\")) and print \"CONNECTED\"'; \
                 ls -A /run",
                path.display(),
                path.display()
            ));
            assert!(!run.stdout.contains("CONNECTED"), "{run:#?}");
            assert!(!run.stdout.contains("docker"), "{run:#?}");
            assert!(listener.accept().is_err(), "nothing was accepted");
        });
    }
}

/// P03: sockets of a running gateway and its supervisor, by their paths on the host.
#[test]
fn p03_sockets_of_interlock_are_not_reached() {
    with_every_backend(USUAL, |site| {
        let gateway = site.machine.gateway();
        // The supervisor has a socket once something ran.
        site.says("true");
        let state = site.machine.state();
        // That of a companion program, which asks the owner.
        let companion = UnixListener::bind(state.join("exec-approvals.sock")).unwrap();
        companion.set_nonblocking(true).unwrap();
        let find = format!("find {} -type s", state.display());
        let found = site.host(&["/bin/sh", "-c", &find]);
        let sockets: Vec<&Path> = found.stdout.lines().map(Path::new).collect();
        for name in ["gateway.sock", "exec-approvals.sock", "supervisor/"] {
            let is_there = found.stdout.contains(name);
            assert!(is_there, "{name}: {sockets:?}");
        }
        let text = connect_to(&sockets);
        for view in ["minimal", "host"] {
            site.configure(&format!("{USUAL}, view: '{view}'"));
            let run = site.inside(&text);
            let refused = run.stdout.lines().filter(|line| line.starts_with("no "));
            assert_eq!(refused.count(), sockets.len(), "{run:#?}");
        }
        assert!(companion.accept().is_err(), "nothing was accepted");
        // P05: nor by the port of the gateway.
        let port = gateway.port;
        let run = site.inside(&format!(
            "bash -c 'echo x > /dev/tcp/127.0.0.1/{port}' && echo CONNECTED"
        ));
        assert!(
            run.stderr.contains("refused") && run.stdout.is_empty(),
            "{run:#?}"
        );
    });
}

/// P04: the usual paths of container engines.
#[test]
fn p04_engine_sockets_at_their_usual_paths_are_not_reached() {
    if !testkit::is_root() {
        println!("skipped: only root makes sockets in /run");
        return;
    }
    let podman = |uid: u32| PathBuf::from(format!("/run/user/{uid}/podman/podman.sock"));
    let made = [
        PathBuf::from("/run/docker.sock"),
        podman(0),
        podman(65_534),
        PathBuf::from(format!("/opt/engine-{}.sock", std::process::id())),
    ];
    let bind = |path: &PathBuf| {
        let parent = path.parent().unwrap();
        fs::create_dir_all(parent).unwrap();
        let listener = UnixListener::bind(path).ok()?;
        fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Some(listener)
    };
    let Some(listeners) = made.iter().map(bind).collect::<Option<Vec<_>>>() else {
        println!("skipped: this machine has a container engine");
        return;
    };
    let mut paths: Vec<&Path> = made.iter().map(PathBuf::as_path).collect();
    paths.push(Path::new("/var/run/docker.sock"));
    paths.push(Path::new("/proc/self/root/run/docker.sock"));
    let text = connect_to(&paths);
    let looked = std::panic::catch_unwind(|| {
        for view in ["minimal", "host"] {
            with_every_backend(&format!("{USUAL}, view: '{view}'"), |site| {
                let run = site.inside(&format!("{text}; ls /run/user"));
                let refused = run.stdout.lines().filter(|line| line.starts_with("no "));
                assert_eq!(refused.count(), paths.len(), "{run:#?}");
                assert!(run.stderr.contains("/run/user"), "{run:#?}");
            });
        }
    });
    for path in &made {
        fs::remove_file(path).unwrap();
        // What this test made and nothing else: a directory that is in use stays.
        let _ = fs::remove_dir(path.parent().unwrap());
    }
    if let Err(panic) = looked {
        std::panic::resume_unwind(panic);
    }
    for listener in listeners {
        assert!(listener.accept().is_err(), "the daemon saw nothing");
    }
}

/// Listens on every address of its network by TCP and UDP, and says what it hears.
const NEIGHBOR: &str = "
import select, socket
t = socket.create_server(('', 80)); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('', 53))
print('ready', flush=True)
while True:
    for s in select.select([t, u], [], [])[0]:
        s.accept() if s is t else s.recvfrom(9)
        print('heard', flush=True)
";

/// P05, P06: a neighbor on another network of the host, which listens.
#[test]
fn p06_no_packet_reaches_a_neighbor() {
    if !testkit::is_root() || !Path::new("/usr/sbin/ip").exists() {
        println!("skipped: no neighbor can be made");
        return;
    }
    let number = std::process::id() % 60_000;
    let (own, peer) = (format!("ilk{number}"), format!("ilp{number}"));
    let (high, low) = (number / 250, number % 250);
    let ip = |words: &str| {
        let mut command = Command::new("/usr/sbin/ip");
        let run = testkit::finish(command.args(words.split(' ')));
        assert_eq!(run.code, 0, "{words}: {run:#?}");
    };
    let mut neighbor = Command::new("/usr/bin/unshare")
        .args([
            "-n",
            "/bin/sh",
            "-c",
            "read x; exec python3 -c \"$0\"",
            NEIGHBOR,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let own_network = fs::read_link("/proc/self/ns/net").unwrap();
    let of_neighbor = format!("/proc/{}/ns/net", neighbor.id());
    testkit::eventually("the neighbor's network", || {
        fs::read_link(&of_neighbor).is_ok_and(|network| network != own_network)
    });
    ip(&format!(
        "link add {own} type veth peer name {peer} netns {}",
        neighbor.id()
    ));
    ip(&format!("link set dev {own} addrgenmode none"));
    ip(&format!("addr add 10.{high}.{low}.1/24 dev {own}"));
    ip(&format!("link set {own} up"));
    let inside = |words: &str| {
        let mut command = Command::new("/usr/bin/nsenter");
        command.args(["-t", &neighbor.id().to_string(), "-n", "/usr/sbin/ip"]);
        assert_eq!(
            testkit::finish(command.args(words.split(' '))).code,
            0,
            "{words}"
        );
    };
    inside(&format!("link set dev {peer} addrgenmode none"));
    inside(&format!("addr add 10.{high}.{low}.2/24 dev {peer}"));
    inside(&format!("link set {peer} up"));
    neighbor.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut heard = BufReader::new(neighbor.stdout.take().unwrap());
    let mut line = String::new();
    heard.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let to = format!("10.{high}.{low}.2");
    // From the host it answers: the test can fail.
    let reached = std::net::TcpStream::connect((to.as_str(), 80));
    assert!(reached.is_ok(), "{reached:?}");
    line.clear();
    heard.read_line(&mut line).unwrap();
    let packets =
        || fs::read_to_string(format!("/sys/class/net/{own}/statistics/tx_packets")).unwrap();
    drop(reached);
    // The last packets of that connection are on their way until the counter stands still.
    let mut before = String::new();
    testkit::eventually("silence", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = packets();
        std::mem::replace(&mut before, now.clone()) == now
    });
    let looked = std::panic::catch_unwind(|| {
        with_every_backend(USUAL, |site| {
            let run = site.inside(&format!(
                "bash -c 'echo x > /dev/tcp/{to}/80' && echo CONNECTED; bash -c 'echo x > /dev/udp/{to}/53' && echo SENT; \
                 ping -c 1 -W 1 {to} && echo ANSWERED; getent hosts x.test && echo RESOLVED; true"
            ));
            assert!(
                run.stdout.is_empty() && run.stderr.contains("unreachable"),
                "{run:#?}"
            );
        });
        assert_eq!(packets(), before, "no packet left");
    });
    neighbor.kill().unwrap();
    neighbor.wait().unwrap();
    line.clear();
    let rest = heard.read_line(&mut line).unwrap();
    if let Err(panic) = looked {
        std::panic::resume_unwind(panic);
    }
    assert_eq!((rest, line.as_str()), (0, ""), "the neighbor heard nothing");
}

/// P05, P06, P07: the network of the host, and its abstract sockets.
#[test]
fn there_is_no_network_but_an_own_loopback() {
    with_every_backend(USUAL, |site| {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        let (tcp_port, udp_port) = (
            tcp.local_addr().unwrap().port(),
            udp.local_addr().unwrap().port(),
        );
        let run = site.inside(&format!(
            "bash -c 'echo x > /dev/tcp/127.0.0.1/{tcp_port}' && echo CONNECTED; \
             bash -c 'echo x > /dev/tcp/10.1.2.3/80' && echo CONNECTED; \
             bash -c 'echo x > /dev/udp/127.0.0.1/{udp_port}'; \
             getent hosts x.test && echo RESOLVED; grep -c : /proc/net/dev; true"
        ));
        assert_eq!(run.stdout.trim(), "1", "{run:#?}");
        assert!(tcp.accept().is_err());
        assert!(udp.recv(&mut [0; 8]).is_err());
    });
}

/// P08, P09: processes of the host.
#[test]
fn only_its_own_processes_exist() {
    with_every_backend(USUAL, |site| {
        let mut other = site
            .machine
            .other_program("/usr/bin/sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = other.id();
        let text = "echo begun; exec sleep 600";
        let begun = site
            .machine
            .ok(&["exec", "--json", "--background", "--", text]);
        let session = begun.json()["sessionId"].as_str().unwrap().to_owned();
        let run = site.inside(&format!(
            "kill -9 {pid}; cat /proc/{pid}/cmdline; ls /proc/{pid}/root; pkill -9 sleep; \
             ls -d /proc/[0-9]* | wc -l; cat /proc/1/environ; ls -l /proc/1/root; kill -9 1; kill -9 -1"
        ));
        let count: u32 = run.stdout.lines().next().unwrap().parse().unwrap();
        assert!(count < 10, "{run:#?}");
        assert!(is_alive(&pid.to_string()), "{run:#?}");
        other.kill().unwrap();
        other.wait().unwrap();
        let poll = site.machine.run(&["process", "poll", &session]);
        assert!(poll.stderr.contains("is running"), "another run: {poll:#?}");
        site.machine.ok(&["process", "kill", &session]);
    });
}

/// P17: a set-user-id program of root that a bind and the workspace show.
#[test]
fn p17_a_set_user_id_program_in_a_bind_gains_nothing() {
    if !testkit::is_root() {
        println!("skipped: only root makes a program of root");
        return;
    }
    with_every_backend(USUAL, |site| {
        let shown = site.work().join("shown");
        fs::create_dir(&shown).unwrap();
        for mode in [0o4755, 0o2755] {
            let program = shown.join(format!("id{mode:o}"));
            fs::copy("/usr/bin/id", &program).unwrap();
            fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        }
        site.configure(&format!("{USUAL}, binds: ['{}:/shown']", shown.display()));
        let said = site.says(
            "for p in /shown/* shown/* /workspace/shown/*; do echo $(id -u) $(id -g) $($p -u) $($p -g) $($p -ru); done",
        );
        assert_eq!(said.lines().count(), 6, "{said}");
        for line in said.lines() {
            let ids: Vec<&str> = line.split(' ').collect();
            assert!(
                ids[0] != "0" && ids[2] == ids[0] && ids[3] == ids[1] && ids[4] == ids[0],
                "{said}"
            );
        }
    });
}

/// P17: set-user-id programs gain nothing, and none can be made.
#[test]
fn no_program_gains_privileges() {
    with_every_backend(USUAL, |site| {
        let run = site.inside(
            "grep -E '^(NoNewPrivs|CapEff|CapBnd|CapPrm|CapInh|CapAmb)' /proc/self/status; id -u; \
             su -c 'id -u' </dev/null; sudo -n id -u; cp /usr/bin/id me; chmod 4755 me || echo REFUSED; \
             chmod u+s,g+s me || echo REFUSED; mkdir -m 2755 d || echo REFUSED; stat -c %a me",
        );
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert!(
            lines[..6]
                .iter()
                .all(|line| line.ends_with("\t1") || line.ends_with("\t0000000000000000")),
            "{run:#?}"
        );
        assert_ne!(lines[6], "0", "{run:#?}");
        let refused = lines.iter().filter(|line| **line == "REFUSED").count();
        assert_eq!(refused, 3, "{run:#?}");
        assert_eq!(*lines.last().unwrap(), "755", "{run:#?}");
    });
}

/// P18: what is not the workspace.
#[test]
fn the_rest_of_the_host_is_not_written_to() {
    with_every_backend(USUAL, |site| {
        let run = site.inside(
            "for p in /usr/bin/x /etc/x /var/x /opt/x /x /dev/x /proc/x /sys/x; do \
               sh -c ': > $1' sh $p 2>/dev/null && echo WROTE $p; sh -c \": > $p\" 2>/dev/null && echo WROTE $p; done; \
             echo mine > $HOME/.bashrc && cat $HOME/.bashrc; echo t > /tmp/t; echo w > w",
        );
        assert_eq!(run.stdout, "mine\n", "{run:#?}");
        assert!(!site.home().join(".bashrc").exists());
        assert!(!std::path::Path::new("/tmp/t").exists());
        assert_eq!(fs::read_to_string(site.work().join("w")).unwrap(), "w\n");
        // The home and /tmp of the scope are there for its next run.
        let next = site.inside("cat $HOME/.bashrc /tmp/t w");
        assert_eq!(next.stdout, "mine\nt\nw\n", "{next:#?}");
    });
}

/// P19: what others obey is not changed, and git works.
#[test]
fn protected_paths_are_read_only_and_git_works() {
    with_every_backend(USUAL, |site| {
        let git = "/usr/bin/git";
        let git = if std::path::Path::new(git).exists() {
            git
        } else {
            "/usr/local/bin/git"
        };
        if !std::path::Path::new(git).exists() {
            println!("skipped: git is not installed");
            return;
        }
        let work = site.work();
        site.host(&[git, "init", "-q", work.to_str().unwrap()]);
        site.owned(&work.join(".claude/settings.json"), "{}");
        site.owned(&work.join(".git/hooks/pre-push"), "old");
        let config = fs::read(work.join(".git/config")).unwrap();
        let run = site.inside(
            "echo x > .git/hooks/pre-commit; echo x >> .git/config; echo x > .claude/settings.json; mv .git g; \
             rm -rf .git/hooks; mv .claude c; rm -rf .claude; rm .git/config; echo x > /workspace/.git/config; \
             mv /workspace/.git /workspace/g; ln -sf /etc/passwd .git/config; true",
        );
        assert_eq!(run.code, 0, "{run:#?}");
        assert_eq!(fs::read(work.join(".git/config")).unwrap(), config);
        assert_eq!(fs::read(work.join(".git/hooks/pre-push")).unwrap(), b"old");
        assert_eq!(fs::read(work.join(".claude/settings.json")).unwrap(), b"{}");
        assert!(!work.join(".git/hooks/pre-commit").exists());
        let run = site.inside(
            "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; set -e; \
             echo 1 > f; git add f; git commit -qm one; git branch two; echo 2 > f; git stash -q; git gc -q; git log --oneline | wc -l",
        );
        assert_eq!((run.code, run.stdout.trim()), (0, "1"), "{run:#?}");
        assert!(
            !names(&work).iter().any(|name| name == ".vscode"),
            "no mount point is made"
        );
        assert_eq!(fs::read(work.join(".git/config")).unwrap(), config);
    });
}

/// P20: credentials of the owner, by both views and in a workspace that holds them.
#[test]
fn credentials_are_not_shown() {
    for view in ["minimal", "host"] {
        with_every_backend(&format!("{USUAL}, view: '{view}'"), |site| {
            let home = site.home();
            for name in [
                ".ssh/id_x",
                ".aws/credentials",
                ".netrc",
                ".npmrc",
                ".config/gh/hosts.yml",
                ".cargo/credentials.toml",
                ".local/share/opencode/auth.json",
                ".databrickscfg",
                ".subversion/auth/svn",
                ".putty/key.ppk",
                ".psql_history",
                ".cursor/mcp.json",
            ] {
                site.owned(&home.join(name), "SECRET");
            }
            let look = "cat ~/.ssh/* ~/.aws/* ~/.netrc ~/.npmrc ~/.config/gh/hosts.yml ~/.cargo/credentials.toml ~/.databrickscfg; \
                        grep -r SECRET ~ 2>/dev/null; cat /etc/shadow /etc/sudoers; env; true";
            let mut command = site.machine.command(&["exec", "--", look]);
            command
                .env("AWS_SECRET_ACCESS_KEY", "SECRET")
                .env("SSH_AUTH_SOCK", "SECRET")
                .env("OTHER", "SECRET");
            let run = testkit::finish(&mut command);
            assert_eq!(run.code, 0, "{run:#?}");
            assert!(
                !run.stdout.contains("SECRET") && !run.stdout.contains("root:"),
                "{run:#?}"
            );
            // The home directory as workspace.
            let config = format!(
                "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {}, view: '{view}' }} }} }} }}",
                home.display(),
                site.settings(USUAL)
            );
            site.machine.configure(&config);
            let mut command = site.machine.command(&["exec", "--", look]);
            command.current_dir(&home);
            let run = testkit::finish(&mut command);
            assert!(!run.stdout.contains("SECRET"), "{run:#?}");
        });
    }
}

/// P25: descriptors.
#[test]
fn a_run_has_three_descriptors() {
    with_every_backend(USUAL, |site| {
        for flags in [&[][..], &["--pty"][..]] {
            let mut arguments = vec!["exec"];
            arguments.extend(flags);
            arguments.extend(["--", "for f in /proc/self/fd/*; do echo ${f##*/}; done"]);
            let run = site.machine.ok(&arguments);
            let lines: Vec<&str> = run.stdout.split_whitespace().collect();
            assert!(
                lines.starts_with(&["0", "1", "2"]) && lines.len() <= 4,
                "{run:#?}"
            );
        }
        let text = "for f in /proc/self/fd/*; do echo ${f##*/}; done; echo end";
        let begun = site
            .machine
            .ok(&["exec", "--json", "--background", "--", text]);
        let id = begun.json()["sessionId"].as_str().unwrap().to_owned();
        let log = || site.machine.run(&["process", "log", &id]).stdout;
        testkit::eventually("the list", || log().contains("end"));
        let listed = log();
        let lines: Vec<&str> = listed.split_whitespace().collect();
        assert!(
            lines.starts_with(&["0", "1", "2"]) && lines.len() <= 5,
            "{lines:?}"
        );
    });
}

/// P26: nothing outlives a run.
#[test]
fn nothing_outlives_its_run() {
    with_every_backend(USUAL, |site| {
        let mark = format!("61{}", std::process::id());
        let result = site.result(&format!(
            "setsid nohup sh -c 'sleep {mark}' >/dev/null 2>&1 & (setsid sleep {mark} &) ; sleep 0.2; echo done"
        ));
        assert_eq!(result["status"], "completed", "{result:#}");
        let named = result["leftovers"].as_array().unwrap();
        let sleepers = named
            .iter()
            .filter(|one| one.to_string().contains(&mark))
            .count();
        assert!(sleepers >= 2, "both are named: {result:#}");
        let is_left = || {
            let list = fs::read_dir("/proc").unwrap().flatten();
            list.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
                .any(|line| String::from_utf8_lossy(&line).contains(&mark))
        };
        // The result comes when process 1 was waited for: then the tree is gone.
        assert!(!is_left(), "{result:#}");
    });
}

/// P33: two agents share neither loopback nor files.
#[test]
fn agents_do_not_see_each_other() {
    with_every_backend(USUAL, |site| {
        let config = format!(
            "{{ agents: {{ list: [{{ id: 'a' }}, {{ id: 'b' }}], defaults: {{ sandbox: {{ {} }} }} }} }}",
            site.settings(USUAL)
        );
        site.machine.configure(&config);
        let go =
            |agent: &str, text: &str| site.machine.run(&["exec", "--agent", agent, "--", text]);
        let leave = "echo secret > $HOME/a; for d in /tmp /var/tmp /run /dev/shm; do echo t > $d/a; done; ipcmk -M 4096";
        assert_eq!(go("a", leave).code, 0);
        let other = go(
            "b",
            "cat $HOME/a /tmp/a /var/tmp/a /run/a /dev/shm/a; ipcs -m | grep 4096; grep -c : /proc/net/dev >&2; false",
        );
        assert!(other.code != 0 && other.stdout.is_empty(), "{other:#?}");
        assert_eq!(go("a", "cat $HOME/a").stdout, "secret\n");
        // A server of the one, and a client of the other.
        let server = "perl -MSocket -e 'socket(S,AF_INET,SOCK_STREAM,0); \
             bind(S,sockaddr_in(8080,INADDR_LOOPBACK)) or die; listen(S,9); \
             socket(U,AF_UNIX,SOCK_STREAM,0); bind(U,pack(\"Sxa*\",AF_UNIX,\"of-a\")) or die; listen(U,9); $|=1; print \"ready\\n\"; sleep 600'";
        let begun = site
            .machine
            .ok(&[
                "exec",
                "--json",
                "--agent",
                "a",
                "--background",
                "--",
                server,
            ])
            .json();
        let id = begun["sessionId"].as_str().unwrap();
        let process = |action: &str| site.machine.run(&["process", action, "--agent", "a", id]);
        testkit::eventually("the server", || process("log").stdout.contains("ready"));
        let look = "bash -c 'echo x > /dev/tcp/127.0.0.1/8080' && echo CONNECTED; \
             perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); connect(S, pack(\"Sxa*\", AF_UNIX, \"of-a\")) and print \"CONNECTED\n\"'";
        let other = go("b", look);
        assert!(
            other.stdout.is_empty() && other.stderr.contains("refused"),
            "{other:#?}"
        );
        // The same finds both where they are.
        let own = go("a", look);
        assert_eq!(own.stdout, "CONNECTED\nCONNECTED\n", "{own:#?}");
        assert_eq!(process("kill").code, 0);
    });
}

/// Attacks on the mounts themselves: an earlier run arranges links where a later one is set up.
#[test]
fn links_that_a_run_leaves_lead_no_mount_astray() {
    with_every_backend(USUAL, |site: &Site| {
        site.owned(&site.home().join(".cargo/bin/tool"), "x");
        // Mount points of the next run are replaced by links.
        let run = site
            .inside("rm -rf $HOME/.cargo 2>/dev/null; ls -A $HOME; ln -s /etc $HOME/.config; true");
        assert_eq!(run.code, 0, "{run:#?}");
        let run = site.inside("ls $HOME/.cargo/bin; readlink $HOME/.config");
        assert_eq!(run.stdout, "tool\n/etc\n", "{run:#?}");
        assert_eq!(
            fs::read_to_string(site.home().join(".cargo/bin/tool")).unwrap(),
            "x"
        );
    });
}
