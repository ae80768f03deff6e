//! Scopes below another directory than the state directory: `workspaceRoot`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::site::{Site, everywhere, names};

fn configure(site: &Site, root: &Path, more: &str) {
    let root = root.display();
    site.configure(&format!("mode: 'all', workspaceRoot: '{root}'{more}"));
}

/// Home, scratch workspace and layers lie there; nothing of it is seen inside.
#[test]
fn scopes_lie_where_the_owner_says_and_are_hidden() {
    everywhere("mode: 'all'", |site| {
        let root = site.home().join("boxes");
        configure(site, &root, "");
        assert_eq!(
            site.says("echo kept > $HOME/note; echo x > scratch; cat $HOME/note"),
            "kept\n"
        );
        let scopes = names(&root);
        assert_eq!(scopes.len(), 1, "{scopes:?}");
        let scope = root.join(&scopes[0]);
        assert_eq!(
            fs::read_to_string(scope.join("home/note")).unwrap(),
            "kept\n"
        );
        assert_eq!(
            fs::read_to_string(scope.join("workspace/scratch")).unwrap(),
            "x\n"
        );
        assert_eq!(
            fs::metadata(&root).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let listed = site.machine.ok(&["sandbox", "list", "--json"]).json();
        assert!(listed.to_string().contains(&scopes[0]), "{listed:#}");

        // No view shows it, neither by its path nor by a bind.
        configure(site, &root, ", view: 'host', workspaceAccess: 'cow'");
        let seen = site.inside(&format!(
            "ls -A {}; echo; cat {}/*/scope.json",
            root.display(),
            root.display()
        ));
        assert_eq!(seen.stdout.trim(), "", "{seen:#?}");
        assert_eq!(site.says("echo new > made; cat made"), "new\n");
        assert_eq!(
            fs::read_to_string(site.work().join("made")).unwrap(),
            "new\n"
        );
        for source in [
            root.clone(),
            scope.join("home"),
            site.machine.root().to_owned(),
        ] {
            let bind = format!(", binds: ['{}:/shown']", source.display());
            configure(site, &root, &bind);
            let run = site.inside("ls /shown");
            assert!(run.stderr.contains("sandbox.binds"), "{run:#?}");
        }
        let removed = site.machine.run(&["sandbox", "recreate", "--all"]);
        assert_eq!(removed.code, 0, "{removed:#?}");
        assert_eq!(names(&root), Vec::<String>::new());
        let links = fs::read_dir(site.machine.state().join("sandboxes")).unwrap();
        let is_link = |entry: fs::DirEntry| entry.file_type().unwrap().is_symlink();
        assert!(!links.map(Result::unwrap).any(is_link));
    });
}

/// A scope is found by every command also when the config names another directory, or none.
#[test]
fn a_changed_directory_leaves_no_scope_behind() {
    everywhere("mode: 'all'", |site| {
        let (one, two) = (site.home().join("one"), site.home().join("two"));
        for root in [&one, &two] {
            configure(site, root, "");
            site.says("true");
        }
        site.configure("mode: 'all', view: 'host'");
        // Of other scopes, too, nothing is to be seen.
        for root in [&one, &two] {
            assert_eq!(
                site.says(&format!("ls -A {} | wc -l", root.display())),
                "0\n"
            );
        }
        site.machine.ok(&["sandbox", "recreate", "--all"]);
        assert_eq!(names(&one).len() + names(&two).len(), 0);
        // A directory that the owner removed is no reason to fail.
        configure(site, &one, "");
        site.says("true");
        let ended = site.machine.run(&["sandbox", "recreate", "--all"]);
        assert_eq!(ended.code, 0, "{ended:#?}");
        site.says("true");
        fs::remove_dir_all(&one).unwrap();
        let ended = site.machine.run(&["sandbox", "recreate", "--all"]);
        assert_eq!(ended.code, 0, "{ended:#?}");
        assert_eq!(site.says("echo again"), "again\n");
    });
}

#[test]
fn an_unsafe_directory_is_refused_and_nothing_runs() {
    everywhere("mode: 'all', workspaceAccess: 'rw'", |site| {
        let open = site.home().join("open");
        site.host(&["/usr/bin/mkdir", "-m", "755", open.to_str().unwrap()]);
        let link = site.home().join("link");
        site.host(&["/usr/bin/ln", "-s", "/etc", link.to_str().unwrap()]);
        let work = site.work();
        for (root, why) in [
            ("relative", "absolute"),
            ("/", "other files lie in it"),
            ("/tmp", "other files lie in it"),
            ("/etc/boxes", "the system's"),
            (link.to_str().unwrap(), "the system's"),
            (open.to_str().unwrap(), "0700"),
            (work.join("boxes").to_str().unwrap(), "the workspace"),
            (work.to_str().unwrap(), ""),
            (site.machine.root().to_str().unwrap(), ""),
            (
                site.machine.state().join("x").to_str().unwrap(),
                "the state directory",
            ),
            ("/nowhere/boxes", "cannot be looked at"),
        ] {
            configure(site, Path::new(root), ", workspaceAccess: 'rw'");
            let run = site.inside("touch ran");
            assert_ne!(run.code, 0, "{root}: {run:#?}");
            assert!(run.stderr.contains("workspaceRoot"), "{root}: {run:#?}");
            assert!(run.stderr.contains(why), "{root}: {run:#?}");
            assert!(!work.join("ran").exists(), "{root}");
        }
        assert!(!Path::new("/etc/boxes").exists());
    });
}
