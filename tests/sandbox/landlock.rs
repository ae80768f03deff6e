//! The backend `landlock`: what it holds without namespaces, what works in it, and what it refuses because it
//! cannot hold it. Rows P01, P03, P05 to P20 and P24 to P27, as far as they apply.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use testkit::{Machine, eventually};

use crate::site::{Site, USUAL, with_landlock};

#[test]
fn everyday_work_works() {
    with_landlock(USUAL, |site| {
        site.owned(
            &site.work().join("a.c"),
            "#include <stdio.h>\nint main(void) { puts(\"compiled\"); }\n",
        );
        for (text, expected) in [
            ("cc a.c -o a && ./a", "compiled\n"),
            (
                "mkdir -p d && echo x > d/f && cp -a d e && mv e/f g && ln -s g l && cat l && rm -r d",
                "x\n",
            ),
            ("chmod 750 g && stat -c %a g", "750\n"),
            (
                "chmod u+x,g-r g && stat -c %a g && (cd e && chmod 700 . && stat -c %a .)",
                "710\n700\n",
            ),
            (
                "touch -d 2001-02-03 g && stat -c %y g | cut -d' ' -f1",
                "2001-02-03\n",
            ),
            (
                "tar cf t.tar g && mkdir x && tar xf t.tar -C x && stat -c %a:%Y x/g g | uniq | wc -l",
                "1\n",
            ),
            ("install -m 640 g h && stat -c %a h", "640\n"),
            (
                "mkdir r && cd r && git init -q && git config user.name a && git config user.email b && echo 1 > f && git add f && git commit -qm one && git gc -q && git log --format=%s",
                "one\n",
            ),
            (
                "python3 -c 'import os, tempfile, subprocess as s; d = tempfile.mkdtemp(); os.setxattr(\"g\", \"user.a\", b\"v\"); print(os.getxattr(\"g\", \"user.a\"), d.startswith(os.environ[\"TMPDIR\"]), s.check_output([\"echo\", \"y\"]))'",
                "b'v' True b'y\\n'\n",
            ),
            ("bash -c 'cat <(echo pipe)'", "pipe\n"),
            (
                "echo kept > ~/file; cat ~/file; cat /dev/null; echo x > /dev/null",
                "kept\n",
            ),
        ] {
            let run = site.inside(text);
            assert_eq!(run.stdout, expected, "{text}: {run:#?}");
        }
        // The home is that of the scope, and later runs find it; the owner's own is as it was.
        assert_eq!(site.says("cat ~/file"), "kept\n");
        assert!(!site.home().join("file").exists());
        let owner = fs::metadata(site.work()).unwrap().uid();
        assert_eq!(fs::metadata(site.work().join("a")).unwrap().uid(), owner);
        // A terminal, a background session, a patch.
        let terminal =
            site.machine
                .run(&["exec", "--pty", "--", "tty >/dev/null && echo terminal"]);
        assert!(terminal.stdout.contains("terminal"), "{terminal:#?}");
        let patch = "*** Begin Patch\n*** Add File: patched\n+text\n*** End Patch\n";
        let patched = site
            .machine
            .run_with_input(&["apply-patch", "-"], patch.as_bytes());
        assert_eq!(patched.code, 0, "{patched:#?}");
        assert_eq!(site.says("cat patched"), "text\n");
    });
}

/// P01, P18, P20: files that were not granted are not read, written, linked or renamed.
#[test]
fn only_what_is_granted_is_opened() {
    with_landlock(USUAL, |site| {
        let key = site.home().join(".ssh/id_test");
        site.owned(&key, "the owner's key");
        let outside = site.home().join("outside");
        site.owned(&outside.join("secret"), "outside");
        let state = site.machine.state();
        symlink(&key, site.work().join("link")).unwrap();
        let (key, outside, state) = (key.display(), outside.display(), state.display());
        for attempt in [
            format!("cat {key}"),
            "cat link".to_owned(),
            format!("cat {outside}/secret"),
            format!("ls {outside}"),
            format!("ls {state}"),
            format!("cat {state}/interlock.json"),
            format!("cat {state}/sandboxes/*/scope.json"),
            format!("head -c 1 {state}/run.key"),
            "cat /etc/shadow".to_owned(),
            "ls /root".to_owned(),
            "ls /proc".to_owned(),
            "cat /proc/1/environ".to_owned(),
            "cat /proc/self/environ".to_owned(),
            format!("echo x > {outside}/new"),
            format!("echo x >> {outside}/secret"),
            format!("truncate -s 0 {outside}/secret"),
            format!("mv {outside}/secret {outside}/moved"),
            format!("mv {outside}/secret ."),
            format!("ln {outside}/secret hard"),
            format!("ln {key} hard"),
            format!("rm {outside}/secret"),
            format!("mkdir {outside}/d"),
            "echo x > /usr/bin/x".to_owned(),
            "echo x > /etc/x".to_owned(),
            "echo x > /tmp/x".to_owned(),
            "echo x > /var/tmp/x".to_owned(),
            "echo x > /dev/shm/x".to_owned(),
            "ln /etc/hostname hard".to_owned(),
            "mknod device c 1 3".to_owned(),
        ] {
            let run = site.inside(&attempt);
            assert_ne!(run.code, 0, "{attempt}: {run:#?}");
            assert!(!run.stdout.contains("outside"), "{attempt}: {run:#?}");
            assert!(!run.stdout.contains("owner's key"), "{attempt}: {run:#?}");
        }
        let secret = site.home().join("outside/secret");
        assert_eq!(fs::read_to_string(secret).unwrap(), "outside");
        assert!(!site.work().join("hard").exists());
        let env = site.says("env");
        assert!(
            !env.contains("TOKEN") && env.contains("INTERLOCK_SANDBOX="),
            "{env}"
        );
    });
}

/// Tries to change what a file is, by every call and every way to name it.
const CHANGER: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
target, directory = sys.argv[1], os.path.dirname(sys.argv[1])
os.symlink(target, 'way')
here = os.open(directory, os.O_PATH)
path = os.open(target, os.O_PATH)
name = os.path.basename(target).encode()
whole = target.encode()
def call(number, *words):
    words = [ctypes.c_char_p(w) if isinstance(w, bytes) else ctypes.c_long(w) for w in words]
    result = libc.syscall(number, *words)
    if result == 0: print('CHANGED by', number, words)
times = b'\x01' + b'\0' * 31
for mode in [0, 0o777, 0o4755]:
    call(90, whole, mode); call(90, b'way', mode); call(268, here, name, mode); call(452, here, name, mode, 0)
    call(452, path, b'', mode, 0x1000); call(91, path, mode); call(268, -100, b'/proc/self/fd/%d' % path, mode)
    call(90, b'/proc/self/fd/%d' % path, mode); call(90, b'/dev/fd/%d' % path, mode)
    call(90, b'./../' * 20 + whole, mode)
for owner in [os.getuid(), 65533]:
    call(92, whole, owner, owner); call(94, whole, owner, owner); call(260, here, name, owner, owner, 0)
    call(260, path, b'', owner, owner, 0x1000); call(93, path, owner, owner)
call(132, whole, times); call(235, whole, times); call(261, here, name, times); call(280, here, name, times, 0)
call(280, path, b'', times, 0x1000); call(280, here, name, 0, 0x100); call(132, whole, 0)
for attribute in [b'user.x', b'security.capability', b'system.posix_acl_access', b'trusted.x']:
    call(188, whole, attribute, b'v', 1, 0); call(189, whole, attribute, b'v', 1, 0)
    call(190, path, attribute, b'v', 1, 0); call(197, whole, attribute)
call(463, here, name, 0, b'user.x', 0, 0); call(469, here, name, 0, 0, 0)
print('tried')
";

#[test]
fn what_a_file_is_cannot_be_changed_where_it_cannot_be_written_to() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the numbers of calls are those of x86-64");
        return;
    }
    with_landlock("mode: 'all', workspaceAccess: 'ro'", |site| {
        let key = site.home().join(".ssh/id_test");
        let read_only = site.work().join("read-only");
        let system = std::path::Path::new("/etc/passwd");
        site.owned(&key, "key");
        site.owned(&read_only, "ro");
        site.owned(&site.work().join("changer.py"), CHANGER);
        let changer = site.work().join("changer.py").display().to_string();
        let state = site.machine.state();
        let facts = |path: &std::path::Path| {
            let found = fs::metadata(path).unwrap();
            (
                found.permissions().mode(),
                found.uid(),
                found.gid(),
                // The state directory changes with every run.
                (path != state).then(|| (found.mtime(), found.ctime_nsec())),
            )
        };
        for target in [
            &*key,
            &read_only,
            &site.home(),
            &site.machine.state(),
            system,
        ] {
            let before = facts(target);
            let run = site.inside(&format!(
                "cd \"$HOME\" && rm -f way && python3 {changer} {}",
                target.display()
            ));
            assert_eq!(run.stdout, "tried\n", "{}: {run:#?}", target.display());
            assert_eq!(facts(target), before, "{}", target.display());
        }
        // By a descriptor that reads what may only be read.
        let run = site.inside(&format!(
            "python3 -c 'import os; f = os.open(\"{}\", os.O_RDONLY); os.fchmod(f, 0)'",
            read_only.display()
        ));
        assert!(run.code != 0 && run.stdout.is_empty(), "{run:#?}");
        assert_eq!(facts(&read_only).0 & 0o777, 0o600);
    });
}

/// P03, P05 to P08: no socket, no signal and no other process of the same user.
#[test]
fn processes_and_networks_of_the_host_are_out_of_reach() {
    with_landlock(USUAL, |site| {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let socket = site.work().join("host.sock");
        let unix = UnixListener::bind(&socket).unwrap();
        unix.set_nonblocking(true).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
        let mut victim: Command = site.machine.other_program("/usr/bin/sleep");
        let mut victim = victim.arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = victim.id();
        let script = format!(
            "import os, resource, signal, socket, sys\n\
             def attempt(name, f):\n\
             \x20   try:\n\
             \x20       f(); print('DONE', name)\n\
             \x20   except (OSError, ValueError) as error:\n\
             \x20       pass\n\
             for family in [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK]:\n\
             \x20   for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW]:\n\
             \x20       attempt((family, kind), lambda: socket.socket(family, kind))\n\
             attempt('pair', lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))\n\
             attempt('tcp', lambda: socket.create_connection(('127.0.0.1', {port})))\n\
             attempt('kill', lambda: os.kill({pid}, 9))\n\
             attempt('pidfd', lambda: signal.pidfd_send_signal(os.pidfd_open({pid}), 9))\n\
             attempt('limit', lambda: resource.prlimit({pid}, resource.RLIMIT_NOFILE, (0, 0)))\n\
             attempt('nice', lambda: os.setpriority(os.PRIO_PROCESS, {pid}, 19))\n\
             attempt('nice-all', lambda: os.setpriority(os.PRIO_USER, 0, 19))\n\
             attempt('affinity', lambda: os.sched_setaffinity({pid}, {{0}}))\n\
             os.setpriority(os.PRIO_PROCESS, 0, 5); resource.getrlimit(resource.RLIMIT_NOFILE)\n\
             a, b = socket.socketpair(); a.send(b'x'); print('tried')\n"
        );
        site.owned(&site.work().join("attempts.py"), &script);
        assert_eq!(site.says("python3 attempts.py"), "tried\n");
        let run = site.inside(&format!("kill -9 {pid} || echo refused"));
        assert_eq!(run.stdout, "refused\n", "{run:#?}");
        assert_eq!(victim.try_wait().unwrap(), None, "the host's process lives");
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        assert!(!limits.contains("Max open files            0"), "{limits}");
        assert!(tcp.accept().is_err() && unix.accept().is_err());
        victim.kill().unwrap();
        victim.wait().unwrap();
    });
}

/// P10 to P17, P25, P26: the kernel, privileges, descriptors and what a run leaves.
#[test]
fn the_kernel_is_kept_as_by_the_other_backends() {
    with_landlock(USUAL, |site| {
        for attempt in [
            "mount -t tmpfs x /mnt",
            "unshare -U true",
            "unshare -Urmn true",
            "nsenter -t 1 -m true",
            "chroot . /bin/true",
            "sh -c 'echo 1 > /proc/sys/vm/drop_caches'",
            "sh -c 'echo h > /proc/sysrq-trigger'",
            "chmod u+s a.out 2>&1 || touch a.out; chmod 4755 a.out",
            "su -c true",
            "ipcmk -M 100",
        ] {
            let run = site.inside(attempt);
            assert_ne!(run.code, 0, "{attempt}: {run:#?}");
        }
        let shown = site.says("setpriv --dump; ls -l /dev/fd/ 2>/dev/null | wc -l");
        assert!(shown.contains("no_new_privs: 1"), "{shown}");
        let descriptors = "python3 -c \"\nimport os\nfound = []\nfor n in range(200):\n  try:\n    os.fstat(n); found.append(n)\n  except OSError: pass\nprint(found)\"";
        assert_eq!(site.says(descriptors), "[0, 1, 2]\n");
        let mark = format!("98{}", std::process::id());
        let run = site.inside(&format!(
            "(setsid nohup sh -c 'sleep {mark} & sleep {mark}' >/dev/null 2>&1 &) ; echo over"
        ));
        assert_eq!(run.stdout, "over\n", "{run:#?}");
        eventually("nothing of the run is left", || {
            let found = Command::new("/usr/bin/pgrep").args(["-f", &mark]).output();
            found.unwrap().stdout.is_empty()
        });
        // P24
        site.configure(&format!(
            "{USUAL}, allowHostRoot: true, limits: {{ outputBytes: '1m' }}"
        ));
        let result = site.result("yes");
        assert_eq!(result["limit"]["limit"], "output", "{result:#}");
    });
}

#[test]
fn listed_programs_only() {
    with_landlock(&format!("{USUAL}, tree: 'enforce'"), |site| {
        assert_eq!(site.says("cat /dev/null; echo x | tr x y"), "y\n");
        for attempt in [
            "cp /bin/true t && ./t",
            "cat /dev/null; $(echo l)s",
            "python3 -c 'import os; os.execv(\"/usr/bin/una\" + \"me\", [\"x\"])'",
        ] {
            let run = site.inside(attempt);
            assert_ne!(run.code, 0, "{attempt}: {run:#?}");
        }
    });
}

#[test]
fn what_cannot_be_kept_is_refused_with_its_key() {
    with_landlock(USUAL, |site| {
        let bind = site.home().join("bind");
        site.owned(&bind.join("f"), "");
        let moved = format!("binds: ['{}:/elsewhere']", bind.display());
        for (settings, words) in [
            ("workspaceAccess: 'cow'", "sandbox.workspaceAccess: `cow`"),
            ("view: 'host'", "sandbox.view: `host`"),
            (
                "network: { allow: ['ok.test:443'] }",
                "sandbox.network.allow",
            ),
            ("network: { ask: true }", "sandbox.network.ask"),
            (
                "network: { unixSockets: 'own' }",
                "sandbox.network.unixSockets",
            ),
            ("tree: 'log'", "sandbox.tree: `log`"),
            ("limits: { tmp: '64m' }", "sandbox.limits.tmp"),
            ("home: { caches: ['.npm'] }", "sandbox.home.caches"),
            (moved.as_str(), "shows every path where it is"),
        ] {
            site.configure(&format!("mode: 'all', allowHostRoot: true, {settings}"));
            let run = site.inside("echo ran > ran");
            assert_ne!(run.code, 0, "{settings}: {run:#?}");
            assert!(run.stderr.contains(words), "{settings}: {run:#?}");
            assert!(run.stderr.contains("SANDBOX_"), "{settings}: {run:#?}");
        }
        // What lies in the workspace cannot be hidden or protected there.
        site.configure(&format!("{USUAL}, allowHostRoot: true"));
        site.owned(&site.work().join(".git/hooks/pre-commit"), "");
        site.owned(&site.work().join(".git/HEAD"), "ref: refs/heads/main\n");
        let run = site.inside("echo ran > ran");
        assert!(run.stderr.contains("cannot protect"), "{run:#?}");
        assert!(!site.work().join("ran").exists());
        site.configure("mode: 'all', workspaceAccess: 'ro', allowHostRoot: true");
        assert_eq!(
            site.says("cat .git/HEAD; echo x > y || echo fixed"),
            "ref: refs/heads/main\nfixed\n"
        );
    });
    if testkit::is_root() {
        let site = Site::started(Machine::new(), &format!("{USUAL}, backend: 'landlock'"));
        let run = site.inside("echo ran > ran");
        assert!(run.stderr.contains("allowHostRoot"), "{run:#?}");
        assert!(!site.work().join("ran").exists());
    }
}

#[test]
fn explain_lists_what_it_lacks_and_verifies_the_rest() {
    with_landlock(USUAL, |site| {
        let explained = site.machine.run(&["sandbox", "explain", "--verify"]);
        assert_eq!(explained.code, 0, "{explained:#?}");
        for words in [
            "lacks ",
            "names, sizes, times",
            "landlock works",
            "ok   there is no network",
        ] {
            assert!(explained.stdout.contains(words), "{words}: {explained:#?}");
        }
        let value = site.machine.run(&["sandbox", "explain", "--json"]).json();
        assert_eq!(value["sandbox"]["backend"], "landlock");
        assert!(value["lacks"].as_array().unwrap().len() > 5, "{value:#}");
        assert_eq!(site.inside("true").code, 0);
        let records = site
            .machine
            .run(&["audit", "log", "--kind", "run-ended", "--json"])
            .json();
        let last = records["records"].as_array().unwrap().last().unwrap();
        assert_eq!(last["body"]["sandbox"]["backend"], "landlock", "{last:#}");
    });
}

/// Takes Landlock away from a program and all that it starts.
const WITHOUT: &str = r"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50026), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *row) for row in rows))
head = struct.pack('HxxxxxxQ', len(rows), ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.c_char_p(head)) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_kernel_without_it_runs_nothing() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    let site = Site::started(machine, &format!("{USUAL}, backend: 'landlock'"));
    let script = site.machine.root().join("without.py");
    site.owned(&script, WITHOUT);
    let own = site.machine.command(&["exec", "--", "echo ran > ran"]);
    let words: Vec<_> = own.get_args().collect();
    let mut command = Command::new(own.get_program());
    // `setpriv …flags… BINARY …`: the script goes in front of the binary.
    let binary = words
        .iter()
        .position(|word| *word == site.machine.binary().as_os_str());
    let binary = binary.expect("the binary is a word of the command");
    command
        .args(&words[..binary])
        .arg("/usr/bin/python3")
        .arg(&script);
    command
        .args(&words[binary..])
        .current_dir(site.work())
        .env_clear();
    for (name, value) in own.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let run = testkit::finish(&mut command);
    assert!(run.stderr.contains("SANDBOX_UNAVAILABLE"), "{run:#?}");
    assert!(run.stderr.contains("Landlock"), "{run:#?}");
    assert!(!site.work().join("ran").exists());
}
