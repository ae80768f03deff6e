//! A phone gets in by a QR code, over TLS with the gateway's own authority, and the pages below a path.

use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::browser::{Browser, Screen};
use testkit::ws::EVERYTHING;
use testkit::{Machine, eventually};

use super::inbox::ready;
use super::{Agent, marker};

/// A gateway that a phone reaches, by a name and with TLS.
fn reachable(machine: &Machine) -> (testkit::ws::Gateway, String) {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("wss://phone.localhost:{port}");
    machine.write_config(&format!(
        "{{ gateway: {{ tls: {{ enabled: true }}, remote: {{ url: '{url}' }} }} }}"
    ));
    let gateway = machine.gateway_with(&["--port", &port.to_string()]);
    (gateway, format!("https://phone.localhost:{port}"))
}

#[test]
fn a_phone_is_let_in_by_its_words_and_decides() {
    let machine = Machine::new();
    let (gateway, address) = reachable(&machine);
    let authority = machine.state().join("gateway-ca.pem");
    let Some(laptop) = Browser::start_trusting(Screen::Laptop, &authority) else {
        return;
    };
    laptop.go(&testkit::browser::dashboard(&machine));
    laptop.until("the page is open", "document.body.dataset.link === 'on'");
    let own = |path: &str| format!("https://127.0.0.1:{}{path}", gateway.port);
    laptop.go(&own("/settings"));
    // The button answers once the scripts of this page are loaded, which also say how notifications stand.
    laptop.until(
        "the page is ready",
        "document.getElementById('notifications')?.textContent",
    );
    laptop.click("#pair-phone");
    laptop.until("the code", "document.querySelector('dialog .qr')");
    laptop.window_shot("pair-1280");
    // The drawing is what a camera reads; the test takes the address from the command line.
    let printed = machine.ok(&["dashboard", "--qr", "--json"]).json();
    let code = printed["url"].as_str().unwrap();
    assert!(code.starts_with(&format!("{address}/#pair=")), "{code}");
    assert_eq!(printed["authorityFingerprint"].as_str().unwrap().len(), 64);
    let drawn = machine.ok(&["dashboard", "--qr"]).stdout;
    assert!(drawn.lines().count() > 15 && drawn.contains('▀'), "{drawn}");
    let phone = Browser::start_trusting(Screen::Phone, &authority).unwrap();
    phone.go(code);
    phone.until_sees("Almost in");
    let words = phone.js("document.querySelector('.words').textContent");
    phone.window_shot("almost-in-390");
    laptop.until_sees(words.as_str().unwrap());
    laptop.window_shot("words-1280");
    // A second device gets nothing by the same code.
    let second = Browser::start_trusting(Screen::Phone, &authority).unwrap();
    second.go(code);
    second.until_sees("This link was used before");
    drop(second);
    laptop.click("#phone-approve");
    phone.until_sees("Nothing is waiting.");
    assert_eq!(phone.address(), format!("{address}/"));
    // It decides, and can do nothing else.
    let mut agent = Agent::over_tls(&gateway, &authority);
    let (file, command) = marker(&machine, "by-phone");
    let id = agent.ask(&machine, &command);
    phone.go(&format!("{address}/approve/{id}"));
    ready(&phone, &id);
    phone.window_shot("phone-approve-390");
    phone.click("[data-word=allow-once]");
    eventually("it runs", || file.exists());
    phone.go(&format!("{address}/audit"));
    phone.until_sees("missing scope: operator.admin");
    let listed = machine.ok(&["devices", "list", "--json"]).json();
    let scopes: Vec<&Value> = listed["paired"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["scopes"])
        .collect();
    let little = json!(["operator.approvals", "operator.read"]);
    assert!(scopes.contains(&&little), "{scopes:?}");
}

/// The authority is offered where the gateway has one, and signs for its own names only.
#[test]
fn the_authority_is_offered_and_is_for_this_machine_only() {
    let machine = Machine::new();
    let (gateway, _) = reachable(&machine);
    let authority = testkit::tls::certificate(&machine.state().join("gateway-ca.pem"));
    let mut stream = testkit::tls::connect(gateway.port, "phone.localhost", &authority);
    let request = format!(
        "GET /ca.crt HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
        gateway.port
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    let split = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&answer[..split]).to_lowercase();
    assert!(head.contains("application/x-x509-ca-cert"), "{head}");
    assert_eq!(&answer[split + 4..], authority.as_ref());
    let openssl = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-text", "-in"])
        .arg(machine.state().join("gateway-ca.pem"))
        .output();
    match openssl {
        Ok(shown) => {
            let text = String::from_utf8_lossy(&shown.stdout);
            for part in [
                "Name Constraints: critical",
                "DNS:phone.localhost",
                "IP:127.0.0.1/255.255.255.255",
                "CA:TRUE, pathlen:0",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        Err(error) => println!("skipped: no openssl: {error}"),
    }
    // Without TLS there is none.
    let plain = Machine::new();
    let gateway = plain.gateway();
    let mut admin = gateway.connect(EVERYTHING);
    let refused = admin.refused("ui.phone", &json!({}));
    assert_eq!(
        refused["details"]["code"], "PHONE_UNREACHABLE",
        "{refused:#}"
    );
    let mut reader = gateway.connect(&["operator.pairing", "operator.read"]);
    let refused = reader.refused("ui.phone", &json!({}));
    assert_eq!(refused["message"], "missing scope: operator.approvals");
}

#[test]
fn pages_lie_below_the_path_that_the_owner_chose() {
    let machine = Machine::new();
    machine.start();
    for wrong in [
        "interlock",
        "/",
        "/a/",
        "/a//b",
        "/../x",
        "/tools",
        "/ui/x",
        "/a b",
    ] {
        let set = machine.run(&["config", "set", "gateway.controlUi.basePath", wrong]);
        assert_eq!(set.code, 1, "{wrong}: {set:#?}");
    }
    machine.ok(&[
        "config",
        "set",
        "gateway.controlUi.basePath",
        "/team/interlock",
    ]);
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.until_sees("Nothing is waiting.");
    assert_eq!(browser.address(), gateway.page("/team/interlock/"));
    browser.go(&gateway.page("/"));
    browser.until(
        "it is led there",
        "location.pathname === '/team/interlock/' && document.body.dataset.link === 'on'",
    );
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "below");
    let id = agent.ask(&machine, &command);
    browser.go(&gateway.page(&format!("/team/interlock/approve/{id}")));
    ready(&browser, &id);
    browser.click("[data-word=allow-once]");
    eventually("it runs", || file.exists());
    for page in [
        "sessions", "nodes", "policy", "audit", "sandbox", "settings", "health",
    ] {
        browser.click(&format!("[data-nav={page}]"));
        browser.until(
            "the page",
            &format!("document.getElementById('main').dataset.view === '{page}' && location.pathname === '/team/interlock/{page}'"),
        );
    }
    browser.press("g");
    browser.press("i");
    browser.until("by key", "location.pathname === '/team/interlock/inbox'");
    browser.until(
        "the worker",
        "navigator.serviceWorker.getRegistration().then((one) => one?.active?.scriptURL.endsWith('/team/interlock/sw.js') && one.scope.endsWith('/team/interlock/'))",
    );
    browser.go(&gateway.page("/inbox"));
    assert!(browser.sees("Not Found"), "{}", browser.text());
}
