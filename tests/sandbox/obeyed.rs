//! What git and editors obey in a workspace that a run may write to, however a repository is laid out: links,
//! a git directory elsewhere, hooks and configs that a config names. What cannot be stopped is named.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use testkit::ws::EVERYTHING;

use crate::site::{Site, USUAL, everywhere, with_every_backend};

fn git(site: &Site, words: &str) {
    let work = site.work();
    let mut all = vec!["/usr/bin/git", "-C", work.to_str().unwrap()];
    all.extend(words.split(' '));
    site.host(&all);
}

/// What `find` says of everything below a directory: path, kind, content of files, ends of links.
fn picture(site: &Site, directory: &str) -> String {
    let look = format!(
        "cd {0} && find {directory} ! -type d | sort | while read p; do echo \"$p $(readlink $p) $(cat $p)\"; done",
        site.work().display()
    );
    site.host(&["/bin/sh", "-c", &look]).stdout
}

/// Each attack leaves what is obeyed as it was, and git works.
fn stays(site: &Site, watched: &[&str], attacks: &str) {
    let pictures = || -> Vec<String> { watched.iter().map(|path| picture(site, path)).collect() };
    let before = pictures();
    let run = site.inside(attacks);
    assert_eq!(run.code, 0, "{run:#?}");
    assert_eq!(pictures(), before, "{attacks}: {run:#?}");
    let works = site.inside(
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; set -e; \
         echo 1 >> f; git add f; git commit -qm one; git branch b$(git rev-list --count HEAD); echo 2 > f; git stash -q; git log --oneline | wc -l",
    );
    assert_eq!(works.code, 0, "{works:#?}");
}

/// Links in the place of protected paths: neither the link nor what it leads to can be changed.
#[test]
fn links_to_protected_paths_stay_and_what_they_lead_to_is_held() {
    with_every_backend(USUAL, |site| {
        let work = site.work();
        git(site, "init -q .");
        site.host(&["/bin/rm", "-rf", work.join(".git/hooks").to_str().unwrap()]);
        for (path, content) in [
            ("shared/hooks/pre-push", "old"),
            ("settings/tasks.json", "{}"),
            ("env.real", "export A=1"),
        ] {
            site.owned(&work.join(path), content);
        }
        for (to, link) in [
            ("../shared/hooks", ".git/hooks"),
            ("settings", ".vscode"),
            ("env.real", ".envrc"),
            ("nowhere/yet", ".idea"),
        ] {
            let link = work.join(link);
            site.host(&["/bin/ln", "-s", to, link.to_str().unwrap()]);
        }
        stays(
            site,
            &[
                ".git/hooks",
                "shared",
                ".vscode",
                "settings",
                ".envrc",
                "env.real",
                ".idea",
            ],
            "rm -f .git/hooks; mkdir .git/hooks; ln -sfn /tmp .git/hooks; mv .git/hooks h; echo x > shared/hooks/pre-commit; \
             mv shared/hooks s; mv shared t; rm -rf settings; rm .vscode; mv .vscode v; ln -sfn x .vscode; echo x > settings/tasks.json; \
             echo x > .envrc; rm .envrc; mv env.real e; echo x > env.real; rm .idea; ln -sfn /tmp .idea; mv /workspace/.vscode /workspace/v; \
             ln .git/config c && echo x >> c; ln shared/hooks/pre-push l && echo x >> l; \
             rm /workspace/.git/hooks; true",
        );
        let explained = site.machine.run(&["sandbox", "explain", "--verify"]);
        assert_eq!(explained.code, 0, "{explained:#?}");
        assert!(!work.join("nowhere").exists(), "the probe makes nothing");
    });
}

/// `.git` is a file or a link, and the repository lies elsewhere in the workspace.
#[test]
fn a_git_directory_elsewhere_is_held_like_one_in_its_place() {
    with_every_backend(USUAL, |site| {
        site.host(&["/bin/mkdir", site.work().join("store").to_str().unwrap()]);
        git(site, "init -q --separate-git-dir=store/repo .");
        let attacks = "echo x > store/repo/hooks/pre-commit; echo x >> store/repo/config; rm -rf store/repo/hooks; perl -e 'rename q(store/repo), q(r)'; \
             mv store t; echo 'gitdir: evil' > .git; rm .git; mv .git g; ln -sf /etc/passwd store/repo/config; true";
        stays(
            site,
            &[".git", "store/repo/hooks", "store/repo/config"],
            attacks,
        );
        // The same by a link.
        let work = site.work();
        fs::remove_file(work.join(".git")).unwrap();
        symlink("store/repo", work.join(".git")).unwrap();
        stays(
            site,
            &[".git", "store/repo/hooks", "store/repo/config"],
            &format!("{attacks}; ln -sfn evil .git; echo x > .git/hooks/pre-commit; true"),
        );
    });
}

/// Hooks, configs and programs that the repository's config names.
#[test]
fn what_a_config_names_is_held() {
    everywhere(USUAL, |site| {
        let work = site.work();
        git(site, "init -q .");
        for (path, content) in [
            ("tools/hooks/pre-push", "old"),
            ("tools/more.gitconfig", "[alias]\n\tx = status\n"),
            ("tools/monitor.sh", "exit 0"),
        ] {
            site.owned(&work.join(path), content);
        }
        git(site, "config core.hooksPath tools/hooks");
        git(site, "config include.path ../tools/more.gitconfig");
        git(site, "config diff.external tools/monitor.sh");
        stays(
            site,
            &["tools", ".git/config"],
            "echo x > tools/hooks/pre-commit; echo x > tools/hooks/pre-push; mv tools t; mv tools/hooks h; echo x >> tools/more.gitconfig; \
             rm tools/monitor.sh; echo x > tools/monitor.sh; git config core.hooksPath /tmp; git config --local alias.x '!id'; true",
        );
    });
}

/// A workspace that is a bare repository itself.
#[test]
fn a_bare_repository_as_workspace_keeps_its_config_and_hooks() {
    everywhere(USUAL, |site| {
        git(site, "init -q --bare .");
        let before = picture(site, "config") + &picture(site, "hooks");
        let run = site.inside(
            "echo x >> config; echo x > hooks/pre-receive; rm -rf hooks; mv hooks h; rm config; mkdir -p objects/x refs/x && echo fine",
        );
        assert_eq!(run.stdout, "fine\n", "{run:#?}");
        assert_eq!(picture(site, "config") + &picture(site, "hooks"), before);
    });
}

fn created(result: &Value) -> Vec<&str> {
    let listed = result["protectedCreated"].as_array();
    let listed = listed.into_iter().flatten();
    listed.map(|path| path.as_str().unwrap()).collect()
}

/// New protected paths, and those of repositories below, cannot be stopped: result and audit name them.
#[test]
fn protected_paths_that_a_run_makes_are_named() {
    with_every_backend(USUAL, |site| {
        let work = site.work();
        git(site, "init -q .");
        git(site, "init -q nested");
        site.owned(&work.join("nested/.vscode/old.json"), "{}");
        let result = site.result(
            "mkdir -p .vscode a/b/.claude bare/objects bare/refs; echo x > .vscode/tasks.json; echo x > a/b/.claude/settings.json; \
             echo x > nested/.git/hooks/pre-commit; echo ../evil > .git/commondir; echo 'ref: refs/heads/m' > bare/HEAD; echo x > bare/config; \
             echo x > .envrc; echo ordinary > file; rm .git/commondir; echo ../evil > .git/commondir",
        );
        assert_eq!(
            created(&result),
            [
                ".envrc",
                ".git/commondir",
                ".vscode",
                "a/b/.claude",
                "bare/HEAD",
                "nested/.git/hooks",
            ],
            "{result:#}"
        );
        let audit = site.machine.ok(&["audit", "log", "--json"]);
        let records = audit.json()["records"].clone();
        let mut named = records
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|record| {
                let outcome = record["body"].to_string();
                outcome.contains("protectedCreated").then_some(outcome)
            });
        let record = named.next().unwrap_or_default();
        assert!(record.contains("nested/.git/hooks"), "{audit:#?}");
        // In words, once; and nothing where a run did ordinary work.
        fs::remove_file(work.join(".git/commondir")).unwrap();
        let told = site.inside("touch nested/.git/config");
        assert!(
            told.stderr.contains("obey: nested/.git/config;"),
            "{told:#?}"
        );
        let result = site.result(
            "cd nested; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; \
             echo 1 > f; git add f; git commit -qm one; git gc -q; cat .vscode/old.json ../.envrc",
        );
        assert_eq!(
            (created(&result), &result["exitCode"]),
            (vec![], &json!(0)),
            "{result:#}"
        );
    });
}

/// Over the gateway the caller reads the same.
#[test]
fn a_caller_of_the_gateway_is_told_of_protected_paths() {
    everywhere(USUAL, |site| {
        let config = format!(
            "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {USUAL} }} }} }} }}",
            site.work().display()
        );
        site.machine.configure(&config);
        let gateway = site.machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        let args = json!({ "command": "mkdir .vscode; echo x > .vscode/tasks.json" });
        let call = json!({ "name": "exec", "args": args, "sessionKey": "agent:main:main" });
        let answer = client.call("tools.invoke", &call).unwrap();
        assert_eq!(
            created(&answer["output"]["details"]),
            [".vscode"],
            "{answer:#}"
        );
        assert!(
            answer.to_string().contains("programs of the owner obey"),
            "{answer:#}"
        );
        assert!(Path::new(&site.work().join(".vscode/tasks.json")).exists());
    });
}
