//! Attacks by time: two approvers in the same moment, a tab that slept, approvals that come and go
//! beneath the pointer. Each names the row of the table of attacks that it is.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::browser::{Browser, Screen};
use testkit::ws::{EVERYTHING, Gateway, WsClient, now_ms};
use testkit::{Machine, eventually};

use super::inbox::{open_card, ready};
use super::{Agent, marker};

/// Cards that are open at once: fewer than one page of the inbox has.
const TOGETHER: usize = 50;

/// How often they are opened: `INTERLOCK_BROWSER_ROUNDS`, which `tests/run-heavy races` sets to ten.
fn rounds() -> usize {
    let set = std::env::var("INTERLOCK_BROWSER_ROUNDS").ok();
    set.and_then(|set| set.parse().ok()).unwrap_or(1)
}

/// Lets one agent have many approvals pending.
fn machine_for_many() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["config", "set", "tools.exec.maxPending", "1000"]);
    machine
}

/// Gives each browser a name of its own, as its approver would.
fn name_browsers(gateway: &Gateway, browsers: &[(&Browser, &str)]) {
    let mut admin = gateway.connect(EVERYTHING);
    for (browser, name) in browsers {
        let device = browser.wait_for(
            "import(document.querySelector('script[type=module]').src.replace('app.js', 'live.js')).then((live) => live.kept('device')).then((device) => device.id)",
        );
        let rename = json!({ "deviceId": device["value"], "label": name });
        admin.ok("device.pair.rename", &rename);
    }
}

/// Asks for several markers at once; the file of each approval.
fn ask_markers(agent: &mut Agent, machine: &Machine, name: &str) -> BTreeMap<String, PathBuf> {
    let calls: Vec<(String, PathBuf)> = (0..TOGETHER)
        .map(|at| {
            let (file, command) = marker(machine, &format!("{name}-{at}"));
            let args = json!({ "command": command, "workdir": machine.work() });
            let call = json!({ "name": "exec", "args": args, "approvalWaitMs": 0 });
            (agent.client.send("tools.invoke", &call).unwrap(), file)
        })
        .collect();
    let asked = calls.into_iter().map(|(call, file)| {
        let answer = agent.client.answer(&call).unwrap().unwrap();
        (super::approval_id(&answer), file)
    });
    asked.collect()
}

/// Opens the inbox with the cards of all of these, and waits until each can be allowed.
fn open_all(browser: &Browser, gateway: &Gateway, ids: &[&String]) {
    browser.go(&gateway.page("/inbox"));
    browser.until(
        "the rows",
        &format!("document.querySelectorAll('.row').length >= {}", ids.len()),
    );
    let ids = json!(ids);
    browser.script(&format!(
        "for (const id of {ids}) document.querySelector(`#row-${{id}} .head`).click()"
    ));
    // The end of each text has to be on the screen once.
    browser.until(
        "all cards",
        &format!(
            "{ids}.every((id) => {{ const card = document.querySelector(`#card-${{id}}[data-digest]:not(.calm)`); const end = card?.querySelector('[data-end]:not([data-seen])'); end?.scrollIntoView({{ block: 'center' }}); return card && !end }})"
        ),
    );
}

/// Does the same in two browsers at once.
fn both<T: Send>(one: &Browser, two: &Browser, act: impl Fn(&Browser) -> T + Sync) -> (T, T) {
    std::thread::scope(|scope| {
        let second = scope.spawn(|| act(two));
        (act(one), second.join().unwrap())
    })
}

/// S-13: A denies while B allows in the same 5 ms, 500 times in the long form.
#[test]
fn s13_of_two_approvers_one_decides_and_the_other_sees_who() {
    let machine = machine_for_many();
    let gateway = machine.gateway();
    let Some(ada) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let bob = Browser::inside(&machine, Screen::Laptop).unwrap();
    for browser in [&ada, &bob] {
        // All cards are on the screen at once.
        let tall =
            json!({ "width": 1280, "height": 40_000, "deviceScaleFactor": 0.05, "mobile": false });
        browser.cdp("Emulation.setDeviceMetricsOverride", &tall);
    }
    name_browsers(&gateway, &[(&ada, "Ada"), (&bob, "Bob")]);
    let (mut allowed, mut denied) = (Vec::new(), Vec::new());
    for batch in 0..rounds() {
        // One that reads nothing while a batch is decided would be given up.
        let mut agent = Agent::new(&gateway);
        let asked = ask_markers(&mut agent, &machine, &format!("race-{batch}"));
        let ids: Vec<&String> = asked.keys().collect();
        both(&ada, &bob, |browser| open_all(browser, &gateway, &ids));
        let at = now_ms() + 100;
        // The second is up to four milliseconds earlier than the first, or one later.
        let click = |browser: &Browser, button: &str, shift: &str| {
            let ids = json!(ids);
            browser.script(&format!(
                "{ids}.forEach((id, n) => setTimeout(() => document.querySelector(`#card-${{id}} {button}`)?.click(), {at} + n * 7 + ({shift}) - Date.now()))"
            ));
        };
        click(&ada, "[data-act=deny]", "0");
        click(&bob, "[data-word=allow-once]", "n % 6 - 4");
        let outcomes = |browser: &Browser| {
            let ids = json!(ids);
            browser.until(
                "every card says its end",
                &format!("{ids}.every((id) => document.querySelector(`#card-${{id}} .outcome`))"),
            );
            // Without the time, which browsers write in their own words.
            browser.js(&format!("Object.fromEntries({ids}.map((id) => [id, Array.from(document.querySelector(`#card-${{id}} .outcome p`).childNodes).filter((node) => !node.querySelector?.('time')).map((node) => node.textContent).join('')]))"))
        };
        let (left, right) = both(&ada, &bob, outcomes);
        assert_eq!(left, right, "batch {batch}");
        for (id, file) in &asked {
            let outcome = left[id].as_str().unwrap();
            if outcome.starts_with("denied by Ada") {
                denied.push((id.clone(), file.clone()));
            } else {
                assert!(outcome.starts_with("allowed once by Bob"), "{outcome}");
                allowed.push((id.clone(), file.clone()));
            }
        }
    }
    println!(
        "{} denials and {} allowances were first",
        denied.len(),
        allowed.len()
    );
    for (_, file) in &allowed {
        eventually("it runs", || file.exists());
    }
    assert!(denied.iter().all(|(_, file)| !file.exists()));
    let records = machine.ok(&[
        "audit", "log", "--kind", "decision", "--limit", "2000", "--json",
    ]);
    for (id, _) in allowed.iter().chain(&denied) {
        let decisions = records.stdout.matches(id.as_str()).count();
        assert_eq!(decisions, 1, "{id}");
    }
    assert_eq!(allowed.len() + denied.len(), rounds() * TOGETHER);
}

/// Denies an approval, as another approver.
fn deny(approver: &mut WsClient, id: &str) {
    approver.ok("exec.approval.get", &json!({ "id": id }));
    let denial = json!({ "id": id, "decision": "deny" });
    approver.ok("exec.approval.resolve", &denial);
}

/// S-16: others come and end at the moment of `mousedown`, 200 times in the long form.
#[test]
fn s16_a_click_decides_what_was_under_the_pointer_or_nothing() {
    let machine = machine_for_many();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    name_browsers(&gateway, &[(&browser, "Ada")]);
    let mut agent = Agent::new(&gateway);
    let mut approver = gateway.connect(EVERYTHING);
    let mut inserted: Vec<String> = Vec::new();
    let (mut clicks, mut hits) = (0, 0);
    for batch in 0..rounds().div_ceil(2) {
        let asked = ask_markers(&mut agent, &machine, &format!("pointer-{batch}"));
        let ids: Vec<&String> = asked.keys().collect();
        open_all(&browser, &gateway, &ids);
        let in_order = browser.js("Array.from(document.querySelectorAll('.card[data-digest]'), (card) => card.dataset.id)");
        let in_order: Vec<String> = serde_json::from_value(in_order).unwrap();
        // Of every five cards in a row the first one ends, by another approver, above the pointer.
        let (victims, targets): (Vec<_>, Vec<_>) = in_order
            .iter()
            .enumerate()
            .partition(|(at, _)| at.is_multiple_of(5));
        let mut victims = victims.into_iter();
        for (round, (_, id)) in targets.into_iter().enumerate() {
            let at = browser.place(&format!("#card-{id} [data-word=allow-once]"));
            browser.mouse("mousePressed", at, 1);
            clicks += 1;
            let new = agent.ask(&machine, &format!("git push origin {batch}-{round}"));
            if round.is_multiple_of(4)
                && let Some((_, victim)) = victims.next()
            {
                deny(&mut approver, victim);
            }
            if let Some(old) = inserted.pop() {
                deny(&mut approver, &old);
            }
            inserted.push(new);
            browser.mouse("mouseReleased", at, 1);
            // All that this approver ever decides is what was under the pointer.
            let decided = browser.until(
                "it is decided, or still open",
                &format!("document.querySelector('#card-{id} .outcome')?.innerText ?? (document.querySelector('#card-{id} [data-word=allow-once]') && !document.querySelector('#card-{id}.busy') ? 'open' : null)"),
            );
            if decided.as_str().unwrap().starts_with("allowed once by Ada") {
                hits += 1;
                eventually("what was under the pointer runs", || asked[id].exists());
            }
        }
        for (id, file) in &asked {
            let is_allowed = file.exists();
            let outcome = browser.js(&format!(
                "document.querySelector('#card-{id} .outcome')?.innerText ?? ''"
            ));
            let outcome = outcome.as_str().unwrap();
            assert_eq!(is_allowed, outcome.contains("by Ada"), "{id}: {outcome}");
        }
        // What is left of it would be in the way of the next.
        let many: Vec<Value> = machine.pending();
        for one in many {
            deny(&mut approver, one["id"].as_str().unwrap());
        }
        inserted.clear();
    }
    println!("{hits} of {clicks} clicks decided");
    let records = machine.ok(&[
        "audit", "log", "--kind", "decision", "--limit", "2000", "--json",
    ]);
    assert_eq!(records.stdout.matches("\"Ada\"").count(), hits);
    assert!(
        hits * 10 >= clicks * 9,
        "{hits} of {clicks} clicks decided; nothing should move"
    );
}

/// S-14: a tab sleeps, its approval expires, and the id is asked about again.
#[test]
fn s14_a_tab_that_slept_says_expired_and_decides_nothing() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "old");
    let id = agent.ask(&machine, &command);
    open_card(&browser, &id);
    // It will be clicked in the first moment of its waking, and its socket tells what was answered.
    browser.script(&format!(
        "window.answers = []; \
         const add = WebSocket.prototype.send; \
         WebSocket.prototype.send = function (text) {{ \
             if (text.includes('exec.approval.resolve')) {{ \
                 const id = JSON.parse(text).id; \
                 this.addEventListener('message', (event) => {{ const frame = JSON.parse(event.data); if (frame.type === 'res' && frame.id === id) window.answers.push(frame) }}); \
             }} \
             return add.call(this, text); \
         }}; \
         const button = document.querySelector('#card-{id} [data-word=allow-once]'); \
         document.addEventListener('resume', () => {{ window.woke = true; button.disabled = false; button.click() }})"
    ));
    browser.cdp("Page.setWebLifecycleState", &json!({ "state": "frozen" }));
    // Twenty minutes pass for the approval.
    let database = rusqlite::Connection::open(machine.state().join("interlock.db")).unwrap();
    let past = i64::try_from(now_ms()).unwrap() - 1;
    let changed = database
        .execute(
            "UPDATE approval SET expires_at_ms = ?1 WHERE id = ?2",
            rusqlite::params![past, id],
        )
        .unwrap();
    assert_eq!(changed, 1);
    eventually("it expires", || {
        machine
            .run(&["audit", "log", "--kind", "decision", "--json"])
            .stdout
            .contains("expired")
    });
    // The id is asked about again, with another plan: it stays the name of the old one.
    let mut other = gateway.connect(EVERYTHING);
    let again = json!({ "id": id, "command": "rm -rf /", "host": "gateway", "twoPhase": true });
    other.refused("exec.approval.request", &again);
    browser.cdp("Page.setWebLifecycleState", &json!({ "state": "active" }));
    browser.until("it woke", "window.woke");
    browser.until_sees("expired");
    assert_eq!(
        browser.js(&format!(
            "document.querySelectorAll('#card-{id} [data-act]:not([data-act=again])').length"
        )),
        0
    );
    // A click that was forced before the page knew is refused by the gateway.
    let answers = browser.js("window.answers");
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["ok"], false, "{answer:#}");
    }
    assert!(!file.exists());
    assert!(machine.pending().is_empty());
    // The same ticket and digest, sent by hand.
    let mut late = gateway.connect(EVERYTHING);
    let opened = late.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": id } }),
    );
    assert!(opened["tickets"].is_null() || opened["tickets"][&id].is_null());
    let forced = json!({ "id": id, "decision": "allow-once", "planDigest": "0" });
    late.refused("exec.approval.resolve", &forced);
    browser.go(&gateway.page(&format!("/approve/{id}")));
    browser.until_sees("expired");
    assert!(!file.exists());
}

/// What is pressed for long is decided once, also where the card came by itself meanwhile.
#[test]
fn s16_a_card_that_came_beneath_a_pressed_pointer_is_not_decided() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "beneath");
    let id = agent.ask(&machine, &command);
    browser.go(&gateway.page(&format!("/approve/{id}")));
    ready(&browser, &id);
    let at = browser.place("[data-word=allow-once]");
    browser.go(&gateway.page("/audit"));
    browser.mouse("mousePressed", at, 1);
    browser.script(&format!(
        "history.pushState(null, '', '/approve/{id}'); dispatchEvent(new PopStateEvent('popstate'))"
    ));
    ready(&browser, &id);
    browser.mouse("mouseReleased", at, 1);
    assert_eq!(machine.pending().len(), 1);
    assert!(!file.exists());
}
