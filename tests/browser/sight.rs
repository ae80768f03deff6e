//! Pages for readers who need them larger, in the colors of their system, or without motion.

use serde_json::json;
use testkit::Machine;
use testkit::browser::{Browser, Screen};
use testkit::ws::EVERYTHING;

use super::Agent;
use super::inbox::{open_card, ready};

const PAGES: [&str; 8] = [
    "inbox", "sessions", "nodes", "policy", "audit", "sandbox", "settings", "health",
];

fn open(browser: &Browser, address: &str) {
    browser.go(address);
    browser.until("the page", "document.querySelector('main h1') && document.getElementById('main').getAttribute('aria-busy') !== 'true' && !document.querySelector('main [aria-busy]')");
}

#[test]
fn pages_are_whole_at_200_percent_in_forced_colors_and_without_motion() {
    let machine = Machine::open();
    machine.know_agents(&["ci"]);
    let gateway = machine.gateway();
    let mut admin = gateway.connect(EVERYTHING);
    let background = json!({ "command": "/usr/bin/top -d 1", "workdir": machine.work(), "background": true, "pty": true });
    let call = json!({ "name": "exec", "args": background });
    admin.ok("tools.invoke", &call);
    let set = machine
        .set_document(r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" } }"#);
    assert_eq!(set.code, 0, "{set:#?}");
    let mut agent = Agent::new(&gateway);
    let id = agent.ask(
        &machine,
        "/usr/bin/env LEVEL=3 /usr/bin/sort -u notes.txt | /usr/bin/head -20 && /bin/rm -rf build/cache",
    );
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let media = json!({ "features": [
        { "name": "forced-colors", "value": "active" },
        { "name": "prefers-reduced-motion", "value": "reduce" },
    ] });
    browser.cdp("Emulation.setEmulatedMedia", &media);
    // A window of 1280 at 200 %, and the smallest phone.
    for (width, height, scale) in [(640, 450, 2), (360, 640, 1)] {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": false });
        browser.cdp("Emulation.setDeviceMetricsOverride", &metrics);
        for page in PAGES {
            open(&browser, &gateway.page(&format!("/{page}")));
            let wide = browser.js("document.documentElement.scrollWidth");
            assert!(wide.as_i64().unwrap() <= width, "{page}: {wide} at {width}");
            browser.window_shot(&format!("sight-{page}-{width}"));
        }
        open(&browser, &gateway.page("/inbox"));
        open_card(&browser, &id);
        let moving = browser.js("document.getAnimations().length");
        assert_eq!(moving, 0, "something moves");
        // The command is seen beside the decisions, not behind them.
        let hidden = browser.js("(() => { const text = document.querySelector('.row .text.command'); text.scrollIntoView(); const { left, top, height } = text.getBoundingClientRect(); return document.elementFromPoint(left + 40, top + height / 2)?.closest('.decide')?.outerHTML ?? null; })()");
        assert_eq!(hidden, json!(null), "the command is covered at {width}");
        browser.window_shot(&format!("sight-card-{width}"));
        browser.go(&gateway.page(&format!("/approve/{id}")));
        ready(&browser, &id);
        browser.window_shot(&format!("sight-approve-{width}"));
        for word in ["[data-word=allow-once]", "[data-act=deny]"] {
            let is_there = format!(
                "(() => {{ const button = document.querySelector('{word}'); button.scrollIntoView({{ block: 'nearest' }}); const {{ left, right, top, bottom }} = button.getBoundingClientRect(); return left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight && !button.disabled; }})()"
            );
            assert_eq!(browser.js(&is_there), true, "{word} at {width}");
        }
        // What is chosen, on and selected is seen without the colors of the page.
        let current = browser
            .js("getComputedStyle(document.querySelector('[data-nav][aria-current]')).fontWeight");
        assert_eq!(current, "600");
    }
}

/// Others come and go: what is chosen and not saved on the page of nodes stays, and where it is.
#[test]
fn what_is_chosen_on_the_page_of_nodes_stays_when_others_come() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    open(&browser, &gateway.page("/nodes"));
    browser.until(
        "the scopes",
        "document.querySelectorAll('#approvals .chip').length > 1",
    );
    browser.until(
        "what is in force",
        "/In force for the default agent: allowlist \\/ on-miss \\/ deny/.test(document.getElementById('in-force')?.textContent)",
    );
    browser.click("#approvals .chip:nth-child(2)");
    browser.until("a field", "document.getElementById('new-pattern')");
    let devices = "document.querySelectorAll('#paired .entry').length";
    let before = browser.js(devices).as_u64().unwrap();
    let _other = gateway.connect(EVERYTHING);
    browser.until("another device", &format!("{devices} > {before}"));
    let chosen =
        "document.querySelector('#approvals .chip:nth-child(2)').getAttribute('aria-pressed')";
    assert_eq!(browser.js(chosen), "true");
    browser.click_field("#new-pattern");
    browser.type_text("/usr/bin/mine");
    browser.press("Enter");
    browser.until_sees("1 unsaved");
    // A machine that waits is let in without losing what is not saved.
    browser.script("document.activeElement.blur()");
    let mut node = gateway.open();
    let identity = interlock_wire::identity::DeviceIdentity::generate().unwrap();
    node.introduce(gateway.node("web1", &["system.run"]), Some(&identity))
        .unwrap();
    browser.until_sees("a machine that offers system.run");
    browser.click("#listed [data-call='node.pair.approve']");
    browser.until(
        "it is let in",
        "document.querySelector('#listed [data-call=\"node.pair.remove\"]')",
    );
    assert!(browser.sees("1 unsaved") && browser.sees("/usr/bin/mine"));
}

/// The page Settings says how the messages of each chat fare, and tries one.
#[test]
fn the_chats_of_approvals_are_shown_and_tried() {
    let machine = Machine::new();
    machine.write_config(
        "{ channels: { ntfy: { url: 'https://127.0.0.1:9', topic: 'a-topic', allowPrivateNetwork: true } } }",
    );
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Phone) else {
        return;
    };
    open(&browser, &gateway.page("/settings"));
    browser.until("the chat", "document.querySelector('#chats .entry button')");
    browser.until_sees("0 queued · 0 sent · 0 failed");
    browser.click("#chats button");
    browser.until(
        "it was tried",
        "document.querySelector('#chats [role=status]').textContent.startsWith('failed: ')",
    );
    let wide = browser.js("document.documentElement.scrollWidth");
    assert!(wide.as_i64().unwrap() <= 390, "{wide}");
    browser.shot("chats-390");
}
