//! `tools.exec.runAs`: the state belongs to root, and commands run as another user of the machine.
//! Only root can do that; for others it is refused, which is tested too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{Machine, Run};

const NOBODY: u32 = 65_534;

/// A machine of root whose commands run as `nobody`, and may be anything.
fn machine() -> Option<Machine> {
    if !testkit::is_root() {
        println!("skipped: only root can start commands as another user");
        return None;
    }
    let machine = Machine::open();
    fs::set_permissions(machine.root(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(machine.work(), fs::Permissions::from_mode(0o777)).unwrap();
    machine.ok(&["config", "set", "tools.exec.runAs", "nobody"]);
    Some(machine)
}

#[track_caller]
fn printed(run: &Run) -> &str {
    assert_eq!(run.code, 0, "{run:#?}");
    run.stdout.trim_end()
}

/// A directory that only root can enter, with one file.
fn closed(machine: &Machine) -> PathBuf {
    let directory = machine.root().join("closed");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("hidden-name"), "hidden text\n").unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    directory
}

#[test]
fn a_command_has_the_user_the_groups_and_the_environment_of_the_account() {
    let Some(machine) = machine() else { return };
    assert_eq!(printed(&machine.exec("/usr/bin/id -u")), "65534");
    assert_eq!(printed(&machine.exec("/usr/bin/id -ru")), "65534");
    assert_eq!(printed(&machine.exec("/usr/bin/id -G")), "65534");
    let environment = machine.exec("/usr/bin/env");
    for line in ["USER=nobody", "LOGNAME=nobody"] {
        assert!(
            printed(&environment).lines().any(|other| other == line),
            "{environment:#?}"
        );
    }
    let home = format!("HOME={}", machine.root().join("home").display());
    assert!(!environment.stdout.contains(&home), "{environment:#?}");
    // Every command of a line, by pipes and by a shell.
    let line = machine.exec("/usr/bin/id -u | /usr/bin/cat && /usr/bin/id -u");
    assert_eq!(printed(&line), "65534\n65534");
    // A program cannot get root back.
    let saved = machine.exec("/usr/bin/grep -E ^[UG]id: /proc/self/status");
    assert!(!saved.stdout.contains("\t0"), "{saved:#?}");
    let capabilities = machine.exec("/usr/bin/grep CapEff /proc/self/status");
    assert!(
        capabilities.stdout.ends_with("0000000000000000\n"),
        "{capabilities:#?}"
    );
}

#[test]
fn a_command_reaches_neither_the_state_nor_other_files_of_root() {
    let Some(machine) = machine() else { return };
    let state = machine.state();
    for path in [
        state.join("interlock.json"),
        closed(&machine).join("hidden-name"),
    ] {
        let read = machine.exec(&format!("/usr/bin/cat {}", path.display()));
        assert_eq!(read.code, 1, "{read:#?}");
    }
    let list = machine.exec(&format!("/usr/bin/ls {}", state.display()));
    assert_eq!(list.stdout, "", "{list:#?}");
}

#[test]
fn nothing_that_the_account_cannot_see_is_looked_at_for_its_commands() {
    let Some(machine) = machine() else { return };
    let closed = closed(&machine);
    // A glob that root expanded would tell the names of the directory.
    let glob = machine.exec(&format!("/usr/bin/echo {}/*", closed.display()));
    assert!(!glob.stdout.contains("hidden-name"), "{glob:#?}");
    assert!(!glob.stderr.contains("hidden-name"), "{glob:#?}");
    let cwd = machine.run(&[
        "exec",
        "--no-wait",
        "--cwd",
        closed.to_str().unwrap(),
        "--",
        "/usr/bin/pwd",
    ]);
    assert_ne!(cwd.code, 0, "{cwd:#?}");
    let moved = machine.exec(&format!("cd {} && /usr/bin/ls", closed.display()));
    assert!(
        moved.code != 0 && !moved.stdout.contains("hidden-name"),
        "{moved:#?}"
    );
    let test = machine.exec(&format!("test -e {}/hidden-name", closed.display()));
    assert_eq!(test.code, 1, "{test:#?}");
    // A program that only root can reach does not exist for it.
    let tool = closed.join("tool");
    testkit::copy("/usr/bin/true", &tool);
    let run = machine.exec(&tool.display().to_string());
    assert_ne!(run.code, 0, "{run:#?}");
}

#[test]
fn output_can_be_opened_again_and_files_belong_to_the_account() {
    let Some(machine) = machine() else { return };
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let again = machine.exec("echo one > /dev/stdout; echo two > /dev/stderr");
    assert_eq!((printed(&again), again.stderr.as_str()), ("one", "two\n"));
    printed(&machine.exec("echo made > made"));
    let made = fs::metadata(machine.work().join("made")).unwrap();
    assert_eq!(made.uid(), NOBODY);
    let terminal = machine.run(&[
        "exec",
        "--pty",
        "--no-wait",
        "--",
        "/usr/bin/stat -c %u $(tty)",
    ]);
    assert_eq!(printed(&terminal), "65534");
}

#[test]
fn no_patch_is_applied_with_the_rights_of_the_service() {
    let Some(machine) = machine() else { return };
    let patch = "*** Begin Patch\n*** Add File: added.txt\n+text\n*** End Patch\n";
    let file = machine.file("changes.patch", patch);
    let refused = machine.run(&["apply-patch", file.to_str().unwrap()]);
    refused.refused(3, "TOOL_DENIED");
    assert!(!machine.work().join("added.txt").exists());
}

#[test]
fn an_approval_is_for_the_user_that_it_was_shown_for() {
    let Some(machine) = machine() else { return };
    machine.ok(&["config", "set", "tools.exec.ask", "always"]);
    let pending = machine.run(&["exec", "--no-wait", "--json", "--", "/usr/bin/id -u"]);
    let id = pending.json()["approvalId"].as_str().unwrap().to_owned();
    machine.ok(&["approvals", "approve", &id]);
    machine.ok(&["config", "unset", "tools.exec.runAs"]);
    let other = machine.run(&["exec", "--approval", &id, "--", "/usr/bin/id -u"]);
    other.refused(1, "APPROVAL_REQUEST_MISMATCH");
    machine.ok(&["config", "set", "tools.exec.runAs", "nobody"]);
    let same = machine.run(&["exec", "--approval", &id, "--", "/usr/bin/id -u"]);
    assert_eq!(printed(&same), "65534");
}

#[test]
fn users_that_commands_cannot_run_as_are_refused() {
    if testkit::is_root() {
        let machine = Machine::open();
        for user in ["root", "no-such-user"] {
            machine.ok(&["config", "set", "tools.exec.runAs", user]);
            machine
                .exec("/usr/bin/id -u")
                .refused(1, "RUN_AS_UNAVAILABLE");
        }
    }
    let ordinary = if testkit::is_root() {
        Machine::of_ordinary_user()
    } else {
        Some(Machine::new())
    };
    let Some(machine) = ordinary else { return };
    machine.allow_every_program();
    machine.ok(&["config", "set", "tools.exec.runAs", "daemon"]);
    machine
        .exec("/usr/bin/id -u")
        .refused(1, "RUN_AS_UNAVAILABLE");
}

#[test]
fn the_service_is_installed_with_the_user_in_its_config() {
    if !testkit::is_root() {
        println!("skipped: only root can install such a service");
        return;
    }
    let machine = Machine::open().with_own_binary();
    let units = machine.root().join("units");
    let install = |user: &str| {
        let units = units.display().to_string();
        let words = [
            "gateway",
            "install",
            "--no-start",
            "--run-as",
            user,
            "--unit-dir",
            &units,
        ];
        machine.run(&words)
    };
    let refused = install("no-such-user");
    refused.refused(1, "RUN_AS_UNAVAILABLE");
    machine.script("bin/systemctl", "#!/bin/sh\nexit 0\n");
    let installed = install("nobody");
    assert_eq!(installed.code, 0, "{installed:#?}");
    let set = machine.ok(&["config", "get", "tools.exec.runAs"]);
    assert_eq!(set.stdout, "nobody\n");
    let unit = fs::read_to_string(units.join("interlock-gateway.service")).unwrap();
    assert!(unit.contains("\"gateway\" \"run\""), "{unit}");
}

/// A user of the machine, made for one test.
struct Account(String);

impl Account {
    /// `None`, with the reason printed, where a program is missing.
    fn create() -> Option<Self> {
        let tools = [
            "/usr/sbin/useradd",
            "/usr/bin/sudo",
            "/usr/sbin/sshd",
            "/usr/bin/ssh",
        ];
        if let Some(missing) = tools.iter().find(|tool| !Path::new(tool).exists()) {
            println!("skipped: {missing} is not installed");
            return None;
        }
        let name = format!("ilk{}", std::process::id());
        let made = Command::new("/usr/sbin/useradd")
            // No password, and not locked either: a locked account cannot log in with a key.
            .args([
                "--create-home",
                "--shell",
                "/bin/bash",
                "--password",
                "*",
                &name,
            ])
            .status()
            .unwrap();
        assert!(made.success());
        Some(Self(name))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = Command::new("/usr/sbin/userdel")
            .args(["--remove", &self.0])
            .stderr(Stdio::null())
            .status();
        let _ = fs::remove_file(format!("/etc/sudoers.d/{}", self.0));
    }
}

/// What needs real user ids: these do not work in a user namespace, and work here.
#[test]
fn sudo_and_ssh_work_for_a_real_account() {
    let Some(machine) = machine() else { return };
    let Some(account) = Account::create() else {
        return;
    };
    let Account(name) = &account;
    machine.ok(&["config", "set", "tools.exec.runAs", name]);
    assert_eq!(printed(&machine.exec("/usr/bin/id -un")), name.as_str());

    let rule = format!("/etc/sudoers.d/{name}");
    fs::write(&rule, format!("{name} ALL=(ALL) NOPASSWD: ALL\n")).unwrap();
    fs::set_permissions(&rule, fs::Permissions::from_mode(0o440)).unwrap();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    assert_eq!(
        printed(&machine.exec("/usr/bin/sudo -n /usr/bin/id -un")),
        "root"
    );

    let server = Sshd::start(&machine, name);
    let text = format!(
        "/usr/bin/ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -p {} {name}@127.0.0.1 /usr/bin/id -un 2>/dev/null",
        server.port
    );
    assert_eq!(printed(&machine.exec(&text)), name.as_str());
}

/// A server for one user, on a port of its own.
struct Sshd {
    child: std::process::Child,
    port: u16,
}

impl Sshd {
    fn start(machine: &Machine, user: &str) -> Self {
        let directory = machine.root().join("sshd");
        fs::create_dir(&directory).unwrap();
        let keygen = |path: &Path| {
            let made = Command::new("/usr/bin/ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path)
                .status();
            assert!(made.unwrap().success());
        };
        keygen(&directory.join("host"));
        let home = PathBuf::from(format!("/home/{user}"));
        let own = home.join(".ssh");
        fs::create_dir_all(&own).unwrap();
        keygen(&own.join("id_ed25519"));
        fs::copy(own.join("id_ed25519.pub"), own.join("authorized_keys")).unwrap();
        let ids = fs::metadata(&home).unwrap();
        for path in [
            own.clone(),
            own.join("id_ed25519"),
            own.join("authorized_keys"),
        ] {
            std::os::unix::fs::chown(&path, Some(ids.uid()), Some(ids.gid())).unwrap();
        }
        fs::create_dir_all("/run/sshd").unwrap();
        // A free port: taken by the server a moment later, and tried until it answers.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let config = directory.join("config");
        let text = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nUsePAM no\nStrictModes no\nPidFile none\n",
            directory.join("host").display()
        );
        fs::write(&config, text).unwrap();
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        testkit::eventually("the ssh server answers", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { child, port }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
