//! Attacks on the page itself: text that attacks its reader, pages of other origins, deciding the wrong
//! thing. Each names the row of the table of attacks that it is.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;
use testkit::browser::{Browser, Screen};
use testkit::ws::EVERYTHING;
use testkit::{Machine, eventually};

use super::inbox::{open_card, ready};
use super::{Agent, marker};

const HOSTILE: &str = "<img src=x onerror=\"window.pwn=1\"><script>window.pwn=2</script>\"><svg onload=window.pwn=3></code>";

/// A server of another origin that answers every request with one page.
pub(super) fn foreign_page(html: &str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let html = html.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let html = html.clone();
            // Browsers open connections ahead of time, on which nothing comes.
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{html}",
                    html.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
    port
}

pub(super) fn nothing_ran(browser: &Browser, page: &str) {
    assert_eq!(browser.js("window.pwn ?? null"), json!(null), "{page}");
    assert_eq!(
        browser.js("document.querySelectorAll('main img, main script, main iframe').length"),
        0,
        "{page}"
    );
    let logs = browser.logs().to_string();
    assert!(
        !logs.contains("Content Security Policy") && !logs.contains("TrustedHTML"),
        "{page}: {logs}"
    );
}

#[test]
fn s01_s02_hostile_text_is_text_on_every_page() {
    let machine = Machine::new();
    machine.start();
    let document = json!({ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" }, "agents": { "*": { "allowlist": [
        { "pattern": format!("/opt/{HOSTILE}"), "note": HOSTILE, "lastUsedAt": 1, "lastUsedCommand": HOSTILE },
    ] } } });
    let set = machine.set_document(&document.to_string());
    assert_eq!(set.code, 0, "{set:#?}");
    let directory = machine.work().join("<b>bold<b>");
    std::fs::create_dir(&directory).unwrap();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    // A device and a node with such names.
    let mut named = gateway.open();
    let mut connect = gateway.operator(EVERYTHING);
    connect.client.display_name = Some(HOSTILE.to_owned());
    let identity = interlock_wire::identity::DeviceIdentity::generate().unwrap();
    named.introduce(connect, Some(&identity)).unwrap();
    let mut node = gateway.open();
    let identity = interlock_wire::identity::DeviceIdentity::generate().unwrap();
    node.introduce(gateway.node(HOSTILE, &["system.run"]), Some(&identity))
        .unwrap();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let command = format!("git log '{HOSTILE}'");
    let id = agent.ask_with(
        &machine,
        &json!({ "command": command, "workdir": directory, "env": { "EVIL": HOSTILE } }),
    );
    open_card(&browser, &id);
    assert!(browser.sees("<img src=x"), "{}", browser.text());
    assert!(browser.sees("<b>bold<b>"));
    nothing_ran(&browser, "inbox");
    browser.shot("hostile-1280");
    for (page, text) in [
        (format!("/approve/{id}"), "<img src=x"),
        ("/audit".to_owned(), "<img src=x"),
        ("/nodes".to_owned(), "<img src=x"),
        ("/sessions".to_owned(), ""),
        ("/settings".to_owned(), ""),
        ("/health".to_owned(), "<img src=x"),
    ] {
        browser.go(&gateway.page(&page));
        browser.until(
            "the page",
            "document.querySelector('main h1') && !document.querySelector('main [aria-busy]')",
        );
        if page == "/nodes" {
            browser.until(
                "the scopes",
                "document.querySelectorAll('#approvals .chip').length > 1",
            );
            browser.click("#approvals .chip:nth-child(2)");
            browser.until_sees("/opt/<img");
        }
        assert!(browser.sees(text), "{page}: {}", browser.text());
        nothing_ran(&browser, &page);
    }
    browser.go(&gateway.page("/policy"));
    browser.until("the page", "document.getElementById('command')");
    browser.click_field("#command");
    browser.type_text(&command);
    browser.press("Enter");
    browser.until("a verdict", "document.getElementById('verdict')");
    assert!(browser.sees("<img src=x"));
    nothing_ran(&browser, "policy");
}

#[test]
fn s06_the_button_is_there_only_at_the_end_of_the_text() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Phone) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let mut script = "#!/bin/sh\n".to_owned();
    for line in 0..300 {
        script += &format!("echo harmless line {line}\n");
    }
    let (file, last) = marker(&machine, "stung");
    script += &format!("{last}\n");
    let path = machine.work().join("long.sh");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let id = agent.ask(&machine, "./long.sh");
    browser.go(&gateway.page(&format!("/approve/{id}")));
    ready(&browser, &id);
    let is_off = "document.querySelector('[data-word=allow-once]')?.disabled ?? 'gone'";
    assert_eq!(browser.js(is_off), true);
    browser.until_sees("Scroll to the end of the text to allow.");
    // An end that the decisions cover was not seen.
    browser.script(
        "for (const text of document.querySelectorAll('.text')) text.scrollTop = text.scrollHeight",
    );
    browser.script("scrollTo(0, 0); const end = [...document.querySelectorAll('[data-end]')].at(-1); scrollBy(0, end.getBoundingClientRect().bottom - innerHeight + 60)");
    browser.until(
        "a moment",
        "new Promise((done) => setTimeout(() => done(true), 300))",
    );
    assert_eq!(browser.js(is_off), true);
    browser.window_shot("unread-390");
    browser.script("document.querySelector('[data-word=allow-once]').click()");
    browser.press("o");
    assert!(!file.exists());
    browser.script("for (const text of document.querySelectorAll('.text')) { text.scrollIntoView(); text.scrollTop = text.scrollHeight }");
    browser.script("for (const end of document.querySelectorAll('[data-end]')) end.scrollIntoView({ block: 'center' })");
    browser.until("it can be allowed", &format!("({is_off}) === false || (document.querySelector('[data-end]:not([data-seen])')?.scrollIntoView({{ block: 'center' }}), null)"));
    browser.click("[data-word=allow-once]");
    eventually("it runs", || file.exists());
}

#[test]
fn s07_no_page_is_framed() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let frame = |path: &str| format!("<iframe src='{}'></iframe>", gateway.page(path));
    let frames = ["/", "/inbox", "/approve/zsphx"].map(frame).concat();
    let port = foreign_page(&frames);
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.go(&format!("http://127.0.0.1:{port}/"));
    browser.until(
        "the browser refused",
        "document.querySelectorAll('iframe').length === 3",
    );
    eventually("the browser refused to frame it", || {
        let logs = browser.logs().to_string();
        logs.contains("frame-ancestors") || logs.contains("X-Frame-Options")
    });
    assert_eq!(browser.js("Array.from(document.querySelectorAll('iframe')).some((frame) => { try { return frame.contentDocument?.body?.innerText.includes('Interlock') } catch { return false } })"), false);
}

#[test]
fn s08_s10_s12_pages_of_other_origins_reach_nothing() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "cross");
    let id = agent.ask(&machine, &command);
    let port = foreign_page("<!doctype html><title>foreign</title>");
    browser.go(&format!("http://127.0.0.1:{port}/"));
    let socket = format!(
        "new Promise((done) => {{ const s = new WebSocket('ws://127.0.0.1:{}/'); s.onopen = () => done('open'); s.onerror = () => done('refused') }})",
        gateway.port
    );
    assert_eq!(browser.wait_for(&socket)["value"], "refused");
    let localhost = socket.replace("ws://127.0.0.1", "ws://localhost");
    assert_eq!(browser.wait_for(&localhost)["value"], "refused");
    // From a frame without an origin.
    let inner = socket.replace('\'', "\\'");
    let sandboxed = format!(
        "new Promise((done) => {{ addEventListener('message', (event) => done(event.data)); const f = document.createElement('iframe'); f.sandbox = 'allow-scripts'; f.srcdoc = '<script>({inner}).then((said) => parent.postMessage(said, \"*\"))</script>'; document.body.append(f) }})"
    );
    assert_eq!(browser.wait_for(&sandboxed)["value"], "refused");
    for path in ["/tools/invoke", "/push/answer", "/hooks/approvals"] {
        let sent = format!(
            "fetch('{}', {{ method: 'POST', mode: 'no-cors', headers: {{ 'content-type': 'text/plain' }}, body: '{{}}' }}).then(() => navigator.sendBeacon('{}', 'x'))",
            gateway.page(path),
            gateway.page(path)
        );
        browser.wait_for(&sent);
    }
    // A window that the foreign page opened: no opener, no messages, no name.
    browser.script(&format!(
        "window.opened = window.open('{}', 'allow-once')",
        gateway.page(&format!("/approve/{id}"))
    ));
    std::thread::sleep(Duration::from_millis(800));
    browser.script("try { opened.postMessage({ decision: 'allow-once', type: 'req', method: 'exec.approval.resolve' }, '*') } catch {}");
    assert_eq!(browser.js("(() => { try { return window.opened.closed || !window.opened.location.href } catch { return true } })()"), true);
    std::thread::sleep(Duration::from_millis(400));
    assert!(!file.exists());
    assert_eq!(machine.pending().len(), 1);
}

#[test]
fn s14_a_card_of_an_ended_approval_decides_nothing() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "old");
    let id = agent.ask(&machine, &command);
    open_card(&browser, &id);
    // The tab sleeps: it hears nothing of what follows.
    let digest = browser.js(&format!(
        "document.getElementById('card-{id}').dataset.digest"
    ));
    browser.script("window.asleep = document.getElementById('main').cloneNode(true)");
    machine.ok(&["approvals", "deny", &id]);
    browser.until(
        "the end",
        &format!("document.getElementById('row-{id}').classList.contains('ended')"),
    );
    assert_eq!(
        browser.js(&format!(
            "document.querySelectorAll('#card-{id} [data-act]').length"
        )),
        0
    );
    let forced = json!({ "id": id, "decision": "allow-once", "planDigest": digest });
    let mut late = gateway.connect(EVERYTHING);
    let opened = late.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": id } }),
    );
    assert!(opened["tickets"].is_null() || opened["tickets"][&id].is_null());
    late.refused("exec.approval.resolve", &forced);
    assert!(!file.exists());
}

#[test]
fn s15_keys_and_clicks_count_once_and_never_by_accident() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (early, command) = marker(&machine, "early");
    let id = agent.ask(&machine, &command);
    // `o` and clicks in the moments in which the card arrives, from inside of the page.
    let eager = "new MutationObserver((_, observer) => { \
        const button = document.querySelector('.card[data-digest] [data-word=allow-once]'); \
        if (!button) return; \
        observer.disconnect(); \
        const born = performance.now(); \
        window.pressed = 0; \
        const press = () => { \
            if (performance.now() - born > 600) return; \
            document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'o', bubbles: true })); \
            button.click(); \
            window.pressed += 1; \
            setTimeout(press, 110); \
        }; \
        press(); \
    }).observe(document, { childList: true, subtree: true })";
    let added = browser.cdp(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({ "source": eager }),
    );
    browser.go(&gateway.page(&format!("/approve/{id}")));
    ready(&browser, &id);
    assert!(browser.js("window.pressed").as_u64().unwrap() > 0);
    browser.cdp("Page.removeScriptToEvaluateOnNewDocument", &added);
    // `o` in a field and `o` that is pasted are text.
    ready(&browser, &id);
    browser.click_field("[data-reason]");
    browser.type_text("oood");
    browser.cdp("Input.insertText", &json!({ "text": "o" }));
    std::thread::sleep(Duration::from_millis(200));
    assert!(!early.exists());
    assert_eq!(machine.pending().len(), 1);
    // Nor does text decide that was meant for a field and missed it.
    browser.script("document.activeElement.blur()");
    browser.script("for (const key of 'not on a friday') document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }))");
    std::thread::sleep(Duration::from_millis(200));
    assert!(!early.exists());
    assert_eq!(machine.pending().len(), 1);
    // A double click, and Enter that is held, decide once.
    browser.script("window.sent = 0; const send = WebSocket.prototype.send; WebSocket.prototype.send = function (text) { if (text.includes('exec.approval.resolve')) window.sent += 1; return send.call(this, text) }");
    let at = browser.place("[data-word=allow-once]");
    for clicks in [1, 2] {
        browser.mouse("mousePressed", at, clicks);
        browser.mouse("mouseReleased", at, clicks);
    }
    eventually("it runs", || early.exists());
    assert_eq!(browser.js("window.sent"), 1);
    let (held, command) = marker(&machine, "held");
    let id = agent.ask(&machine, &command);
    browser.go(&gateway.page(&format!("/approve/{id}")));
    ready(&browser, &id);
    browser.script("window.sent = 0; const send = WebSocket.prototype.send; WebSocket.prototype.send = function (text) { if (text.includes('exec.approval.resolve')) window.sent += 1; return send.call(this, text) }; document.querySelector('[data-word=allow-session]').focus()");
    for repeat in [false, true, true, true] {
        let down = json!({ "type": "keyDown", "key": "Enter", "text": "\r", "windowsVirtualKeyCode": 13, "autoRepeat": repeat });
        browser.cdp("Input.dispatchKeyEvent", &down);
    }
    browser.until_sees("until it ends");
    assert_eq!(browser.js("window.sent"), 0);
    assert!(!held.exists());
}

#[test]
fn s17_leaving_decides_nothing() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "left");
    let id = agent.ask(&machine, &command);
    open_card(&browser, &id);
    browser.press("Escape");
    browser.press("s");
    browser.until_sees("until it ends");
    browser.press("Escape");
    std::thread::sleep(Duration::from_millis(150));
    browser.press("a");
    browser.until_sees("What is stored");
    browser.mouse("mousePressed", (5.0, 5.0), 1);
    browser.mouse("mouseReleased", (5.0, 5.0), 1);
    browser.go(&gateway.page("/audit"));
    browser.back();
    browser.until(
        "the inbox",
        "document.getElementById('main').dataset.view === 'inbox'",
    );
    drop(browser);
    assert!(!file.exists());
    assert_eq!(machine.pending().len(), 1);
}
