//! The base that the first start writes: what reads the workspace runs unasked, and nothing else does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Machine, Run};

/// The programs of the system, as an ordinary PATH finds them.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A machine with the base, whose programs are the system's.
fn machine() -> Machine {
    let machine = Machine::new();
    with_base(machine)
}

fn with_base(machine: Machine) -> Machine {
    machine.start();
    machine.ok(&["policy", "base", "restore"]);
    machine
}

/// Runs Interlock with the programs of the system.
fn run(machine: &Machine, arguments: &[&str]) -> Run {
    let mut command = machine.command(arguments);
    testkit::finish(command.env("PATH", PATH))
}

fn exec(machine: &Machine, line: &str) -> Run {
    run(machine, &["exec", "--no-wait", "--", line])
}

fn explain(machine: &Machine, line: &str) -> Value {
    run(machine, &["explain", "--json", "--", line]).json()
}

/// Programs of `paths.jsonl` that the base has no entry for, or one that shows their version only.
const NOT_OF_THE_BASE: [&str; 2] = ["tsort", "make"];

/// The cases of `paths.jsonl` with the host's own policy.
fn cases(machine: &Machine) -> PathBuf {
    let text = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/cases/paths.jsonl"
    ));
    let text = text.unwrap();
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let mut case: Value = serde_json::from_str(line).unwrap();
        let policy = case.as_object_mut().unwrap().remove("policy").unwrap();
        let program = policy["allowlist"][0]["pattern"].as_str().unwrap();
        if !NOT_OF_THE_BASE.contains(&program) {
            lines.push(case.to_string());
        }
    }
    assert!(lines.len() > 150);
    let file = machine.work().join("cases.jsonl");
    fs::write(&file, lines.join("\n")).unwrap();
    file
}

#[test]
fn ways_out_of_the_workspace_are_closed() {
    let machine = machine();
    let file = cases(&machine);
    let tested = run(&machine, &["policy", "test", file.to_str().unwrap()]);
    assert_eq!(tested.code, 0, "{tested:#?}");
}

#[test]
fn ways_out_of_the_workspace_are_closed_for_an_ordinary_user() {
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    let machine = with_base(machine);
    let file = cases(&machine);
    let tested = run(&machine, &["policy", "test", file.to_str().unwrap()]);
    assert_eq!(tested.code, 0, "{tested:#?}");
}

#[test]
fn the_base_is_shown_removed_and_restored() {
    let machine = machine();
    let shown = machine.ok(&["policy", "base", "show"]).stdout;
    assert!(shown.contains("no -exec, -ok, -delete, -fprint"), "{shown}");
    assert!(shown.contains("interlock policy base remove"), "{shown}");
    let told = machine.ok(&["policy", "base", "show", "--json"]).json();
    assert_eq!(told["present"], told["entries"].as_array().unwrap().len());
    machine.ok(&["approvals", "allowlist", "add", "tee"]);
    let listed = machine.ok(&["approvals", "get"]).stdout;
    let (own, base) = listed
        .split_once("base (interlock policy base show)")
        .unwrap();
    assert!(own.contains("tee") && !own.contains("whoami"), "{listed}");
    assert!(base.contains("whoami") && !base.contains("tee"), "{listed}");

    assert_eq!(explain(&machine, "whoami")["verdict"], "allow");
    let removed = machine.ok(&["policy", "base", "remove", "--json"]).json();
    assert_eq!(removed["removed"], told["present"]);
    assert_eq!(explain(&machine, "whoami")["verdict"], "ask");
    assert_eq!(explain(&machine, "tee")["verdict"], "allow");
    let again = machine.ok(&["policy", "base", "remove"]).stdout;
    assert!(again.contains("not in the document"), "{again}");
    let restored = machine.ok(&["policy", "base", "restore", "--json"]).json();
    assert_eq!(restored["restored"], true);
    assert_eq!(explain(&machine, "whoami")["verdict"], "allow");
    let again = machine.ok(&["policy", "base", "restore", "--json"]).json();
    assert_eq!(again["restored"], false);
}

#[test]
fn a_file_outside_is_named_with_where_it_leads_and_what_to_do() {
    let machine = machine();
    symlink("/etc/passwd", machine.work().join("names")).unwrap();
    let told = explain(&machine, "cat names");
    assert_eq!(told["verdict"], "ask");
    assert_eq!(told["reason"]["code"], "entry-paths");
    let message = told["reason"]["message"].as_str().unwrap();
    assert!(
        message.contains("`names`") && message.contains("`/etc/passwd`"),
        "{message}"
    );
    let remedy = told["remedies"][0]["command"].as_str().unwrap();
    machine.paste(remedy);
    assert_eq!(explain(&machine, "cat names")["verdict"], "allow");
    assert_eq!(explain(&machine, "cat /etc/passwd")["verdict"], "ask");
    let told = explain(&machine, "cd / && ls");
    assert_eq!(told["reason"]["code"], "entry-paths", "{told:#}");
    machine.paste(told["remedies"][0]["command"].as_str().unwrap());
    assert_eq!(explain(&machine, "cd / && ls")["verdict"], "allow");
    assert_eq!(explain(&machine, "cd /etc && ls")["verdict"], "ask");
}

#[test]
fn the_field_survives_documents_and_the_command_line() {
    let machine = machine();
    let add = [
        "approvals",
        "allowlist",
        "add",
        "--path",
        "${workspace}/src/**",
        "--path",
        "/srv/**",
        "tsort",
    ];
    machine.ok(&add);
    let again = machine.ok(&add).stdout;
    assert!(again.contains("is already in"), "{again}");
    let (document, _) = machine.document();
    assert_eq!(machine.set_document(&document.to_string()).code, 0);
    assert_eq!(machine.document().0, document);
    fs::create_dir(machine.work().join("src")).unwrap();
    // Its own directory counts too where a program is not known.
    assert_eq!(explain(&machine, "cd src && tsort a")["verdict"], "allow");
    assert_eq!(explain(&machine, "cd src && tsort ../b")["verdict"], "ask");
    // The entry admits nothing else: what is proposed keeps its terms.
    let told = explain(&machine, "cd src && FEATURE=1 tsort a");
    let remedy = told["remedies"][0]["command"].as_str().unwrap();
    assert!(
        remedy.contains("--path='${workspace}/src/**' --path='/srv/**'"),
        "{remedy}"
    );
    for wrong in ["src/**", "${workspace}x", "/a/${workspace}/**"] {
        let refused = machine.run(&["approvals", "allowlist", "add", "--path", wrong, "tsort"]);
        assert_ne!(refused.code, 0, "{wrong}");
        assert!(refused.stderr.contains("paths"), "{refused:#?}");
    }
    let empty =
        r#"{ version: 1, agents: { main: { allowlist: [{ pattern: "tsort", paths: [] }] } } }"#;
    assert_ne!(machine.set_document(empty).code, 0);
}

#[test]
fn the_home_directory_and_the_root_are_no_workspaces() {
    let machine = machine();
    fs::create_dir(machine.root().join("home/.ssh")).unwrap();
    fs::write(machine.root().join("home/.ssh/id"), "secret").unwrap();
    let at = |directory: &Path, line: &str| {
        let mut command = machine.command(&["explain", "--json", "--", line]);
        command.current_dir(directory).env("PATH", PATH);
        testkit::finish(&mut command).json()
    };
    let home = machine.root().join("home");
    for (directory, line) in [
        (home.as_path(), "cat .ssh/id"),
        (home.as_path(), "ls"),
        (machine.root(), "cat home/.ssh/id"),
        (Path::new("/"), "cat etc/passwd"),
        (Path::new("/proc"), "ls"),
    ] {
        let told = at(directory, line);
        assert_eq!(told["verdict"], "ask", "{line} in {}", directory.display());
        assert_eq!(told["reason"]["code"], "entry-paths");
    }
    fs::create_dir(home.join("project")).unwrap();
    assert_eq!(at(&home.join("project"), "ls")["verdict"], "allow");
    assert_eq!(
        at(&home.join("project"), "cat ../.ssh/id")["verdict"],
        "ask"
    );
}

#[test]
fn programs_of_the_workspace_are_asked_about() {
    let machine = machine();
    assert_eq!(explain(&machine, "ls")["verdict"], "allow");
    // As an activated environment of the project would put it first.
    let own = machine.work().join(".venv/bin");
    fs::create_dir_all(&own).unwrap();
    fs::copy(machine.bin().join("ls"), own.join("ls")).unwrap();
    symlink("/bin/cat", own.join("cat")).unwrap();
    symlink(&own, machine.root().join("outside")).unwrap();
    for directory in [own, machine.root().join("outside")] {
        for line in ["ls", "cat a"] {
            let mut command = machine.command(&["explain", "--json", "--", line]);
            command.env("PATH", format!("{}:{PATH}", directory.display()));
            let told = testkit::finish(&mut command).json();
            assert_eq!(told["verdict"], "ask", "{told:#}");
            assert_eq!(told["reason"]["code"], "entry-paths");
        }
    }
}

/// A program of the version manager kind picks what it starts by files of the directory, where agents write.
#[test]
fn versions_are_shown_by_the_program_itself() {
    let machine = machine();
    let tools = machine.root().join("tools");
    fs::create_dir(&tools).unwrap();
    for name in ["node", "go", "python3.12", "mise"] {
        fs::copy(machine.native(name), tools.join(name)).unwrap();
    }
    symlink("python3.12", tools.join("python3")).unwrap();
    symlink("mise", tools.join("ruby")).unwrap();
    machine.script("tools/java", "#!/bin/sh\nexec asdf exec java \"$@\"\n");
    fs::write(tools.join("gcc"), "text without a first line\n").unwrap();
    fs::set_permissions(tools.join("gcc"), fs::Permissions::from_mode(0o755)).unwrap();
    let own = machine.work().join("bin");
    fs::create_dir(&own).unwrap();
    fs::copy(tools.join("node"), own.join("node")).unwrap();
    let verdict = |first: &Path, line: &str| {
        let mut command = machine.command(&["explain", "--json", "--", line]);
        command.env("PATH", format!("{}:{PATH}", first.display()));
        testkit::finish(&mut command).json()["verdict"].clone()
    };
    for line in [
        "node --version",
        "node -v && go version",
        "python3 -V",
        "cd / && node --version",
    ] {
        assert_eq!(verdict(&tools, line), "allow", "{line}");
    }
    for line in [
        "ruby --version",
        "java -version",
        "gcc --version",
        "node --version x.js",
        "node -v -e 1",
        "node --version=1",
        "go version ./a.out",
        "go version -m a.out",
        "python3 --version -c 1",
        "python3 -VV",
        "NODE_OPTIONS=--require=./x.js node --version",
        "GOTOOLCHAIN=go9 go version",
        "./bin/node --version",
    ] {
        assert_ne!(verdict(&tools, line), "allow", "{line}");
    }
    assert_eq!(verdict(&own, "node --version"), "ask");
    // What else is asked of such a program is named as what it is.
    let mut command = machine.command(&["explain", "--json", "--", "node build.js"]);
    command.env("PATH", format!("{}:{PATH}", tools.display()));
    fs::write(machine.work().join("build.js"), "1\n").unwrap();
    let told = testkit::finish(&mut command).json();
    assert_eq!(told["reason"]["code"], "entry-arguments", "{told:#}");
    let message = told["reason"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "of this program the base allows only: show its version"
    );
    // An entry of the owner's for another directory tells more.
    let add = ["approvals", "allowlist", "add", "--cwd", "/srv/**", "node"];
    machine.ok(&add);
    let told = testkit::finish(&mut command).json();
    assert_eq!(told["reason"]["code"], "entry-cwd", "{told:#}");
}

#[test]
fn a_link_that_is_made_before_the_command_starts_is_not_followed() {
    let machine = machine();
    machine.ok(&["approvals", "allowlist", "add", "ln"]);
    let ran = exec(&machine, "ln -s /etc/passwd late && cat late");
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(!ran.stdout.contains("root:"), "{ran:#?}");
    assert!(ran.stderr.contains("leads to /etc/passwd now"), "{ran:#?}");
    // A file that is made meanwhile is another matter.
    machine.ok(&["approvals", "allowlist", "add", "cp"]);
    fs::write(machine.work().join("a"), "text").unwrap();
    let ran = exec(&machine, "cp a b && cat b");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "text"), "{ran:#?}");
}

#[test]
fn what_is_piped_and_redirected_to_streams_is_plain() {
    let machine = machine();
    fs::write(machine.work().join("a.txt"), "b\na\nb\n").unwrap();
    for (line, expected) in [
        (
            "cat a.txt | sort | uniq -c | sort -rn | head -1",
            "      2 b\n",
        ),
        ("ls a.txt none 2>/dev/null || true", "a.txt\n"),
        ("test -f a.txt && echo yes || echo no", "yes\n"),
        ("grep -c b a.txt 2>&1 | tail -20", "2\n"),
        ("awk '{print $1}' a.txt | wc -l", "3\n"),
        ("sed -n '2p' a.txt", "a\n"),
        ("find . -name '*.txt' | head -5", "./a.txt\n"),
    ] {
        let ran = exec(&machine, line);
        assert_eq!(ran.stdout, expected, "{line}: {ran:#?}");
    }
}

/// A repository whose settings start programs, which leave a mark.
fn repository(directory: &Path, mark: &Path) -> bool {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        let made = command
            .args(["-c", "user.name=a", "-c", "user.email=b"])
            .args(arguments)
            .current_dir(directory)
            .env("HOME", directory)
            .output();
        made.is_ok_and(|output| output.status.success())
    };
    if !git(&["init", "-q", "."]) {
        println!("skipped: git is not installed");
        return false;
    }
    fs::write(directory.join("a.txt"), "one\n").unwrap();
    assert!(git(&["add", "a.txt"]) && git(&["commit", "-q", "-m", "first"]));
    fs::write(directory.join("a.txt"), "two\n").unwrap();
    let helper = directory.join("helper");
    fs::write(
        &helper,
        format!("#!/bin/sh\necho ran >> {}\n", mark.display()),
    )
    .unwrap();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&helper, executable).unwrap();
    let helper = helper.display();
    for (key, value) in [
        ("core.fsmonitor", format!("{helper}")),
        ("core.pager", format!("{helper}")),
        ("core.hooksPath", directory.display().to_string()),
        ("gpg.program", format!("{helper}")),
        ("log.showSignature", "true".to_owned()),
    ] {
        assert!(git(&["config", key, &value]));
    }
    fs::copy(
        directory.join("helper"),
        directory.join("post-index-change"),
    )
    .unwrap();
    true
}

#[test]
fn what_an_option_may_not_take_for_its_value_is_an_argument_by_itself() {
    let machine = machine();
    let mark = machine.work().join("mark");
    if !repository(&machine.work(), &mark) {
        return;
    }
    let outside = machine.root().join("outside.txt");
    fs::write(&outside, "outside\n").unwrap();
    let outside = outside.display();
    // git takes these values only if they are attached.
    for line in [
        format!("git log -1 -U --output={outside} -p"),
        format!("git log -1 --format --output={outside}"),
        format!("git log -1 --max-parents --output={outside}"),
        format!("git show --unified --output={outside}"),
        format!("git diff -U {outside} a.txt"),
        format!("git diff --unified {outside} a.txt"),
    ] {
        assert_eq!(explain(&machine, &line)["verdict"], "ask", "{line}");
        let ran = exec(&machine, &line);
        assert!(!ran.stdout.contains("outside"), "{line}: {ran:#?}");
        let kept = fs::read_to_string(machine.root().join("outside.txt"));
        assert_eq!(kept.unwrap(), "outside\n", "{line}");
    }
    for line in [
        "git log -n 1",
        "git log --author me -U5",
        "git diff -U1 a.txt",
    ] {
        assert_eq!(explain(&machine, line)["verdict"], "allow", "{line}");
    }
}

#[test]
fn git_starts_no_program_that_the_repository_names() {
    let machine = machine();
    let mark = machine.work().join("mark");
    if !repository(&machine.work(), &mark) {
        return;
    }
    for line in [
        "git status",
        "git status --short",
        "git diff",
        "git log --oneline -10",
        "git log -p -1 --format='%h %G?'",
        "git show HEAD",
        "git blame a.txt",
        "git ls-files -m",
        "git branch",
        "git rev-parse --show-toplevel",
        "git grep -c -e .",
        "git remote -v",
        "git tag --list",
        "git describe --always",
        "git ls-tree -r HEAD --name-only",
        "git cat-file -p HEAD",
        "git rev-list --count HEAD",
        "git shortlog -sn HEAD",
        "git reflog -5",
        "git for-each-ref",
        "git show-ref",
        "git name-rev HEAD",
        "git merge-base HEAD HEAD",
    ] {
        assert_eq!(explain(&machine, line)["verdict"], "allow", "{line}");
        let ran = exec(&machine, line);
        assert_eq!(ran.code, 0, "{line}: {ran:#?}");
        assert!(!mark.exists(), "{line} started the helper");
    }
    let status = exec(&machine, "git status --short");
    assert!(status.stdout.contains(" M a.txt"), "{status:#?}");
    // By itself git starts it.
    let mut plain = Command::new("git");
    plain.arg("status").current_dir(machine.work());
    assert!(plain.output().unwrap().status.success());
    assert!(mark.exists());
}

#[test]
fn files_that_look_like_a_repository_are_none() {
    let machine = machine();
    let mark = machine.work().join("mark");
    if !repository(&machine.work(), &mark) {
        return;
    }
    let bare = machine.work().join("bare");
    fs::create_dir_all(bare.join("objects")).unwrap();
    fs::create_dir_all(bare.join("refs")).unwrap();
    fs::write(bare.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::copy(machine.work().join(".git/config"), bare.join("config")).unwrap();
    let told = explain(&machine, "cd bare && git status");
    assert_eq!(told["verdict"], "ask");
    assert_eq!(told["reason"]["code"], "entry-paths", "{told:#}");
    // A repository above the workspace is not the workspace's.
    let mut command = machine.command(&["explain", "--json", "--", "git log"]);
    fs::create_dir(machine.work().join("sub")).unwrap();
    command
        .current_dir(machine.work().join("sub"))
        .env("PATH", PATH);
    let told = testkit::finish(&mut command).json();
    assert_eq!(told["verdict"], "ask", "{told:#}");
}

#[test]
fn a_directory_that_comes_with_the_call_is_no_workspace() {
    let machine = machine();
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "1"]);
    fs::write(machine.work().join("a.txt"), "text").unwrap();
    let mut client = testkit::mcp::StdioClient::begin(&machine, &[], &json!({}));
    let mut status = |arguments: Value| {
        let result = client.call("exec", &arguments);
        result["structuredContent"]["status"].clone()
    };
    assert_eq!(status(json!({ "command": "cat a.txt" })), "completed");
    assert_eq!(
        status(json!({ "command": "cat /etc/hostname" })),
        "approval-pending"
    );
    let elsewhere = json!({ "command": "cat hostname", "workdir": "/etc" });
    assert_eq!(status(elsewhere), "approval-pending");
}

/// The git of the system, with a name for commits and no settings of this machine.
fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("/usr/bin/git");
    command
        .args(["-c", "user.name=x", "-c", "user.email=x@example.org"])
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", directory)
        .current_dir(directory);
    let run = testkit::finish(&mut command);
    assert_eq!(run.code, 0, "{arguments:?}: {run:#?}");
}

/// A worktree whose repository lies outside of the workspace, both as git makes them.
fn with_worktree(machine: &Machine) -> PathBuf {
    let main = machine.root().join("main");
    fs::create_dir(&main).unwrap();
    git(&main, &["init", "-q", "-b", "main"]);
    git(&main, &["commit", "-q", "--allow-empty", "-m", "first"]);
    let tree = machine.work().join("tree");
    git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    tree
}

const GIT_READERS: [&str; 4] = ["status", "log --oneline", "diff", "rev-parse HEAD"];

#[test]
fn a_worktree_is_read_like_an_ordinary_checkout() {
    if !Path::new("/usr/bin/git").exists() {
        println!("skipped: /usr/bin/git is not installed");
        return;
    }
    let machine = machine();
    let tree = with_worktree(&machine);
    fs::create_dir(tree.join("src")).unwrap();
    for reader in GIT_READERS {
        for directory in ["tree", "tree/src"] {
            let line = format!("cd {directory} && git {reader}");
            let told = explain(&machine, &line);
            assert_eq!(told["verdict"], "allow", "{line}: {told:#}");
            let ran = exec(&machine, &line);
            assert_eq!(ran.code, 0, "{line}: {ran:#?}");
        }
    }
    // What writes is asked about there too.
    for line in ["git commit -m x", "git worktree list", "git checkout main"] {
        let line = format!("cd tree && {line}");
        assert_eq!(explain(&machine, &line)["verdict"], "ask", "{line}");
    }
}

/// A `.git` file that an agent could have written points at any repository, whose settings start programs.
#[test]
fn a_git_file_that_its_repository_does_not_name_is_asked_about() {
    if !Path::new("/usr/bin/git").exists() {
        println!("skipped: /usr/bin/git is not installed");
        return;
    }
    let machine = machine();
    let tree = with_worktree(&machine);
    let names = machine.root().join("main/.git/worktrees/tree");
    let text = fs::read_to_string(tree.join(".git")).unwrap();
    let back = fs::read_to_string(names.join("gitdir")).unwrap();
    let common = fs::read_to_string(names.join("commondir")).unwrap();
    let asked = |what: &str, directory: &str| {
        let line = format!("cd {directory} && git status");
        let told = explain(&machine, &line);
        assert_eq!(told["verdict"], "ask", "{what}: {told:#}");
        assert_eq!(told["reason"]["code"], "entry-paths", "{what}: {told:#}");
    };
    let work = machine.work();
    // A copy of the file elsewhere, and one behind a link.
    fs::create_dir(work.join("copy")).unwrap();
    fs::write(work.join("copy/.git"), &text).unwrap();
    asked("a copy", "copy");
    fs::create_dir(work.join("linked")).unwrap();
    symlink(tree.join(".git"), work.join("linked/.git")).unwrap();
    asked("a link", "linked");
    // A repository that is no worktree: its own directory, and one of the agent's making.
    fs::create_dir(work.join("own")).unwrap();
    let own = machine.root().join("main/.git");
    fs::write(
        work.join("own/.git"),
        format!("gitdir: {}\n", own.display()),
    )
    .unwrap();
    asked("the repository itself", "own");
    let made = work.join("made/worktrees/x");
    fs::create_dir_all(&made).unwrap();
    for directory in ["objects", "refs"] {
        fs::create_dir(work.join("made").join(directory)).unwrap();
    }
    for head in [work.join("made/HEAD"), made.join("HEAD")] {
        fs::write(head, "ref: refs/heads/main\n").unwrap();
    }
    let marker = machine.root().join("marker");
    fs::write(
        work.join("made/config"),
        format!("[core]\n\tfsmonitor = touch {}\n", marker.display()),
    )
    .unwrap();
    fs::create_dir(work.join("made-tree")).unwrap();
    let file = work.join("made-tree/.git");
    fs::write(&file, format!("gitdir: {}\n", made.display())).unwrap();
    fs::write(made.join("gitdir"), format!("{}\n", file.display())).unwrap();
    fs::write(made.join("commondir"), "../..\n").unwrap();
    asked("a repository without the protected name", "made-tree");
    exec(&machine, "cd made-tree && git status");
    assert!(!marker.exists());
    // What the two say of each other, changed on one side.
    let cases: &[(&str, &Path, &str)] = &[
        (
            "another worktree's",
            &names.join("gitdir"),
            "/elsewhere/.git\n",
        ),
        (
            "another repository's",
            &names.join("commondir"),
            "../../..\n",
        ),
        (
            "two lines",
            &tree.join(".git"),
            &format!("{text}gitdir: /x\n"),
        ),
        ("no pointer", &tree.join(".git"), "text\n"),
        ("nothing", &tree.join(".git"), ""),
    ];
    for (what, path, content) in cases {
        fs::write(path, content).unwrap();
        asked(what, "tree");
        fs::write(tree.join(".git"), &text).unwrap();
        fs::write(names.join("gitdir"), &back).unwrap();
        fs::write(names.join("commondir"), &common).unwrap();
        assert_eq!(
            explain(&machine, "cd tree && git status")["verdict"],
            "allow"
        );
    }
}
