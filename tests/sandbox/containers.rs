//! Containers of real engines: Docker Engine and Podman, as `tests/containers/run.sh` starts them. The image
//! is a busybox and nothing else.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{Machine, Run};

use crate::site::USUAL;

/// An engine that the script has started.
struct TestEngine {
    name: &'static str,
    variable: (&'static str, String),
}

impl TestEngine {
    fn started() -> Vec<Self> {
        let known = [
            ("docker", "INTERLOCK_TEST_DOCKER_HOST", "DOCKER_HOST"),
            (
                "podman",
                "INTERLOCK_TEST_CONTAINERS_CONF",
                "CONTAINERS_CONF",
            ),
        ];
        let started: Vec<Self> = known
            .into_iter()
            .filter_map(|(name, told, variable)| {
                let variable = (variable, std::env::var(told).ok()?);
                Some(Self { name, variable })
            })
            .collect();
        if started.is_empty() {
            println!("skipped: no container engine; run tests/run-heavy containers");
        }
        started
    }

    fn run(&self, words: &[&str]) -> Run {
        let mut command = Command::new(self.name);
        command.args(words).env(self.variable.0, &self.variable.1);
        testkit::finish(&mut command)
    }

    fn says(&self, words: &[&str]) -> String {
        let run = self.run(words);
        assert_eq!(run.code, 0, "{words:?}: {run:#?}");
        run.stdout.trim().to_owned()
    }
}

/// A machine whose runs see the image of an engine.
struct ContainerSite {
    machine: Machine,
    engine: TestEngine,
}

impl ContainerSite {
    fn new(engine: TestEngine, settings: &str) -> Self {
        let site = Self {
            machine: Machine::new(),
            engine,
        };
        site.machine.start();
        site.configure(settings);
        site
    }

    fn configure(&self, settings: &str) {
        let backend = self.engine.name;
        self.machine.configure(&format!(
            "{{ agents: {{ defaults: {{ sandbox: {{ backend: '{backend}', {settings} }} }} }} }}"
        ));
    }

    fn interlock(&self, words: &[&str]) -> Run {
        let mut command = self.machine.command(words);
        let (name, value) = &self.engine.variable;
        testkit::finish(command.env(name, value))
    }

    fn inside(&self, text: &str) -> Run {
        self.interlock(&["exec", "--timeout", "60", "--", text])
    }

    fn says(&self, text: &str) -> String {
        let run = self.inside(text);
        assert_eq!(run.code, 0, "{text}: {run:#?}");
        run.stdout
    }

    fn scopes(&self) -> String {
        self.machine.state().join("sandboxes").display().to_string()
    }

    /// The containers of this machine, by name.
    fn containers(&self) -> Vec<String> {
        let label = match self.engine.name {
            "podman" => "{{.Names}} {{index .Labels \"interlock.directory\"}}",
            _ => "{{.Names}} {{.Label \"interlock.directory\"}}",
        };
        let filter = "label=interlock.directory";
        let listed = self
            .engine
            .says(&["ps", "-a", "--filter", filter, "--format", label]);
        let own = self.scopes();
        let mut names: Vec<String> = listed
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(_, directory)| directory.starts_with(&own))
            .map(|(name, _)| name.to_owned())
            .collect();
        names.sort();
        names
    }

    fn container(&self) -> String {
        let names = self.containers();
        assert_eq!(names.len(), 1, "{names:?}");
        names[0].clone()
    }
}

impl Drop for ContainerSite {
    fn drop(&mut self) {
        let _ = self.interlock(&["sandbox", "recreate", "--all"]);
    }
}

const IMAGE: &str = "docker: { image: 'interlock-tiny:1' }";

fn on_each(settings: &str, test: impl Fn(&ContainerSite)) {
    for engine in TestEngine::started() {
        test(&ContainerSite::new(engine, settings));
    }
}

/// Processes of the machine whose command line holds this word.
fn processes_with(word: &str) -> usize {
    let list = fs::read_dir("/proc").unwrap().flatten();
    list.filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|one| one == word.as_bytes())
    })
    .count()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_run_sees_the_image_the_workspace_and_nothing_else() {
    on_each(&format!("{USUAL}, {IMAGE}"), |site| {
        assert_eq!(site.says("cat /etc/os-release"), "ID=tiny\n");
        let work = site.machine.work();
        let work = work.to_str().unwrap();
        assert_eq!(
            site.says("pwd; echo made > made; cat /workspace/made"),
            format!("{work}\nmade\n")
        );
        assert_eq!(
            fs::read_to_string(site.machine.work().join("made")).unwrap(),
            "made\n"
        );
        let state = site.machine.state();
        assert!(
            !site
                .inside(&format!("ls {}", state.display()))
                .stdout
                .contains("interlock.json")
        );
        assert_eq!(
            site.says(
                "grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; grep -c : /proc/net/dev"
            ),
            "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n1\n"
        );
        for place in ["/etc/x", "/bin/x", "/usr/x", "/x"] {
            assert_ne!(site.inside(&format!("touch {place}")).code, 0, "{place}");
        }
        assert_ne!(site.says("id -u").trim(), "0");
        // All of them were in one container.
        let name = site.container();
        let inspected = site.engine.says(&["inspect", &name]);
        let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
        let host = &inspected[0]["HostConfig"];
        assert_eq!(host["ReadonlyRootfs"], true);
        assert_eq!(host["Privileged"], false);
        assert_eq!(host["NetworkMode"], "none");
        assert_eq!(host["Init"], true);
        assert!(
            host["SecurityOpt"]
                .to_string()
                .contains("no-new-privileges")
        );
        assert_ne!(inspected[0]["Config"]["User"], "0:0");
        // Patch and exec have one map of paths.
        let patch = "*** Begin Patch\n*** Add File: patched\n+by a patch\n*** End Patch\n";
        let file = site.machine.file("the.patch", patch);
        let applied = site.interlock(&["apply-patch", file.to_str().unwrap()]);
        assert_eq!(applied.code, 0, "{applied:#?}");
        assert_eq!(
            site.says("cat patched /workspace/patched"),
            "by a patch\nby a patch\n"
        );
        let listed = site.interlock(&["sandbox", "list"]).stdout;
        assert!(listed.contains(&name), "{listed}");
        let explained = site
            .interlock(&["sandbox", "explain", "--verify", "--json"])
            .json();
        assert_eq!(explained["verified"]["holds"], true, "{explained:#}");
        assert_eq!(explained["sandbox"]["container"]["name"], name.as_str());
    });
}

#[test]
fn nothing_of_a_run_is_left_in_its_container() {
    on_each(&format!("{USUAL}, {IMAGE}"), |site| {
        let escape = "env -i setsid sh -c 'sleep 98761 & sleep 98761' & setsid sleep 98761 & sleep 0.2; echo out";
        assert_eq!(site.says(escape), "out\n");
        wait_until("the tree is gone", || processes_with("98761") == 0);
        let late = site.interlock(&[
            "exec",
            "--timeout",
            "1",
            "--",
            "env -i setsid sleep 98762 & sleep 98762",
        ]);
        assert_ne!(late.code, 0, "{late:#?}");
        wait_until("the tree is gone", || processes_with("98762") == 0);
        let begun = site.interlock(&[
            "exec",
            "--background",
            "--json",
            "--",
            "setsid sleep 98763 & sleep 98763",
        ]);
        let session = begun.json()["sessionId"].as_str().map(str::to_owned);
        let session = session.unwrap_or_else(|| panic!("{begun:#?}"));
        wait_until("it runs", || processes_with("98763") == 2);
        let killed = site.interlock(&["process", "kill", &session]);
        assert_eq!(killed.code, 0, "{killed:#?}");
        wait_until("the tree is gone", || processes_with("98763") == 0);
        // The container itself stays warm.
        site.container();
    });
}

#[test]
fn a_container_that_vanished_is_an_error_once() {
    on_each(&format!("{USUAL}, {IMAGE}"), |site| {
        site.says("true");
        let name = site.container();
        let begun = site.interlock(&["exec", "--background", "--json", "--", "sleep 98764"]);
        assert_eq!(begun.code, 0, "{begun:#?}");
        wait_until("it runs", || processes_with("98764") == 1);
        site.engine.says(&["rm", "-f", &name]);
        // The run ends with the container, and is not left on the host.
        wait_until("it ended", || processes_with("98764") == 0);
        let run = site.inside("touch trace");
        run.refused(1, "SANDBOX_UNAVAILABLE");
        assert!(run.stderr.contains("vanished"), "{run:#?}");
        assert!(!site.machine.work().join("trace").exists());
        site.says("touch trace");
        assert_eq!(site.container(), name);
    });
}

#[test]
fn a_name_of_an_image_that_means_another_image_is_another_container() {
    on_each(
        &format!("{USUAL}, docker: {{ image: 'interlock-moving:1' }}"),
        |site| {
            let tag = |from: &str| site.engine.says(&["tag", from, "interlock-moving:1"]);
            tag("interlock-tiny:1");
            assert_eq!(site.says("cat /etc/os-release"), "ID=tiny\n");
            tag("interlock-other:1");
            assert_eq!(site.says("cat /etc/os-release"), "ID=other\n");
            assert_eq!(site.containers().len(), 2);
            let removed = site.interlock(&["sandbox", "recreate", "--all"]);
            assert_eq!(removed.code, 0, "{removed:#?}");
            assert_eq!(site.containers(), Vec::<String>::new());
        },
    );
}

#[test]
fn a_container_of_another_owner_is_never_touched() {
    on_each(&format!("{USUAL}, {IMAGE}"), |site| {
        site.says("true");
        let name = site.container();
        assert_eq!(site.interlock(&["sandbox", "recreate", "--all"]).code, 0);
        site.engine.says(&[
            "create",
            "--network",
            "none",
            "--name",
            &name,
            "interlock-tiny:1",
            "/bin/sh",
        ]);
        let run = site.inside("touch trace");
        run.refused(1, "SANDBOX_UNAVAILABLE");
        assert!(run.stderr.contains("not Interlock's"), "{run:#?}");
        assert!(!site.machine.work().join("trace").exists());
        assert_eq!(site.interlock(&["sandbox", "recreate", "--all"]).code, 0);
        site.engine.says(&["inspect", &name]);
        site.engine.says(&["rm", "-f", &name]);
    });
}

#[test]
fn the_setup_command_makes_a_container_or_removes_it() {
    let settings = |text: &str| {
        format!(
            "{USUAL}, docker: {{ image: 'interlock-tiny:1', setupCommand: '{text}', env: {{ COLOR: 'a b' }} }}"
        )
    };
    on_each(&settings("echo \"$COLOR\" > ~/made; cat ~/made"), |site| {
        assert_eq!(site.says("cat ~/made; echo \"$COLOR\""), "a b\na b\n");
        site.configure(&settings("echo because >&2; exit 7"));
        let before = site.containers();
        let run = site.inside("touch trace");
        run.refused(1, "SANDBOX_UNAVAILABLE");
        assert!(
            run.stderr.contains("exit code 7") && run.stderr.contains("because"),
            "{run:#?}"
        );
        assert!(!site.machine.work().join("trace").exists());
        assert_eq!(site.containers(), before);
    });
}

#[test]
fn without_its_engine_or_image_nothing_runs() {
    on_each(
        &format!("{USUAL}, docker: {{ image: 'interlock-absent:1' }}"),
        |site| {
            let run = site.inside("touch trace");
            run.refused(1, "SANDBOX_UNAVAILABLE");
            let pull = format!("{} pull interlock-absent:1", site.engine.name);
            assert!(run.stderr.contains(&pull), "{run:#?}");
            for (settings, key) in [
                ("mode: 'all'", "docker.image"),
                (
                    "mode: 'all', docker: { image: '--privileged' }",
                    "docker.image",
                ),
                (
                    "mode: 'all', view: 'host', docker: { image: 'interlock-tiny:1' }",
                    "view",
                ),
                (
                    "mode: 'all', tree: 'enforce', docker: { image: 'interlock-tiny:1' }",
                    "tree",
                ),
                (
                    "mode: 'all', docker: { image: 'interlock-tiny:1', readOnlyRoot: false }",
                    "docker.readOnlyRoot",
                ),
                (
                    "mode: 'all', docker: { image: 'interlock-tiny:1', network: 'host' }",
                    "docker.network",
                ),
                (
                    "mode: 'all', docker: { image: 'interlock-tiny:1', user: '0:0' }",
                    "docker.user",
                ),
                (
                    "mode: 'all', docker: { image: 'interlock-tiny:1', seccompProfile: 'unconfined' }",
                    "docker.seccompProfile",
                ),
            ] {
                site.configure(settings);
                let run = site.inside("touch trace");
                run.refused(1, "SANDBOX_UNAVAILABLE");
                assert!(run.stderr.contains(key), "{settings}: {run:#?}");
            }
            assert!(!site.machine.work().join("trace").exists());
            assert_eq!(site.containers(), Vec::<String>::new());
        },
    );
    let machine = Machine::new();
    machine.start();
    machine.configure("{ agents: { defaults: { sandbox: { mode: 'all', backend: 'docker', docker: { image: 'a' } } } } }");
    let mut command = machine.command(&["exec", "--", "touch trace"]);
    let run = testkit::finish(command.env("DOCKER_HOST", "unix:///nowhere/docker.sock"));
    run.refused(1, "SANDBOX_UNAVAILABLE");
    assert!(run.stderr.contains("/nowhere/docker.sock"), "{run:#?}");
    assert!(!machine.work().join("trace").exists());
}

#[test]
fn limits_terminals_and_scratch_workspaces_are_those_of_every_sandbox() {
    on_each(
        &format!("mode: 'all', {IMAGE}, limits: {{ outputBytes: '1k' }}"),
        |site| {
            let run = site.interlock(&["exec", "--json", "--timeout", "60", "--", "yes"]);
            assert_eq!(run.json()["limit"]["limit"], "output", "{run:#?}");
            assert_eq!(site.says("pwd; echo kept > kept"), "/workspace\n");
            assert_eq!(site.says("cat kept"), "kept\n");
            assert!(!site.machine.work().join("kept").exists());
            let tty = site.interlock(&["exec", "--pty", "--json", "--timeout", "60", "--", "tty"]);
            assert!(tty.stdout.contains("/dev/pts/"), "{tty:#?}");
        },
    );
}
