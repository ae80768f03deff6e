//! Keys and fields: what is typed into a field is text, also where the page changes under it.

use serde_json::json;
use testkit::Machine;
use testkit::browser::{Browser, Screen};
use testkit::ws::EVERYTHING;

use super::Agent;
use super::inbox::{open_card, ready};

/// A view that is read again keeps the field, what was typed into it, and where.
#[test]
fn a_view_that_is_read_again_keeps_field_and_caret() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.go(&gateway.page("/audit"));
    browser.until("the page", "document.getElementById('records')");
    browser.click_field("#text");
    browser.type_text("abc");
    browser.script("const t = document.getElementById('text'); t.setSelectionRange(1, 1); window.old = t; document.getElementById('kind').dispatchEvent(new Event('change'))");
    browser.until(
        "a new view",
        "document.getElementById('text') !== window.old",
    );
    browser.type_text("x/?g");
    let field = browser.js("[document.activeElement.id, document.activeElement.value, document.activeElement.selectionStart]");
    assert_eq!(field, json!(["text", "ax/?gbc", 5]));
    // Another view has a field of the same name, which is another field.
    browser.click_field("#agent");
    browser.script("document.querySelector('[data-nav=policy]').click()");
    browser.until("the page Policy", "document.getElementById('command')");
    assert_eq!(browser.js("document.activeElement.id"), "main");
    assert_eq!(browser.js("document.getElementById('command').value"), "");
}

/// What the inbox is searched for stays when its list is read again.
#[test]
fn the_search_of_the_inbox_outlives_its_list() {
    let machine = Machine::new();
    machine.know_agents(&["ci"]);
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    agent.ask(&machine, "git push origin first");
    agent.ask(&machine, "git push origin second");
    browser.go(&gateway.page("/inbox"));
    browser.until("rows", "document.querySelectorAll('.row').length === 2");
    browser.click_field("#find-row");
    browser.type_text("second");
    let shown = "[...document.querySelectorAll('.row')].filter((row) => !row.hidden).length === 1";
    browser.until("one row", shown);
    browser.script("window.old = document.getElementById('rows'); document.querySelector('[data-nav=inbox]').click()");
    browser.until(
        "a new list",
        "document.getElementById('rows') !== window.old",
    );
    browser.until("one row again", shown);
    assert_eq!(
        browser.js("document.getElementById('find-row').value"),
        "second"
    );
}

/// The field of a reason goes away when its approval ends elsewhere. The letters that follow were meant
/// for it, and decide nothing about the other card that is open.
#[test]
fn letters_for_a_field_that_went_away_decide_nothing() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let first = agent.ask(&machine, "git push origin first");
    let second = agent.ask(&machine, "git push origin second");
    browser.go(&gateway.page("/inbox"));
    open_card(&browser, &first);
    open_card(&browser, &second);
    ready(&browser, &second);
    let reason = format!("#row-{first} [data-reason]");
    browser.click_field(&reason);
    browser.type_text("not to");
    let mut other = gateway.connect(EVERYTHING);
    let record = other.ok("exec.approval.get", &json!({ "id": first }));
    let denied = json!({ "id": first, "decision": "deny", "planDigest": record["planDigest"] });
    other.ok("exec.approval.resolve", &denied);
    browser.until(
        "the field is gone",
        &format!("!document.querySelector({reason:?})"),
    );
    browser.type_text("day");
    assert_eq!(machine.pending_ids().len(), 1, "{}", browser.text());
    assert_eq!(
        browser.js("document.querySelector('[data-step]')"),
        json!(null)
    );
    // After a moment without a letter, they are keys again.
    browser.script("window.since = performance.now()");
    browser.until("a moment", "performance.now() - window.since > 750");
    browser.press("d");
    testkit::eventually("it is denied", || machine.pending_ids().is_empty());
}
