//! The other pages, and pictures of all of them.

use serde_json::json;
use testkit::browser::{Browser, Screen};
use testkit::ws::EVERYTHING;
use testkit::{Machine, eventually};

use super::Agent;
use super::inbox::open_card;

fn open(browser: &Browser, address: &str) {
    browser.go(address);
    browser.until("the page", "document.querySelector('main h1') && document.getElementById('main').getAttribute('aria-busy') !== 'true' && !document.querySelector('main [aria-busy]')");
}

#[test]
fn a_terminal_is_watched_and_typed_into() {
    let machine = Machine::open();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut admin = gateway.connect(EVERYTHING);
    let args = json!({ "command": "/bin/cat", "workdir": machine.work(), "background": true, "pty": true });
    let answer = admin.ok("tools.invoke", &json!({ "name": "exec", "args": args }));
    let session = answer["output"]["details"]["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer:#}"));
    open(&browser, &gateway.page("/sessions"));
    browser.until_sees("/bin/cat");
    browser.click("a.entry");
    browser.until("the terminal", "document.getElementById('screen')");
    browser.click_field("#screen");
    browser.type_text("hello <b>browser</b>");
    browser.until_sees("hello <b>browser</b>");
    browser.press("Enter");
    browser.until(
        "it answers",
        "document.getElementById('screen').innerText.split('hello <b>').length === 3",
    );
    browser.shot("terminal-1280");
    // One viewer owns the size.
    let rows = "document.querySelectorAll('#screen > div').length";
    browser.click("#fit");
    browser.until("another size", &format!("{rows} !== 30 && {rows} > 4"));
    let mut other = gateway.connect(EVERYTHING);
    other.ok(
        "ui.open",
        &json!({ "view": "session", "params": { "id": session } }),
    );
    let small = json!({ "sessionId": session, "columns": 40, "rows": 10 });
    let refused = other.refused("ui.screen", &small);
    assert_eq!(refused["details"]["code"], "SIZE_OWNED", "{refused:#}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("Chrome on Linux")
    );
    let mut reader = gateway.connect(&["operator.read"]);
    assert_eq!(
        reader.refused("ui.screen", &small)["details"]["code"],
        "MISSING_SCOPE"
    );
    browser.click("#kill");
    browser.until("a second step", "document.querySelector('dialog[open]')");
    browser.click("dialog .primary");
    browser.until("it is over", "!document.getElementById('typing')");
    let listed = admin.ok("process.list", &json!({}));
    let entry = listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["sessionId"] == session)
        .unwrap();
    assert_ne!(entry["status"], "running");
}

/// S-28: of two editors the second sees what the first did, and nothing is lost.
#[test]
fn a_document_that_changed_meanwhile_is_merged_and_not_overwritten() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/first"]);
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    open(&browser, &gateway.page("/nodes"));
    browser.until(
        "the scopes",
        "document.querySelectorAll('#approvals .chip').length > 1",
    );
    // What is above has its size by then, so that a click hits what it is meant for.
    browser.until(
        "the binding",
        "!document.getElementById('binding').hasAttribute('aria-busy')",
    );
    let add = |pattern: &str| {
        browser.until(
            "a scope",
            "document.querySelector('#approvals .chip:nth-child(2)')",
        );
        browser.click("#approvals .chip:nth-child(2)");
        browser.until("a field", "document.getElementById('new-pattern')");
        browser.click("#new-pattern");
        browser.until(
            "the field is entered",
            "document.activeElement?.id === 'new-pattern'",
        );
        browser.type_text(pattern);
        browser.press("Enter");
        browser.until_sees("1 unsaved");
    };
    add("/usr/bin/mine");
    // Another editor is faster.
    machine.ok(&[
        "approvals",
        "allowlist",
        "add",
        "--agent",
        "*",
        "/usr/bin/theirs",
    ]);
    browser.click("#document-save");
    browser.until_sees("runs without asking");
    browser.click("dialog .primary");
    browser.until_sees("Not saved. The document changed meanwhile.");
    assert!(browser.sees("/usr/bin/theirs") && browser.sees("/usr/bin/mine"));
    browser.window_shot("conflict-1280");
    browser.click("dialog .primary");
    browser.until_sees("Not saved yet");
    browser.click("#document-save");
    browser.until("the second step", "document.querySelector('dialog[open]')");
    browser.click("dialog .primary");
    browser.until(
        "it is saved",
        "document.getElementById('document-bar').hidden",
    );
    let document = machine.ok(&["approvals", "get", "--json"]).stdout;
    for pattern in ["/usr/bin/first", "/usr/bin/theirs", "/usr/bin/mine"] {
        assert!(document.contains(pattern), "{pattern}: {document}");
    }
}

#[test]
fn a_node_is_bound_and_the_config_is_edited() {
    let machine = Machine::new();
    machine.start();
    machine.know_agents(&["ci"]);
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut node = gateway.open();
    let identity = interlock_wire::identity::DeviceIdentity::generate().unwrap();
    node.introduce(gateway.node("web1", &["system.run"]), Some(&identity))
        .unwrap();
    open(&browser, &gateway.page("/nodes"));
    browser.until_sees("a machine that offers system.run");
    browser.click("[data-call='node.pair.approve']");
    browser.until("it is approved", "document.querySelector('[data-call=\"node.pair.remove\"]') && !document.querySelector('[data-call=\"node.pair.approve\"]')");
    // Clients that come and go are shown a moment later.
    browser.until("the binding", "document.querySelectorAll('#binding select').length >= 2 && document.querySelector('#binding select').options.length === 2");
    browser.until("the page rests", "(window.rests = document.querySelector('#binding select') === window.before ? (window.rests ?? 0) + 1 : 0, window.before = document.querySelector('#binding select'), window.rests > 40)");
    browser.script("const s = document.querySelectorAll('#binding select'); s[0].value = s[0].options[1].value; s[0].dispatchEvent(new Event('change'))");
    browser.click("#binding .primary");
    let id = identity.device_id();
    eventually("it is bound", || {
        machine
            .run(&["config", "get", "tools.exec.node"])
            .stdout
            .contains(&id)
    });
    browser.shot("nodes-bound-1280");
    // The config, by its form and by its text.
    open(&browser, &gateway.page("/settings"));
    browser.until(
        "the form",
        "document.querySelector('#form select[aria-label=\"tools.exec.ask\"]')",
    );
    browser.script("const s = document.querySelector('#form select[aria-label=\"tools.exec.ask\"]'); s.value = 'always'; s.dispatchEvent(new Event('change'))");
    browser.until_sees("1 unsaved");
    browser.click("#save");
    browser.until("it is saved", "document.getElementById('savebar').hidden");
    assert!(
        machine
            .ok(&["config", "get", "tools.exec.ask"])
            .stdout
            .contains("always")
    );
    browser.click("#as-text");
    browser.until(
        "the text",
        "document.getElementById('raw').value.includes('always')",
    );
    browser.script("const r = document.getElementById('raw'); r.value = r.value.replace('always', 'sometimes'); r.dispatchEvent(new Event('input'))");
    browser.click("#save");
    browser.until_sees("Not saved:");
    browser.shot("settings-error-1280");
    assert!(
        machine
            .ok(&["config", "get", "tools.exec.ask"])
            .stdout
            .contains("always")
    );
}

#[test]
fn the_policy_explains_and_the_audit_is_verified() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    agent.ask(&machine, "git push origin main");
    open(&browser, &gateway.page("/policy"));
    browser.click_field("#command");
    browser.type_text("git push && rg TODO");
    browser.press("Enter");
    browser.until(
        "a verdict",
        "document.querySelector('#verdict .verdict')?.textContent === 'ask'",
    );
    assert!(browser.sees("askFallback") && browser.sees("on-miss"));
    browser.shot("policy-1280");
    // Cases are judged by the policy in force; those that make files are not for a page.
    browser.script("document.getElementById('cases').value = '{\"command\": \"git push\", \"expect\": \"ask\"}\\n{\"command\": \"rg <b>TODO\", \"expect\": \"allow\"}'");
    browser.click("#run-cases");
    browser.until_sees("1 passed, 1 failed");
    assert!(browser.sees("<b>TODO"));
    browser.shot("cases-1280");
    browser.script("document.getElementById('cases').value = '{\"command\": \"x\", \"expect\": \"ask\", \"fs\": [{\"path\": \"../x\"}]}'");
    browser.click("#run-cases");
    browser.until_sees("a case with `fs` makes files");
    a_draft_is_replayed_and_saved(&machine, &browser);
    the_sandbox_is_explained(&machine, &browser, &gateway.page("/sandbox"));
    open(&browser, &gateway.page("/audit"));
    browser.click("#verify");
    browser.until_sees("intact");
    browser.click_field("#text");
    browser.type_text("origin main");
    browser.press("Enter");
    browser.until(
        "records",
        "document.querySelectorAll('#records tr').length >= 1",
    );
    browser.click("#text");
    browser.script("document.getElementById('text').value = ''");
    browser.type_text("no such word");
    browser.press("Enter");
    browser.until_sees("No record matches.");
}

/// On the page Policy: what a draft changes is shown before it is saved, what it loosens is confirmed in
/// words, only what was replayed is saved, and another editor's change is not lost.
fn a_draft_is_replayed_and_saved(machine: &Machine, browser: &Browser) {
    let write = |from: &str, to: &str| {
        browser.script(&format!(
            "const d = document.getElementById('draft'); if (!d.value.includes({from:?})) throw new Error(d.value); d.value = d.value.replace({from:?}, {to:?}); d.dispatchEvent(new Event('input'))"
        ));
    };
    let is_savable = "!document.getElementById('draft-save').disabled";
    let replay = || {
        browser.script("document.getElementById('replayed').replaceChildren()");
        browser.click("#replay");
        browser.until(
            "a replay",
            "document.getElementById('replayed').childElementCount > 0",
        );
    };
    browser.click("#draft-begin");
    browser.until(
        "the document",
        "document.getElementById('draft').value.includes('on-miss')",
    );
    // A mistake has its line, and cannot be saved.
    write("on-miss", "sometimes");
    replay();
    assert!(
        browser.sees("draft:") && browser.sees("sometimes"),
        "{}",
        browser.text()
    );
    assert_eq!(browser.js(is_savable), false);
    // `git push` would be refused: fewer prompts are not more freedom.
    write("sometimes", "off");
    replay();
    browser.until_sees("newly refused");
    assert!(browser.sees("stricter") && browser.sees("git push origin main"));
    assert!(!browser.sees("This allows more"));
    // It would run: that is looser, and confirmed.
    write("\"allowlist\"", "\"full\"");
    assert_eq!(browser.js(is_savable), false, "it was not replayed");
    replay();
    browser.until_sees("This allows more");
    assert!(browser.sees("looser") && browser.sees("allowlist/on-miss → full/off"));
    browser.shot("draft-1280");
    // Cases are judged by the draft.
    browser.script("document.getElementById('cases').value = '{\"command\": \"git push\", \"expect\": \"allow\"}'");
    browser.click("#run-cases");
    browser.until_sees("1 passed, 0 failed");
    let (_, before) = machine.document();
    browser.click("#draft-save");
    browser.until("a second step", "document.querySelector('dialog[open]')");
    assert!(browser.sees("This allows more on the gateway"));
    browser.click("dialog .quiet");
    browser.until("it is closed", "!document.querySelector('dialog[open]')");
    assert_eq!(machine.document().1, before, "it was not confirmed");
    // Another editor is faster: nothing of theirs is lost.
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/theirs"]);
    browser.click("#draft-save");
    browser.until("a second step", "document.querySelector('dialog[open]')");
    browser.click("dialog .primary");
    browser.until("three ways", "document.getElementById('three-way')");
    assert!(browser.sees("/usr/bin/theirs"));
    browser.click("dialog .primary");
    browser.until_sees("Not saved yet");
    replay();
    browser.until("it can be saved", is_savable);
    browser.click("#draft-save");
    browser.until("a second step", "document.querySelector('dialog[open]')");
    browser.click("dialog .primary");
    eventually("it is saved", || machine.verdict("git push") == "allow");
    let document = machine.ok(&["approvals", "get", "--json"]).stdout;
    assert!(document.contains("/usr/bin/theirs"), "{document}");
}

/// On the page Sandbox: who is confined, what that leaves open, and the directories of sandboxes.
fn the_sandbox_is_explained(machine: &Machine, browser: &Browser, address: &str) {
    open(browser, address);
    assert!(browser.sees("interlock config set agents.defaults.sandbox.mode all"));
    let key = "agents.defaults.sandbox";
    machine.ok(&["config", "set", &format!("{key}.mode"), "non-main"]);
    machine.ok(&["config", "set", &format!("{key}.workspaceAccess"), "rw"]);
    open(browser, address);
    browser.until_sees("not isolated: agent:main:main; the workspace is written to");
    browser.click("[data-explain=main]");
    browser.until_sees("Not sandboxed: sandbox.mode is non-main");
    machine.ok(&["config", "set", &format!("{key}.mode"), "all"]);
    browser.click("[data-explain=main]");
    browser.until(
        "the mounts",
        "document.querySelectorAll('#explained tbody tr').length > 5",
    );
    assert!(browser.sees("no network"), "{}", browser.text());
    browser.shot("sandbox-1280");
    // To explain is to plan, which makes the directories of the scope.
    open(browser, address);
    browser.until_sees("Directories of sandboxes");
    browser.click("[data-recreate=main]");
    browser.until("a second step", "document.querySelector('dialog[open]')");
    browser.click("dialog .primary");
    browser.until("they are gone", "!document.getElementById('scopes')");
    let listed = machine.ok(&["sandbox", "list", "--json"]).json();
    assert_eq!(listed["scopes"], json!([]));
}

/// Pictures of every page, at the size of a phone and of a laptop, light and dark. No page is wider than
/// its window.
#[test]
fn every_page_is_pictured_and_fits_its_window() {
    let machine = Machine::open();
    machine.know_agents(&["ci"]);
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let mut admin = gateway.connect(EVERYTHING);
    let background = json!({ "command": "/usr/bin/top -d 1", "workdir": machine.work(), "background": true, "pty": true });
    admin.ok(
        "tools.invoke",
        &json!({ "name": "exec", "args": background }),
    );
    std::fs::write(
        machine.work().join("deploy.sh"),
        "#!/bin/sh\nset -e\necho deploying \"$1\"\ngit push origin main\n",
    )
    .unwrap();
    std::fs::set_permissions(
        machine.work().join("deploy.sh"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let set = machine
        .set_document(r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" } }"#);
    assert_eq!(set.code, 0, "{set:#?}");
    let asked = [
        json!({ "command": "git push origin main" }),
        json!({ "command": "./deploy.sh --prod" }),
        json!({ "command": "/usr/bin/env LEVEL=3 /usr/bin/sort -u notes.txt | /usr/bin/head -20 && /bin/rm -rf build/cache", "pty": true }),
        json!({ "command": "/usr/bin/touch notes.txt", "env": { "API_TOKEN": "sk-live-0123456789abcdef0123456789abcdef" } }),
    ];
    let ids: Vec<String> = asked
        .iter()
        .map(|args| agent.ask_with(&machine, args))
        .collect();
    for screen in [Screen::Laptop, Screen::Phone] {
        let Some(browser) = Browser::inside(&machine, screen) else {
            return;
        };
        let size = if screen == Screen::Phone { 390 } else { 1280 };
        for theme in ["light", "dark"] {
            browser.prefer(theme);
            for page in [
                "inbox", "sessions", "nodes", "policy", "audit", "sandbox", "settings", "health",
            ] {
                open(&browser, &gateway.page(&format!("/{page}")));
                assert!(page != "health" || browser.sees("What weakens the policy"));
                browser.shot(&format!("{page}-{size}-{theme}"));
                let width = browser.js("document.documentElement.scrollWidth");
                assert!(
                    width.as_i64().unwrap() <= size,
                    "{page} is {width} wide at {size}"
                );
                if screen == Screen::Phone {
                    let small = browser.js("[...document.querySelectorAll('main button, main select, header button, header nav a')].filter((one) => one.getClientRects().length && one.getBoundingClientRect().height < 43.5).map((one) => one.outerHTML.slice(0, 120))");
                    assert_eq!(small, json!([]), "{page}: too small for a finger");
                }
            }
            open(&browser, &gateway.page("/inbox"));
            open_card(&browser, &ids[2]);
            browser.window_shot(&format!("card-{size}-{theme}"));
            browser.go(&gateway.page(&format!("/approve/{}", ids[1])));
            browser.until("a card", "document.querySelector('.card.alone:not(.calm)')");
            browser.window_shot(&format!("approve-{size}-{theme}"));
            open(&browser, &gateway.page("/sessions"));
            browser.click("a.entry");
            browser.until(
                "the terminal",
                "document.getElementById('screen')?.innerText.includes('PID')",
            );
            browser.shot(&format!("session-{size}-{theme}"));
        }
    }
}

/// S-28, the rest: a node that goes away during Save leaves the change on the screen, not saved.
#[test]
fn a_node_that_goes_away_during_save_leaves_the_change_unsaved() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut node = gateway.open();
    let identity = interlock_wire::identity::DeviceIdentity::generate().unwrap();
    let commands = [
        "system.run",
        "system.execApprovals.get",
        "system.execApprovals.set",
    ];
    node.introduce(gateway.node("web1", &commands), Some(&identity))
        .unwrap();
    let id = identity.device_id();
    let mut admin = gateway.connect(EVERYTHING);
    let waiting = admin.ok("node.pair.list", &json!({}));
    let request = waiting["pending"][0]["requestId"].clone();
    admin.ok("node.pair.approve", &json!({ "requestId": request }));
    let own = id.clone();
    // It gives its document, and is gone when it is to take another one.
    let serving = std::thread::spawn(move || {
        loop {
            let asked = node.event("node.invoke.request", |_| true);
            if asked["command"] == "system.execApprovals.set" {
                return;
            }
            let file =
                json!({ "version": 1, "defaults": { "security": "allowlist" }, "agents": {} });
            let document = json!({ "path": "/n/x", "exists": true, "hash": "h1", "file": file });
            let answer =
                json!({ "id": asked["id"], "nodeId": own, "ok": true, "payload": document });
            node.ok("node.invoke.result", &answer);
        }
    });
    open(&browser, &gateway.page("/nodes"));
    let chosen = format!(
        "(() => {{ const s = document.querySelector('#approvals header select'); if (![...s.options].some((one) => one.value === '{id}')) return false; s.value = '{id}'; s.dispatchEvent(new Event('change')); return true }})()"
    );
    browser.until("the node can be chosen", &chosen);
    browser.until(
        "its document",
        "document.getElementById('document-hash')?.textContent === 'h1'",
    );
    browser.script("const s = document.getElementById('level-security'); s.value = 'full'; s.dispatchEvent(new Event('change'))");
    browser.until_sees("1 unsaved");
    browser.click("#document-save");
    // To loosen is confirmed in words.
    browser.until_sees("security allowlist → full");
    browser.until_sees("This allows more on web1");
    browser.click("dialog .primary");
    browser.until_sees("Not saved:");
    serving.join().unwrap();
    assert!(browser.sees("1 unsaved"), "{}", browser.text());
    browser.shot("not-saved-1280");
}
