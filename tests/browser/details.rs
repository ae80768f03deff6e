//! What an approval shows besides its command: where it was shown, how many ask for the same, and whether
//! it can be asked again.

use serde_json::json;
use testkit::browser::{Browser, Screen};
use testkit::terminal::Terminal;
use testkit::ws::{EVERYTHING, now_ms};
use testkit::{Machine, eventually};

use super::inbox::{open_card, ready};
use super::{Agent, marker};

/// The time of an approval is over.
fn expire(machine: &Machine, id: &str) {
    let database = rusqlite::Connection::open(machine.state().join("interlock.db")).unwrap();
    let past = i64::try_from(now_ms()).unwrap() - 1;
    let values = rusqlite::params![past, id];
    let change = "UPDATE approval SET expires_at_ms = ?1 WHERE id = ?2";
    assert_eq!(database.execute(change, values).unwrap(), 1);
}

#[test]
fn a_card_says_where_it_was_shown() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let mut other = gateway.connect(EVERYTHING);
    other.ok("ui.open", &json!({ "view": "inbox" }));
    let id = agent.ask(&machine, "git push origin main");
    open_card(&browser, &id);
    let receipts = format!("document.getElementById('receipts-{id}').innerText");
    browser.until(
        "its own receipts",
        &format!("/browser: sent \\(Chrome on Linux\\) [0-9:]+, seen \\(Chrome on Linux\\)/.test({receipts})"),
    );
    browser.until(
        "a page that did not open it",
        &format!("{receipts}.includes('browser: sent (a test)')"),
    );
    // The receipt of another one arrives by itself.
    let mut page = gateway.connect(EVERYTHING);
    page.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": id } }),
    );
    browser.until(
        "the other receipt",
        &format!("{receipts}.includes('seen (a test)')"),
    );
    browser.window_shot("receipts-1280");
    let records = machine
        .ok(&["audit", "log", "--kind", "delivery", "--json"])
        .stdout;
    for part in ["\"web:", "\"sent\"", "\"seen\"", "Chrome on Linux"] {
        assert!(records.contains(part), "{part}: {records}");
    }
}

#[test]
fn equal_plans_are_one_row_and_are_decided_alike_or_one_by_one() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let same = "git push origin main";
    let first: Vec<String> = (0..3).map(|_| agent.ask(&machine, same)).collect();
    let other = agent.ask(&machine, "git push origin other");
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.until("two rows", "document.querySelectorAll('.row').length === 2");
    let head = browser.js("document.querySelector('.row[data-equal]').dataset.id");
    let head = head.as_str().unwrap().to_owned();
    assert!(first.contains(&head));
    let times = format!("document.querySelector('#row-{head} .times').textContent");
    assert_eq!(browser.js(&times), "×3");
    // One more is counted, and nothing moves.
    let fourth = agent.ask(&machine, same);
    browser.until("it is counted", &format!("{times} === '×4'"));
    assert_eq!(browser.js("document.querySelectorAll('.row').length"), 2);
    machine.ok(&["approvals", "deny", &fourth]);
    browser.until("it is counted down", &format!("{times} === '×3'"));
    // One by one: the others are there afterwards.
    open_card(&browser, &head);
    browser.until_sees("Decide all 3 alike");
    browser.shot("equal-1280");
    browser.click(&format!("#card-{head} [data-act=deny]"));
    browser.until(
        "the others wait",
        "document.getElementById('pill').textContent === '2 more'",
    );
    browser.click("#pill");
    browser.until(
        "a row for two",
        "document.querySelector('.row:not(.ended) .times:not([hidden])')?.textContent === '×2'",
    );
    let next = browser.js("document.querySelector('.row[data-equal]').dataset.id");
    let next = next.as_str().unwrap().to_owned();
    open_card(&browser, &next);
    browser.click(&format!("#card-{next} [data-alike]"));
    // For many there is only this once, in two steps.
    let is_off =
        format!("document.querySelector('#card-{next} [data-word=allow-session]').disabled");
    browser.until("no session for many", &is_off);
    browser.click(&format!("#card-{next} [data-word=allow-once]"));
    browser.until_sees("Run each of these 2 once, as it was shown?");
    assert_eq!(machine.pending().len(), 3);
    // The second step takes no click in its first moment.
    browser.until(
        "a moment",
        "new Promise((done) => setTimeout(() => done(true), 300))",
    );
    browser.click(&format!("#card-{next} [data-act=confirm]"));
    browser.until(
        "its end",
        &format!("document.querySelector('#card-{next} .outcome, #card-{next} .problem')"),
    );
    assert!(!browser.sees("not decided"), "{}", browser.text());
    eventually("both are decided", || machine.pending().len() == 1);
    let started = || {
        let records = machine.ok(&["audit", "log", "--kind", "run-started", "--json"]);
        records.stdout.matches("\"run-started\"").count()
    };
    eventually("both run", || started() == 2);
    assert_eq!(machine.pending()[0]["id"], other.as_str());
}

/// What only looks the same gets no ticket.
#[test]
fn a_view_hands_out_tickets_for_equal_plans_only() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let mut page = gateway.connect(EVERYTHING);
    let one = agent.ask(&machine, "git push origin main");
    let same = agent.ask(&machine, "git push origin main");
    let env = agent.ask_with(
        &machine,
        &json!({ "command": "git push origin main", "env": { "LEVEL": "3" } }),
    );
    let other = agent.ask(&machine, "git push origin other");
    let opened = page.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": one, "equal": [same, env, other, "none"] } }),
    );
    let tickets = opened["tickets"].as_object().unwrap();
    let mut ids: Vec<&String> = tickets.keys().collect();
    ids.sort();
    let mut expected = vec![&one, &same];
    expected.sort();
    assert_eq!(ids, expected);
}

#[test]
fn what_expired_is_asked_again_while_its_binding_holds() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "again");
    let id = agent.ask(&machine, &command);
    let script = machine.work().join("build.sh");
    std::fs::write(&script, "#!/bin/sh\necho one\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let changed = agent.ask(&machine, "./build.sh");
    let mut operator = gateway.connect(EVERYTHING);
    let early = operator.refused("exec.approval.askAgain", &json!({ "id": id }));
    assert_eq!(
        early["details"]["reason"], "APPROVAL_NOT_OFFERED",
        "{early:#}"
    );
    expire(&machine, &id);
    expire(&machine, &changed);
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.until(
        "both are offered",
        "document.querySelectorAll('#expired [data-again]').length === 2 || (document.querySelector('#nothing') && document.querySelector('[data-nav=inbox]').click(), null)",
    );
    browser.shot("expired-1280");
    // What it binds is another one by now.
    std::fs::write(&script, "#!/bin/sh\necho two\n").unwrap();
    browser.click(&format!("[data-again='{changed}']"));
    browser.until_sees("APPROVAL_DRIFT");
    browser.click(&format!("[data-again='{id}']"));
    browser.until("its row", "document.querySelector('.row')");
    let again = browser.js("document.querySelector('.row').dataset.id");
    let again = again.as_str().unwrap().to_owned();
    assert_ne!(again, id);
    open_card(&browser, &again);
    browser.click(&format!("#card-{again} [data-word=allow-once]"));
    eventually("it runs", || file.exists());
    // The caller of the first approval still cannot decide.
    let (second, command) = marker(&machine, "never");
    let id = agent.ask(&machine, &command);
    expire(&machine, &id);
    eventually("it expired", || machine.pending().is_empty());
    let asked = operator.ok("exec.approval.askAgain", &json!({ "id": id }));
    let new = asked["id"].clone();
    agent.client.ok("exec.approval.get", &json!({ "id": new }));
    let own = json!({ "id": new, "decision": "allow-once" });
    agent.client.refused("exec.approval.resolve", &own);
    assert!(!second.exists());
    let mut reader = gateway.connect(&["operator.read"]);
    let refused = reader.refused("exec.approval.askAgain", &json!({ "id": id }));
    assert_eq!(refused["message"], "missing scope: operator.approvals");
}

#[test]
fn command_highlighting_is_switched_for_every_surface() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let mut program = gateway.connect(EVERYTHING);
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let command = "git log -n 1 && rg TODO";
    for (setting, has_colors, has_spans) in [
        (None, true, false),
        (Some("true"), true, true),
        (Some("false"), false, false),
    ] {
        match setting {
            None => {}
            Some(value) => {
                machine.ok(&["config", "set", "tools.exec.commandHighlighting", value]);
            }
        }
        let id = agent.ask(&machine, command);
        let asked = program.event("exec.approval.requested", |event| {
            event["id"] == id.as_str()
        });
        let spans = &asked["request"]["commandSpans"];
        if has_spans {
            let programs = json!([
                { "startIndex": 0, "endIndex": 3 },
                { "startIndex": 16, "endIndex": 18 },
            ]);
            assert_eq!(*spans, programs);
        } else {
            assert!(spans.is_null(), "{setting:?}: {spans}");
        }
        browser.go(&gateway.page(&format!("/approve/{id}")));
        ready(&browser, &id);
        let bold = browser.js("document.querySelectorAll('.command .b').length > 0");
        assert_eq!(bold, has_colors, "{setting:?}");
        browser.go(&gateway.page("/inbox"));
        browser.until("its row", "document.querySelector('.row')");
        let bold = browser.js("document.querySelectorAll('.row .cmd .b').length > 0");
        assert_eq!(bold, has_colors, "{setting:?}");
        let terminal = Terminal::run(&machine, &["approvals", "pending", &id], 120, 40);
        terminal.shows("rg TODO");
        let colored = terminal.is_colored("git");
        assert_eq!(colored, has_colors, "{setting:?}");
        machine.ok(&["approvals", "deny", &id]);
    }
}

/// A line is broken between words, and not behind the dashes of an option: `-- prod` is another command.
#[test]
fn an_option_is_on_one_line() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Phone) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let words = "--alpha --beta --gamma --delta --epsilon-and-more --zeta";
    let command = format!("git log {words} {words} {words} {words}");
    let id = agent.ask(&machine, &command);
    open_card(&browser, &id);
    let options =
        format!("[...document.querySelectorAll('#card-{id} .text .o, #card-{id} .facts .o')]");
    assert_eq!(browser.js(&format!("{options}.length")), 48);
    // Each has the height of one line.
    let broken =
        format!("{options}.filter((one) => one.getBoundingClientRect().height > 30).length");
    assert_eq!(browser.js(&broken), 0);
    // What is read, and copied, is the command.
    let read = format!("document.querySelector('#card-{id} .text').innerText.trim()");
    assert_eq!(browser.js(&read), command);
}

/// What was typed into a page is not taken away by a view that cannot be read again.
#[test]
fn a_page_stays_when_it_cannot_be_read_again() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.go(&gateway.page("/policy"));
    browser.until("the page", "document.getElementById('cases')");
    browser.click_field("#cases");
    browser.type_text("kept");
    browser.script(
        "const agent = document.getElementById('agent');
         agent.append(new Option('x', 'no such agent/../')); agent.value = 'no such agent/../';
         agent.dispatchEvent(new Event('change'))",
    );
    browser.until("the problem", "document.querySelector('main > .problem')");
    assert_eq!(browser.js("document.getElementById('cases').value"), "kept");
    assert_eq!(browser.js("document.activeElement.id"), "cases");
}
