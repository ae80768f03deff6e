//! Everyday tools inside the shield: version control, builds, sockets, servers, and many runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::json;
use testkit::mcp::StdioClient;
use testkit::{Machine, eventually};

/// As root: a machine of root, and one of an ordinary user. As an ordinary user: one's own. All
/// commands may run on them; machines without namespaces are left out, with the reason printed.
fn machines() -> Vec<Machine> {
    let machines = [Some(Machine::new()), Machine::of_ordinary_user()];
    let mut machines: Vec<Machine> = machines.into_iter().flatten().collect();
    machines.retain(|machine| {
        machine.ok(&["exec-policy", "preset", "yolo"]);
        // The system's programs, and no stand-ins.
        fs::remove_dir_all(machine.bin()).unwrap();
        let explanation = machine.explain(&["--", "true"]);
        let shield = explanation["shield"].as_str().unwrap_or_default();
        let is_shielded = shield.starts_with("shielded");
        if !is_shielded {
            println!("skipped: {shield}");
        }
        is_shielded
    });
    machines
}

fn exec(machine: &Machine, text: &str) -> String {
    let run = machine.exec(text);
    assert_eq!(run.code, 0, "{text}: {run:#?}");
    run.stdout
}

/// A file in the directory that commands run in.
fn put(machine: &Machine, name: &str, content: &str) {
    fs::write(machine.work().join(name), content).unwrap();
}

#[test]
fn git_works_inside_and_its_files_keep_their_owner() {
    for machine in machines() {
        let identity = "-c user.name=A -c user.email=a@example.org";
        exec(
            &machine,
            "mkdir -p repo && cd repo && git init -q . && echo one > file",
        );
        exec(
            &machine,
            &format!("cd repo && git add file && git {identity} commit -q -m first"),
        );
        let log = exec(
            &machine,
            "cd repo && git log --format=%s && git status --short",
        );
        assert_eq!(log, "first\n");
        let owner = exec(&machine, "stat -c %u repo/file; id -u");
        let owner: Vec<&str> = owner.lines().collect();
        assert_eq!(owner[0], owner[1]);
        exec(&machine, "git clone -q repo copy && cat copy/file");
    }
}

#[test]
fn cargo_builds_and_runs_a_program_inside() {
    let cargo = Path::new(env!("CARGO"));
    let rustc = cargo.with_file_name("rustc");
    for machine in machines() {
        let is_there = machine.exec(&format!("test -x {}", rustc.display())).code == 0;
        if !is_there {
            println!("skipped: this user cannot reach {}", rustc.display());
            continue;
        }
        let package =
            "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
        exec(&machine, "mkdir -p hello/src");
        put(&machine, "hello/Cargo.toml", package);
        put(
            &machine,
            "hello/src/main.rs",
            "fn main() { println!(\"built inside\"); }\n",
        );
        let text = format!(
            "cd hello && RUSTC={} CARGO_HOME=$PWD/home {} run -q --offline",
            rustc.display(),
            cargo.display()
        );
        assert_eq!(exec(&machine, &text), "built inside\n");
    }
}

#[test]
fn npm_runs_a_script_of_a_package_inside() {
    for machine in machines() {
        if machine.exec("npm --version").code != 0 {
            println!("skipped: npm is not installed");
            continue;
        }
        let package =
            r#"{ "name": "p", "version": "1.0.0", "scripts": { "say": "echo from a script" } }"#;
        exec(&machine, "mkdir -p package");
        put(&machine, "package/package.json", package);
        let said = exec(&machine, "cd package && npm run --silent say 2>&1");
        assert_eq!(said, "from a script\n");
    }
}

/// A service that answers like the one behind `docker ps` without containers, on a socket that all
/// users reach.
fn container_service(socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut first = String::new();
                    if reader.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    let mut line = String::new();
                    while reader.read_line(&mut line).unwrap_or(0) > 2 {
                        line.clear();
                    }
                    let body = if first.contains("_ping") { "OK" } else { "[]" };
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\n\
                         Content-Length: {}\r\n\r\n{}",
                        body.len(),
                        if first.starts_with("HEAD") { "" } else { body }
                    );
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn the_socket_of_a_service_outside_is_reached_from_inside() {
    for machine in machines() {
        let socket = machine.root().join("docker.sock");
        container_service(&socket);
        let socket = socket.display();
        let docker = Path::new("/usr/local/bin/docker");
        let docker = if docker.exists() {
            docker
        } else {
            Path::new("/usr/bin/docker")
        };
        if docker.exists() {
            let text = format!("{} -H unix://{socket} ps", docker.display());
            assert!(exec(&machine, &text).starts_with("CONTAINER ID"), "{text}");
        }
        let client = format!(
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{socket}'); \
             s.send(b'GET /_ping HTTP/1.1\\r\\n\\r\\n'); print(s.recv(999).decode()[-2:])"
        );
        let said = exec(&machine, &format!("python3 -c \"{client}\""));
        assert_eq!(said, "OK\n");
    }
}

#[test]
fn a_server_of_one_call_is_reached_listed_and_ended_by_later_ones() {
    let server = "import http.server as h\n\
                  s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)\n\
                  open('port', 'w').write(str(s.server_port) + '\\n')\n\
                  s.serve_forever()\n";
    for machine in machines() {
        put(&machine, "server.py", server);
        let session = machine.background(&[], "exec python3 server.py");
        let port = machine.work().join("port");
        eventually("the server listens", || {
            fs::read_to_string(&port).is_ok_and(|text| text.ends_with('\n'))
        });
        let fetch = "python3 -c \"import urllib.request as u; \
                     print(u.urlopen('http://127.0.0.1:' + open('port').read().strip() + '/server.py').read().decode()[:6])\"";
        assert_eq!(exec(&machine, fetch), "import\n");
        let listed = exec(&machine, "ps -eo args | grep -c '[p]ython3 server.py'");
        assert_eq!(listed, "1\n");
        exec(&machine, "pkill -f '[p]ython3 server.py'");
        session.ended();
    }
}

#[test]
fn a_push_to_a_remote_by_its_name_asks_to_run_without_the_shield_where_it_takes_ssh() {
    for machine in machines() {
        let is_ordinary = machine.explain(&["--", "true"])["shield"] == "shielded";
        exec(
            &machine,
            "git init -q repo && cd repo && git remote add origin git@example.org:a/b \
             && git remote add public https://example.org/a/b && git remote add near ../other",
        );
        let shield = |command: &str| {
            let cwd = machine.work().join("repo");
            let explained = machine.explain(&["--cwd", cwd.to_str().unwrap(), "--", command]);
            explained["shield"].as_str().unwrap_or_default().to_owned()
        };
        for (command, needs_host) in [
            ("git push origin main", true),
            ("git push -u origin main:main", true),
            ("git fetch", true),
            ("git push public main", false),
            ("git push near main", false),
            ("git log origin/main", false),
        ] {
            let is_without = shield(command) == "without the shield";
            assert_eq!(is_without, needs_host && is_ordinary, "{command}");
        }
    }
}

#[test]
fn a_thousand_shielded_runs_leave_nothing() {
    for machine in machines() {
        let mut client = StdioClient::begin(&machine, &[], &json!({}));
        let mut run = |command: &str| {
            let result = client.call("exec", &json!({ "command": command }));
            let status = result["structuredContent"]["status"].clone();
            assert_eq!(status, "completed", "{result:#}");
            result
        };
        run("/usr/bin/true");
        let supervisors = machine.supervisors();
        let before = waiting(&supervisors);
        for _ in 0..1_000 {
            run("/usr/bin/true");
        }
        // Process 1, the shell, ls and grep.
        let left = run("test $(/usr/bin/ls /proc | grep -c '^[0-9]') -le 5");
        assert_eq!(left["structuredContent"]["exitCode"], 0, "{left:#}");
        assert_eq!(machine.supervisors(), supervisors);
        eventually("no process is left but what waited before", || {
            waiting(&supervisors) <= before + 2
        });
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let state = machine.state();
        assert!(!mounts.contains(state.to_str().unwrap()), "{mounts}");
    }
}

/// The children of these processes: waiting shims, and process 1 of agents.
fn waiting(supervisors: &[i32]) -> usize {
    let parent_of = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let behind_name = stat.rsplit_once(") ")?.1.to_owned();
        behind_name.split(' ').nth(1)?.parse::<i32>().ok()
    };
    let names = fs::read_dir("/proc").unwrap().flatten();
    names
        .filter_map(|entry| parent_of(entry.file_name().to_str()?))
        .filter(|parent| supervisors.contains(parent))
        .count()
}
