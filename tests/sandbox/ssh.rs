//! Sandboxes on another machine: a real sshd on the loopback stands for it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::{Machine, Run};

/// An ordinary machine, reached by ssh with the keys of this test.
struct FarMachine {
    directory: tempfile::TempDir,
    server: Child,
    port: u16,
}

const SSHD: &str = "/usr/sbin/sshd";

impl FarMachine {
    fn start() -> Option<Self> {
        if !Path::new(SSHD).exists() || !Path::new("/usr/bin/ssh").exists() {
            println!("skipped: openssh-server or openssh-client is not installed");
            return None;
        }
        // sshd wants it, and a machine without a running one has none.
        if testkit::is_root() {
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let directory = tempfile::Builder::new()
            .prefix("interlock-far-")
            .tempdir_in("/tmp")
            .unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["host", "client", "other"] {
            let made = Command::new("/usr/bin/ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(at(name))
                .status();
            assert!(made.unwrap().success());
        }
        fs::create_dir(at("scopes")).unwrap();
        fs::copy(at("client.pub"), at("authorized")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nAuthorizedKeysFile {0}/authorized\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
            directory.path().display()
        );
        fs::write(at("sshd_config"), config).unwrap();
        let server = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(at("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(at("log")).unwrap())
            .spawn()
            .unwrap();
        let far = Self {
            directory,
            server,
            port,
        };
        far.know("host");
        wait_until("sshd listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(far)
    }

    /// The client takes this key for that of the machine.
    fn know(&self, key: &str) {
        let public = fs::read_to_string(self.at(&format!("{key}.pub"))).unwrap();
        let known = format!("[127.0.0.1]:{} {public}", self.port);
        fs::write(self.at("known hosts"), known).unwrap();
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn settings(&self, more: &str) -> String {
        let at = |name: &str| self.at(name).display().to_string();
        format!(
            "mode: 'all', backend: 'ssh', {more}, ssh: {{ target: '127.0.0.1:{}', knownHostsFile: '{}', identityFile: '{}', workspaceRoot: '{}' }}",
            self.port,
            at("known hosts"),
            at("client"),
            at("scopes"),
        )
    }

    /// The only scope that lies there.
    fn scope(&self) -> PathBuf {
        let scopes = crate::site::names(&self.at("scopes"));
        assert_eq!(scopes.len(), 1, "{scopes:?}");
        self.at("scopes").join(&scopes[0])
    }
}

impl Drop for FarMachine {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct FarSite {
    machine: Machine,
    far: FarMachine,
}

impl FarSite {
    fn start(more: &str) -> Option<Self> {
        let far = FarMachine::start()?;
        let machine = Machine::new();
        machine.start();
        let site = Self { machine, far };
        site.configure(&site.far.settings(more));
        Some(site)
    }

    fn configure(&self, settings: &str) {
        let work = self.machine.work().display().to_string();
        let text = format!(
            "{{ agents: {{ defaults: {{ workspace: '{work}', sandbox: {{ {settings} }} }} }} }}"
        );
        self.machine.configure(&text);
    }

    fn inside(&self, text: &str) -> Run {
        self.machine.run(&["exec", "--timeout", "60", "--", text])
    }

    fn says(&self, text: &str) -> String {
        let run = self.inside(text);
        assert_eq!(run.code, 0, "{text}: {run:#?}");
        run.stdout
    }
}

/// Processes whose command line holds this word.
fn processes_with(word: &str) -> usize {
    let list = fs::read_dir("/proc").unwrap().flatten();
    list.filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.next() == Some(b"sleep") && words.any(|one| one == word.as_bytes())
    })
    .count()
}

#[test]
fn the_workspace_is_copied_once_and_then_the_copy_counts() {
    let Some(site) = FarSite::start("workspaceAccess: 'rw'") else {
        return;
    };
    let work = site.machine.work();
    fs::create_dir_all(work.join("a b/c")).unwrap();
    fs::write(work.join("a b/c/d'e"), "from here\n").unwrap();
    fs::write(work.join("run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(work.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", work.join("link")).unwrap();
    assert_eq!(
        site.says("cat \"a b/c/d'e\"; ./run.sh; readlink link"),
        "from here\nran\n/etc/passwd\n"
    );
    let copy = site.far.scope().join("workspace");
    assert_eq!(site.says("pwd"), format!("{}\n", copy.display()));
    // Neither side follows the other from here on.
    site.says("echo there > there; rm run.sh");
    assert!(work.join("run.sh").exists() && !work.join("there").exists());
    fs::write(work.join("later"), "").unwrap();
    assert_eq!(site.inside("cat later").code, 1);
    assert_eq!(site.says("cat there"), "there\n");
    // The working directory is named by its path here or there.
    let below = work.join("a b").display().to_string();
    let run = site
        .machine
        .run(&["exec", "--cwd", &below, "--", "pwd; ls"]);
    assert_eq!(
        run.stdout,
        format!("{}/a b\nc\n", copy.display()),
        "{run:#?}"
    );
    let run = site.machine.run(&["exec", "--cwd", "/etc", "--", "pwd"]);
    run.refused(1, "SANDBOX_UNAVAILABLE");
    // Nothing but the workspace and the marks of runs that go on is there.
    assert_eq!(
        crate::site::names(&site.far.scope()),
        [".runs", "workspace"]
    );
    assert_eq!(
        crate::site::names(&site.far.scope().join(".runs")),
        Vec::<String>::new()
    );
    let patch = site.machine.file(
        "the.patch",
        "*** Begin Patch\n*** Add File: x\n+x\n*** End Patch\n",
    );
    let run = site.machine.run(&["apply-patch", patch.to_str().unwrap()]);
    run.refused(1, "SANDBOX_UNAVAILABLE");
    assert!(!work.join("x").exists());
    let explained = site.machine.ok(&["sandbox", "explain", "--verify"]).stdout;
    assert!(explained.contains("nothing is copied back"), "{explained}");
    // Old scopes elsewhere are removed; this one may hold the only copy.
    site.machine.ok(&["sandbox", "recreate", "--all"]);
    assert_eq!(
        crate::site::names(&site.far.at("scopes")),
        Vec::<String>::new()
    );
    assert_eq!(site.says("./run.sh; ls later"), "ran\nlater\n");
}

#[test]
fn texts_variables_input_and_codes_arrive_as_they_are() {
    let Some(site) = FarSite::start("workspaceAccess: 'none'") else {
        return;
    };
    let odd = "printf '%s|' \"it's\" '\"' '$(touch x)' '`touch x`' '\\' '-oX=y' 'a\nb'; ls";
    assert_eq!(
        site.says(odd),
        "it's|\"|$(touch x)|`touch x`|\\|-oX=y|a\nb|"
    );
    let run = site.machine.run(&[
        "exec",
        "--env",
        "ODD=a 'b' $(touch x)\n-c",
        "--",
        "printf %s \"$ODD\"; ls",
    ]);
    assert_eq!(run.stdout, "a 'b' $(touch x)\n-c", "{run:#?}");
    assert_eq!(site.inside("exit 7").code, 7);
    assert_eq!(site.inside("echo out; echo err >&2").stderr.trim(), "err");
    let tty = site.machine.run(&[
        "exec",
        "--pty",
        "--json",
        "--timeout",
        "60",
        "--",
        "tty; echo $TERM",
    ]);
    assert!(
        tty.stdout.contains("/dev/pts/") && tty.stdout.contains("xterm"),
        "{tty:#?}"
    );
    let big = site.says("head -c 300000 /dev/zero | tr '\\0' x | wc -c");
    assert_eq!(big.trim(), "300000");
}

#[test]
fn a_run_ends_on_the_far_side_too() {
    let Some(site) = FarSite::start("workspaceAccess: 'none'") else {
        return;
    };
    let escape = "env -i setsid sh -c 'sleep 87651 & sleep 87651' & setsid sleep 87651 & sleep 0.2; echo out";
    assert_eq!(site.says(escape), "out\n");
    assert_eq!(processes_with("87651"), 0);
    let late = site.machine.run(&[
        "exec",
        "--timeout",
        "1",
        "--",
        "setsid sleep 87652 & sleep 87652",
    ]);
    assert_ne!(late.code, 0, "{late:#?}");
    assert_eq!(processes_with("87652"), 0);
    let begun = site.machine.run(&[
        "exec",
        "--background",
        "--json",
        "--",
        "setsid sleep 87653 & sleep 87653",
    ]);
    let session = begun.json()["sessionId"].as_str().map(str::to_owned);
    let session = session.unwrap_or_else(|| panic!("{begun:#?}"));
    wait_until("it runs", || processes_with("87653") == 2);
    let killed = site.machine.run(&["process", "kill", &session]);
    assert_eq!(killed.code, 0, "{killed:#?}");
    wait_until("it is gone", || processes_with("87653") == 0);
    wait_until("its mark is gone", || {
        crate::site::names(&site.far.scope().join(".runs")).is_empty()
    });
}

#[test]
fn a_key_that_is_not_known_is_refused() {
    let Some(site) = FarSite::start("workspaceAccess: 'none'") else {
        return;
    };
    site.far.know("other");
    let run = site.inside("touch /tmp/never-here");
    run.refused(1, "SANDBOX_UNAVAILABLE");
    assert!(run.stderr.contains("known hosts"), "{run:#?}");
    fs::write(site.far.at("known hosts"), "").unwrap();
    site.inside("true").refused(1, "SANDBOX_UNAVAILABLE");
    assert_eq!(
        crate::site::names(&site.far.at("scopes")),
        Vec::<String>::new()
    );
    // The client's own config of the account has no say.
    assert_eq!(fs::read_to_string(site.far.at("known hosts")).unwrap(), "");
    let target =
        |target: &str| format!("mode: 'all', backend: 'ssh', ssh: {{ target: '{target}' }}");
    let trace = site.machine.root().join("trace");
    for odd in [
        format!("-oProxyCommand=touch {}", trace.display()),
        format!("x@-oProxyCommand=touch {}", trace.display()),
        "a b".to_owned(),
        "a;b".to_owned(),
    ] {
        site.configure(&target(&odd));
        let run = site.inside("true");
        run.refused(1, "SANDBOX_UNAVAILABLE");
        assert!(run.stderr.contains("ssh.target"), "{odd}: {run:#?}");
    }
    assert!(!trace.exists());
    let given = |more: &str| site.far.settings(more);
    for (settings, key) in [
        (given("workspaceAccess: 'cow'"), "workspaceAccess"),
        (given("workspaceAccess: 'ro'"), "workspaceAccess"),
        (given("view: 'host'"), "view"),
        (given("tree: 'enforce'"), "tree"),
        (given("binds: ['/opt:/opt']"), "binds"),
        (given("limits: { memory: '1g' }"), "limits"),
        (given("network: { allow: ['a.example:443'] }"), "network"),
    ] {
        site.configure(&settings);
        let run = site.inside("true");
        run.refused(1, "SANDBOX_UNAVAILABLE");
        assert!(run.stderr.contains(key), "{key}: {run:#?}");
    }
    site.configure(
        "mode: 'all', backend: 'ssh', ssh: { target: 'a', strictHostKeyChecking: false }",
    );
    let run = site.inside("true");
    run.refused(1, "SANDBOX_UNAVAILABLE");
    assert!(run.stderr.contains("strictHostKeyChecking"), "{run:#?}");
}
