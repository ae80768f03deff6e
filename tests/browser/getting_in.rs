//! How a browser gets in, and what keeps others out.

use serde_json::json;
use testkit::Machine;
use testkit::browser::{Browser, Screen, dashboard};
use testkit::ws::EVERYTHING;

#[test]
fn the_dashboard_lets_a_browser_in_and_it_comes_back_by_its_own_key() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::start(Screen::Laptop) else {
        return;
    };
    let address = dashboard(&machine);
    let (_, code) = address.split_once("#code=").unwrap();
    browser.go(&address);
    browser.until_sees("Nothing is waiting.");
    // The secret is gone from the address bar and the history.
    assert_eq!(browser.address(), gateway.page("/"));
    assert_eq!(browser.js("document.cookie"), "");
    browser.go(&gateway.page("/health"));
    browser.until_sees("the gateway answers");
    // The key cannot be read out.
    let key = browser.wait_for(
        "import(document.querySelector('script[type=module]').src.replace('app.js', 'live.js')).then((live) => live.kept('device')).then((device) => crypto.subtle.exportKey('pkcs8', device.key))",
    );
    assert!(key.to_string().contains("not extractable"), "{key}");
    let log = std::fs::read_to_string(&gateway.log).unwrap();
    let audit = machine.ok(&["audit", "log", "--json"]).stdout;
    assert!(!log.contains(code) && !audit.contains(code));
    // The same code lets no second browser in.
    let second = Browser::start(Screen::Phone).unwrap();
    second.go(&address);
    second.until_sees("Sign in");
    second.until_sees("This link was used before");
    second.shot("sign-in-390");
}

#[test]
fn a_pasted_token_is_used_once_and_kept_nowhere() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::start(Screen::Laptop) else {
        return;
    };
    browser.go(&gateway.page("/inbox"));
    browser.until_sees("Sign in");
    browser.shot("sign-in-1280");
    browser.click_field("#token");
    browser.type_text("wrong");
    browser.press("Enter");
    browser.until_sees("AUTH_TOKEN_MISMATCH");
    browser.click_field("#token");
    browser.type_text(&gateway.token);
    browser.press("Enter");
    browser.until_sees("Nothing is waiting.");
    let kept = browser.wait_for(
        "import(document.querySelector('script[type=module]').src.replace('app.js', 'live.js')).then((live) => Promise.all(['token', 'server', 'scopes'].map((key) => live.kept(key)))).then((all) => JSON.stringify([all, Object.entries(localStorage), Object.entries(sessionStorage)]))",
    );
    assert!(!kept.to_string().contains(&gateway.token), "{kept}");
    browser.go(&gateway.page("/nodes"));
    browser.until_sees("this browser");
}

/// S-11: a secret in a query is ignored, one in a fragment is gone before anything is asked.
#[test]
fn a_secret_in_the_address_reaches_no_log_and_no_record() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::start(Screen::Laptop) else {
        return;
    };
    browser.go(&gateway.page(&format!("/?token={}", gateway.token)));
    browser.until_sees("Sign in");
    assert_eq!(browser.address(), gateway.page("/"));
    browser.go(&gateway.page(&format!("/login?code={}", gateway.token)));
    assert!(browser.sees("Not Found"), "{}", browser.text());
    browser.go(&gateway.page(&format!("/inbox#token={}", gateway.token)));
    browser.until_sees("Nothing is waiting.");
    assert_eq!(browser.address(), gateway.page("/inbox"));
    assert_eq!(
        browser.js(
            "performance.getEntriesByType('resource').some((one) => one.name.includes('token='))"
        ),
        false
    );
    let mut admin = gateway.connect(EVERYTHING);
    let tail = admin.ok("logs.tail", &json!({})).to_string();
    let log = std::fs::read_to_string(&gateway.log).unwrap();
    let audit = machine.ok(&["audit", "log", "--json"]).stdout;
    for text in [&tail, &log, &audit] {
        assert!(!text.contains(&gateway.token));
    }
}

#[test]
fn a_browser_without_the_owners_word_waits_for_an_operator() {
    let machine = Machine::new();
    machine.write_config("{ gateway: { auth: { mode: 'none' } } }");
    let gateway = machine.gateway();
    let Some(browser) = Browser::start(Screen::Phone) else {
        return;
    };
    browser.go(&gateway.page("/inbox"));
    browser.until_sees("Waiting to be let in");
    browser.shot("waiting-390");
    let mut admin = gateway.connect_locally(EVERYTHING);
    let listed = admin.ok("device.pair.list", &json!({}));
    let request = &listed["pending"][0];
    assert_eq!(request["clientId"], "openclaw-control-ui");
    admin.ok(
        "device.pair.approve",
        &json!({ "requestId": request["requestId"] }),
    );
    browser.until("it is let in", "document.body.dataset.link === 'on'");
}

#[test]
fn a_removed_browser_is_cut_off_at_once() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut admin = gateway.connect(EVERYTHING);
    let listed = admin.ok("device.pair.list", &json!({}));
    let paired = listed["paired"].as_array().unwrap();
    let page = paired
        .iter()
        .find(|one| one["clientId"] == "openclaw-control-ui")
        .unwrap();
    admin.ok(
        "device.pair.remove",
        &json!({ "deviceId": page["deviceId"] }),
    );
    browser.until_sees("Sign in");
}

#[test]
fn a_browser_sends_nothing_to_another_server_on_the_same_port() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let port = gateway.port.to_string();
    gateway.stop();
    browser.until(
        "it is offline",
        "document.body.classList.contains('offline')",
    );
    let other = Machine::new();
    let other = other.gateway_with(&["--port", &port]);
    browser.until_sees("Another server answers here");
    browser.shot("another-server-1280");
    let mut admin = other.connect(EVERYTHING);
    let presence = admin.ok("system-presence", &json!({}));
    assert!(
        !presence.to_string().contains("openclaw-control-ui"),
        "{presence:#}"
    );
    let listed = admin.ok("device.pair.list", &json!({})).to_string();
    assert!(!listed.contains("openclaw-control-ui"), "{listed}");
}

/// A page that is woken several times while it connects has one connection: a second one would take the
/// answers away from the calls of the first, and read the view anew under what is typed.
#[test]
fn a_page_that_is_woken_often_opens_one_connection() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.go(&gateway.page("/policy"));
    browser.until("the page", "document.getElementById('command')");
    browser.script(
        "window.opened = []; const Plain = WebSocket;
         window.WebSocket = class extends Plain { constructor(url) { super(url); opened.push(this); } };",
    );
    let port = gateway.port.to_string();
    gateway.stop();
    browser.until_sees("Offline. What you see is from");
    let gateway = machine.gateway_with(&["--port", &port]);
    browser.script("for (let times = 0; times < 5; times++) dispatchEvent(new Event('online'))");
    browser.until("it is back", "document.body.dataset.link === 'on'");
    browser.click_field("#command");
    browser.type_text("git push");
    browser.script(
        "for (let times = 0; times < 5; times++) document.dispatchEvent(new Event('visibilitychange'))",
    );
    browser.press("Enter");
    browser.until("a verdict", "document.querySelector('#verdict .verdict')");
    let open = "opened.filter((one) => one.readyState <= WebSocket.OPEN).length";
    assert_eq!(browser.js(open), 1);
    assert_eq!(
        browser.js("document.getElementById('command').value"),
        "git push"
    );
    drop(gateway);
}
