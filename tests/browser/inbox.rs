//! Deciding in the browser: every decision, by pointer and by keys, alone and in a race.

use std::time::Instant;

use serde_json::json;
use testkit::browser::{Browser, Screen};
use testkit::ws::{EVERYTHING, now_ms};
use testkit::{Machine, eventually};

use super::{Agent, marker};

/// The card of an approval, open and ready to be decided.
pub(super) fn open_card(browser: &Browser, id: &str) {
    browser.until("its row", &format!("document.getElementById('row-{id}') || (document.getElementById('pill')?.click(), null)"));
    browser.click(&format!("#row-{id} .head"));
    ready(browser, id);
}

pub(super) fn ready(browser: &Browser, id: &str) {
    browser.until(
        "its card",
        &format!("document.querySelector('#card-{id}[data-digest]:not(.calm)')"),
    );
}

/// What the audit says of the decisions.
fn decisions(machine: &Machine) -> String {
    machine
        .ok(&["audit", "log", "--kind", "decision", "--json"])
        .stdout
}

#[test]
fn an_approval_arrives_without_reloading_and_is_allowed_once() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.until_sees("Nothing is waiting.");
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "once");
    let id = agent.ask(&machine, &command);
    browser.until("a row", "document.querySelector('.row')");
    assert_eq!(
        browser.js("document.getElementById('nav-count').textContent"),
        "1"
    );
    assert!(browser.sees("touch"));
    open_card(&browser, &id);
    for fact in ["where", "why asked", "bound", "Allow once", "Deny"] {
        assert!(browser.sees(fact), "{fact}: {}", browser.text());
    }
    browser.click(&format!("#card-{id} [data-word=allow-once]"));
    eventually("it runs", || file.exists());
    browser.until_sees("allowed once");
    assert_eq!(browser.js(&format!("document.querySelectorAll('#card-{id} [data-act=allow], #card-{id} [data-act=deny]').length")), 0);
    assert_eq!(
        browser.js("document.getElementById('nav-count').textContent"),
        ""
    );
    assert!(decisions(&machine).contains("Chrome on Linux"));
    assert_eq!(browser.logs(), json!([]));
}

/// What the card says of the run, when it says this.
fn run_says(browser: &Browser, id: &str, words: &str) -> String {
    let line = format!("document.getElementById('run-{id}')?.innerText");
    let said = browser.until(words, &format!("{line}?.includes('{words}') && {line}"));
    said.as_str().unwrap().to_owned()
}

#[test]
fn the_card_shows_the_run_also_where_its_caller_waits() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.until_sees("Nothing is waiting.");
    let allow = |command: &str, id: &str| {
        open_card(&browser, id);
        assert!(browser.sees(command), "{}", browser.text());
        browser.click(&format!("#card-{id} [data-word=allow-once]"));
    };
    // The caller waits for the result itself.
    let waiting = testkit::asking::Waiting::new(&machine, &["--", "/bin/ls /nowhere-at-all"]);
    let id = machine.pending()[0]["id"].as_str().unwrap().to_owned();
    allow("ls /nowhere-at-all", &id);
    assert_eq!(waiting.end().code, 2);
    let said = run_says(&browser, &id, "exit code 2");
    assert!(said.starts_with("Started "), "{said}");
    // One that goes on is said to be started; the link leads to its session.
    let mut agent = Agent::new(&gateway);
    let args = json!({ "command": "sleep 600", "background": true });
    let id = agent.ask_with(&machine, &args);
    allow("sleep 600", &id);
    run_says(&browser, &id, "Started ");
    let link = format!("document.querySelector('#run-{id} a')?.getAttribute('href')");
    let link = browser.until("the link", &link);
    let session = link
        .as_str()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    machine.ok(&["process", "kill", &session]);
    run_says(&browser, &id, "signal");
    // A page that is opened later says the same.
    browser.go(&gateway.page(&format!("/approve/{id}")));
    run_says(&browser, &id, "signal");
    assert_eq!(browser.logs(), json!([]));
}

#[test]
fn a_denial_carries_its_reason_to_the_agent() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Phone) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "denied");
    let id = agent.ask(&machine, &command);
    browser.go(&gateway.page(&format!("/approve/{id}")));
    ready(&browser, &id);
    browser.click_field("[data-reason]");
    browser.type_text("not on a friday");
    let typed = browser.js("document.querySelector('[data-reason]')?.value ?? 'gone'");
    assert_eq!(typed, "not on a friday");
    browser.click("[data-act=deny]");
    browser.until(
        "its end, with the reason",
        "document.querySelector('.outcome')?.innerText.includes('not on a friday')",
    );
    let recorded = decisions(&machine);
    assert!(recorded.contains("not on a friday"), "{recorded}");
    assert!(!file.exists());
}

#[test]
fn session_lease_and_always_have_a_second_step_that_says_what_is_stored() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let cases = [
        ("allow-session", "in this conversation, until it ends"),
        ("lease", "in this conversation, for"),
        ("allow-always", "What is stored:"),
    ];
    for (word, sentence) in cases {
        let (file, command) = marker(&machine, word);
        let id = agent.ask(&machine, &command);
        open_card(&browser, &id);
        browser.click(&format!("#card-{id} [data-word={word}]"));
        browser.until_sees(sentence);
        assert!(!file.exists());
        // Escape takes the step back, and decides nothing.
        browser.press("Escape");
        browser.until(
            "the step is gone",
            &format!("document.querySelector('#card-{id} .confirm').hidden"),
        );
        browser.until("a moment", &format!("performance.now() - Number(document.querySelector('#card-{id}').dataset.born) > 800"));
        browser.click(&format!("#card-{id} [data-word={word}]"));
        if word == "allow-always" {
            assert!(browser.sees(&machine.work().join(word).display().to_string()));
            browser.shot("always-1280");
        }
        browser.until("a moment", &format!("performance.now() - Number(document.querySelector('#card-{id}').dataset.born) > 800"));
        browser.click(&format!("#card-{id} [data-act=confirm]"));
        eventually("it runs", || file.exists());
        std::fs::remove_file(&file).unwrap();
        // It runs again without a question.
        let args = json!({ "command": command, "workdir": machine.work() });
        let call = json!({ "name": "exec", "args": args, "approvalWaitMs": 0 });
        let again = agent.client.ok("tools.invoke", &call);
        assert!(again["approvalId"].is_null(), "{word}: {again:#}");
        eventually("it runs again", || file.exists());
    }
    let document = machine.ok(&["approvals", "get", "--json"]).stdout;
    assert!(document.contains("allow-always"), "{document}");
    // What still allows is listed, and can be taken back.
    browser.go(&gateway.page("/inbox"));
    browser.until(
        "two grants",
        "document.querySelectorAll('#grants .entry').length === 2",
    );
    browser.window_shot("grants-1280");
    browser.click("[data-act=revoke]");
    browser.until(
        "one grant",
        "document.querySelectorAll('#grants .entry').length === 1",
    );
    let grants = machine.ok(&["approvals", "grants", "--json"]).json();
    assert_eq!(grants["grants"].as_array().unwrap().len(), 1);
}

#[test]
fn several_are_allowed_together_only_when_each_was_opened() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let all: Vec<_> = (0..3)
        .map(|at| {
            let (file, command) = marker(&machine, &format!("many-{at}"));
            (agent.ask(&machine, &command), file)
        })
        .collect();
    for (id, _) in &all {
        browser.until("its row", &format!("document.getElementById('row-{id}') || (document.getElementById('pill')?.click(), null)"));
        browser.click(&format!("#row-{id} .tick"));
    }
    browser.until_sees("3 selected");
    assert_eq!(
        browser.js("document.querySelector('#batch .allow').disabled"),
        true
    );
    for (id, _) in &all {
        browser.click(&format!("#row-{id} .head"));
        ready(&browser, id);
        browser.click(&format!("#row-{id} .head"));
    }
    browser.until(
        "all were opened",
        "!document.querySelector('#batch .allow').disabled",
    );
    browser.shot("batch-1280");
    browser.click("#batch .allow");
    browser.until_sees("Run each of these 3 once");
    assert!(all.iter().all(|(_, file)| !file.exists()));
    browser.click("[data-act=batch-confirm]");
    for (_, file) in &all {
        eventually("each runs", || file.exists());
    }
}

#[test]
fn what_another_surface_decided_is_shown_within_two_seconds() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let id = agent.ask(&machine, "git push origin main");
    open_card(&browser, &id);
    let before = now_ms();
    machine.ok(&[
        "approvals",
        "deny",
        &id,
        "--reason",
        "decided in the terminal",
    ]);
    browser.until_sees("decided in the terminal");
    assert!(now_ms() - before < 10_000);
    assert_eq!(
        browser.js(&format!(
            "document.querySelectorAll('#card-{id} .button').length"
        )),
        0
    );
    // Nothing moved: the row is where it was, grayed out.
    assert_eq!(
        browser.js(&format!(
            "document.getElementById('row-{id}').classList.contains('ended')"
        )),
        true
    );
    browser.shot("ended-1280");
}

#[test]
fn offline_the_page_says_so_and_decides_nothing_and_comes_back() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "later");
    let id = agent.ask(&machine, &command);
    open_card(&browser, &id);
    let port = gateway.port.to_string();
    gateway.stop();
    browser.until_sees("Offline. What you see is from");
    browser.shot("offline-1280");
    browser.press("o");
    browser.script(&format!(
        "document.querySelector('#card-{id} [data-word=allow-once]').click()"
    ));
    let gateway = machine.gateway_with(&["--port", &port]);
    browser.until(
        "it is back",
        "document.body.dataset.link === 'on' && !document.body.classList.contains('offline')",
    );
    assert!(!file.exists());
    // The card that was open is open again, with a ticket of the new gateway.
    ready(&browser, &id);
    browser.click(&format!("#card-{id} [data-word=allow-once]"));
    eventually("it runs", || file.exists());
    drop(gateway);
}

#[test]
fn the_keyboard_alone_decides() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (denied, first) = marker(&machine, "first");
    let (allowed, second) = marker(&machine, "second");
    let first = agent.ask(&machine, &first);
    let second = agent.ask(&machine, &second);
    browser.go(&gateway.page("/inbox"));
    browser.until("two rows", "document.querySelectorAll('.row').length === 2");
    let open_with_key = |id: &str| {
        for _ in 0..3 {
            if browser.js(&format!(
                "document.activeElement?.closest('.row')?.id === 'row-{id}'"
            )) == true
            {
                break;
            }
            browser.press("j");
        }
        if browser.js(&format!(
            "document.activeElement?.closest('.row')?.id === 'row-{id}'"
        )) != true
        {
            browser.press("k");
        }
        browser.press("Enter");
        ready(&browser, id);
    };
    open_with_key(&first);
    browser.press("d");
    browser.until(
        "it is denied",
        &format!("document.getElementById('row-{first}').classList.contains('ended')"),
    );
    open_with_key(&second);
    browser.press("o");
    eventually("it runs", || allowed.exists());
    assert!(!denied.exists());
    browser.press("?");
    browser.until_sees("allow once, deny");
    browser.shot("keys-1280");
    browser.press("Escape");
    browser.press("g");
    browser.press("a");
    browser.until(
        "another page",
        "document.getElementById('main').dataset.view === 'audit'",
    );
}

#[test]
fn many_pending_approvals_fit_on_a_page_that_opens_at_once() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["config", "set", "tools.exec.maxPending", "2000"]);
    machine.know_agents(&["ci"]);
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    // The oldest of all, by an agent that asks seldom.
    let seldom = json!({ "name": "exec", "args": { "command": "git push origin seldom", "workdir": machine.work() }, "agentId": "ci", "sessionKey": "agent:ci:main", "approvalWaitMs": 0 });
    let seldom = super::approval_id(&agent.client.ok("tools.invoke", &seldom));
    let many = std::env::var("INTERLOCK_LOAD_PENDING").ok();
    let many: usize = many.and_then(|many| many.parse().ok()).unwrap_or(300);
    for at in 0..many {
        agent.ask(&machine, &format!("git push origin branch-{at}"));
    }
    let mut page = gateway.connect(EVERYTHING);
    page.ok("ui.open", &json!({ "view": "inbox" }));
    let begun = Instant::now();
    let opened = page.ok("ui.open", &json!({ "view": "inbox" }));
    let first = begun.elapsed();
    let begun = Instant::now();
    page.ok(
        "ui.open",
        &json!({ "view": "inbox", "params": { "offset": 60 } }),
    );
    let next = begun.elapsed();
    assert_eq!(opened["pending"], many + 1);
    let html = opened["html"].as_str().unwrap();
    println!(
        "{many} pending: first view {first:?}, {} bytes; further rows {next:?}",
        html.len()
    );
    assert!(html.len() <= 64 * 1024, "{}", html.len());
    // No agent buries another's approvals.
    assert!(html.contains(&seldom) && html.contains("data-group=\"ci\""));
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.until("rows", "document.querySelectorAll('.row').length >= 50");
    browser.click("[data-act=more]");
    browser.until(
        "more rows",
        "document.querySelectorAll('.row').length >= 120",
    );
}
