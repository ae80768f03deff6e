#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use tempfile::TempDir;

use super::*;

/// A home with a profile, and a shell that reads it. The limits are short so that hostile profiles
/// do not take long; no test depends on the exact time.
struct Home {
    home: TempDir,
    shell: &'static str,
}

impl Home {
    fn with(shell: &'static str, profile: &str) -> Self {
        let home = TempDir::new().unwrap();
        let name = match Path::new(shell).file_name().unwrap().to_str().unwrap() {
            "zsh" => ".zprofile",
            "fish" => ".config/fish/config.fish",
            _ => ".profile",
        };
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, profile).unwrap();
        Self { home, shell }
    }

    fn read_within(&self, limit: Duration) -> Result<Vec<String>, LoginPathError> {
        let shell = LoginShell {
            program: PathBuf::from(self.shell),
            user: Some("someuser".to_owned()),
            home: Some(self.home.path().to_str().unwrap().to_owned()),
            runs_as: None,
            limit,
        };
        shell.read()
    }

    /// Reads the PATH with enough time for any machine.
    fn read(&self) -> Result<Vec<String>, LoginPathError> {
        self.read_within(Duration::from_mins(1))
    }

    /// The error text, which must name the shell.
    fn refusal_within(&self, limit: Duration) -> String {
        let error = self.read_within(limit).unwrap_err().to_string();
        assert!(error.contains(self.shell), "{error}");
        error
    }

    fn refusal(&self) -> String {
        self.refusal_within(Duration::from_mins(1))
    }

    /// Asserts that the process whose id the profile wrote to `file` has ended.
    #[track_caller]
    fn assert_gone(&self, file: &str) {
        let path = self.home.path().join(file);
        let pid = fs::read_to_string(path).expect("the profile came this far");
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let state = format!("/proc/{}/stat", pid.trim());
            let state = fs::read_to_string(state).unwrap_or_default();
            // A zombie waits to be reaped by the process that adopted it.
            if state.is_empty() || state.rsplit(')').next().unwrap().starts_with(" Z") {
                return;
            }
            assert!(Instant::now() < until, "{state}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn shells() -> Vec<&'static str> {
    let known = [
        "/bin/sh",
        "/bin/bash",
        "/bin/dash",
        "/usr/bin/zsh",
        "/usr/bin/fish",
        "/usr/bin/ksh",
    ];
    let mut there: Vec<&str> = Vec::new();
    for shell in known {
        if Path::new(shell).exists() {
            there.push(shell);
        } else {
            println!("{shell} is not installed: skipped");
        }
    }
    there
}

const SHORT: Duration = Duration::from_millis(400);

#[test]
fn every_shell_reports_the_path_of_its_profile_despite_other_output() {
    for shell in shells() {
        let profile = if shell.ends_with("fish") {
            "echo welcome; set -gx PATH /opt/tools /opt/more /opt/tools relative ''\n"
        } else {
            "echo welcome; env; echo oops >&2; printf() { echo mine; }\nPATH=/opt/tools:/opt/more::.:bin:/opt/tools\nexport PATH\n"
        };
        let home = Home::with(shell, profile);
        let path = home
            .read()
            .unwrap_or_else(|error| panic!("{shell}: {error}"));
        assert_eq!(path[..2], ["/opt/tools", "/opt/more"], "{shell}: {path:?}");
        assert!(path.iter().all(|entry| entry.starts_with('/')), "{path:?}");
        assert_eq!(
            path.iter().filter(|entry| *entry == "/opt/tools").count(),
            1
        );
    }
}

#[test]
fn the_shell_finds_a_small_environment_no_input_and_the_root_directory() {
    let home = Home::with(
        "/bin/sh",
        "env > \"$HOME/env\"; cat > \"$HOME/input\"; pwd > \"$HOME/cwd\"\n",
    );
    home.read().unwrap();
    let read = |name| fs::read_to_string(home.home.path().join(name)).unwrap();
    let names: BTreeSet<String> = read("env")
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
        .filter(|name| !["_", "PWD", "OLDPWD", "SHLVL"].contains(&name.as_str()))
        .collect();
    let expected = [
        "HOME",
        "INTERLOCK_LOGIN_PATH",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
    ];
    // The system's own profile may add more.
    assert!(
        expected.iter().all(|name| names.contains(*name)),
        "{names:?}"
    );
    assert!(!names.contains("CARGO_MANIFEST_DIR"), "{names:?}");
    assert_eq!(read("input"), "");
    assert_eq!(read("cwd"), "/\n");
}

#[test]
fn a_profile_that_never_ends_is_ended_with_all_it_started() {
    let home = Home::with(
        "/bin/sh",
        "trap '' TERM HUP INT\nsleep 1000 & echo $! > \"$HOME/child\"\necho $$ > \"$HOME/shell\"\nwhile :; do sleep 1000; done\n",
    );
    let reason = home.refusal_within(Duration::from_secs(3));
    assert!(reason.contains("took longer than 3 seconds"), "{reason}");
    home.assert_gone("child");
    home.assert_gone("shell");
}

#[test]
fn a_daemon_that_holds_the_output_neither_delays_the_answer_nor_stays() {
    for detach in ["", "setsid "] {
        if !detach.is_empty() && !Path::new("/usr/bin/setsid").exists() {
            println!("setsid is not installed: skipped");
            continue;
        }
        let profile = format!(
            "({detach}sh -c 'echo $$ > \"$HOME/daemon\"; exec sleep 1000' &)\nwhile [ ! -s \"$HOME/daemon\" ]; do :; done\nPATH=/opt/tools\n"
        );
        let home = Home::with("/bin/sh", &profile);
        assert_eq!(home.read().unwrap(), ["/opt/tools"]);
        home.assert_gone("daemon");
    }
}

#[test]
fn a_profile_that_prints_without_end_is_ended() {
    let home = Home::with(
        "/bin/sh",
        "echo $$ > \"$HOME/shell\"\nwhile :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done\n",
    );
    let reason = home.refusal();
    assert!(reason.contains("printed more than 1024 KiB"), "{reason}");
    home.assert_gone("shell");
    // Output below the limit is ignored.
    let home = Home::with("/bin/sh", "head -c 900000 /dev/zero\nPATH=/opt/tools\n");
    assert_eq!(home.read().unwrap(), ["/opt/tools"]);
}

#[test]
fn a_profile_that_ends_the_shell_gives_a_reason() {
    for (profile, reason) in [
        ("exit 3\n", "ended with exit code 3 before it printed"),
        ("echo PATH=/opt/evil; exit 0\n", "ended with exit code 0"),
        (
            "echo path-0-begins/opt/evilpath-0-ends; exit 1\n",
            "exit code 1",
        ),
        ("kill -9 $$\n", "ended with signal 9"),
        ("exec /bin/echo /opt/evil\n", "ended with exit code 0"),
        ("exec >&-; exit 4\n", "ended with exit code 4"),
        ("exec > /dev/null\n", "ended with exit code 0"),
    ] {
        let refusal = Home::with("/bin/sh", profile).refusal();
        assert!(refusal.contains(reason), "{profile}: {refusal}");
    }
    // A shell that closes its output has not ended.
    let refusal = Home::with("/bin/sh", "exec >&-; sleep 1000\n").refusal_within(SHORT);
    assert!(refusal.contains("took longer"), "{refusal}");
}

#[test]
fn a_path_of_nonsense_is_no_path() {
    for path in ["", ":::", ".:bin:../x", "no such thing", "~/bin"] {
        let refusal = Home::with("/bin/sh", &format!("PATH='{path}'\n")).refusal();
        assert!(refusal.contains("names no absolute directory"), "{refusal}");
    }
    let home = Home::with("/bin/bash", "PATH=$'/a\\nb:/c\\xff:/opt/tools:/d\\e[31m'\n");
    if Path::new(home.shell).exists() {
        assert_eq!(home.read().unwrap(), ["/opt/tools"]);
    }
}

#[test]
fn a_program_that_is_no_shell_is_not_started() {
    let home = TempDir::new().unwrap();
    let ask = |program: &str| {
        let shell = LoginShell {
            program: PathBuf::from(program),
            user: None,
            home: Some(home.path().to_str().unwrap().to_owned()),
            runs_as: None,
            limit: SHORT,
        };
        shell.read().unwrap_err().to_string()
    };
    for program in ["/usr/sbin/nologin", "/bin/false", "/bin/tcsh", "/"] {
        assert!(ask(program).contains("not a shell"), "{}", ask(program));
    }
    let missing = home.path().join("zsh");
    let reason = ask(missing.to_str().unwrap());
    assert!(reason.contains("could not be started"), "{reason}");
}

#[test]
fn a_listed_shell_variable_wins_over_the_password_file() {
    let passwd =
        "root:x:0:0:root:/root:/bin/bash\nbroken\nann:x:7:7::/home/ann:/bin/zsh\nsvc:x:8:8::/:\n";
    let shells = "# valid\n/bin/sh\n/usr/bin/fish\n";
    let table = [
        // $SHELL, user, expected shell
        (Some("/usr/bin/fish"), 7, Some("/usr/bin/fish")),
        (Some("/tmp/fish"), 7, Some("/bin/zsh")),
        (Some("fish"), 7, Some("/bin/zsh")),
        (None, 7, Some("/bin/zsh")),
        (None, 0, Some("/bin/bash")),
        (None, 8, None),
        (Some("/bin/sh"), 8, Some("/bin/sh")),
        (None, 9, None),
        (Some("/bin/sh"), 9, Some("/bin/sh")),
    ];
    for (variable, uid, expected) in table {
        let chosen = LoginShell::choose(variable.map(Path::new), None, passwd, shells, uid);
        let program = chosen.as_ref().map(|shell| shell.program.to_str().unwrap());
        assert_eq!(program, expected, "{variable:?} {uid}");
    }
    let ann = LoginShell::choose(None, None, passwd, shells, 7).unwrap();
    assert_eq!(
        (ann.user.as_deref(), ann.home.as_deref(), ann.limit),
        (Some("ann"), Some("/home/ann"), LoginShell::LIMIT)
    );
    let elsewhere = LoginShell::choose(None, Some("/srv"), passwd, shells, 7).unwrap();
    assert_eq!(elsewhere.home.as_deref(), Some("/srv"));
}

#[test]
fn merging_keeps_the_first_of_each_directory_and_no_relative_one() {
    let table: [(&[&str], &str); 6] = [
        (&["/a:/b", "/c"], "/a:/b:/c"),
        (&["/a:/b", "/b:/a:/c"], "/a:/b:/c"),
        (
            &["/p", "/login:/usr/bin", "/usr/bin:/bin"],
            "/p:/login:/usr/bin:/bin",
        ),
        (&["", ":/a::", ".:b:/a:./c"], "/a"),
        (&[], DEFAULT_PATH),
        (&["", "bin:."], DEFAULT_PATH),
    ];
    for (values, expected) in table {
        assert_eq!(merge(values.iter().copied()), expected);
    }
}
