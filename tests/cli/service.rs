//! Services: what is written, which calls are made, and that what a unit says does run.
//!
//! A stand-in takes the place of `systemctl`: it writes down what it is called with, and starts and
//! stops what the unit names. A real systemd is asked by `tests/service-systemd/run.sh`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Machine, Run};

/// A deadline that only a failure reaches.
const PATIENCE: Duration = Duration::from_mins(1);

const STAND_IN: &str = r#"#!/bin/sh
root=${0%/bin/systemctl}
[ "$1" != --user ] || shift
echo "$*" >>"$root/calls"
for unit; do :; done
end() {
    [ ! -e "$root/$unit.pid" ] || kill "$(cat "$root/$unit.pid")" 2>/dev/null
    while [ -e "$root/$unit.pid" ] && kill -0 "$(cat "$root/$unit.pid")" 2>/dev/null; do sleep 0.05; done
    rm -f "$root/$unit.pid"
}
begin() {
    line=$(sed -n 's/^ExecStart=://p' "$root/units/$unit")
    (eval "exec setsid $line") </dev/null >>"$root/service.log" 2>&1 &
    echo $! >"$root/$unit.pid"
}
case $1 in
    is-active) [ -e "$root/$unit.pid" ] && kill -0 "$(cat "$root/$unit.pid")" ;;
    start) [ -e "$root/$unit.pid" ] || begin ;;
    restart) end; begin ;;
    stop|disable) end ;;
    reset-failed) exit 1 ;;
esac
"#;

/// A machine whose services are started by the stand-in.
struct Services {
    machine: Machine,
}

impl Services {
    fn new() -> Self {
        let machine = Machine::open().with_own_binary();
        machine.script("bin/systemctl", STAND_IN);
        Self { machine }
    }

    fn directory(&self) -> PathBuf {
        self.machine.root().join("units")
    }

    fn unit(&self, kind: &str) -> PathBuf {
        self.directory().join(format!("interlock-{kind}.service"))
    }

    fn call(&self, words: &[&str]) -> Run {
        self.with(words, &[])
    }

    fn with(&self, words: &[&str], environment: &[(&str, &str)]) -> Run {
        let directory = self.directory().display().to_string();
        let mut words = words.to_vec();
        words.extend(["--unit-dir", &directory]);
        let mut command = self.machine.command(&words);
        Run::of(&command.envs(environment.iter().copied()).output().unwrap())
    }

    fn ok(&self, words: &[&str]) -> Run {
        let run = self.call(words);
        assert_eq!(run.code, 0, "{words:?}: {run:#?}");
        run
    }

    /// What the stand-in was told since the last time.
    fn calls(&self) -> Vec<String> {
        let file = self.machine.root().join("calls");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(file);
        text.lines().map(str::to_owned).collect()
    }

    fn status(&self, kind: &str) -> Value {
        let run = self.machine.run(&[kind, "status", "--json"]);
        serde_json::from_str(&run.stdout).unwrap()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        for kind in ["node", "gateway"] {
            let _ = self.call(&[kind, "stop"]);
        }
    }
}

/// The words of a command line as systemd reads them, as far as Interlock's units need it.
fn words(unit: &str) -> Vec<String> {
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=:"));
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.unwrap().chars();
    while let Some(character) = characters.next() {
        match (&mut word, character) {
            (None, '"') => word = Some(String::new()),
            (None, ' ') => {}
            (None, other) => panic!("{other} outside of a word"),
            (Some(_), '"') => words.extend(word.take()),
            (Some(word), '\\') => word.push(characters.next().unwrap()),
            (Some(word), '%') => {
                assert_eq!(characters.next(), Some('%'));
                word.push('%');
            }
            (Some(word), other) => word.push(other),
        }
    }
    words
}

/// What a unit says, started with the environment that the unit gives, and nothing else.
fn start(unit: &str) -> Child {
    let words = words(unit);
    let environment = unit.lines().filter_map(|line| {
        let line = line.strip_prefix("Environment=\"")?.strip_suffix('"')?;
        line.split_once('=')
    });
    Command::new(&words[0])
        .args(&words[1..])
        .env_clear()
        .envs(environment)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn install_writes_a_unit_and_starts_it_and_doing_so_again_changes_nothing() {
    let services = Services::new();
    let run = services.ok(&["gateway", "install", "--port", "0"]);
    let unit = services.unit("gateway");
    assert!(run.stdout.contains(&format!("wrote   {}", unit.display())));
    assert!(run.stdout.contains("daemon-reload"), "{run:#?}");
    assert_eq!(mode(&unit), 0o644);
    let calls = services.calls();
    let done: Vec<&str> = calls
        .iter()
        .map(String::as_str)
        .filter(|call| !call.starts_with("show") && !call.starts_with("is-active"))
        .collect();
    assert_eq!(
        done,
        [
            "daemon-reload",
            "enable interlock-gateway.service",
            "restart interlock-gateway.service"
        ]
    );
    let first = services.status("gateway");
    assert_eq!(first["running"], true);
    let text = fs::read_to_string(&unit).unwrap();

    let run = services.ok(&["gateway", "install", "--port", "0", "--json"]);
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["written"], serde_json::json!([]));
    assert_eq!(told["running"], true);
    assert_eq!(fs::read_to_string(&unit).unwrap(), text);
    // The same process: it was not started again.
    assert_eq!(services.status("gateway")["pid"], first["pid"]);

    services.ok(&["gateway", "restart"]);
    let again = services.status("gateway");
    assert_eq!(again["running"], true);
    assert_ne!(again["pid"], first["pid"]);
    services.calls();
    services.ok(&["gateway", "stop"]);
    assert!(
        services
            .calls()
            .contains(&"stop interlock-gateway.service".to_owned())
    );
    assert_eq!(services.status("gateway")["running"], false);
    services.ok(&["gateway", "start"]);
    assert_eq!(services.status("gateway")["running"], true);

    let run = services.ok(&["gateway", "uninstall"]);
    assert!(run.stdout.contains(&format!("removed {}", unit.display())));
    assert!(!unit.exists());
    assert_eq!(services.status("gateway")["running"], false);
    // Nothing else is gone, and there is nothing more to remove.
    assert!(services.machine.state().join("interlock.db").exists());
    services.ok(&["gateway", "uninstall"]);
    let run = services.call(&["gateway", "start"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("SERVICE_NOT_INSTALLED"), "{run:#?}");
    // What the hint says can be typed.
    let run = services.call(&["node", "start"]);
    for command in ["node install --host HOST", "node run --host HOST"] {
        assert!(run.stderr.contains(command), "{run:#?}");
    }
}

#[test]
fn a_gateway_that_runs_already_makes_room_for_the_service() {
    let services = Services::new();
    let mut own = services
        .machine
        .command(&["gateway", "run", "--port", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("a gateway", || {
        services.status("gateway")["running"] == true
    });
    let run = services.ok(&["gateway", "install", "--port", "0"]);
    assert!(
        run.stderr.contains("that ran without the service"),
        "{run:#?}"
    );
    assert!(own.wait().unwrap().success());
    let status = services.status("gateway");
    assert_eq!(status["running"], true);
    assert_ne!(status["pid"], own.id());
}

#[test]
fn a_foreign_unit_is_neither_replaced_nor_removed() {
    let services = Services::new();
    fs::create_dir(services.directory()).unwrap();
    let (unit, theirs) = (services.unit("gateway"), "[Service]\nExecStart=/bin/true\n");
    fs::write(&unit, theirs).unwrap();
    for words in [["gateway", "install"], ["gateway", "uninstall"]] {
        let run = services.call(&words);
        assert_eq!(run.code, 1);
        assert!(run.stderr.contains("SERVICE_FILE_FOREIGN"), "{run:#?}");
        assert_eq!(fs::read_to_string(&unit).unwrap(), theirs);
    }
    let run = services.call(&["gateway", "start"]);
    assert!(run.stderr.contains("SERVICE_NOT_INSTALLED"), "{run:#?}");
    let told: Vec<String> = services.calls();
    assert!(told.iter().all(|call| call.starts_with("show")), "{told:?}");
    services.ok(&["gateway", "install", "--force", "--no-start"]);
    assert!(
        fs::read_to_string(&unit)
            .unwrap()
            .contains("interlock gateway install")
    );
    assert!(!services.calls().iter().any(|call| call.contains("start")));
}

#[test]
fn without_a_service_manager_nothing_is_written_and_the_unit_is_there_to_be_placed() {
    let services = Services::new();
    services.machine.script(
        "bin/systemctl",
        "#!/bin/sh\necho 'System has not been booted with systemd' >&2\nexit 1\n",
    );
    let run = services.call(&["gateway", "install"]);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("SERVICE_MANAGER_UNAVAILABLE"),
        "{run:#?}"
    );
    assert!(run.stderr.contains("not been booted"), "{run:#?}");
    assert!(run.stderr.contains("--print"), "{run:#?}");
    assert!(!services.directory().exists());
    let run = services.ok(&["gateway", "install", "--print"]);
    assert!(run.stdout.contains("ExecStart="), "{run:#?}");
    assert!(!services.directory().exists());
}

#[test]
fn what_a_unit_says_starts_a_gateway_however_odd_its_paths_are() {
    let machine = Machine::open();
    let odd = machine.root().join("a b 100% $HOME \"q\" 'q' back\\s");
    let state = odd.join("state").display().to_string();
    fs::create_dir(&odd).unwrap();
    let flags = ["--state-dir", &state];
    let install = ["gateway", "install", "--port", "0", "--print"];
    let run = machine.ok(&[&flags[..], &install].concat());
    let mut gateway = start(&run.stdout);
    let status = [&flags[..], &["gateway", "status", "--json"]].concat();
    until("the gateway is ready", || {
        assert_eq!(gateway.try_wait().unwrap(), None);
        machine.run(&status).code == 0
    });
    machine.ok(&[&flags[..], &["gateway", "stop"]].concat());
    // A requested end is a success: systemd does not start it again.
    assert!(gateway.wait().unwrap().success());
}

#[test]
fn a_line_break_in_a_path_is_refused() {
    let machine = Machine::open();
    let state = machine.root().join("two\nlines").display().to_string();
    let run = machine.run(&["--state-dir", &state, "gateway", "install", "--print"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("SERVICE_TEXT_INVALID"), "{run:#?}");
    assert_eq!(run.stdout, "");
}

#[test]
fn the_token_of_a_node_is_in_a_file_of_its_own_and_the_node_comes_in_with_it() {
    let services = Services::new();
    services.ok(&["gateway", "install", "--port", "0"]);
    let port = services.status("gateway")["port"].to_string();
    let token = services.machine.node_token();
    let token = token.as_str();
    let install = ["node", "install", "--host", "127.0.0.1", "--port", &port];
    let operator = services.machine.operator_token();
    let run = services.with(&install, &[("INTERLOCK_GATEWAY_TOKEN", &operator)]);
    run.refused(1, "TOKEN_ROLE");
    assert!(!services.machine.state().join("node.token").exists());
    let run = services.with(&install, &[("INTERLOCK_GATEWAY_TOKEN", token)]);
    assert_eq!(run.code, 0, "{run:#?}");
    let unit = fs::read_to_string(services.unit("node")).unwrap();
    for text in [&unit, &run.stdout, &run.stderr] {
        assert!(!text.contains(token), "{text}");
    }
    assert!(unit.contains("RestartPreventExitStatus=78"));
    let file = services.machine.state().join("node.token");
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), token);
    assert_eq!(mode(&file), 0o600);
    until("the node is connected", || {
        services.status("node")["standing"] == "connected"
    });
    // Without the variable the file of before is used.
    services.ok(&install);
    assert_eq!(fs::read_to_string(services.unit("node")).unwrap(), unit);
    services.ok(&["node", "stop"]);
    assert_eq!(services.status("node")["running"], false);
    services.ok(&["node", "start"]);
    until("the node is connected again", || {
        services.status("node")["standing"] == "connected"
    });
    services.ok(&["node", "uninstall"]);
    assert!(!file.exists());
    assert!(!services.unit("node").exists());
    assert_eq!(services.status("node")["running"], false);
    assert_eq!(services.status("gateway")["running"], true);
}

#[test]
fn a_node_that_would_end_at_once_is_not_installed() {
    let services = Services::new();
    let run = services.call(&["node", "install", "--host", "8.8.8.8"]);
    assert_eq!(run.code, 2, "{run:#?}");
    assert!(!services.directory().exists());
    let run = services.call(&[
        "node",
        "install",
        "--host",
        "127.0.0.1",
        "--token-file",
        "/no",
    ]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("TOKEN_FILE_UNUSABLE"), "{run:#?}");
    let run = services.call(&["node", "stop"]);
    assert!(run.stderr.contains("NODE_NOT_RUNNING"), "{run:#?}");
}

/// What was just built is no program to keep running.
#[test]
fn a_program_of_a_build_directory_is_refused() {
    let machine = Machine::open();
    machine.script("bin/systemctl", STAND_IN);
    let units = machine.root().join("units").display().to_string();
    let built = machine.root().join("output/release");
    fs::create_dir_all(&built).unwrap();
    fs::create_dir_all(machine.root().join("target/debug")).unwrap();
    // Another name of the directory does not help.
    fs::write(machine.root().join("output/.rustc_info.json"), "{}").unwrap();
    let gateway = ["gateway", "install", "--no-start", "--unit-dir", &units];
    let node = [
        "node",
        "install",
        "--host",
        "127.0.0.1",
        "--no-start",
        "--unit-dir",
        &units,
    ];
    for directory in ["output/release", "target/debug"] {
        let program = machine.root().join(directory).join("interlock");
        testkit::copy(machine.binary(), &program);
        for words in [&gateway[..], &node] {
            let mut command = machine.other_program(program.to_str().unwrap());
            let run = Run::of(&command.args(words).output().unwrap());
            assert_eq!(run.code, 1, "{run:#?}");
            assert!(
                run.stderr.contains("error[SERVICE_PROGRAM_TEMPORARY]"),
                "{run:#?}"
            );
            assert!(
                run.stderr
                    .contains("cargo install --path crates/cli --locked"),
                "{run:#?}"
            );
        }
    }
    assert!(!Path::new(&units).exists());
}

#[test]
fn root_is_told_that_commands_would_run_as_root() {
    let services = Services::new();
    let install = ["gateway", "install", "--port", "0", "--no-start"];
    let said = services.ok(&install).stderr;
    let warning = "warning: commands will run as root";
    assert_eq!(said.contains(warning), testkit::is_root(), "{said}");
    if testkit::is_root() {
        assert!(
            said.contains("interlock gateway install --run-as USER"),
            "{said}"
        );
        let said = services.ok(&[
            "gateway",
            "install",
            "--port",
            "0",
            "--no-start",
            "--run-as",
            "nobody",
        ]);
        assert!(!said.stderr.contains(warning), "{said:#?}");
        let said = services.ok(&install).stderr;
        assert!(!said.contains(warning), "{said}");
    }
}

#[test]
fn the_companion_is_installed_for_the_desktop_of_its_account() {
    let services = Services::new();
    let printed = services
        .ok(&["companion", "install", "--allow", "--print"])
        .stdout;
    assert!(
        printed.contains("WantedBy=graphical-session.target"),
        "{printed}"
    );
    assert!(printed.contains("\"companion\" \"--allow\""), "{printed}");
    assert!(!services.unit("companion").exists());
    let done = services
        .ok(&["companion", "install", "--no-start", "--json"])
        .json();
    assert_eq!(done["scope"], "user", "{done}");
    let unit = fs::read_to_string(services.unit("companion")).unwrap();
    assert!(!unit.contains("--allow"), "{unit}");
    services.ok(&["companion", "uninstall"]);
    assert!(!services.unit("companion").exists());
}

#[test]
fn the_companion_may_be_an_entry_of_autostart() {
    let services = Services::new();
    let entry = services.directory().join("interlock-companion.desktop");
    services.ok(&["companion", "install", "--autostart"]);
    let text = fs::read_to_string(&entry).unwrap();
    assert!(text.contains("\nExec=\""), "{text}");
    assert!(!services.machine.root().join("calls").exists());
    services.ok(&["companion", "uninstall"]);
    assert!(!entry.exists());
    // An entry of another program stays.
    fs::write(&entry, "[Desktop Entry]\n").unwrap();
    let refused = services.call(&["companion", "install", "--autostart"]);
    refused.refused(1, "SERVICE_FILE_FOREIGN");
    services.call(&["companion", "uninstall"]);
    assert!(entry.exists());
    let refused = services.call(&["companion", "install", "--autostart", "--no-start"]);
    refused.refused(2, "FLAG_WITHOUT_EFFECT");
}
