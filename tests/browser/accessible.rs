//! Whether people who do not see the page, or see it badly, can use it: axe-core looks at every page.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::browser::{Browser, Screen};
use testkit::ws::EVERYTHING;

use super::Agent;
use super::inbox::open_card;

/// The script of axe-core, where a variable names it. It is no part of this repository.
fn axe() -> Option<String> {
    let path = std::env::var_os("INTERLOCK_AXE").map(PathBuf::from);
    let Some(path) = path else {
        println!("skipped: INTERLOCK_AXE names no axe-core");
        return None;
    };
    Some(std::fs::read_to_string(path).unwrap())
}

#[track_caller]
fn look(browser: &Browser, page: &str) {
    browser.until("the page rests", "document.getAnimations().every((one) => one.playState !== 'running') && performance.now() > 300");
    let found = browser.wait_for("axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => [one.id, one.nodes.map((node) => node.html + ' ' + node.any.map((any) => any.message).join(' ')).slice(0, 4)]))");
    assert_eq!(
        found["value"],
        Value::Array(Vec::new()),
        "{page}: {found:#}"
    );
}

#[test]
fn axe_finds_nothing_serious_on_any_page() {
    let Some(axe) = axe() else {
        return;
    };
    let machine = Machine::open();
    machine.know_agents(&["ci"]);
    let gateway = machine.gateway();
    let mut admin = gateway.connect(EVERYTHING);
    let background = json!({ "command": "/usr/bin/top -d 1", "workdir": machine.work(), "background": true, "pty": true });
    admin.ok(
        "tools.invoke",
        &json!({ "name": "exec", "args": background }),
    );
    let set = machine
        .set_document(r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" } }"#);
    assert_eq!(set.code, 0, "{set:#?}");
    let mut agent = Agent::new(&gateway);
    let id = agent.ask(
        &machine,
        "git push --force origin main && /bin/rm -rf build",
    );
    agent.ask(&machine, "make deploy");
    for screen in [Screen::Laptop, Screen::Phone] {
        let Some(browser) = Browser::inside(&machine, screen) else {
            return;
        };
        let source = json!({ "source": axe });
        browser.cdp("Page.addScriptToEvaluateOnNewDocument", &source);
        for theme in ["light", "dark"] {
            browser.prefer(theme);
            for page in [
                "inbox", "sessions", "nodes", "policy", "audit", "sandbox", "settings", "health",
            ] {
                browser.go(&gateway.page(&format!("/{page}")));
                browser.until("the page", "document.querySelector('main h1') && document.getElementById('main').getAttribute('aria-busy') !== 'true' && !document.querySelector('main [aria-busy]')");
                look(&browser, &format!("{page} {screen:?} {theme}"));
            }
            browser.click("[data-nav=sessions]");
            browser.click("a.entry");
            browser.until("the terminal", "document.getElementById('screen')");
            look(&browser, "session");
            browser.go(&gateway.page("/inbox"));
            open_card(&browser, &id);
            browser.until(
                "it rests",
                "document.getAnimations().every((one) => one.playState !== 'running')",
            );
            look(&browser, &format!("card {screen:?} {theme}"));
        }
    }
}
