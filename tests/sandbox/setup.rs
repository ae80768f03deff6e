//! `interlock sandbox setup`. The files of AppArmor, and the program that loads profiles, are laid out in a
//! mount namespace of the test: its machine may have none.

use std::fs;
use std::path::Path;

use testkit::{Machine, Run};

use crate::site::has_bubblewrap;

/// Arranges a system whose AppArmor restricts user namespaces. A stand-in loads profiles: it notes its words.
const RESTRICTED: &str = r#"set -e
mount -t tmpfs x /sys/module
mkdir -p /sys/module/apparmor/parameters
echo Y > /sys/module/apparmor/parameters/enabled
mount -t tmpfs x /proc/sys/kernel
echo 1 > /proc/sys/kernel/apparmor_restrict_unprivileged_userns
echo 65534 > /proc/sys/kernel/overflowuid
mount --bind "$ROOT/etc" /etc
mount -t tmpfs -o mode=755 x /usr/local/bin
install -m 755 "$BINARY" /usr/local/bin/interlock
mount --bind "$ROOT/sbin" /usr/sbin
"#;

/// Runs shell text as root on such a system; `$ROOT` is the machine's directory.
fn restricted(machine: &Machine, text: &str) -> Run {
    let mut command = machine.other_program("/usr/bin/unshare");
    command.args(["-m", "sh", "-c", &format!("{RESTRICTED}{text}")]);
    command.env("ROOT", machine.root());
    command.env("BINARY", machine.binary());
    testkit::finish(&mut command)
}

#[test]
fn a_profile_is_written_where_apparmor_restricts_user_namespaces() {
    if !testkit::is_root() {
        println!("skipped: only root writes profiles");
        return;
    }
    let machine = Machine::new();
    let root = machine.root();
    fs::create_dir_all(root.join("etc/apparmor.d")).unwrap();
    fs::create_dir_all(root.join("sbin")).unwrap();
    let parser = root.join("sbin/apparmor_parser");
    fs::write(
        &parser,
        format!("#!/bin/sh\necho \"$@\" >> {}/loaded\n", root.display()),
    )
    .unwrap();
    fs::set_permissions(&parser, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let profile = root.join("etc/apparmor.d/interlock");
    let loaded = root.join("loaded");
    let installed = "/usr/local/bin/interlock";
    // Only root.
    let run = restricted(
        &machine,
        &format!("exec setpriv --reuid 65534 --clear-groups {installed} sandbox setup"),
    );
    run.refused(1, "SANDBOX_SETUP");
    assert!(
        run.stderr.contains("sudo interlock sandbox setup"),
        "{run:#?}"
    );
    // Not for a program that an ordinary account can replace.
    let replaceable = format!(
        "mkdir /usr/local/bin/open; chmod 777 /usr/local/bin/open; cp {installed} /usr/local/bin/open/; exec /usr/local/bin/open/interlock sandbox setup"
    );
    let run = restricted(&machine, &replaceable);
    run.refused(1, "SANDBOX_SETUP");
    assert!(
        run.stderr.contains("can be changed by others than root"),
        "{run:#?}"
    );
    // Not over what another hand wrote.
    fs::write(&profile, "profile other {}\n").unwrap();
    let setup = format!("exec {installed} sandbox setup");
    restricted(&machine, &setup).refused(1, "SANDBOX_SETUP");
    assert_eq!(fs::read_to_string(&profile).unwrap(), "profile other {}\n");
    fs::remove_file(&profile).unwrap();
    assert!(!loaded.exists());
    // Twice, since programs are replaced by newer ones.
    for times in 1..=2 {
        let run = restricted(&machine, &setup);
        assert_eq!(run.code, 0, "{run:#?}");
        let text = fs::read_to_string(&profile).unwrap();
        assert!(
            text.contains(
                "profile interlock /usr/local/bin/interlock flags=(unconfined) {\n  userns,\n"
            ),
            "{text}"
        );
        let words = "--replace /etc/apparmor.d/interlock\n".repeat(times);
        assert_eq!(fs::read_to_string(&loaded).unwrap(), words);
        assert_eq!(
            fs::read_dir(root.join("etc/apparmor.d")).unwrap().count(),
            1
        );
    }
    // A loader that fails is told.
    fs::write(&parser, "#!/bin/sh\necho no such abi >&2; exit 1\n").unwrap();
    let run = restricted(&machine, &setup);
    run.refused(1, "SANDBOX_SETUP");
    assert!(run.stderr.contains("no such abi"), "{run:#?}");
}

/// AppArmor's own program reads the profile, where it is new enough to know of user namespaces.
#[test]
fn the_profile_is_one_that_apparmor_reads() {
    let parser = "/usr/sbin/apparmor_parser";
    let version = std::process::Command::new(parser).arg("--version").output();
    let version = version.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    let is_new = version.is_ok_and(|text| {
        let number = text
            .split_whitespace()
            .find_map(|word| word.split_once('.'));
        number.is_some_and(|(major, _)| major.parse::<u32>().is_ok_and(|major| major >= 4))
    });
    if !is_new {
        println!("skipped: AppArmor 4 is not installed");
        return;
    }
    let machine = Machine::new();
    let printed = machine.ok(&["sandbox", "setup", "--print"]).stdout;
    let profile = machine.root().join("profile");
    fs::write(&profile, printed).unwrap();
    let mut command = std::process::Command::new(parser);
    let run = testkit::finish(command.args(["-Q", "-K"]).arg(&profile));
    assert_eq!(run.code, 0, "{run:#?}");
}

/// The same text for everyone, and nothing changed on a system that restricts nothing.
#[test]
fn setup_does_nothing_where_nothing_is_restricted() {
    let machine = Machine::new();
    let printed = machine.ok(&["sandbox", "setup", "--print"]).stdout;
    assert!(printed.contains("\n  userns,\n"), "{printed}");
    assert!(
        printed.contains(machine.binary().to_str().unwrap()),
        "{printed}"
    );
    let restricts = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    let restricts = fs::read_to_string(restricts).is_ok_and(|word| word.trim() != "0");
    if restricts {
        println!("skipped: this system restricts user namespaces");
        return;
    }
    let before = Path::new("/etc/apparmor.d/interlock").exists();
    let run = machine.ok(&["sandbox", "setup"]);
    assert!(run.stdout.contains("nothing is to be done"), "{run:#?}");
    assert_eq!(Path::new("/etc/apparmor.d/interlock").exists(), before);
}

/// `doctor` names the command where AppArmor is what stops the native backend.
#[test]
fn the_doctor_names_setup_where_apparmor_restricts() {
    if !testkit::is_root() || !has_bubblewrap() {
        println!("skipped: needs root and bubblewrap");
        return;
    }
    let machine = Machine::new();
    machine.start();
    let text = "mount -t tmpfs x /proc/sys/kernel; mkdir /proc/sys/kernel/random; echo 65534 > /proc/sys/kernel/overflowuid; \
                echo 1 > /proc/sys/kernel/apparmor_restrict_unprivileged_userns; mount --bind /dev/null /usr/bin/bwrap; \
                exec \"$BINARY\" doctor --json";
    let mut command = machine.other_program("/usr/bin/unshare");
    command.args(["-m", "sh", "-c", text]);
    command.env("BINARY", machine.binary());
    let told = testkit::finish(&mut command).json();
    let found = &told["sandbox"]["backends"][1];
    assert_eq!(found["works"], false, "{told:#}");
    assert_eq!(found["fix"], "sudo interlock sandbox setup", "{told:#}");
}
