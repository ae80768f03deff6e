//! The owner's caches, copy-on-write in the private home: usable, not poisonable.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Machine, eventually};

use crate::cow::picture;
use crate::site::{Site, USUAL, everywhere, with_every_backend};

/// Caches of two package managers, with secrets beside what was fetched.
fn fill(site: &Site) {
    for (path, content) in [
        (".npm/_cacache/index", "npm index\n"),
        (".npm/_cacache/content", "npm content\n"),
        (".npm/_cacache/deep/down/file", "deep\n"),
        (".npm/.npmrc", "//registry.example/:_authToken=secret-1\n"),
        (".npm/_cacache/_authToken", "secret-2\n"),
        (".npm/_logs/debug.log", "https://user:secret-3@example\n"),
        (".cargo/registry/cache/crate", "crate\n"),
        (".cargo/registry/credentials.toml", "token = 'secret-4'\n"),
        (".cargo/credentials.toml", "token = 'secret-5'\n"),
        (".cache/pip/http/page", "page\n"),
        (".cache/pip/auth.json", "secret-6\n"),
        (".cache/other/file", "not listed\n"),
        ("go/pkg/mod/module", "module\n"),
    ] {
        site.owned(&site.home().join(path), content);
    }
}

/// The directory of the newest scope.
fn scope(machine: &Machine) -> PathBuf {
    let list = machine.run(&["sandbox", "list", "--json"]).json();
    let scopes = list["scopes"].as_array().unwrap();
    PathBuf::from(scopes.last().unwrap()["directory"].as_str().unwrap())
}

#[test]
fn a_run_uses_the_caches_of_the_owner_and_cannot_spoil_them() {
    with_every_backend(USUAL, |site| {
        fill(site);
        let before = picture(&site.home().join(".npm"));
        let all = site.says(
            "cat ~/.npm/_cacache/index ~/.cargo/registry/cache/crate ~/.cache/pip/http/page ~/go/pkg/mod/module",
        );
        assert_eq!(all, "npm index\ncrate\npage\nmodule\n");
        site.says(
            "cd ~/.npm/_cacache && echo poison > index && rm content && echo new > fresh && \
             mkdir sub && echo x > sub/y && chmod 700 deep && mv deep/down/file deep/down/other",
        );
        let host = picture(&site.home().join(".npm"));
        assert_eq!(host, before, "the host's cache is as it was");
        // The next run of the scope sees what this one wrote.
        let seen = site.says("cd ~/.npm/_cacache && cat index fresh sub/y deep/down/other; ls");
        assert_eq!(
            seen,
            "poison\nnew\nx\ndeep\n_authToken\ndeep\nfresh\nindex\nsub\n"
        );
        // What is not listed is not shown.
        assert_ne!(site.inside("ls ~/.cache/other").code, 0);
    });
}

#[test]
fn credentials_in_caches_are_absent() {
    everywhere(USUAL, |site| {
        fill(site);
        let secrets = site.says("grep -rs secret- ~ | cat; ls -A ~/.npm/_logs");
        assert_eq!(secrets, "");
        let moved = site.says(
            "cat ~/.npm/.npmrc; cp ~/.npm/.npmrc /tmp/x; wc -c < /tmp/x; mv ~/.npm/.npmrc ~/n 2>/dev/null; \
             mv ~/.npm/_cacache ~/.npm/other 2>/dev/null; rm -rf ~/.npm/.npmrc 2>/dev/null; \
             ln ~/.npm/_cacache/_authToken ~/.npm/l 2>/dev/null; cat ~/.npm/l 2>/dev/null; \
             grep -rs secret- ~/.npm /tmp | cat",
        );
        assert_eq!(moved, "0\n");
        // A later run finds no more, whatever the first one did.
        assert_eq!(site.says("grep -rs secret- ~ /tmp | cat"), "");
        let list = site.says("cat ~/.npm/_cacache/index");
        assert_eq!(list, "npm index\n");
    });
}

#[test]
fn another_scope_sees_nothing_of_what_a_run_wrote_and_pruning_removes_it() {
    everywhere(USUAL, |site| {
        fill(site);
        let config = format!(
            "{{ agents: {{ list: [{{ id: 'a' }}, {{ id: 'b' }}], defaults: {{ sandbox: {{ {USUAL} }} }} }} }}"
        );
        site.machine.configure(&config);
        let go =
            |agent: &str, text: &str| site.machine.run(&["exec", "--agent", agent, "--", text]);
        let poison = "echo poison > ~/.npm/_cacache/index; cat ~/.npm/_cacache/index";
        assert_eq!(go("a", poison).stdout, "poison\n");
        let read = "cat ~/.npm/_cacache/index";
        assert_eq!(go("b", read).stdout, "npm index\n");
        assert_eq!(go("a", read).stdout, "poison\n");
        let before = scope(&site.machine);
        assert!(before.join("caches").is_dir());
        site.machine.ok(&["sandbox", "recreate", "--all"]);
        assert!(!before.exists(), "the layers go with their scope");
        assert_eq!(go("a", read).stdout, "npm index\n");
    });
}

/// Two runs of one scope at once share one mount: neither spoils what the other wrote.
#[test]
fn runs_of_a_scope_share_what_they_write_while_both_go_on() {
    everywhere(USUAL, |site| {
        fill(site);
        let server = site.machine.background(
            &[],
            "echo first > ~/.npm/one; while [ ! -e ~/.npm/two ]; do sleep 0.02; done; cat ~/.npm/two; \
             echo third > ~/.npm/three; sleep 60",
        );
        eventually("the first file", || {
            site.inside("cat ~/.npm/one").stdout == "first\n"
        });
        site.says("echo second > ~/.npm/two");
        eventually("the third file", || {
            site.inside("cat ~/.npm/three").stdout == "third\n"
        });
        site.machine.ok(&["process", "kill", &server.id]);
        let npm = site.home().join(".npm");
        assert!(!npm.join("one").exists() && !npm.join("two").exists());
    });
}

#[test]
fn the_key_says_which_caches_are_shown() {
    everywhere(USUAL, |site| {
        fill(site);
        site.configure(&format!("{USUAL}, home: {{ caches: [] }}"));
        assert_ne!(site.inside("ls ~/.npm").code, 0);
        site.configure(&format!(
            "{USUAL}, home: {{ caches: ['.cache/other', '.cargo'], tools: [] }}"
        ));
        assert_eq!(site.says("cat ~/.cache/other/file"), "not listed\n");
        assert_ne!(site.inside("ls ~/.npm").code, 0);
        // A whole directory is shown without what is hidden in it.
        assert_eq!(site.says("cat ~/.cargo/registry/cache/crate"), "crate\n");
        assert_eq!(site.says("cat ~/.cargo/credentials.toml"), "");
        let explained = site.machine.ok(&["sandbox", "explain"]).stdout;
        let line = explained.lines().find(|line| line.contains(".cache/other"));
        assert!(line.is_some_and(|line| line.contains("cow")), "{explained}");
        site.owned(&site.home().join(".ssh/id"), "key\n");
        site.owned(&site.home().join(".config/x/y"), "token\n");
        for (listed, word) in [
            ("['.ssh']", "keys and hosts of ssh"),
            ("['.config/x']", "settings and tokens"),
            ("['../work']", "plain path"),
            ("['/etc']", "plain path"),
            ("['']", "must not be empty"),
        ] {
            site.configure(&format!("{USUAL}, home: {{ caches: {listed} }}"));
            let refused = site.inside("cat ~/.ssh/id; touch /workspace/ran");
            assert_ne!(refused.code, 0, "{listed}");
            assert!(refused.stderr.contains(word), "{listed}: {refused:#?}");
            assert!(refused.stderr.contains("home.caches"), "{refused:#?}");
            assert!(!site.work().join("ran").exists());
        }
        // A link could lead to anything.
        std::os::unix::fs::symlink("/etc", site.home().join("linked")).unwrap();
        site.configure(&format!("{USUAL}, home: {{ caches: ['linked'] }}"));
        assert_ne!(site.inside("ls ~/linked/").code, 0);
    });
}

/// Programs of a cache are never executed where only listed programs are.
#[test]
fn nothing_in_a_cache_is_executed_under_enforce() {
    everywhere(USUAL, |site| {
        fill(site);
        let text = "cp /usr/bin/true ~/.npm/t && ~/.npm/t";
        assert_eq!(site.inside(text).code, 0);
        site.configure(&format!("{USUAL}, tree: 'enforce'"));
        let run = site.inside("cp /usr/bin/true ~/.npm/t; ~/.npm/t");
        assert_ne!(run.code, 0, "{run:#?}");
    });
}

/// With `view: host` the owner's home is read-only, and its caches can be used all the same.
#[test]
fn caches_are_usable_with_the_view_of_the_host() {
    everywhere(&format!("{USUAL}, view: 'host'"), |site| {
        fill(site);
        let seen =
            site.says("echo x > ~/.npm/new && cat ~/.npm/new ~/.npm/_cacache/index ~/.npm/.npmrc");
        assert_eq!(seen, "x\nnpm index\n");
        assert!(!site.home().join(".npm/new").exists());
    });
}

/// The cargo directory of the user who runs the tests.
fn cargo_home() -> Option<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    set.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// The only entry of a directory whose name begins so.
fn entry(directory: &Path, beginning: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(directory).ok()?.flatten();
    let is_meant = |name: &str| name.starts_with(beginning);
    let found = entries.find(|entry| entry.file_name().to_str().is_some_and(is_meant));
    found.map(|entry| entry.path())
}

fn copy(how: &str, from: &Path, to: &Path) -> bool {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let mut copy = Command::new("/usr/bin/cp");
    copy.arg(how).arg(from).arg(to);
    copy.status().is_ok_and(|status| status.success())
}

/// Gives the machine a toolchain (as hard links) and a registry cache that holds one crate, `itoa`. `None`
/// where this user has neither. Returns the version of the crate.
fn with_crate(site: &Site) -> Option<String> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(output.ok()?.stdout).ok()?;
    let sysroot = Path::new(sysroot.trim());
    let own = cargo_home()?.join("registry");
    let registry = entry(&own.join("cache"), "index.crates.io-")?;
    let name = registry.file_name()?.to_owned();
    let crate_file = entry(&registry, "itoa-1")?;
    let index = own.join("index").join(&name);
    let to = site.home().join(".cargo/registry");
    let mut parts = vec![
        (
            crate_file.clone(),
            to.join("cache").join(&name).join(crate_file.file_name()?),
        ),
        (
            index.join("config.json"),
            to.join("index").join(&name).join("config.json"),
        ),
        (
            index.join(".cache/it/oa/itoa"),
            to.join("index").join(&name).join(".cache/it/oa/itoa"),
        ),
    ];
    parts.retain(|(from, _)| from.exists());
    let target = entry(&sysroot.join("lib/rustlib"), "x86_64-unknown-linux")?;
    let toolchain = site.home().join(".rustup");
    fs::create_dir_all(toolchain.join("lib/rustlib")).unwrap();
    for program in ["cargo", "rustc"] {
        if !copy(
            "-l",
            &sysroot.join("bin").join(program),
            &toolchain.join("bin").join(program),
        ) {
            return None;
        }
    }
    for library in fs::read_dir(sysroot.join("lib")).ok()?.flatten() {
        if library.path().is_file() {
            copy(
                "-l",
                &library.path(),
                &toolchain.join("lib").join(library.file_name()),
            );
        }
    }
    copy(
        "-rl",
        &target,
        &toolchain.join("lib/rustlib").join(target.file_name()?),
    );
    for (from, to) in &parts {
        copy("-p", from, to);
    }
    let owner = fs::metadata(site.home()).unwrap().uid().to_string();
    let cargo = site.home().join(".cargo");
    Command::new("/usr/bin/chown")
        .args(["-R", &owner])
        .arg(&cargo)
        .status()
        .unwrap();
    let file = crate_file.file_stem()?.to_str()?;
    (parts.len() == 3).then(|| file.trim_start_matches("itoa-").to_owned())
}

#[test]
fn cargo_builds_offline_with_a_crate_of_the_owners_cache() {
    everywhere(USUAL, |site| {
        let Some(version) = with_crate(site) else {
            println!("skipped: no toolchain or registry cache here");
            return;
        };
        let manifest = format!(
            "[package]\nname = 'demo'\nversion = '0.1.0'\nedition = '2021'\n[dependencies]\nitoa = '={version}'\n"
        );
        site.owned(&site.work().join("Cargo.toml"), &manifest);
        let main = "fn main() { println!(\"{}\", itoa::Buffer::new().format(4711)); }\n";
        site.owned(&site.work().join("src/main.rs"), main);
        let before = picture(&site.home().join(".cargo"));
        let built = site.inside("cargo build --offline -q 2>&1 && target/debug/demo");
        assert_eq!(
            (built.code, built.stdout.as_str()),
            (0, "4711\n"),
            "{built:#?}"
        );
        assert_eq!(picture(&site.home().join(".cargo")), before);
        // What cargo unpacked is in the layer of the scope.
        let unpacked = site.says("ls ~/.cargo/registry/src/*/");
        assert_eq!(unpacked.trim(), format!("itoa-{version}"));
    });
}

#[test]
fn npm_installs_offline_from_the_owners_cache() {
    if !Path::new("/usr/bin/npm").exists() {
        println!("skipped: npm is not installed");
        return;
    }
    everywhere(USUAL, |site| {
        let work = site.work();
        let package = "{ \"name\": \"left\", \"version\": \"1.0.0\", \"main\": \"i.js\" }";
        site.owned(&work.join("left/package.json"), package);
        site.owned(&work.join("left/i.js"), "module.exports = 4711\n");
        let at = work.to_str().unwrap();
        let script = format!(
            "cd {at} && npm pack --silent ./left >/dev/null && npm cache add ./left-1.0.0.tgz && \
             openssl dgst -sha512 -binary left-1.0.0.tgz | base64 -w0 && rm -r left left-1.0.0.tgz"
        );
        let integrity = site.host(&["/bin/sh", "-c", &script]).stdout;
        let root = "{ \"name\": \"demo\", \"version\": \"1.0.0\", \"dependencies\": { \"left\": \"1.0.0\" } }";
        site.owned(&work.join("package.json"), root);
        let lock = serde_json::json!({
            "name": "demo", "version": "1.0.0", "lockfileVersion": 3, "requires": true,
            "packages": {
                "": { "name": "demo", "version": "1.0.0", "dependencies": { "left": "1.0.0" } },
                "node_modules/left": {
                    "version": "1.0.0",
                    "resolved": "https://registry.npmjs.org/left/-/left-1.0.0.tgz",
                    "integrity": format!("sha512-{integrity}"),
                },
            },
        });
        site.owned(&work.join("package-lock.json"), &lock.to_string());
        let before = picture(&site.home().join(".npm"));
        let run = site.inside("npm ci --offline 2>&1 && node -p 'require(\"left\")'");
        assert_eq!(run.code, 0, "{run:#?}");
        assert!(run.stdout.ends_with("4711\n"), "{run:#?}");
        assert_eq!(picture(&site.home().join(".npm")), before);
    });
}

#[test]
fn pip_installs_from_a_package_in_the_owners_cache() {
    let has_pip = Command::new("/usr/bin/python3")
        .args(["-m", "pip", "--version"])
        .output();
    if !has_pip.is_ok_and(|output| output.status.success()) {
        println!("skipped: pip is not installed");
        return;
    }
    everywhere(USUAL, |site| {
        let cache = site.home().join(".cache/pip/wheels");
        let make = format!(
            "import zipfile, pathlib; d = pathlib.Path('{}'); d.mkdir(parents=True); \
             z = zipfile.ZipFile(d / 'demo-1.0-py3-none-any.whl', 'w'); z.writestr('demo.py', 'x = 4711'); \
             z.writestr('demo-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n'); \
             z.writestr('demo-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'); \
             z.writestr('demo-1.0.dist-info/RECORD', ''); z.close()",
            cache.display()
        );
        site.host(&["/usr/bin/python3", "-c", &make]);
        let before = picture(&site.home().join(".cache"));
        let run = site.inside(
            "/usr/bin/python3 -m pip install -q --no-index --find-links ~/.cache/pip/wheels --target t demo 2>&1; \
             PYTHONPATH=t /usr/bin/python3 -c 'import demo; print(demo.x)'",
        );
        assert_eq!(run.code, 0, "{run:#?}");
        assert!(run.stdout.ends_with("4711\n"), "{run:#?}");
        assert_eq!(picture(&site.home().join(".cache")), before);
    });
}

/// A run owns its private home, and can put links and files where tools and caches of the owner are shown.
#[test]
fn what_a_run_puts_in_the_way_does_not_stop_later_runs() {
    with_every_backend(USUAL, |site| {
        fill(site);
        let tool = site.home().join(".cargo/bin/tool");
        site.owned(&tool, "#!/bin/sh\necho tool\n");
        site.host(&["/usr/bin/chmod", "755", tool.to_str().unwrap()]);
        let outside = site.work().join("outside");
        site.owned(&outside.join("kept"), "kept");
        for way in [
            format!("ln -s {} ~/.cargo", outside.display()),
            "ln -s /etc ~/.cargo".to_owned(),
            "ln -s nowhere ~/.cargo".to_owned(),
            "echo file > ~/.cargo".to_owned(),
            "mkdir ~/.cargo && ln -s / ~/.cargo/bin".to_owned(),
            "mkdir -p ~/.cargo && echo x > ~/.cargo/registry".to_owned(),
            "mkdir -p ~/.cargo/bin && chmod 0 ~/.cargo".to_owned(),
        ] {
            let run = site.inside(&format!("mv ~/.cargo ~/away-$(date +%N) && {way}"));
            assert_eq!(run.code, 0, "{way}: {run:#?}");
            let run = site.inside("tool; cat ~/.cargo/registry/cache/crate");
            assert_eq!(run.stdout, "tool\ncrate\n", "{way}: {run:#?}");
        }
        assert_eq!(crate::site::names(&outside), ["kept"]);
        assert_eq!(fs::read_to_string(tool).unwrap(), "#!/bin/sh\necho tool\n");
    });
}
