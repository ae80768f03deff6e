//! Copy-on-write workspaces: what a run changes is committed when it ends, all or nothing. Row P32.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::EVERYTHING;

use crate::site::{Site, everywhere, with_every_backend};

const COW: &str = "mode: 'all', workspaceAccess: 'cow'";

/// A repository with a few files.
fn fill(site: &Site) {
    let work = site.work();
    site.host(&["/usr/bin/git", "-C", work.to_str().unwrap(), "init", "-q"]);
    for (path, content) in [
        ("a", "old a\n"),
        ("sub/b", "old b\n"),
        ("gone/x", "x\n"),
        ("gone/deep/y", "y\n"),
    ] {
        site.owned(&work.join(path), content);
    }
}

/// Every path below a directory with its kind, mode, owner and content, but for the times.
pub fn picture(directory: &Path) -> BTreeMap<String, (String, u32, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let kind = format!("{:?}", metadata.file_type());
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            found.insert(name, (kind, metadata.mode(), metadata.uid(), content));
        }
    }
    found
}

/// A run that has done its work, and waits until the test has done its own.
struct Waiting<'a> {
    site: &'a Site,
    child: std::process::Child,
}

impl<'a> Waiting<'a> {
    fn begin(site: &'a Site, text: &str) -> Self {
        // The home directory is that of the scope: both sides see it at once.
        site.says("rm -f ~/ready ~/gate");
        let text = format!("{text}; touch ~/ready; while [ ! -e ~/gate ]; do sleep 0.02; done");
        let mut command = site.machine.command(&["exec", "--json", "--", &text]);
        command.stdout(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        testkit::eventually("the run", || home(&site.machine).join("ready").exists());
        Self { site, child }
    }

    fn end(self) -> Value {
        self.site.owned(&home(&self.site.machine).join("gate"), "");
        let output = self.child.wait_with_output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The private home directory of the scope, on the host.
fn home(machine: &Machine) -> PathBuf {
    let list = machine.run(&["sandbox", "list", "--json"]).json();
    let scopes = list["scopes"].as_array().unwrap();
    let newest = scopes.last().unwrap()["directory"].as_str().unwrap();
    Path::new(newest).join("home")
}

fn effect(result: &Value) -> &Value {
    &result["effect"]
}

#[test]
fn changes_are_committed_when_the_run_ends() {
    everywhere(COW, |site| {
        fill(site);
        let work = site.work();
        let owner = fs::metadata(work.join("a")).unwrap().uid();
        let result = site.result(
            "echo new > n; rm -r gone; echo more >> sub/b; mkdir -p t/u; echo deep > t/u/v; \
             ln -s /etc/passwd link; chmod 700 a; mkfifo pipe; cat /workspace/n",
        );
        assert_eq!(result["exitCode"], 0, "{result:#}");
        let effect = effect(&result);
        assert_eq!(effect["state"], "committed", "{result:#}");
        assert_eq!(
            (&effect["created"], &effect["changed"], &effect["deleted"]),
            (&json!(5), &json!(2), &json!(4)),
            "{result:#}"
        );
        assert_eq!(effect["skipped"], json!(["pipe"]), "{result:#}");
        let read = |path: &str| fs::read_to_string(work.join(path)).unwrap();
        assert_eq!(
            (read("n"), read("sub/b"), read("t/u/v")),
            (
                "new\n".to_owned(),
                "old b\nmore\n".to_owned(),
                "deep\n".to_owned()
            )
        );
        assert!(!work.join("gone").exists() && !work.join("pipe").exists());
        assert_eq!(
            fs::read_link(work.join("link")).unwrap(),
            Path::new("/etc/passwd")
        );
        for path in ["n", "t", "t/u/v", "sub/b", "a", "link"] {
            let metadata = fs::symlink_metadata(work.join(path)).unwrap();
            assert_eq!(metadata.uid(), owner, "{path}");
        }
        assert_eq!(fs::metadata(work.join("a")).unwrap().mode() & 0o7777, 0o700);
        let names = picture(&work).into_keys().collect::<Vec<_>>();
        assert!(
            names.iter().all(|name| !name.contains(".interlock-")),
            "{names:?}"
        );
        // Nothing of the layer is left.
        let list = site.machine.run(&["sandbox", "list", "--json"]).json();
        assert_eq!(list["layers"], json!([]), "{list:#}");
        // The next run sees it, and a run that changes nothing says nothing.
        let result = site.result("cat n");
        assert_eq!(result["output"]["text"], "new\n", "{result:#}");
        assert_eq!(result["effect"]["created"], 0, "{result:#}");
    });
}

/// A run has a view of its own: it changes nothing of the workspace before it ends.
#[test]
fn the_workspace_stays_as_it_is_while_a_run_goes_on() {
    everywhere(COW, |site| {
        fill(site);
        let before = picture(&site.work());
        let begun = Waiting::begin(site, "rm -rf a sub; echo x > new");
        assert_eq!(picture(&site.work()), before);
        let result = begun.end();
        assert_eq!(effect(&result)["state"], "committed", "{result:#}");
        assert!(!site.work().join("a").exists() && !site.work().join("sub").exists());
    });
}

/// P19 under `cow`: git works without a prompt, and what git obeys needs an approver.
#[test]
fn git_works_and_its_hooks_need_an_approver() {
    everywhere(COW, |site| {
        fill(site);
        let git = "git -c user.name=x -c user.email=x@y";
        let result = site.result(&format!(
            "{git} add a && {git} commit -qm one && {git} branch other && {git} stash -q || true; {git} gc -q; {git} log --oneline | wc -l"
        ));
        assert_eq!(result["effect"]["state"], "committed", "{result:#}");
        assert_eq!(result["output"]["text"], "1\n", "{result:#}");
        for (text, path) in [
            ("echo x > .git/hooks/pre-commit", ".git/hooks/pre-commit"),
            ("git config core.pager evil", ".git/config"),
            (
                "mkdir -p sub/deep/.vscode; echo {} > sub/deep/.vscode/tasks.json",
                "sub/deep/.vscode/tasks.json",
            ),
            (
                "mkdir .claude; echo {} > .claude/settings.json",
                ".claude/settings.json",
            ),
            ("ln -s /tmp .git/hooks/link", ".git/hooks/link"),
            ("rm -rf .git/hooks", ".git/hooks/pre-commit.sample"),
        ] {
            let before = picture(&site.work());
            let result = site
                .machine
                .run(&["exec", "--json", "--no-wait", "--", text])
                .json();
            let effect = effect(&result);
            assert_eq!(effect["state"], "approval-pending", "{text}: {result:#}");
            let protected = effect["protected"].as_array().unwrap();
            assert!(protected.contains(&json!(path)), "{text}: {result:#}");
            assert_eq!(picture(&site.work()), before, "{text}");
            let id = effect["shortId"].as_str().unwrap();
            site.machine.ok(&["approvals", "deny", id]);
            site.inside("true");
            assert_eq!(picture(&site.work()), before, "{text}");
        }
        let list = site.machine.run(&["sandbox", "list", "--json"]).json();
        assert_eq!(list["layers"], json!([]), "{list:#}");
    });
}

/// P32: what is denied leaves the workspace byte-identical; what is allowed is exactly what was shown.
#[test]
fn a_denied_effect_changes_nothing_and_an_allowed_one_everything() {
    with_every_backend(COW, |site| {
        fill(site);
        let before = picture(&site.work());
        let text = "rm -rf * .git/hooks/*; echo x > new; echo y > .git/hooks/post-commit";
        let run = |decision: &str| {
            let result = site
                .machine
                .run(&["exec", "--json", "--no-wait", "--", text])
                .json();
            let effect = effect(&result).clone();
            assert_eq!(effect["state"], "approval-pending", "{result:#}");
            let id = effect["shortId"].as_str().unwrap();
            let shown = site.machine.run(&["approvals", "pending", "--json"]);
            assert!(shown.stdout.contains("post-commit"), "{shown:#?}");
            assert!(
                shown.stdout.contains("gone/deep/y"),
                "every deletion is listed: {shown:#?}"
            );
            site.machine.ok(&["approvals", decision, id]);
            site.inside("true");
        };
        run("deny");
        assert_eq!(picture(&site.work()), before);
        // The command ran, so its conversation reads what became of the changes.
        let told = site
            .machine
            .run(&["events", "--session", "agent:main:main"]);
        for words in ["Changes denied", "changes of this command were discarded"] {
            assert!(told.stdout.contains(words), "{words}: {told:#?}");
        }
        assert!(!told.stdout.contains("no output exists"), "{told:#?}");
        run("approve");
        let after = picture(&site.work());
        assert!(after.contains_key("new") && after.contains_key(".git/hooks/post-commit"));
        assert!(!after.contains_key("a") && !after.contains_key("gone"));
    });
}

/// The host keeps its version, and the layer is kept for its owner.
#[test]
fn a_path_that_the_host_changed_meanwhile_is_a_conflict() {
    everywhere(COW, |site| {
        fill(site);
        let work = site.work();
        for (text, change) in [
            ("echo run >> a; echo ok > other", "a"),
            ("rm a", "a"),
            ("echo run > new", "new"),
            ("rm -r gone", "gone/x"),
            ("mv gone/x a", "a"),
        ] {
            let begun = Waiting::begin(site, text);
            site.owned(&work.join(change), "host\n");
            let result = begun.end();
            let effect = effect(&result);
            assert_eq!(effect["state"], "kept", "{text}: {result:#}");
            assert_eq!(effect["code"], "EFFECT_DRIFT", "{text}: {result:#}");
            assert!(
                effect["conflicts"]
                    .as_array()
                    .unwrap()
                    .contains(&json!(change)),
                "{text}: {result:#}"
            );
            assert_eq!(fs::read_to_string(work.join(change)).unwrap(), "host\n");
            assert!(!work.join("other").exists());
            let id = effect["runId"].as_str().unwrap();
            let refused = site.machine.run(&["sandbox", "commit", id]);
            assert!(refused.stderr.contains("EFFECT_DRIFT"), "{refused:#?}");
            site.machine.ok(&["sandbox", "discard", id]);
            site.owned(&work.join("a"), "old a\n");
            site.owned(&work.join("gone/x"), "x\n");
            let _ = fs::remove_file(work.join("new"));
        }
    });
}

/// What an approver allows is shown whole: a protected file that is too long for that is the owner's.
#[test]
fn a_protected_file_that_cannot_be_shown_whole_is_not_asked_about() {
    everywhere(COW, |site| {
        fill(site);
        let before = picture(&site.work());
        let result = site.result(
            "mkdir -p .git/hooks; yes a line of a hook | head -n 40000 > .git/hooks/post-checkout",
        );
        let effect = effect(&result).clone();
        assert_eq!(
            (&effect["state"], &effect["code"]),
            (&json!("kept"), &json!("EFFECT_TOO_LONG")),
            "{result:#}"
        );
        assert_eq!(picture(&site.work()), before);
        assert_eq!(site.machine.pending_ids(), Vec::<String>::new());
    });
}

/// `ask: off` inside does not let protected paths pass; the owner may.
#[test]
fn without_an_approver_the_layer_is_the_owners() {
    everywhere(COW, |site| {
        fill(site);
        let open = r#"{ version: 1, defaults: { security: "full", ask: "off" } }"#;
        assert_eq!(site.machine.set_document(open).code, 0);
        site.machine.configure(&format!(
            "{{ tools: {{ exec: {{ ask: 'off', security: 'full' }} }}, agents: {{ defaults: {{ sandbox: {{ {COW}, protect: ['own'] }} }} }} }}"
        ));
        let before = picture(&site.work());
        let result = site.result("mkdir own; echo x > own/x; echo y > plain");
        let effect = effect(&result).clone();
        assert_eq!(
            (&effect["state"], &effect["code"]),
            (&json!("kept"), &json!("EFFECT_PROTECTED")),
            "{result:#}"
        );
        assert_eq!(picture(&site.work()), before);
        let id = effect["runId"].as_str().unwrap();
        let diff = site.machine.run(&["sandbox", "diff", &id[..8]]);
        assert!(
            diff.stdout.contains("+x") && diff.stdout.contains("own/x"),
            "{diff:#?}"
        );
        // A run cannot decide about it.
        let site_binary = site.machine.binary();
        let inside = site.inside(&format!("{} sandbox commit {id}", site_binary.display()));
        assert_ne!(inside.code, 0, "{inside:#?}");
        assert_eq!(picture(&site.work()), before);
        site.machine.ok(&["sandbox", "commit", id]);
        assert_eq!(
            fs::read_to_string(site.work().join("own/x")).unwrap(),
            "x\n"
        );
        assert_eq!(
            fs::read_to_string(site.work().join("plain")).unwrap(),
            "y\n"
        );
    });
}

/// What a run can put into its layer besides files, and what it can do to the directories around them.
#[test]
fn hostile_layers_reach_nothing_else() {
    everywhere(COW, |site| {
        fill(site);
        let outside = site.home().join("outside");
        site.owned(&outside.join("secret"), "SECRET\n");
        // A link of the workspace that leads out, as a parent of what a run writes.
        symlink(&outside, site.work().join("out")).unwrap();
        let result = site.result(
            "rm out; mkdir out; echo x > out/secret; ln a hard; mv gone/x renamed; mv sub moved 2>/dev/null; \
             mkdir \"$(printf 'new\\nline')\"; echo n > \"$(printf 'new\\nline')/f\"; \
             python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")' 2>/dev/null; \
             setfattr -n user.overlay.opaque -v y sub 2>/dev/null; mknod dev c 0 0 2>/dev/null; \
             chmod 4755 a 2>/dev/null; echo done",
        );
        assert_eq!(result["effect"]["state"], "committed", "{result:#}");
        assert_eq!(
            fs::read_to_string(outside.join("secret")).unwrap(),
            "SECRET\n"
        );
        let after = picture(&site.work());
        assert_eq!(after["out/secret"].3, b"x\n");
        assert!(after.contains_key("new\nline/f"), "{:?}", after.keys());
        assert_eq!(after["hard"].3, b"old a\n");
        assert_eq!(after["renamed"].3, b"x\n");
        assert!(!after.contains_key("gone/x"));
        assert!(!after.contains_key("sock") && !after.contains_key("dev"));
        assert!(after.values().all(|(_, mode, ..)| mode & 0o7000 == 0));
        // Renaming a directory works as a copy in programs such as mv.
        assert_eq!(after["moved/b"].3, b"old b\n");
        // Writing through a link that leads out stays inside, since the target does not exist there.
        symlink(&outside, site.work().join("again")).unwrap();
        site.inside("echo x > again/secret");
        assert_eq!(
            fs::read_to_string(outside.join("secret")).unwrap(),
            "SECRET\n"
        );
        let list = site.machine.run(&["sandbox", "list", "--json"]).json();
        assert_eq!(list["layers"], json!([]), "{list:#}");
    });
}

#[test]
fn too_much_is_refused_as_a_whole() {
    everywhere(COW, |site| {
        let before = picture(&site.work());
        for text in [
            "i=0; mkdir m; cd m; seq 20000 | xargs touch",
            "truncate -s 2G sparse; echo x > small",
        ] {
            let result = site.result(text);
            assert_eq!(result["effect"]["code"], "EFFECT_TOO_LARGE", "{result:#}");
            assert_eq!(picture(&site.work()), before);
            let id = result["effect"]["runId"].as_str().unwrap();
            site.machine.ok(&["sandbox", "discard", id]);
        }
    });
}

/// The gateway's callers wait for the decision as they do for a command, and a gateway that comes back
/// goes on with what it finds.
#[test]
fn a_gateway_commits_for_its_callers_and_after_a_restart() {
    let machine = Machine::new();
    machine.start();
    machine.configure(&format!(
        "{{ tools: {{ exec: {{ approvalWaitMs: 20000 }} }}, agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {COW} }} }} }} }}",
        machine.work().display()
    ));
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let call = |text: &str, more: Value| {
        let mut args = json!({ "command": text });
        for (key, value) in more.as_object().unwrap() {
            args[key] = value.clone();
        }
        json!({ "name": "exec", "args": args, "sessionKey": "agent:main:chat" })
    };
    let done = client
        .call("tools.invoke", &call("echo x > plain", json!({})))
        .unwrap();
    let details = &done["output"]["details"];
    assert_eq!(details["effect"]["state"], "committed", "{done:#}");
    // A decision while the caller waits.
    let decider = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let text = "mkdir -p .vscode; echo {} > .vscode/tasks.json";
            let mut client = gateway.connect(EVERYTHING);
            client.call("tools.invoke", &call(text, json!({}))).unwrap()
        });
        let mut short_id = String::new();
        testkit::eventually("the approval", || {
            let pending = machine.run(&["approvals", "pending", "--json"]).json();
            let text = pending.to_string();
            let found = text.split("\"shortId\":\"").nth(1);
            short_id = found
                .and_then(|rest| rest.split('"').next())
                .unwrap_or("")
                .to_owned();
            !short_id.is_empty()
        });
        assert!(!machine.work().join(".vscode").exists());
        machine.ok(&["approvals", "approve", &short_id]);
        waiting.join().unwrap()
    });
    let details = &decider["output"]["details"];
    assert_eq!(details["effect"]["state"], "committed", "{decider:#}");
    assert!(machine.work().join(".vscode/tasks.json").exists());
    // A background run that ends while no gateway runs.
    let begun = client
        .call(
            "tools.invoke",
            &call(
                "while [ ! -e ~/gate ]; do sleep 0.05; done; echo late > late",
                json!({ "background": true }),
            ),
        )
        .unwrap();
    assert_eq!(begun["output"]["details"]["status"], "running", "{begun:#}");
    drop(client);
    drop(gateway);
    fs::write(home(&machine).join("gate"), "").unwrap();
    let list = || machine.run(&["sandbox", "list", "--json"]).json();
    testkit::eventually("its end", || list()["layers"][0]["ended"] == json!(true));
    assert!(!machine.work().join("late").exists());
    let _again = machine.gateway();
    testkit::eventually("the commit", || machine.work().join("late").exists());
}

/// Without config: the current directory, copy-on-write.
#[test]
fn one_command_without_config_is_copy_on_write() {
    let machine = Machine::new();
    machine.start();
    let run = machine.run(&["exec", "--sandbox", "--", "echo x > made; id -u"]);
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(run.stderr.contains("1 created"), "{run:#?}");
    assert_eq!(
        fs::read_to_string(machine.work().join("made")).unwrap(),
        "x\n"
    );
    let mode = fs::metadata(machine.work()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7000, 0);
}
