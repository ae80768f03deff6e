//! `interlock companion` with dunst, a real notification server, in an X server. `tests/run-heavy companion` asks
//! for it; elsewhere it is skipped.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::asking::Waiting;
use testkit::{Machine, eventually};

use crate::desktop::{Bus, CompanionProcess, Desktop, Lock};

/// A desktop of an X server, dunst and a locker.
struct DunstDesktop {
    desktop: Desktop,
    display: String,
    _server: CompanionProcess,
    _dunst: CompanionProcess,
}

impl DunstDesktop {
    fn start(machine: &Machine) -> Self {
        let bus = Bus::start(machine).expect("dbus-daemon is installed");
        let (server, display) = x_server();
        // Its menu of buttons is a program that is given the lines, and prints the chosen one.
        let menu = machine.script(
            "bin/menu",
            &format!(
                "#!/bin/sh\ntee {0}/offered | grep -m1 -F \"#$(cat {0}/choice) \"\n",
                machine.root().display()
            ),
        );
        fs::set_permissions(&menu, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = format!("[global]\ndmenu = {}\n", menu.display());
        let settings = machine.file("dunstrc", settings);
        let dunst = Command::new("dunst")
            .arg("-conf")
            .arg(&settings)
            .env("DISPLAY", &display)
            .env("DBUS_SESSION_BUS_ADDRESS", &bus.address)
            .env("HOME", machine.root().join("home"))
            .spawn()
            .expect("dunst is installed");
        let desktop = Self {
            desktop: Desktop::with_real_server(bus),
            display,
            _server: server,
            _dunst: CompanionProcess(dunst),
        };
        eventually("dunst answers", || {
            desktop.control(&["count", "displayed"]).is_some()
        });
        desktop
    }

    fn control(&self, words: &[&str]) -> Option<String> {
        let output = Command::new("dunstctl")
            .args(words)
            .env("DISPLAY", &self.display)
            .env("DBUS_SESSION_BUS_ADDRESS", &self.desktop.bus.address)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| said.trim().to_owned())
    }

    #[track_caller]
    fn displays(&self, count: &str) {
        eventually("so many notifications", || {
            self.control(&["count", "displayed"]).as_deref() == Some(count)
        });
    }

    /// Presses a button by the menu, until the caller has what it waits for.
    fn press(&self, machine: &Machine, label: &str) {
        fs::write(machine.root().join("choice"), label).unwrap();
        // A button counts when its notification has stood there for a moment.
        std::thread::sleep(Duration::from_millis(900));
        self.control(&["context"]).expect("dunst has a menu");
    }
}

fn x_server() -> (CompanionProcess, String) {
    let mut server: Child = Command::new("Xvfb")
        .args([
            "-displayfd",
            "1",
            "-screen",
            "0",
            "800x600x24",
            "-nolisten",
            "tcp",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("Xvfb is installed");
    let mut number = String::new();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut number).unwrap();
    (CompanionProcess(server), format!(":{}", number.trim()))
}

#[test]
fn buttons_of_a_real_server_decide() {
    if std::env::var_os("INTERLOCK_DUNST").is_none() {
        println!("skipped: tests/run-heavy companion sets INTERLOCK_DUNST");
        return;
    }
    let machine = Machine::new();
    machine.start();
    let dunst = DunstDesktop::start(&machine);
    dunst.desktop.lock(Lock::Unknown, Lock::Open);
    let _companion = dunst.desktop.bus.companion(&machine, &["--allow"]);
    // By its defaults, this server draws markup and does not say so. A command cannot hide a part of
    // itself by that: what could be markup is spelled out, and not allowed there.
    let hidden = "touch marker '<span alpha=\"1\" size=\"1\">hidden</span>'";
    let waiting = Waiting::new(&machine, &["--", hidden]);
    dunst.displays("1");
    dunst.press(&machine, "Deny");
    assert_eq!(waiting.end().code, 3);
    assert!(!machine.work().join("marker").exists());
    let offered = fs::read_to_string(machine.root().join("offered")).unwrap();
    assert!(!offered.contains("Allow once"), "{offered}");
    dunst.displays("0");
    let history = dunst.control(&["history"]).unwrap();
    assert!(!history.contains("<span"), "{history}");
    assert!(history.contains("u{3C}span"), "{history}");
    let waiting = Waiting::new(&machine, &["--", "touch marker && touch second-marker"]);
    dunst.displays("1");
    dunst.press(&machine, "Allow once");
    let run = waiting.end();
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(machine.work().join("second-marker").exists());
    let offered = fs::read_to_string(machine.root().join("offered")).unwrap();
    for label in ["#Review ", "#Deny ", "#Allow once "] {
        assert!(offered.contains(label), "{offered}");
    }
    dunst.displays("0");
    let waiting = Waiting::new(&machine, &["--", "touch other"]);
    dunst.displays("1");
    dunst.press(&machine, "Deny");
    assert_eq!(waiting.end().code, 3);
    assert!(!machine.work().join("other").exists());
    dunst.displays("0");
    // One that is dismissed stays undecided; one that ends elsewhere is closed.
    let waiting = Waiting::new(&machine, &["--", "touch other"]);
    dunst.displays("1");
    dunst.control(&["close"]).unwrap();
    dunst.displays("0");
    assert_eq!(machine.pending_ids(), [waiting.id.as_str()]);
    let second = Waiting::new(&machine, &["--", "touch second"]);
    dunst.displays("1");
    machine.ok(&["approvals", "deny", &second.id]);
    dunst.displays("0");
    assert_eq!(second.end().code, 3);
    machine.ok(&["approvals", "deny", &waiting.id]);
    assert_eq!(waiting.end().code, 3);
    // While the session is locked there is no such button.
    dunst.desktop.lock(Lock::Unknown, Lock::Locked);
    let waiting = Waiting::new(&machine, &["--", "touch other"]);
    dunst.displays("1");
    dunst.press(&machine, "Deny");
    assert_eq!(waiting.end().code, 3);
    let offered = fs::read_to_string(machine.root().join("offered")).unwrap();
    assert!(!offered.contains("Allow once"), "{offered}");
}
