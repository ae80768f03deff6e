//! Programs that a run starts: `tree: enforce`.

use std::path::Path;

use serde_json::json;

use crate::site::everywhere;

const ENFORCE: &str = "mode: 'all', workspaceAccess: 'rw', tree: 'enforce'";

/// What the command names runs, with its interpreters and helpers; nothing else does, by no way.
#[test]
fn only_listed_programs_are_executed() {
    everywhere(ENFORCE, |site| {
        assert_eq!(site.says("echo a b | wc -w"), "2\n");
        assert_eq!(
            site.says(
                "timeout 20 cat /etc/hostname >/dev/null; ls /etc | head -1 >/dev/null; echo ok"
            ),
            "ok\n"
        );
        // A program that the text does not name literally.
        let hidden = [
            "x=un; y=ame; $x$y",
            "eval \"$(echo dW5hbWU= | base64 -d)\"",
            "perl -e 'exec(\"/usr/bin/una\" . \"me\") or print \"no $!\"'",
            "find /etc/hostname -exec /usr/bin/una'me' \\; 2>&1 | grep -c denied; true",
        ];
        for text in hidden {
            let run = site.inside(text);
            assert!(!run.stdout.contains("Linux"), "{text}: {run:#?}");
        }
        // Copies, and files that a run makes.
        let run = site.inside(
            "cp /bin/cat copy; chmod 755 copy; ./copy /etc/hostname; cp /bin/cat /tmp/copy; /tmp/copy /etc/hostname; \
             cp /bin/cat $HOME/copy; $HOME/copy /etc/hostname; ln -s /usr/bin/id link; printf '#!/bin/sh\\necho RAN\\n' > s; chmod 755 s; ./s",
        );
        assert_eq!(run.stdout, "", "{run:#?}");
        assert!(
            run.stderr.matches("ermission denied").count() >= 4,
            "{run:#?}"
        );
    });
}

/// Files in memory, deleted files and descriptors are not executed either.
#[test]
fn files_without_a_path_are_not_executed() {
    everywhere(ENFORCE, |site| {
        let program = r#"perl -e '
            sub copy_to { open(my $f, "<", "/usr/bin/id") or die; binmode $f; local $/; my $d = <$f>; syswrite($_[0], $d); }
            for my $flags (0, 1, 0x10, 0x11) {
                my $fd = syscall(319, my $n = "x", $flags);
                if ($fd < 0) { print "no memory file: $!\n"; next }
                open(my $h, "+<&=", $fd); copy_to($h);
                my $p = fork; if (!$p) { exec("/proc/self/fd/$fd", "-u"); print "no: $!\n"; exit 0 } waitpid($p, 0);
            }
            open(my $h, "+>", "/tmp/gone"); chmod 0755, "/tmp/gone"; copy_to($h); my $fd = fileno($h);
            my $p = fork; if (!$p) { exec("/proc/self/fd/$fd", "-u"); print "no: $!\n"; exit 0 } waitpid($p, 0);
        '"#;
        let run = site.inside(program);
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert_eq!(lines.len(), 5, "{run:#?}");
        assert!(lines.iter().all(|line| line.starts_with("no")), "{run:#?}");
    });
}

/// Moving files between directories works, `git` and compilers have their helpers, and scripts their
/// interpreters.
#[test]
fn work_goes_on_with_listed_programs() {
    everywhere(ENFORCE, |site| {
        let text = "export PATH=/usr/local/bin:$PATH GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; \
             mkdir -p a b && echo x > a/f && mv a/f b/f && git init -q . && git add b && git commit -qm one && git gc -q && git log --oneline | wc -l";
        assert_eq!(site.says(text), "1\n");
        if Path::new("/usr/bin/cc").exists() {
            site.owned(&site.work().join("x.c"), "int main() { return 0; }");
            assert_eq!(site.says("cc -o x.out x.c && echo built"), "built\n");
        }
        if Path::new("/usr/bin/npm").exists() {
            site.owned(
                &site.work().join("package.json"),
                r#"{"name":"p","version":"1.0.0","scripts":{"build":"echo built"}}"#,
            );
            assert_eq!(site.says("npm run -s build"), "built\n");
        }
    });
}

/// Files of allowlist entries may be started by what the command names.
#[test]
fn entries_list_their_programs() {
    everywhere(ENFORCE, |site| {
        let text = "x=una; perl -e 'exec(\"/usr/bin/$ARGV[0]me\") or print \"no\"' $x";
        assert_eq!(site.inside(text).stdout, "no");
        site.machine.ok(&["approvals", "allowlist", "add", "uname"]);
        assert_eq!(site.says(text), "Linux\n");
    });
}

/// The plan says what may be executed; explain, prompts and audit show that it is limited.
#[test]
fn the_level_is_shown_and_verified() {
    everywhere(ENFORCE, |site| {
        let run = site.machine.run(&["sandbox", "explain", "--verify"]);
        assert_eq!(run.code, 0, "{run:#?}");
        assert!(
            run.stdout.contains("only programs that a command names"),
            "{run:#?}"
        );
        site.says("true");
        let log = site
            .machine
            .ok(&["audit", "log", "--json", "--kind", "run-started"])
            .json();
        let body = &log["records"].as_array().unwrap().last().unwrap()["body"];
        assert_eq!(body["sandbox"]["tree"], json!("enforce"), "{body:#}");
    });
}
