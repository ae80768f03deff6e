//! Where the PATH of commands comes from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use interlock_host::{LocalHost, LoginShell, OpenOptions, PathSource};
use interlock_policy::AgentId;
use tempfile::TempDir;

struct World {
    scratch: TempDir,
}

impl World {
    /// The profile counts how often it is read.
    fn new(profile: &str) -> Self {
        let scratch = TempDir::new().unwrap();
        let home = scratch.path().join("home");
        fs::create_dir(&home).unwrap();
        fs::write(
            home.join(".profile"),
            format!("echo x >> \"$HOME/count\"\n{profile}\n"),
        )
        .unwrap();
        Self { scratch }
    }

    fn home(&self) -> PathBuf {
        self.scratch.path().join("home")
    }

    fn open(&self, path: &str, path_source: PathSource) -> LocalHost {
        let state = self.scratch.path().join("state");
        let config = self.scratch.path().join("interlock.json");
        fs::write(
            &config,
            "{ tools: { exec: { pathPrepend: ['~/bin', '/usr/bin'] } } }",
        )
        .unwrap();
        let options = OpenOptions {
            state_dir: Some(state),
            config: Some(config),
            path: Some(path.to_owned()),
            path_source,
            home: Some(self.home().to_str().unwrap().to_owned()),
            ..OpenOptions::default()
        };
        LocalHost::open(options).unwrap().0
    }

    fn times_read(&self) -> usize {
        let count = fs::read_to_string(self.home().join("count"));
        count.map_or(0, |text| text.lines().count())
    }
}

/// `/bin/sh` is asked, if this system says that it is a shell to log in with.
fn sh() -> Option<PathSource> {
    let sh = Path::new("/bin/sh");
    let asked = LoginShell::of_user(Some(sh), None).map(|shell| shell.program);
    if asked.as_deref() != Ok(sh) {
        println!("/bin/sh is not listed in /etc/shells: skipped");
        return None;
    }
    Some(PathSource::LoginShell {
        shell: Some(sh.to_owned()),
    })
}

fn path_of(host: &interlock_host::LocalHost, agent: &AgentId) -> String {
    let scope = host.scope(agent).unwrap();
    scope.path(&interlock_host::NO_CALLER_CONTEXT)
}

#[test]
fn a_service_merges_the_login_shells_path_and_reads_it_once_when_first_needed() {
    let Some(source) = sh() else { return };
    let world = World::new("PATH=/opt/login:/usr/bin:.:/opt/more");
    let host = world.open("/bin:/opt/login:/usr/bin:rel", source);
    assert_eq!(world.times_read(), 0, "not on the way to readiness");
    let expected = format!(
        "{}/bin:/usr/bin:/opt/login:/opt/more:/bin",
        world.home().display()
    );
    let agent = AgentId::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(path_of(&host, &agent), expected);
            });
        }
    });
    assert_eq!(world.times_read(), 1);
    assert!(host.login_path().unwrap().is_ok());
}

#[test]
fn a_profile_that_fails_leaves_the_services_own_path_and_a_reason() {
    let Some(source) = sh() else { return };
    let world = World::new("PATH=/opt/login; export PATH; exit 7");
    let host = world.open("/usr/sbin::/bin:.", source);
    let expected = format!("{}/bin:/usr/bin:/usr/sbin:/bin", world.home().display());
    for _ in 0..2 {
        assert_eq!(path_of(&host, &AgentId::default()), expected);
    }
    assert_eq!(world.times_read(), 1, "a failure is not tried again");
    let reason = host.login_path().unwrap().as_ref().unwrap_err();
    assert_eq!(
        reason.to_string(),
        "/bin/sh ended with exit code 7 before it printed its PATH"
    );
}

#[test]
fn where_a_person_started_it_no_shell_is_asked() {
    let world = World::new("PATH=/opt/login");
    let host = world.open("/bin:/x", PathSource::Process);
    let path = path_of(&host, &AgentId::default());
    let expected = format!("{}/bin:/usr/bin:/bin:/x", world.home().display());
    assert_eq!(path, expected);
    assert_eq!(host.login_path(), None);
    assert_eq!(world.times_read(), 0);
}
