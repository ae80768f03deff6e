//! What an approval binds beyond the file that the command names: interpreters behind wrappers,
//! libraries, loaders; and the limits of all that. Real processes, as this user and as another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::Machine;

/// This user, and as root an ordinary one besides.
fn machines() -> Vec<Machine> {
    let mut machines = vec![Machine::new()];
    machines.extend(Machine::of_ordinary_user());
    for machine in &machines {
        machine.start();
    }
    machines
}

/// Approves a command and expects that it no longer runs after the change.
#[track_caller]
fn drifts(machine: &Machine, command: &str, change: impl FnOnce(), says: &str) {
    let id = machine.approved(&["--", command]);
    change();
    let run = machine.run_approved(&id, &["--", command]);
    run.refused(3, "APPROVAL_DRIFT");
    assert!(run.stderr.contains(says), "{says}: {run:#?}");
    assert!(!machine.work().join("marker").exists());
}

/// Another file at a path; the old one is gone.
fn replace(path: &Path, content: &[u8]) {
    let next = path.with_extension("next");
    fs::write(&next, content).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(next, path).unwrap();
}

#[test]
fn what_a_wrapper_in_a_first_line_starts_is_bound() {
    for line in [
        "/usr/bin/nice ./payload",
        "/usr/bin/env -S nice ./payload",
        "/usr/bin/env -S nohup nice -n 5 ./payload",
        "/usr/bin/env -S env nice ./payload",
    ] {
        for machine in machines() {
            let payload = machine.script("work/payload", "#!/bin/sh\necho approved\n");
            machine.script("work/x", &format!("#!{line}\n"));
            let id = machine.approved(&["--", "./x"]);
            let run = machine.run_approved(&id, &["--", "./x"]);
            assert_eq!(
                (run.code, run.stdout.as_str()),
                (0, "approved\n"),
                "{line}: {run:#?}"
            );
            let says = format!("{} ", payload.display());
            drifts(
                &machine,
                "./x",
                || replace(&payload, b"#!/bin/sh\ntouch marker\n"),
                &says,
            );
        }
    }
}

/// The interpreter of an interpreter decides what runs, too.
#[test]
fn a_script_that_interprets_scripts_is_bound() {
    for machine in machines() {
        let inner = machine.script("work/inner", "#!/bin/sh\necho \"approved $1\"\n");
        machine.script("work/x", &format!("#!{}\nanything\n", inner.display()));
        let says = format!("{} ", inner.display());
        drifts(
            &machine,
            "./x",
            || replace(&inner, b"#!/bin/sh\ntouch marker\n"),
            &says,
        );
    }
}

#[test]
fn a_first_line_that_stays_opaque_cannot_be_approved() {
    let machine = Machine::new();
    machine.start();
    machine.script("work/payload", "#!/bin/sh\ntouch marker\n");
    for line in [
        "/usr/bin/sudo ./payload",
        "/usr/bin/xargs ./payload",
        "/usr/bin/setsid ./payload",
        "/usr/bin/flock ./payload",
        "/usr/bin/timeout 5",
        "/usr/bin/env -S sudo ./payload",
        "/usr/bin/env -S LD_PRELOAD=./x.so true",
        "/usr/bin/env -S -i ./payload",
        "/usr/bin/env -S bash -c ./payload",
        "./payload",
    ] {
        machine.script("work/x", &format!("#!{line}\n"));
        let run = machine.exec("./x");
        run.refused(3, "APPROVAL_UNBOUND");
    }
    assert!(!machine.work().join("marker").exists());
}

/// Compiles C, as the tests themselves were linked.
fn compile(source: &str, arguments: &[&str], directory: &Path, to: &str) -> Option<PathBuf> {
    let path = directory.join(to);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = directory.join(format!("{}.c", to.replace('/', "_")));
    fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.current_dir(directory).arg("-o").arg(&path).arg(&file);
    match cc.args(arguments).output() {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            Some(path)
        }
        Err(_) => {
            println!("skipped: there is no cc");
            None
        }
    }
}

#[test]
fn a_library_beside_a_program_is_bound() {
    for machine in machines() {
        let work = machine.work();
        let library = |text: &str| format!("const char *greeting(void) {{ return \"{text}\"; }}");
        let shared = ["-shared", "-fPIC"];
        let Some(approved) = compile(&library("approved"), &shared, &work, "lib/libgreet.so")
        else {
            return;
        };
        compile(&library("exchanged"), &shared, &work, "other/libgreet.so").unwrap();
        let program =
            "#include <stdio.h>\nconst char *greeting(void);\nint main(void) { puts(greeting()); }";
        for (name, tags) in [
            ("run/tool", "-Wl,--enable-new-dtags"),
            ("run/old-tool", "-Wl,--disable-new-dtags"),
        ] {
            let arguments = ["-Llib", "-lgreet", "-Wl,-rpath,$ORIGIN/../lib", tags];
            compile(program, &arguments, &work, name).unwrap();
            let command = format!("./{name}");
            let id = machine.approved(&["--", &command]);
            let run = machine.run_approved(&id, &["--", &command]);
            assert_eq!(
                (run.code, run.stdout.as_str()),
                (0, "approved\n"),
                "{run:#?}"
            );
            let content = fs::read(&approved).unwrap();
            let exchanged = fs::read(work.join("other/libgreet.so")).unwrap();
            drifts(
                &machine,
                &command,
                || replace(&approved, &exchanged),
                "libgreet.so",
            );
            replace(&approved, &content);
            // A library that would be found first.
            drifts(
                &machine,
                &command,
                || fs::write(work.join("lib/libc.so.6"), "x").unwrap(),
                "libc.so.6 is there now",
            );
            fs::remove_file(work.join("lib/libc.so.6")).unwrap();
            // The approver reads beforehand that it can be exchanged while the program starts.
            let id = machine.put_down(&["--", &command]);
            let plan = stored_plan(&machine);
            let risks = plan["raceFreedom"]["exposed"]["risks"].to_string();
            assert!(risks.contains("libgreet.so"), "{plan:#}");
            machine.ok(&["approvals", "deny", &id]);
        }
    }
}

#[test]
fn a_loader_outside_of_the_system_is_bound() {
    for machine in machines() {
        let work = machine.work();
        let loader = work.join("ld.so");
        let Some(system) = system_loader() else {
            return;
        };
        fs::copy(&system, &loader).unwrap();
        fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
        let argument = format!("-Wl,--dynamic-linker={}", loader.display());
        let program = "#include <stdio.h>\nint main(void) { puts(\"approved\"); }";
        if compile(program, &[&argument], &work, "tool").is_none() {
            return;
        }
        let id = machine.approved(&["--", "./tool"]);
        let run = machine.run_approved(&id, &["--", "./tool"]);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "approved\n"),
            "{run:#?}"
        );
        let other = fs::read("/bin/sh").unwrap();
        drifts(&machine, "./tool", || replace(&loader, &other), "ld.so");
    }
}

/// The loader of this very program.
fn system_loader() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().find_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        let name = path.rsplit('/').next()?;
        name.starts_with("ld-").then(|| PathBuf::from(path))
    });
    if path.is_none() {
        println!("skipped: tests are linked without a loader");
    }
    path
}

/// The plan of the only question.
fn stored_plan(machine: &Machine) -> serde_json::Value {
    let database = machine.database();
    let sql = "SELECT plan FROM approval_content ORDER BY number DESC LIMIT 1";
    let text: String = database.query_row(sql, [], |row| row.get(0)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// What the approver was told is what the result says.
#[test]
fn whether_a_run_will_be_race_free_is_known_before() {
    for machine in machines() {
        machine.script("work/x.sh", "#!/bin/sh\necho done\n");
        for command in ["./x.sh", "sh x.sh", "ls", "nice ls"] {
            let id = machine.put_down(&["--", command]);
            let told = stored_plan(&machine)["raceFreedom"].clone();
            let told = told == serde_json::json!("raceFree");
            machine.ok(&["approvals", "approve", &id]);
            let run = machine.run_approved(&id, &["--json", "--", command]);
            assert_eq!(run.code, 0, "{run:#?}");
            assert_eq!(run.json()["raceFree"], told, "{command}: {run:#?}");
        }
    }
}

#[test]
fn globs_of_a_line_share_one_limit_and_cost_little() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "ls"]);
    for number in 0..1200 {
        fs::write(machine.work().join(format!("f{number}")), "").unwrap();
    }
    assert_eq!(machine.verdict("ls f* f* f*"), "allow");
    let explained = machine.explain(&["--", "ls f* f* f* f*"]);
    assert_eq!(explained["verdict"], "ask");
    assert!(
        explained.to_string().contains("GLOB_TOO_MANY"),
        "{explained:#}"
    );
    // Nested texts count together with the line.
    let nested = machine.explain(&["--", "ls f* f* && sh -c 'ls f* f*'"]);
    assert!(nested.to_string().contains("GLOB_TOO_MANY"), "{nested:#}");
    let began = Instant::now();
    let many = format!("ls {}", "/*/*/*/* ".repeat(180));
    assert_ne!(machine.verdict(&many), "allow");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_lock_is_looked_through_only_where_it_is_a_regular_file() {
    for machine in machines() {
        let work = machine.work();
        machine.native("tool");
        machine.ok(&["approvals", "allowlist", "add", "tool"]);
        machine.file("work/lock", "");
        let system = Path::new("/usr/bin/flock");
        if !system.exists() {
            println!("skipped: there is no flock");
            return;
        }
        let fifo = Command::new("mkfifo").arg(work.join("fifo")).status();
        assert!(fifo.is_ok_and(|status| status.success()));
        assert_eq!(machine.verdict("/usr/bin/flock lock tool"), "allow");
        for lock in ["missing", "fifo", ".", "/dev/null"] {
            let command = format!("/usr/bin/flock {lock} tool");
            assert_ne!(machine.verdict(&command), "allow", "{lock}");
        }
        let run = machine.exec("/usr/bin/flock missing tool");
        assert_ne!(run.code, 0, "{run:#?}");
        assert!(!work.join("missing").exists());
    }
}

#[test]
fn a_program_that_is_too_large_to_be_hashed_is_refused() {
    for machine in machines() {
        let path = machine.script("work/large", "\u{7f}ELF");
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len((1 << 30) + 1).unwrap();
        drop(file);
        let began = Instant::now();
        for command in ["./large", "sh large", "nice ./large"] {
            machine.exec(command).refused(1, "BIND_TOO_LARGE");
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{:?}",
            began.elapsed()
        );
    }
}
