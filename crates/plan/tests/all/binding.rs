//! What an approval can bind, asked of real files: which kind, which files, and what is noticed
//! when one of them changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use interlock_binding as binding;
use interlock_binding::{Binding, BindingKind};
use interlock_command::{Host, Source, analyse};
use interlock_plan::{BoundRole, Drift, FsResolver, PlanBinding};
use interlock_programs::trusted_dirs;
use tempfile::TempDir;

use BindingKind::{File, Native, Project, Text, Unbound};

/// A directory `w` to work in, and a directory `bin` in front of PATH.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        for folder in ["w", "bin"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let machine = Self { root };
        for name in [
            "awk",
            "bun",
            "cargo",
            "deno",
            "lua",
            "make",
            "node",
            "npm",
            "npx",
            "perl",
            "php",
            "pnpm",
            "python3",
            "ruby",
            "sed",
            "tsx",
            "uv",
            "yarn",
            "whoami",
            "node-exporter",
        ] {
            machine.native(&format!("bin/{name}"));
        }
        machine
    }

    fn path(&self, name: &str) -> String {
        let root = fs::canonicalize(self.root.path()).unwrap();
        root.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Looks like a native program: nothing here is started.
    fn native(&self, name: &str) {
        self.write(name, b"\x7fELF\x02\x01\x01");
    }

    fn search_path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.path("bin"))
    }

    fn bind(&self, source: Source) -> Binding {
        let resolver = FsResolver::from_path_value(&self.search_path(), None);
        let mut trusted = trusted_dirs(&[]);
        trusted.push(self.path("bin"));
        let host = Host {
            resolver: &resolver,
            trusted_dirs: &trusted,
        };
        let analysis = analyse(source, &self.path("w"), host).unwrap();
        binding::of(&analysis, Some(&analysis.sight()), &resolver)
    }

    fn text(&self, text: &str) -> Binding {
        self.bind(Source::Text(text.to_owned()))
    }

    /// The files of a role, by their path below the machine's directory.
    fn files(&self, binding: &Binding, role: BoundRole) -> Vec<String> {
        let files = binding.files.iter().filter(|bound| bound.role == role);
        files
            .map(|bound| bound.file.canonical.replace(&self.path(""), ""))
            .collect()
    }

    fn assert_kind(&self, expected: BindingKind, lines: &[&str]) {
        for line in lines {
            let binding = self.text(line);
            assert_eq!(binding.kind, expected, "{line}: {}", binding.reason);
        }
    }

    fn drift(&self, line: &str, change: impl FnOnce(&Path)) -> Option<Drift> {
        let pinned = PlanBinding::pin(&self.text(line)).unwrap();
        let path = self.search_path();
        assert_eq!(pinned.check(&path), Ok(()), "{line}");
        change(&self.root.path().join("w"));
        pinned.check(&path).err()
    }
}

#[test]
fn a_native_program_never_needs_a_file() {
    let machine = Machine::new();
    machine.native("w/tool");
    machine.assert_kind(
        Native,
        &[
            "whoami",
            "/usr/bin/env",
            "env whoami",
            "./tool",
            "sh -c whoami",
            "bash -lc ./tool",
            "nice -n 5 whoami",
            "node-exporter --web.listen-address=:9100",
            "whoami | cat && ls",
            "find . -name x",
            "find . -exec ls {} +",
            "cd . && ls",
            "python3 --version",
            "node -v",
            "sed -n 1p x",
            "npm ls",
            "cargo --version",
            "ls | xargs rm",
            "ls | xargs -n1 -I{} cp {} w",
        ],
    );
    let direct = machine.bind(Source::Argv(vec![machine.path("bin/whoami")]));
    let wrapped = machine.text(&format!("env {}", machine.path("bin/whoami")));
    assert_eq!((direct.kind, wrapped.kind), (Native, Native));
}

#[test]
fn one_local_file_is_bound_with_its_place() {
    let machine = Machine::new();
    machine.write("w/run", b"code");
    for (line, index) in [
        ("bash ./run a b", 1),
        ("bash -o errexit ./run", 3),
        ("bash +o histexpand ./run", 3),
        ("bash +eo pipefail ./run", 3),
        ("python3 -u ./run --flag -m x", 2),
        ("python3 -W error -B ./run", 4),
        ("node --no-warnings ./run -r x", 2),
        ("node --title x ./run", 3),
        ("ruby -w ./run", 2),
        ("perl -w ./run", 2),
        ("php -f ./run", 2),
        ("lua ./run -i", 1),
        ("deno run -A --allow-read -- ./run", 5),
        ("deno run --allow-net=x run", 3),
        ("bun ./run", 1),
        ("bun run ./run", 2),
        ("tsx ./run", 1),
        ("awk -F: -f ./run data", 3),
        ("sed -n -f ./run data", 3),
        ("env python3 ./run", 2),
        ("timeout 5 python3 ./run", 3),
        ("npx tsx ./run", 2),
        ("npx --yes tsx ./run", 3),
        ("npm exec -- tsx ./run", 4),
        ("pnpm --reporter silent exec tsx ./run", 5),
        ("pnpm node ./run", 2),
        ("uv run python3 ./run", 3),
        ("sh -c 'python3 ./run'", 1),
    ] {
        let binding = machine.text(line);
        assert_eq!(binding.kind, File, "{line}: {}", binding.reason);
        assert_eq!(
            machine.files(&binding, BoundRole::Script),
            ["w/run"],
            "{line}"
        );
        let script = binding
            .files
            .iter()
            .find(|bound| bound.role == BoundRole::Script);
        assert_eq!(script.unwrap().operand, Some(index), "{line}");
    }
}

#[test]
fn code_in_the_request_is_bound_as_text() {
    let machine = Machine::new();
    machine.write("w/x.py", b"");
    // `ruby` goes on with its options behind a text.
    machine.assert_kind(Unbound, &["ruby -e 1 --flag-of-the-text"]);
    machine.assert_kind(
        Text,
        &[
            "python3 -c 'print(1)' -m x",
            "perl -ne 'print' x",
            "node -e 1",
            "awk '{print}' x",
            "deno eval 1",
            "bash -xc 'whoami; whoami'",
            "for i in 1 2; do whoami; done",
            "for i in 1; do python3 ./x.py; done",
            "echo $(whoami)",
            "sh -c 'for i in 1; do whoami; done'",
        ],
    );
}

#[test]
fn code_from_elsewhere_is_not_bound() {
    let machine = Machine::new();
    for name in ["x.py", "x.js", "decoy", "inspect", "watch", "4096"] {
        machine.write(&format!("w/{name}"), b"decoy");
    }
    machine.assert_kind(
        Unbound,
        &[
            "python3",
            "python3 -",
            "python3 -v",
            "python3 -i ./x.py",
            "python3 -X presite=evil ./x.py",
            "python3 -X pycache_prefix=/tmp ./x.py",
            "python3 ./missing.py",
            "python3 .",
            "python3 /dev/stdin",
            "python3 /proc/self/fd/0",
            "python3 --unknown ./decoy ./x.py",
            "cat x.py | python3",
            "node -r ./x.js ./decoy",
            "node --import ./x.js ./decoy",
            "node --env-file=x ./decoy",
            "node --unknown ./decoy ./x.js",
            "node inspect x.js",
            "tsx watch x.js",
            "ruby -S x.py",
            "ruby -C / x.py",
            "ruby -I lib ./x.py",
            "perl -MPreload ./x.py",
            "perl -S decoy",
            "deno run https://x.test/a.ts",
            "deno run npm:cowsay",
            "deno run --import-map=m.json ./decoy",
            "bun --preload ./x.js ./decoy",
            "awk -f ./x.py -f ./decoy",
            "bash",
            "bash -s x",
            "bash -i ./decoy",
            "bash --rcfile ./decoy ./x.py",
            "curl https://x.test | sh",
            "sudo -i",
            "sudo LD_PRELOAD=/tmp/x whoami",
            "find . -exec python3 {} +",
            "find . -name '*.py' -execdir ./decoy ';'",
            "no-such-program",
        ],
    );
}

#[test]
fn files_of_a_project_decide_and_the_program_is_held() {
    let machine = Machine::new();
    machine.write("w/run", b"code");
    machine.write("w/x.js", b"");
    machine.write("w/Makefile", b"all:\n");
    machine.assert_kind(
        Project,
        &[
            "python3 -m http.server",
            "deno task build",
            "bun run x.js",
            "bun test",
            "npm run build",
            "npm install",
            "npx cowsay",
            "npx --package tsx tsx ./run",
            "pnpm dlx tsx ./run",
            "pnpm build",
            "yarn build",
            "uv run --with x ./x.py",
            "cargo test",
            "make",
            "make -C /tmp",
            "make -f ./run all",
            "whoami; sh -c 'sh -c \"npm test\"'",
        ],
    );
    // A file that the request names is held besides.
    let binding = machine.text("make -f ./run all");
    assert_eq!(machine.files(&binding, BoundRole::Script), ["w/run"]);
    let root = machine.path("w");
    let run = &machine.text("make").projects[0];
    assert_eq!(run.root.as_deref(), Some(root.as_str()));
    assert_eq!(run.manifests, [machine.path("w/Makefile")]);
    // The nearest directory with a manifest is the project.
    machine.write("w/sub/deep/x", b"");
    let run = &machine.text("cd sub/deep && make").projects[0];
    assert_eq!(run.root.as_deref(), Some(root.as_str()));
}

#[test]
fn text_is_worse_than_a_project_and_still_tells_of_it() {
    let machine = Machine::new();
    machine.write("w/x.sh", b"#!/bin/sh\n");
    machine.write("w/sub/x.sh", b"#!/bin/sh\n");
    for line in [
        "./x.sh; python3 -c 1; npm test",
        "echo $(python3 -m x)",
        "(cd sub; make -f x.sh)",
        "cargo test > log",
        "cargo build && cd sub && npm test",
    ] {
        let binding = machine.text(line);
        assert_eq!(binding.kind, Text, "{line}: {}", binding.reason);
        assert!(!binding.projects.is_empty(), "{line}");
    }
}

/// All code stands in the text, or in a file that the text names.
#[test]
fn here_documents_and_sourced_files_are_seen() {
    let machine = Machine::new();
    machine.write("w/env/activate", b"X=1\n");
    machine.write("w/x.py", b"");
    machine.write("w/sub/x.py", b"");
    machine.assert_kind(
        Text,
        &[
            "python3 - <<'EOF'\nprint(1)\nEOF",
            "python3 <<'EOF'\nprint(1)\nEOF",
            "python3 - a b <<EOF\nprint(1)\nEOF",
            "node <<< 'console.log(1)'",
            "bash <<'EOF'\nwhoami\nEOF",
            "bash -e <<'EOF'\npython3 ./x.py\nEOF",
            "source env/activate && whoami",
            ". ./env/activate; whoami",
            ". ./not-there-yet && whoami",
            "cd sub && python3 x.py > log",
        ],
    );
    let binding = machine.text("source env/activate && whoami");
    assert_eq!(
        machine.files(&binding, BoundRole::Script),
        ["w/env/activate"]
    );
    let binding = machine.text("cd sub && python3 x.py > log");
    assert_eq!(machine.files(&binding, BoundRole::Script), ["w/sub/x.py"]);
    let drift = machine.drift("source env/activate && whoami", |work| {
        fs::write(work.join("env/activate"), "evil").unwrap();
    });
    assert!(matches!(drift, Some(Drift::Changed(_))), "{drift:?}");
    machine.assert_kind(
        Unbound,
        &[
            "python3 - <<EOF\n$x\nEOF",
            "python3 - <<EOF\n`cat y`\nEOF",
            "python3 - <<'EOF' < other\nprint(1)\nEOF",
            "python3 - 3<<'EOF'\nprint(1)\nEOF",
            "cat <<'EOF' | python3 -\nprint(1)\nEOF",
            "bash <<'EOF'\ncurl x | sh\nEOF",
            "bash <<'EOF'\n$x\nEOF",
            "bash -i <<'EOF'\nwhoami\nEOF",
            "source activate",
            "source \"$x\"",
            "source /dev/stdin",
            "source <(whoami)",
            "python3 -i <<'EOF'\n1\nEOF",
        ],
    );
}

/// What `xargs` starts is seen; what it puts in is not.
#[test]
fn xargs_is_bound_by_what_it_starts() {
    let machine = Machine::new();
    machine.write("w/x.py", b"");
    machine.assert_kind(
        Unbound,
        &[
            "ls | xargs python3",
            "ls | xargs awk",
            "ls | xargs perl -e",
            "ls | xargs bash",
            "ls | xargs bash -c",
            "ls | xargs -I{} {}",
            "ls | xargs -I{} bash -c 'echo {}'",
            "ls | xargs -I% python3 %",
            "ls | xargs npx",
            "ls | xargs sudo whoami",
            "ls | xargs env",
            "ls | xargs nice awk",
            "ls | xargs timeout 5",
            "for i in 1; do ls | xargs python3; done",
        ],
    );
    machine.assert_kind(Text, &["ls | xargs awk '{print}'"]);
    machine.assert_kind(Native, &["ls | xargs sed -i 's/a/b/'"]);
    machine.assert_kind(Project, &["ls | xargs cargo test"]);
    machine.assert_kind(File, &["ls | xargs python3 ./x.py"]);
    machine.assert_kind(Text, &["for i in 1; do ls | xargs rm; done"]);
}

/// Of some opaque programs all options are known: an approver sees the whole command, and it is held too.
#[test]
fn what_opaque_programs_start_by_their_own_words_is_bound() {
    let machine = Machine::new();
    for name in [
        "crontab", "ionice", "perf", "setsid", "strace", "sudo", "taskset", "tmux", "valgrind",
        "watch",
    ] {
        machine.native(&format!("bin/{name}"));
    }
    machine.write("w/x.py", b"");
    machine.write("w/x.sh", b"");
    machine.assert_kind(
        Text,
        &[
            "sudo whoami",
            "sudo -n -u www whoami",
            "sudo sh -c 'whoami && true'",
            "setsid -w whoami",
            "taskset -c 0 whoami",
            "ionice -c3 whoami",
            "strace -f -e trace=open whoami",
            "valgrind --leak-check=full whoami",
            "perf stat -r 3 whoami",
            "sudo sh ./x.sh",
            "sudo python3 ./x.py",
        ],
    );
    machine.assert_kind(
        Unbound,
        &[
            "sudo python3",
            "sudo bash",
            "sudo no-such-program",
            "sudo -e x",
            "sudo -Z whoami",
            "sudo env LD_PRELOAD=/tmp/x",
            "strace -o '|sh' whoami",
            "strace -p 1",
            "setsid sh -i",
            "taskset -p 1",
            "watch whoami",
            "crontab x",
            "tmux new whoami",
        ],
    );
    machine.assert_kind(Native, &["crontab -l", "tmux ls"]);
}

#[test]
fn the_refusal_says_what_was_expected_and_found_and_what_to_do() {
    let machine = Machine::new();
    let unbound = machine.text("python3").unbound.unwrap();
    assert_eq!(unbound.executable, Some(machine.path("bin/python3")));
    assert_eq!(unbound.expected, "python [options] FILE.py");
    assert!(
        unbound.found.contains("read from standard input"),
        "{}",
        unbound.found
    );
    for way in [
        "sandbox",
        "allowlist",
        "full",
        "tools.exec.unboundApprovals",
    ] {
        assert!(
            unbound.remedies.iter().any(|remedy| remedy.contains(way)),
            "{way}"
        );
    }
}

#[test]
fn a_line_takes_the_worst_kind_of_any_command_in_it() {
    let machine = Machine::new();
    machine.write("w/x.sh", b"#!/bin/sh\n");
    machine.assert_kind(Native, &["whoami; whoami"]);
    machine.assert_kind(File, &["whoami; ./x.sh"]);
    machine.assert_kind(Text, &["./x.sh; python3 -c 1", "./x.sh; echo $(whoami)"]);
    machine.assert_kind(
        Unbound,
        &[
            "f() { bash; }; f",
            "for i in 1; do python3 \"$i\"; done",
            "x=1; python3 -c \"$x\"",
            "if true; then cat x | sh; fi",
        ],
    );
    // What is inside of a text is held as well.
    let binding = machine.text("for i in 1; do ./x.sh; done");
    assert_eq!(machine.files(&binding, BoundRole::Script), ["w/x.sh"]);
}

#[test]
fn in_a_text_that_changes_the_directory_relative_paths_are_not_bound() {
    let machine = Machine::new();
    machine.write("w/x.sh", b"#!/bin/sh\n");
    machine.write("w/sub/x.sh", b"#!/bin/sh\n");
    machine.assert_kind(
        Unbound,
        &[
            "(cd sub; ./x.sh)",
            "(cd sub; bash x.sh)",
            "(cd sub; bash -e x.sh)",
        ],
    );
    machine.assert_kind(Text, &["(cd sub; whoami)"]);
}

#[test]
fn a_script_is_bound_with_what_its_first_line_names() {
    let machine = Machine::new();
    machine.write("w/direct", b"#!/bin/sh -e\n");
    machine.write("w/by_env", b"#!/usr/bin/env python3\nprint(1)\n");
    machine.write("w/split", b"#!/usr/bin/env -S node --no-warnings\n");
    machine.write("w/plain", b"echo hello\n");
    machine.write(
        "w/chain",
        format!("#!{}\n", machine.path("w/direct")).as_bytes(),
    );
    machine.assert_kind(
        File,
        &["./direct", "./by_env x", "./split", "./plain", "./chain"],
    );
    let binding = machine.text("./by_env");
    assert_eq!(machine.files(&binding, BoundRole::Script), ["w/by_env"]);
    let env = fs::canonicalize("/usr/bin/env").unwrap();
    let interpreters = machine.files(&binding, BoundRole::Interpreter);
    assert_eq!(interpreters, [env.to_str().unwrap(), "bin/python3"]);
    for (name, line) in [
        ("loads", "#!/usr/bin/env -S node -r ./evil.js\n"),
        ("login", "#!/bin/bash -l\n"),
        ("missing", "#!/no/such/interpreter\n"),
        ("assigns", "#!/usr/bin/env -S A=1 python3\n"),
        ("relative", "#!python3\n"),
        ("sudo", "#!/usr/bin/sudo sh\n"),
    ] {
        machine.write(&format!("w/{name}"), line.as_bytes());
        machine.assert_kind(Unbound, &[&format!("./{name}")]);
    }
}

#[test]
fn names_do_not_decide_what_a_file_is() {
    let machine = Machine::new();
    let link = |target: &str, name: &str| symlink(target, machine.path(name)).unwrap();
    link(&machine.path("bin/python3"), "w/tool");
    link("/bin/sh", "w/shell");
    machine.write("w/x", b"");
    machine.assert_kind(Unbound, &["./tool", "./shell x"]);
    machine.assert_kind(Project, &["./tool -m x"]);
    machine.assert_kind(File, &["./tool ./x"]);
    // By their content these are scripts, whatever they are called.
    machine.write("w/empty.exe", b"");
    machine.write("w/half", b"MZ not really a program\n");
    machine.assert_kind(File, &["./empty.exe", "sh -c ./half"]);
}

#[test]
fn whatever_would_bring_in_other_code_is_noticed() {
    let changed = |name: &str, content: &str| {
        let (name, content) = (name.to_owned(), content.to_owned());
        move |work: &Path| {
            let path = work.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    };
    let machine = || {
        let machine = Machine::new();
        machine.write("w/x", b"safe");
        machine.write("w/y", b"#!/usr/bin/env python3\n");
        machine.write("w/Makefile", b"all:\n");
        machine.write("w/node_modules/.bin/tool", b"#!/bin/sh\n");
        machine
    };
    for (line, file) in [
        ("python3 x", "x"),
        ("bash ./x", "x"),
        ("for i in 1; do bash ./x; done", "x"),
        ("./y", "y"),
        // The interpreter that PATH leads to.
        ("./y", "../bin/python3"),
        ("make -f Makefile", "Makefile"),
        ("npx tool", "node_modules/.bin/tool"),
        ("npx tsx ./x", "node_modules/.bin/tsx"),
        ("npx tsx ./x", ".npmrc"),
        ("bun ./x", "bunfig.toml"),
    ] {
        let machine = machine();
        let drift = machine.drift(line, changed(file, "#!/bin/sh\nother"));
        let drift = drift.unwrap_or_else(|| panic!("{line}: {file} was not noticed"));
        let name = file.rsplit('/').next().unwrap();
        assert!(drift.to_string().contains(name), "{line}: {drift}");
    }
    // A file of the same length with its old time, and another file by the same name.
    let machine = machine();
    let drift = machine.drift("python3 x", |work| {
        let before = fs::metadata(work.join("x")).unwrap();
        fs::write(work.join("x"), "evil").unwrap();
        let file = fs::File::options()
            .write(true)
            .open(work.join("x"))
            .unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
    });
    assert!(matches!(drift, Some(Drift::Changed(_))), "{drift:?}");
    let drift = machine.drift("python3 x", |work| {
        fs::remove_file(work.join("x")).unwrap();
        symlink("y", work.join("x")).unwrap();
    });
    assert!(matches!(drift, Some(Drift::Moved { .. })), "{drift:?}");
    let drift = machine.drift("python3 y", |work| fs::remove_file(work.join("y")).unwrap());
    assert!(matches!(drift, Some(Drift::Gone(_))), "{drift:?}");
}

#[test]
fn a_name_that_env_looks_up_must_lead_to_the_same_file() {
    let machine = Machine::new();
    machine.write("w/y", b"#!/usr/bin/env awk -f\n");
    machine.write("w/z", b"#!/usr/bin/env cat\n");
    machine.assert_kind(Unbound, &["./y"]);
    // `cat` is in /usr/bin; now there is one in front of it.
    let drift = machine.drift("./z", |_| machine.native("bin/cat"));
    assert_eq!(drift, Some(Drift::Appeared(machine.path("bin/cat"))));
}
