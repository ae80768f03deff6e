//! Real work inside: what people and agents do all day gives the same output as outside.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use testkit::ws::EVERYTHING;
use testkit::{Machine, Run};

use crate::site::{Site, USUAL, everywhere, with_every_backend};

const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The same names, times and places outside and inside.
const HEAD: &str = "export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=$PWD/.home LC_ALL=C.UTF-8 TZ=UTC \
     GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
     GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1 \
     npm_config_update_notifier=false npm_config_cache=$PWD/.home/npm PYTHONDONTWRITEBYTECODE=\n";

/// Commands whose output is another one inside, with the reason; the docs say the same.
const DIFFERENT: &[(&str, &str)] = &[
    ("hostname", "the machine is called `sandbox`"),
    (
        "git gc -q && git fsck 2>/dev/null; echo done",
        "`.git/info` is protected, and gc says that it leaves its cache for old servers alone",
    ),
    (
        "id -u",
        "where Interlock runs as root, the user inside is not root",
    ),
    (
        "strace -o /dev/null true; echo $?",
        "no process traces another inside: ptrace is refused",
    ),
    (
        "whoami",
        "where Interlock runs as root, the user inside is not root",
    ),
];

fn has(programs: &[&str]) -> bool {
    let missing: Vec<&&str> = programs
        .iter()
        .filter(|path| !Path::new(path).exists())
        .collect();
    if !missing.is_empty() {
        println!("skipped: {missing:?} are not installed");
    }
    missing.is_empty()
}

/// Shell text of the machine's owner, on the host, in the workspace.
fn outside(site: &Site, text: &str) -> Run {
    let mut command = site.machine.other_program("/bin/sh");
    command.args(["-c", text]);
    testkit::finish(&mut command)
}

/// Shell text inside, which has to succeed.
fn inside(site: &Site, text: &str) -> String {
    site.says(&format!("{HEAD}set -e\n{text}"))
}

/// A small project with a repository, made by the owner.
const PROJECT: &str = r#"set -e
mkdir -p src .home dep
printf 'one line\nTODO two\nthree\n' > README.md
printf 'def one():\n    return 1  # TODO\n\nif __name__ == "__main__":\n    print(one())\n' > src/app.py
printf 'import unittest, app\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(app.one(), 1)\n' > src/test_app.py
printf 'all: x.out y.out\n%%.out:\n\t@echo $@ > $@\ntest: all\n\t@cat x.out y.out\n' > Makefile
printf '{"name":"dep","version":"1.0.0"}' > dep/package.json
printf '{"name":"p","version":"1.2.3","scripts":{"build":"node -p 6*7","test":"node -p 1+1"},"dependencies":{"dep":"file:dep"}}' > package.json
printf '{"name":"p","version":"1.2.3","lockfileVersion":3,"requires":true,"packages":{"":{"name":"p","version":"1.2.3","dependencies":{"dep":"file:dep"}},"dep":{"version":"1.0.0"},"node_modules/dep":{"resolved":"dep","link":true}}}' > package-lock.json
printf 'require("node:test")("t", () => {})\n' > t.test.js
printf '.home\nlist.sh\n*.out\nnode_modules\n__pycache__\n' > .gitignore
git init -q -b main . && git add -A && git commit -qm first
"#;

fn project(site: &Site) {
    let made = outside(site, &format!("{HEAD}{PROJECT}"));
    assert_eq!(made.code, 0, "{made:#?}");
}

/// One script that runs every command, and says which one speaks.
fn script() -> String {
    let mut script = HEAD.to_owned();
    for (number, command) in include_str!("everyday.txt").lines().enumerate() {
        let body = match command.contains("<<'END'") {
            true if command.starts_with("cc") => {
                format!("{command}\nint puts(const char *); int main() {{ puts(\"built\"); }}\nEND")
            }
            true => format!("{command}\ntext\nEND"),
            false => command.to_owned(),
        };
        script.push_str(&format!(
            "echo '@@ {number}'\n(\n{body}\n) 2>&1\necho \"exit $?\"\n"
        ));
    }
    script
}

/// The everyday list: at least 95 of 100 commands give the same output inside, and each other one is
/// known, with its reason.
#[test]
fn everyday_commands_say_the_same_inside() {
    if !has(&[
        "/usr/bin/python3",
        "/usr/bin/node",
        "/usr/bin/npm",
        "/usr/bin/make",
        "/usr/bin/cc",
    ]) {
        return;
    }
    everywhere(USUAL, |site| {
        project(site);
        site.owned(&site.work().join("list.sh"), &script());
        let fresh = site.machine.root().join("work.fresh");
        let work = site.work();
        copy_directory(&work, &fresh);
        let expected = outside(site, "sh list.sh").stdout;
        fs::remove_dir_all(&work).unwrap();
        copy_directory(&fresh, &work);
        let found = site.inside("sh list.sh");
        let found = found.stdout;
        let all = include_str!("everyday.txt").lines().count();
        let (expected, found) = (blocks(&expected), blocks(&found));
        assert_eq!((expected.len(), found.len()), (all, all), "{found:#?}");
        let commands = include_str!("everyday.txt").lines();
        let mut different = Vec::new();
        for ((command, outside), inside) in commands.zip(&expected).zip(&found) {
            if outside != inside {
                different.push(command);
                let is_known = DIFFERENT.iter().any(|(known, _)| *known == command);
                assert!(is_known, "{command}\noutside: {outside}\ninside: {inside}");
            }
        }
        assert!(different.len() * 20 <= all, "{different:?} of {all}");
    });
}

fn copy_directory(from: &Path, to: &Path) {
    let run = testkit::finish(Command::new("/usr/bin/cp").arg("-a").arg(from).arg(to));
    assert_eq!(run.code, 0, "{run:#?}");
}

fn blocks(text: &str) -> Vec<String> {
    text.split("@@ ").skip(1).map(str::to_owned).collect()
}

/// A repository is cloned, changed and pushed; gc, stash, rebase and a second work tree.
#[test]
fn git_works_on_repositories_of_the_workspace() {
    everywhere(USUAL, |site| {
        project(site);
        let said = inside(
            site,
            "git clone -q --bare . .home/origin.git; git clone -q .home/origin.git .home/c; cd .home/c; \
             echo 1 >> README.md; git commit -qam one; git push -q origin main; \
             echo 2 >> README.md; git stash -q; git stash pop -q; git commit -qam two; \
             git checkout -q -b side HEAD~1; echo s > side; git add side; git commit -qm side; git rebase -q main; \
             git worktree add -q ../tree main; git -C ../tree log --oneline | wc -l; git gc -q --prune=now; git fsck; \
             git push -q origin side; git --git-dir ../origin.git log --oneline side | wc -l",
        );
        assert_eq!(said, "3\n4\n");
        assert!(site.work().join(".home/c/side").exists(), "on the host");
    });
}

/// A package is installed from a wheel that lies in the workspace.
#[test]
fn pip_installs_a_local_wheel() {
    if !has(&["/usr/bin/pip3", "/usr/bin/python3"]) {
        return;
    }
    let wheel = "import zipfile\n\
        z = zipfile.ZipFile('small-1.0-py3-none-any.whl', 'w')\n\
        d = 'small-1.0.dist-info/'\n\
        z.writestr('small.py', 'answer = 42\\n')\n\
        z.writestr(d + 'METADATA', 'Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n')\n\
        z.writestr(d + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        z.writestr(d + 'RECORD', '')\n\
        z.close()\n";
    everywhere(USUAL, |site| {
        site.owned(&site.work().join("wheel.py"), wheel);
        let said = inside(
            site,
            "mkdir .home; /usr/bin/python3 wheel.py; /usr/bin/pip3 install -q --no-index --target deps ./small-1.0-py3-none-any.whl 2>&1; \
             PYTHONPATH=deps /usr/bin/python3 -c 'import small; print(small.answer)'",
        );
        assert_eq!(said, "42\n");
    });
}

/// A crate is built and tested offline, with the owner's toolchain shown read-only. Root's toolchain is
/// shown to root's runs by a mount that maps ids.
#[test]
fn cargo_builds_and_tests_a_crate() {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Ok(sysroot) = sysroot else {
        println!("skipped: no toolchain");
        return;
    };
    let sysroot = String::from_utf8(sysroot.stdout).unwrap().trim().to_owned();
    let test = |machine: Machine| {
        machine.start();
        let config = format!(
            "{{ agents: {{ defaults: {{ sandbox: {{ {USUAL}, binds: ['{sysroot}:/toolchain'] }} }} }} }}"
        );
        machine.configure(&config);
        let text = format!(
            "export PATH=/toolchain/bin:{PATH}; set -e; cargo init -q --lib --vcs none --name small .; \
             cargo build -q --offline; cargo test --offline 2>&1 | grep -c 'test result: ok'"
        );
        let run = machine.run(&["exec", "--timeout", "300", "--", &text]);
        assert_eq!((run.code, run.stdout.trim()), (0, "2"), "{run:#?}");
        assert!(machine.work().join("target/debug").is_dir());
    };
    test(Machine::new());
}

/// A multiplexer with a server of its own, and windows on terminals of the sandbox.
#[test]
fn tmux_works_inside() {
    if !has(&["/usr/bin/tmux"]) {
        return;
    }
    everywhere(USUAL, |site| {
        let said = site.says(
            "tmux -f /dev/null new-session -d -x 80 -y 24 'echo in a window; exec sleep 60' && tmux new-window 'exec sleep 60' && \
             tmux list-windows | wc -l && i=0; while [ $i -lt 50 ]; do tmux capture-pane -p -t :0 | grep -m1 'in a window' && break; \
             i=$((i+1)); sleep 0.1; done; tmux kill-server",
        );
        assert_eq!(said, "2\nin a window\n");
    });
}

/// An editor on a terminal of the sandbox.
#[test]
fn vim_edits_a_file_on_a_terminal() {
    if !has(&["/usr/bin/vim"]) {
        return;
    }
    everywhere(USUAL, |site| {
        let begun = site.machine.ok(&[
            "exec",
            "--json",
            "--background",
            "--pty",
            "--",
            "vim -u NONE -n made.txt",
        ]);
        let id = begun.json()["sessionId"].as_str().unwrap().to_owned();
        let process = |words: &[&str]| {
            let mut all = vec!["process", words[0], id.as_str()];
            all.extend(&words[1..]);
            site.machine.run(&all)
        };
        testkit::eventually("the editor", || {
            process(&["screen"]).stdout.contains("made.txt")
        });
        for keys in ["iHello from inside", "\u{1b}", ":wq\r"] {
            let run = process(&["write", keys]);
            assert_eq!(run.code, 0, "{run:#?}");
        }
        let made = site.work().join("made.txt");
        testkit::eventually("the file", || {
            fs::read_to_string(&made).is_ok_and(|text| text == "Hello from inside\n")
        });
    });
}

/// A background session goes on in its sandbox when its gateway is killed, and the next one finds it.
#[test]
fn a_background_session_outlives_its_gateway() {
    everywhere(USUAL, |site| {
        let workspace = site.work().display().to_string();
        site.machine.configure(&format!(
            "{{ agents: {{ defaults: {{ workspace: '{workspace}', sandbox: {{ {USUAL} }} }} }} }}"
        ));
        let mut gateway = site.machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        let key = "agent:main:main";
        let text = "echo begun; while [ ! -e go ]; do sleep 0.05; done; grep Seccomp: /proc/self/status; exec sleep 600";
        let call = json!({ "name": "exec", "args": { "command": text, "background": true }, "sessionKey": key });
        let begun = client.call("tools.invoke", &call).unwrap();
        let id = begun["output"]["details"]["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        gateway.kill();
        site.owned(&site.work().join("go"), "");
        let gateway = site.machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        let mut process = |action: &str| {
            let args = json!({ "action": action, "sessionId": id });
            let call = json!({ "name": "process", "args": args, "sessionKey": key });
            client.call("tools.invoke", &call).unwrap().to_string()
        };
        testkit::eventually("what it wrote meanwhile", || {
            process("log").contains("Seccomp:\\t2")
        });
        assert!(!process("kill").contains("error"));
    });
}

/// Under `rw` no mount stops a protected path that is not there yet: result and audit name it.
#[test]
fn protected_paths_that_a_run_makes_are_named() {
    with_every_backend(&format!("{USUAL}, protect: ['infra']"), |site| {
        let work = site.work();
        site.host(&["/usr/bin/git", "-C", work.to_str().unwrap(), "init", "-q"]);
        let result = site.result(
            "mkdir -p sub/.vscode deep/er && echo x > sub/.vscode/tasks.json && echo x > deep/er/.envrc \
             && git init -q other && mkdir infra && echo x > infra/run && echo fine > plain",
        );
        assert_eq!(result["exitCode"], 0, "{result:#}");
        let named = result["protectedCreated"].as_array().unwrap();
        let named: Vec<&str> = named.iter().map(|one| one.as_str().unwrap()).collect();
        for path in [
            "sub/.vscode",
            "deep/er/.envrc",
            "other/.git/config",
            "other/.git/hooks",
            "infra",
        ] {
            assert!(named.contains(&path), "{path}: {named:?}");
        }
        assert!(!named.contains(&"plain"), "{named:?}");
        // Ordinary work in a repository names nothing.
        let fine =
            site.result("git add plain && git -c user.name=a -c user.email=a@b commit -qm x");
        assert_eq!(fine["exitCode"], 0, "{fine:#}");
        assert!(fine["protectedCreated"].is_null(), "{fine:#}");
        let log = ["audit", "log", "--kind", "run-ended", "--json"];
        let log = site.machine.run(&log).stdout;
        assert!(
            log.contains("protectedCreated") && log.contains("deep/er/.envrc"),
            "{log}"
        );
        // A run in the background is found out about as well.
        let text = "echo y > deep/.envrc";
        site.machine.ok(&["exec", "--background", "--", text]);
        testkit::eventually("the end of the run to be recorded", || {
            site.inside("true");
            site.machine
                .run(&["audit", "log", "--kind", "run-ended", "--json"])
                .stdout
                .contains("\"deep/.envrc\"")
        });
    });
}
