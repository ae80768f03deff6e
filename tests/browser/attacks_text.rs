//! Text that attacks its reader, and sockets of other origins. Each names the row of the table of attacks
//! that it is.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};
use testkit::browser::{Browser, Screen};
use testkit::companion::Companion;
use testkit::tls::connect;
use testkit::ws::EVERYTHING;
use testkit::{Machine, eventually};

use super::Agent;
use super::attacks::{foreign_page, nothing_ran};
use super::inbox::open_card;

/// Prints 1 MB of HTML, and sequences that would set titles, links and the clipboard, switch screens and
/// ask the terminal where its cursor is. On a terminal it keeps what was answered.
const EVIL: &str = "#!/bin/sh
yes '<b>html</b><script>window.pwn=1</script><a href=\"javascript:alert(1)\">x</a>' | head -c 1000000
printf '\\n\\033]0;<b>t\\007\\033]8;;javascript:alert(1)\\007link\\033]8;;\\007\\033]52;c;ZXZpbA==\\007'
if [ -t 0 ]; then
  printf '\\033[?1049h\\033[H'
  stty raw -echo min 0 time 50
  printf '\\033[6n'
  dd bs=64 count=1 2>/dev/null >answered
  stty raw -echo min 0 time 10
  dd bs=64 count=1 2>/dev/null >answered-again
  stty sane
fi
printf '\\033[31mred\\033[0m link \\r\\n<img src=x onerror=window.pwn=1>\\r\\n'
touch printed-$1
exec sleep 1000
";

/// S-03: no link, no title, no clipboard, and the browser answers nothing.
#[test]
fn s03_output_is_drawn_and_never_followed() {
    let machine = Machine::open();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    // The clipboard of a page of this machine that may read it.
    let foreign = format!(
        "http://127.0.0.1:{}",
        foreign_page("<!doctype html><title>foreign</title>")
    );
    let may = json!({ "origin": foreign, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
    browser.cdp("Browser.grantPermissions", &may);
    browser.go(&foreign);
    // Only a window that has the focus may write there.
    browser.cdp("Page.bringToFront", &json!({}));
    browser.cdp(
        "Emulation.setFocusEmulationEnabled",
        &json!({ "enabled": true }),
    );
    let wrote = browser.wait_for("navigator.clipboard.writeText('mine')");
    assert!(wrote.get("error").is_none(), "{wrote}");
    let downloads = machine.root().join("downloads");
    std::fs::create_dir(&downloads).unwrap();
    let to = json!({ "behavior": "allow", "downloadPath": downloads });
    browser.cdp("Browser.setDownloadBehavior", &to);
    let record = "window.sent = []; const send = WebSocket.prototype.send; WebSocket.prototype.send = function (text) { window.sent.push(JSON.parse(text).method); return send.call(this, text) }";
    browser.cdp(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({ "source": record }),
    );
    let script = machine.script("evil", EVIL);
    let mut admin = gateway.connect(EVERYTHING);
    for (pty, name) in [(true, "terminal"), (false, "pipe")] {
        let command = format!("{} {name}", script.display());
        let args = json!({ "command": command, "workdir": machine.work(), "background": true, "pty": pty });
        let answer = admin.ok("tools.invoke", &json!({ "name": "exec", "args": args }));
        let session = answer["output"]["details"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer:#}"));
        // It is watched while it prints.
        browser.go(&gateway.page(&format!("/sessions/{session}")));
        browser.until_sees("<img src=x onerror=window.pwn=1>");
        eventually("it printed all", || {
            machine.work().join(format!("printed-{name}")).exists()
        });
        assert!(browser.sees("link"));
        let drawn =
            "document.querySelectorAll('.screen a, .screen b, .screen img, .screen script').length";
        assert_eq!(browser.js(drawn), 0);
        assert!(!browser.js("document.title").to_string().contains("<b>t"));
        assert_eq!(
            browser.js("document.getElementById('main').innerText.includes('\\u001b')"),
            false
        );
        if pty {
            assert_eq!(
                browser.js("document.querySelector('.screen .f1')?.textContent"),
                "red"
            );
            // The session's own terminal answered, once. No page did.
            let answered = std::fs::read_to_string(machine.work().join("answered")).unwrap();
            assert!(
                answered.starts_with("\u{1b}[") && answered.ends_with('R'),
                "{answered:?}"
            );
            let again = std::fs::read(machine.work().join("answered-again")).unwrap();
            assert_eq!(again, b"");
        }
        browser.click_field("#find");
        browser.type_text("onerror");
        browser.press("Enter");
        browser.until("hits", "!document.getElementById('log').hidden");
        assert_eq!(
            browser.js("document.getElementById('log').childElementCount"),
            0
        );
        let before = browser.address();
        browser.click("#download");
        let log = || {
            let mut files = std::fs::read_dir(&downloads).unwrap();
            files.find_map(|file| {
                let path = file.unwrap().path();
                (path.extension().is_some_and(|end| end == "log")).then_some(path)
            })
        };
        eventually("the log is there", || {
            log().is_some_and(|path| path.metadata().unwrap().len() > 900_000)
        });
        std::fs::remove_file(log().unwrap()).unwrap();
        assert_eq!(browser.address(), before);
        nothing_ran(&browser, "session");
        let sent: Vec<Value> = serde_json::from_value(browser.js("window.sent")).unwrap();
        for method in &sent {
            let method = method.as_str().unwrap();
            assert!(
                ["connect", "ui.open", "ui.close", "process.log"].contains(&method),
                "{method} of {sent:?}"
            );
        }
    }
    browser.go(&foreign);
    let kept = browser.wait_for("navigator.clipboard.readText()");
    assert_eq!(kept["value"], "mine", "{kept}");
}

/// S-04: what cannot be seen is spelled out, in the same way on every surface.
#[test]
fn s04_every_surface_spells_out_the_same_characters() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let flood = "\u{301}".repeat(40);
    let command = format!(
        "git log 'a\u{202e}b' 'c\u{2066}d' 'e\u{200b}f' 'g\u{ad}h' 'i\u{feff}j' 'k\u{a0}l' 'm\rn' 'o{flood}p' /usr/bin/c\u{430}t q\u{436}r"
    );
    let marks = "\\u{301}".repeat(38);
    let shown = format!(
        "git log 'a\\u{{202E}}b' 'c\\u{{2066}}d' 'e\\u{{200B}}f' 'g\\u{{AD}}h' 'i\\u{{FEFF}}j' 'k\\u{{A0}}l' 'm\\u{{D}}n' 'o\u{301}\u{301}{marks}p' /usr/bin/c\\u{{430}}t q\\u{{436}}r"
    );
    let mut agent = Agent::new(&gateway);
    let mut program = gateway.connect(EVERYTHING);
    let id = agent.ask(&machine, &command);
    open_card(&browser, &id);
    let on_card = browser.js(&format!(
        "document.querySelector('#card-{id} .command code').textContent"
    ));
    assert_eq!(on_card, shown.as_str());
    let in_row = browser.js(&format!(
        "document.querySelector('#row-{id} .cmd').textContent"
    ));
    assert_eq!(in_row, shown.as_str());
    // A word that is written in two scripts is marked.
    let marked = browser.js(&format!(
        "Array.from(document.querySelectorAll('#card-{id} .command .mixed'), (word) => word.textContent)"
    ));
    assert_eq!(marked, json!(["/usr/bin/c\\u{430}t", "q\\u{436}r"]));
    let asked = program.event("exec.approval.requested", |event| {
        event["id"] == id.as_str()
    });
    assert_eq!(asked["request"]["command"], shown.as_str());
    assert!(
        asked["request"]["viewText"]
            .as_str()
            .unwrap()
            .contains(&shown)
    );
    let terminal = machine.ok(&["approvals", "pending", &id]).stdout;
    let unfolded: String = terminal.lines().map(str::trim).collect();
    let expected: String = shown.split(' ').collect();
    assert!(
        unfolded.replace(' ', "").contains(&expected),
        "{terminal}\n{shown}"
    );
    // A companion program on the approval socket, for a call of the command line.
    let companion = Companion::listen(&machine);
    let mut call = machine
        .command(&["exec", "--", &command])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let prompt = companion.asked();
    let seen = prompt.approval().to_string();
    let _ = call.kill();
    let _ = call.wait();
    assert!(seen.contains(&json!(shown).to_string()), "{seen}");
}

/// S-08: a page of another origin opens no socket, however it is called.
#[test]
fn s08_sockets_of_other_origins_are_refused_before_the_upgrade() {
    let machine = Machine::new();
    machine.write_config("{ gateway: { tls: { enabled: true } } }");
    let gateway = machine.gateway();
    let authority = testkit::tls::certificate(&machine.state().join("gateway-ca.pem"));
    let port = gateway.port;
    // By hand, with every origin that is none: 403, and no upgrade.
    let upgrade = |origin: &str| {
        let mut stream = connect(port, "localhost", &authority);
        let request = format!(
            "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{origin}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = [0; 12];
        stream.read_exact(&mut said).unwrap();
        String::from_utf8_lossy(&said).into_owned()
    };
    let own = format!("Origin: https://127.0.0.1:{port}");
    assert_eq!(upgrade(&own), "HTTP/1.1 101");
    for origin in [
        "Origin: https://evil.example".to_owned(),
        "Origin: null".to_owned(),
        format!("Origin: https://127.0.0.1:{}", port ^ 1),
        format!("Origin: http://127.0.0.1:{port}"),
        format!("Origin: https://localhost:{port}"),
        format!("Origin: https://127.0.0.1:{port}\r\nOrigin: https://evil.example"),
    ] {
        assert_eq!(upgrade(&origin), "HTTP/1.1 403", "{origin}");
    }
    let record = super::refused_with(&machine, "ORIGIN_FOREIGN");
    assert_eq!(record["origin"], "https://evil.example");
    // The same by real pages: another host, no origin at all, another port, and without TLS.
    let Some(browser) =
        Browser::start_trusting(Screen::Laptop, &machine.state().join("gateway-ca.pem"))
    else {
        return;
    };
    let foreign = foreign_page("<!doctype html><title>foreign</title>");
    let socket = |to: &str| {
        format!(
            "new Promise((done) => {{ const s = new WebSocket('{to}'); s.onopen = () => done('open'); s.onerror = () => done('refused') }})"
        )
    };
    let refusals = |browser: &Browser| {
        let logs = browser.logs();
        let all = logs.as_array().unwrap().iter();
        let said = all.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned());
        said.filter(|text| text.contains("403")).count()
    };
    // A frame without an origin has a log of its own: the gateway counts what it refused.
    let refused = |gateway: &testkit::ws::Gateway| {
        let mut stream = connect(port, "localhost", &authority);
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            gateway.token
        );
        let text = testkit::tls::ask(&mut stream, request.as_bytes()).body;
        let line = text
            .lines()
            .find(|line| line.contains("auth_refused_total"));
        let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("{text}"))
    };
    let to = format!("wss://127.0.0.1:{port}/");
    for from in [
        format!("http://127.0.0.1:{foreign}/"),
        format!("http://localhost:{foreign}/"),
    ] {
        browser.go(&from);
        refusals(&browser);
        assert_eq!(browser.wait_for(&socket(&to))["value"], "refused", "{from}");
        assert_eq!(refusals(&browser), 1, "{from}");
        let inner = socket(&to).replace('\'', "\\'");
        let sandboxed = format!(
            "new Promise((done) => {{ addEventListener('message', (event) => done(event.data)); const f = document.createElement('iframe'); f.sandbox = 'allow-scripts'; f.srcdoc = '<script>({inner}).then((said) => parent.postMessage(said, \"*\"))</script>'; document.body.append(f) }})"
        );
        let before = refused(&gateway);
        assert_eq!(browser.wait_for(&sandboxed)["value"], "refused", "{from}");
        assert_eq!(refused(&gateway), before + 1, "{from}: without an origin");
    }
    // The page itself gets through.
    browser.go(&format!("https://127.0.0.1:{port}/"));
    browser.until_sees("Sign in");
}

/// A view that the gateway never makes, as one that slipped through all else would look: `swap` refuses it
/// before any of it is in the page.
#[test]
fn markup_that_no_view_contains_is_refused() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    browser.go(&gateway.page("/inbox"));
    browser.until("the page", "document.getElementById('rows')");
    let module = browser
        .js("document.querySelector('script[type=module]').src.replace('app.js', 'live.js')");
    let module = module.as_str().unwrap();
    let judged = |html: &str| {
        let html = json!(html);
        let asked = format!(
            "import({module:?}).then((live) => {{ try {{ live.swap(document.createElement('div'), {html}); return 'taken' }} catch (error) {{ return error.message }} }})"
        );
        browser.wait_for(&asked)["value"].clone()
    };
    for html in [
        "<a href='/inbox'>x</a>",
        "<a href='#top'>x</a>",
        "<svg viewBox='0 0 1 1'><path d='M0 0'/></svg>",
    ] {
        assert_eq!(judged(html), "taken", "{html}");
    }
    for html in [
        "<script>window.pwn = 1</script>",
        "<b onclick='window.pwn = 1'>x</b>",
        "<b style='position: fixed'>x</b>",
        "<iframe src='/inbox'></iframe>",
        "<a href='//evil.example/'>x</a>",
        "<a href='/\\evil.example/'>x</a>",
        "<a href='/\t/evil.example/'>x</a>",
        "<a href='/\n/evil.example/'>x</a>",
        "<a href='https://evil.example/'>x</a>",
        "<a href='javascript:window.pwn = 1'>x</a>",
        "<a href=' javascript:window.pwn = 1'>x</a>",
        "<a ping='https://evil.example/' href='/'>x</a>",
        "<form action='/'><button>x</button></form>",
        "<button formaction='https://evil.example/'>x</button>",
        "<svg><a xlink:href='javascript:window.pwn = 1'>x</a></svg>",
        "<svg><a><set attributeName='href' to='javascript:window.pwn = 1'/></a></svg>",
        "<svg><animate attributeName='href' values='javascript:window.pwn = 1'/></svg>",
        "<svg><foreignObject><b>x</b></foreignObject></svg>",
        "<svg><use href='#other'/></svg>",
        "<template><script>window.pwn = 1</script></template>",
        "<math><mtext></mtext></math>",
        "<base href='https://evil.example/'>",
        "<meta http-equiv='refresh' content='0;url=https://evil.example/'>",
    ] {
        let said = judged(html);
        let said = said.as_str().unwrap_or_default();
        assert!(said.starts_with("the view "), "{html}: {said}");
    }
    assert_eq!(browser.js("window.pwn ?? null"), json!(null));
    // An address that cannot be read is a page that there is not, and no page that hangs.
    browser.go(&gateway.page("/approve/%E0%A4%A"));
    browser.until_sees("This page cannot be shown");
}
