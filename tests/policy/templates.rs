//! Templates: narrow entries for a kind of work, written only if their own cases pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::Value;
use testkit::Machine;

fn machine() -> Machine {
    let machine = Machine::new();
    for program in [
        "cargo",
        "npm",
        "node",
        "pytest",
        "go",
        "mkdir",
        "mv",
        "rm",
        "systemctl",
        "docker",
        "kubectl",
        "terraform",
        "gradle",
        "mvn",
        "bundle",
        "cmake",
        "make",
        "ninja",
    ] {
        machine.native(program);
    }
    machine.start();
    machine
}

/// The name, whether each of these is allowed after it was applied.
fn allows(machine: &Machine, template: &str, lines: &[&str]) {
    machine.ok(&["policy", "template", "apply", template]);
    for line in lines {
        assert_eq!(machine.verdict(line), "allow", "{template}: {line}");
    }
}

fn asks(machine: &Machine, lines: &[&str]) {
    for line in lines {
        assert_eq!(machine.verdict(line), "ask", "{line}");
    }
}

#[test]
fn templates_are_listed_and_shown_in_words() {
    let machine = machine();
    let listed = machine.ok(&["policy", "template", "list", "--json"]).json();
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    for name in [
        "read-only",
        "rust",
        "node",
        "python",
        "go",
        "java",
        "ruby",
        "c",
        "php",
        "dotnet",
        "containers",
        "github",
        "server",
    ] {
        assert!(names.contains(&name), "{names:?}");
        let shown = machine.ok(&["policy", "template", "show", name]).stdout;
        assert!(shown.contains("\n- "), "{shown}");
        assert!(shown.contains("entries for"), "{shown}");
        let told = machine
            .ok(&["policy", "template", "show", "--json", name])
            .json();
        assert!(!told["entries"].as_array().unwrap().is_empty());
    }
    let wrong = machine.run(&["policy", "template", "show", "perl"]);
    assert_eq!(wrong.error_code(), "TEMPLATE_UNKNOWN");
    assert!(wrong.stderr.contains("rust"), "{wrong:#?}");
}

#[test]
fn a_template_is_for_one_project() {
    let machine = machine();
    asks(&machine, &["cargo test"]);
    let (before, _) = machine.document();
    let tried = machine
        .ok(&["policy", "template", "apply", "--dry-run", "rust"])
        .stdout;
    assert!(tried.contains("nothing was written"), "{tried}");
    assert_eq!(machine.document().0, before);
    fs::create_dir(machine.work().join("src")).unwrap();
    allows(
        &machine,
        "rust",
        &[
            "cargo test",
            "cd src && cargo build --release",
            "mkdir -p src/utils",
            "rm -rf target/debug",
            "git add -A && git commit -m 'One change'",
        ],
    );
    asks(
        &machine,
        &[
            "cargo install x",
            "cd .. && cargo test",
            "cargo test --manifest-path ../x/Cargo.toml",
            "rm -rf src",
            "mv src ../x",
            "git push",
            "npm test",
        ],
    );
    // What project tools name by a link leads where it leads.
    std::os::unix::fs::symlink("/tmp", machine.work().join("out")).unwrap();
    asks(
        &machine,
        &["mkdir out/x", "mv a.txt out/a.txt", "rm -rf target/../out"],
    );
    let again = machine
        .ok(&["policy", "template", "apply", "--json", "rust"])
        .json();
    assert_eq!(again["added"], 0, "{again:#}");
    let listed = machine.ok(&["approvals", "get"]).stdout;
    assert!(listed.contains("runs code of the project"), "{listed}");
}

#[test]
fn a_template_is_for_one_agent_and_directory() {
    let machine = machine();
    machine.know_agents(&["lab"]);
    let other = machine.root().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    machine.ok(&[
        "policy", "template", "apply", "--agent", "lab", "--dir", other, "node",
    ]);
    let verdict = |agent: &str, directory: &str| {
        let told = machine.explain(&["--agent", agent, "--cwd", directory, "--", "npm test"]);
        told["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("lab", other), "allow");
    assert_eq!(verdict("main", other), "ask");
    assert_eq!(verdict("lab", machine.work().to_str().unwrap()), "ask");
}

#[test]
fn the_project_template_goes_by_the_files_of_the_project() {
    let machine = machine();
    fs::write(machine.work().join("Cargo.toml"), "").unwrap();
    fs::create_dir(machine.work().join("web")).unwrap();
    fs::write(machine.work().join("web/package.json"), "{}").unwrap();
    let told = machine
        .ok(&["policy", "template", "apply", "--json", "project"])
        .json();
    let includes: Vec<&str> = told["includes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect();
    assert!(
        includes.contains(&"rust") && includes.contains(&"node"),
        "{includes:?}"
    );
    assert!(
        !includes.contains(&"python") && !includes.contains(&"go"),
        "{includes:?}"
    );
    for line in ["cargo check", "cd web && npm install"] {
        assert_eq!(machine.verdict(line), "allow", "{line}");
    }
    asks(&machine, &["pytest", "go test ./..."]);
}

#[test]
fn a_server_is_only_looked_at() {
    let machine = machine();
    allows(
        &machine,
        "server",
        &["systemctl status nginx", "df -h", "cd / && uptime"],
    );
    asks(
        &machine,
        &["systemctl stop nginx", "systemctl status -H x", "df -h > x"],
    );
}

#[test]
fn nothing_is_written_when_a_case_fails_or_the_directory_is_everything() {
    let machine = machine();
    let denies = r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss",
        deny: [{ pattern: "cargo", args: ["build", "**"] }] } }"#;
    assert_eq!(machine.set_document(denies).code, 0);
    let (before, _) = machine.document();
    let refused = machine.run(&["policy", "template", "apply", "rust"]);
    assert_eq!(refused.error_code(), "TEMPLATE_CASE", "{refused:#?}");
    assert_eq!(machine.document().0, before);
    let home = machine.root().join("home");
    for directory in [
        "/",
        home.to_str().unwrap(),
        machine.root().to_str().unwrap(),
    ] {
        let refused = machine.run(&["policy", "template", "apply", "--dir", directory, "node"]);
        assert_eq!(refused.error_code(), "TEMPLATE_DIRECTORY", "{directory}");
    }
    assert_eq!(machine.document().0, before);
}

#[test]
fn an_entry_of_a_template_holds_what_it_is_for() {
    let machine = machine();
    machine.ok(&["policy", "template", "apply", "go"]);
    let (document, _) = machine.document();
    let entries = document["agents"]["*"]["allowlist"].as_array().unwrap();
    let work = machine.work();
    let beneath = format!("{}/**", work.display());
    for entry in entries {
        let source = entry["source"].as_str().unwrap();
        assert!(source.starts_with("template:"), "{entry}");
        assert_eq!(entry["cwd"], Value::from(beneath.clone()), "{entry}");
        assert!(entry["id"].is_string(), "{entry}");
    }
}

#[test]
fn the_cases_of_every_template_pass_alone_and_together() {
    let machine = machine();
    let listed = machine.ok(&["policy", "template", "list", "--json"]).json();
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    for name in &names {
        machine.ok(&["policy", "template", "apply", "--dry-run", name]);
    }
    let mut all = vec!["policy", "template", "apply", "--dry-run"];
    all.extend(&names);
    machine.ok(&all);
}

#[test]
fn several_templates_are_applied_together_or_not_at_all() {
    let machine = machine();
    let (before, _) = machine.document();
    let wrong = machine.run(&["policy", "template", "apply", "java", "perl"]);
    assert_eq!(wrong.error_code(), "TEMPLATE_UNKNOWN");
    assert_eq!(machine.document().0, before);
    let told = machine
        .ok(&[
            "policy",
            "template",
            "apply",
            "--json",
            "java",
            "containers",
        ])
        .json();
    assert_eq!(told["template"], "java containers");
    let includes = told["includes"].to_string();
    assert!(
        includes.contains("docker") && includes.contains("git"),
        "{told:#}"
    );
    for line in [
        "mvn -B verify",
        "docker compose ps",
        "kubectl get pods -n x",
    ] {
        assert_eq!(machine.verdict(line), "allow", "{line}");
    }
    // What both include was added once.
    let (document, _) = machine.document();
    let entries = document["agents"]["*"]["allowlist"].as_array().unwrap();
    let is_mkdir = |entry: &&Value| entry["pattern"] == "mkdir";
    assert_eq!(entries.iter().filter(is_mkdir).count(), 1);
    let again = machine
        .ok(&[
            "policy",
            "template",
            "apply",
            "--json",
            "containers",
            "java",
        ])
        .json();
    assert_eq!(again["added"], 0, "{again:#}");
}

/// An argument with a blank is one argument: it cannot pass for several.
#[test]
fn words_of_a_pattern_end_where_arguments_end() {
    let machine = machine();
    machine.ok(&["policy", "template", "apply", "containers"]);
    asks(
        &machine,
        &[
            "kubectl get -l 'app=x pods' secrets",
            "kubectl get -n 'x pods' secrets",
            "kubectl 'get pods'",
            "docker 'ps -a'",
            "docker ps 'x\n-a'",
            "docker logs 'api --details'",
            "docker",
            "kubectl",
        ],
    );
}

#[test]
fn directories_and_wrappers_are_those_of_the_project() {
    let machine = machine();
    let work = machine.work();
    let outside = machine.root().join("outside");
    for directory in [&work.join("infra"), &work.join("service"), &outside] {
        fs::create_dir(directory).unwrap();
    }
    for wrapper in ["work/service/gradlew", "work/mvnw", "outside/gradlew"] {
        machine.script(wrapper, "#!/bin/sh\ntrue\n");
    }
    std::os::unix::fs::symlink(&outside, work.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.join("x"), work.join("infra/late.plan")).unwrap();
    std::os::unix::fs::symlink(outside.join("gradlew"), work.join("gradlew")).unwrap();
    machine.ok(&["policy", "template", "apply", "java", "containers", "c"]);
    for line in [
        "cd service && ./gradlew test",
        "service/gradlew build",
        "./mvnw -q package",
        "make -C service lint",
        "ninja -C service",
        "terraform -chdir=infra plan -out=new.plan",
    ] {
        assert_eq!(machine.verdict(line), "allow", "{line}");
    }
    asks(
        &machine,
        &[
            // A wrapper that lies elsewhere, by its link or by its path.
            "./gradlew test",
            "link/gradlew test",
            "cd link && ./gradlew test",
            // A directory elsewhere.
            "make -C link",
            "ninja -C link",
            "terraform -chdir=link plan",
            "cd service && terraform -chdir=../infra validate",
            "docker build -t x link",
            // A file is looked for in the directory that the option names.
            "terraform -chdir=infra plan -out=late.plan",
            "cd infra && terraform plan -out=late.plan",
        ],
    );
}

#[test]
fn copies_write_to_no_link_and_to_nothing_that_is_obeyed_later() {
    let machine = Machine::new();
    machine.start();
    let (work, outside) = (machine.work(), machine.root().join("outside.txt"));
    fs::write(&outside, "outside\n").unwrap();
    for directory in [
        "full/tree",
        "tree",
        "empty",
        "githooks",
        "hooks",
        "tools",
        "sub/githooks",
    ] {
        fs::create_dir_all(work.join(directory)).unwrap();
    }
    for file in ["a.txt", "tree/a.txt"] {
        fs::write(work.join(file), "from the agent\n").unwrap();
    }
    for link in ["full/a.txt", "full/tree/a.txt"] {
        std::os::unix::fs::symlink(&outside, work.join(link)).unwrap();
    }
    let git = work.join(".git");
    fs::create_dir_all(git.join("objects")).unwrap();
    fs::create_dir_all(git.join("refs")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let config = "[core]\n\thooksPath = sub/githooks\n[include]\n\tpath = ../included.inc\n";
    fs::write(git.join("config"), config).unwrap();
    std::os::unix::fs::symlink(work.join("hooks"), git.join("hooks")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = machine.command(arguments);
        testkit::finish(command.env("PATH", "/usr/bin:/bin"))
    };
    let verdict = |line: &str| {
        let explained = run(&["explain", "--json", "--", line]).json();
        explained["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(run(&["policy", "template", "apply", "project"]).code, 0);
    let tool = work.join("tools/deploy");
    let tool = tool.to_str().unwrap();
    assert_eq!(run(&["approvals", "allowlist", "add", tool]).code, 0);
    for line in [
        "cp a.txt b.txt",
        "cp a.txt empty",
        "cp -r tree empty",
        "cp -r tree new",
        "mv a.txt empty",
        "cp a.txt tools/other",
    ] {
        assert_eq!(verdict(line), "allow", "{line}");
    }
    for line in [
        // They would write through a link that lies where they write.
        "cp a.txt full",
        "cp -r tree full",
        // The directory of hooks, by the config and by a link, and what holds it.
        "cp a.txt sub/githooks/pre-commit",
        "mv a.txt sub/githooks",
        "chmod +x sub/githooks/pre-commit",
        "mv sub old",
        "cp -r tree sub/githooks",
        "cp a.txt hooks/pre-commit",
        "mv tree hooks",
        // A config that the config includes, and a program that an entry names.
        "cp a.txt included.inc",
        "cp a.txt tools/deploy",
        "mv a.txt tools/deploy",
    ] {
        assert_eq!(verdict(line), "ask", "{line}");
        run(&["exec", "--no-wait", "--", line]);
        assert_eq!(fs::read_to_string(&outside).unwrap(), "outside\n", "{line}");
    }
}

fn remove(machine: &Machine, flags: &[&str]) -> Value {
    let mut all = vec!["policy", "template", "remove", "--json"];
    all.extend(flags);
    machine.ok(&all).json()
}

fn count(told: &Value, field: &str) -> usize {
    told[field].as_array().unwrap().len()
}

/// What was applied is taken back, and nothing else is touched.
#[test]
fn a_template_is_taken_back_whole() {
    let machine = machine();
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    // The same terms as an entry of the template, by the owner's own hand.
    machine.ok(&["approvals", "allowlist", "add", "--agent", "main", "cargo"]);
    let (before, _) = machine.document();
    for name in ["rust", "node", "python", "server", "read-only", "project"] {
        fs::write(machine.work().join("Cargo.toml"), "").unwrap();
        machine.ok(&["policy", "template", "apply", name]);
        let (applied, _) = machine.document();
        assert_ne!(applied, before, "{name}");
        // Looking changes nothing.
        let looked = remove(&machine, &["--dry-run", name]);
        assert_eq!(looked["written"], false);
        assert!(count(&looked, "removed") > 0, "{name}");
        assert_eq!(machine.document().0, applied, "{name}");
        // The file that brought a part may have gone.
        fs::remove_file(machine.work().join("Cargo.toml")).unwrap();
        let told = remove(&machine, &[name]);
        assert_eq!(count(&told, "removed"), count(&looked, "removed"), "{name}");
        assert_eq!(count(&told, "edited"), 0, "{name}: {told:#}");
        assert_eq!(machine.document().0, before, "{name}");
        let again = machine.run(&["policy", "template", "remove", name]);
        again.refused(1, "TEMPLATE_NOT_APPLIED");
    }
    machine.ok(&["audit", "verify"]);
}

/// An entry that was edited is the owner's: it stays, with the command that removes it.
#[test]
fn edited_entries_of_a_template_stay_and_are_named() {
    let machine = machine();
    machine.ok(&["policy", "template", "apply", "rust"]);
    let (mut document, _) = machine.document();
    let entries = document["agents"]["*"]["allowlist"].as_array_mut().unwrap();
    let edited = entries
        .iter_mut()
        .find(|entry| entry["source"] == "template:rust")
        .unwrap();
    edited["interactive"] = true.into();
    let id = edited["id"].as_str().unwrap().to_owned();
    let all = entries.len();
    assert_eq!(machine.set_document(&document.to_string()).code, 0);
    let told = machine.ok(&["policy", "template", "remove", "rust"]).stdout;
    assert!(
        told.contains(&format!("removed {} entries of rust", all - 1)),
        "{told}"
    );
    let (left, _) = machine.document();
    let left = left["agents"]["*"]["allowlist"].as_array().unwrap().clone();
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["id"], id.as_str());
    let line = told
        .lines()
        .find(|line| line.starts_with("left, "))
        .unwrap();
    let (_, command) = line.split_once("to remove it: ").unwrap();
    assert_eq!(machine.paste(command).code, 0, "{command}");
    let again = machine.run(&["policy", "template", "remove", "rust"]);
    again.refused(1, "TEMPLATE_NOT_APPLIED");
}

/// What two templates have in common stays until the second one goes, too.
#[test]
fn a_part_of_another_template_stays() {
    let machine = machine();
    machine.ok(&["policy", "template", "apply", "rust"]);
    machine.ok(&["policy", "template", "apply", "node"]);
    let told = remove(&machine, &["rust"]);
    assert!(count(&told, "shared") > 0, "{told:#}");
    assert_eq!(told["sharedWith"], serde_json::json!(["node"]));
    asks(&machine, &["cargo test"]);
    for line in ["npm test", "git add ."] {
        assert_eq!(machine.verdict(line), "allow", "{line}");
    }
    let told = remove(&machine, &["node"]);
    assert_eq!(count(&told, "shared"), 0, "{told:#}");
    asks(&machine, &["npm test", "git add ."]);
    assert!(!machine.document().0.to_string().contains("template:"));
}

/// A template of another directory or agent is none of this one; the error says where it is.
#[test]
fn a_template_is_removed_for_one_directory_and_agent() {
    let machine = machine();
    let other = machine.work().join("other place");
    fs::create_dir(&other).unwrap();
    let other_text = other.to_str().unwrap();
    machine.ok(&[
        "policy", "template", "apply", "--agent", "main", "--dir", other_text, "rust",
    ]);
    let refused = machine.run(&["policy", "template", "remove", "rust"]);
    refused.refused(1, "TEMPLATE_NOT_APPLIED");
    let hint = refused
        .stderr
        .lines()
        .find(|line| line.starts_with("hint: "))
        .unwrap();
    let (_, command) = hint.split_once("elsewhere: ").unwrap();
    assert_eq!(machine.paste(command).code, 0, "{command}");
    assert!(!machine.document().0.to_string().contains("template:"));
    // A directory that has gone since.
    machine.ok(&["policy", "template", "apply", "--dir", other_text, "rust"]);
    fs::remove_dir(&other).unwrap();
    remove(&machine, &["--dir", other_text, "rust"]);
    assert!(!machine.document().0.to_string().contains("template:"));
    machine
        .run(&["policy", "template", "remove", "perl"])
        .refused(1, "TEMPLATE_UNKNOWN");
}

#[test]
fn a_run_removes_no_template() {
    let machine = Machine::open();
    machine.switch_shield_off();
    machine.ok(&["policy", "template", "apply", "rust"]);
    let (_, before) = machine.document();
    let mine = machine.binary().display().to_string();
    let run = machine.exec(&format!("{mine} policy template remove rust"));
    assert!(run.stderr.contains("DECISION_FROM_RUN"), "{run:#?}");
    assert_eq!(machine.document().1, before);
}

/// Some programs run without the shield for an ordinary user alone, and an entry must say so: a template
/// that only root could apply would help hardly anyone.
#[test]
fn an_ordinary_user_can_apply_every_template() {
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    for template in [
        "containers",
        "java",
        "ruby",
        "c",
        "php",
        "dotnet",
        "github",
        "python",
        "node",
        "go",
        "rust",
        "server",
    ] {
        machine.ok(&["policy", "template", "apply", template]);
    }
}
