//! A real browser, controlled over the WebDriver protocol: headless Chromium.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tungstenite::{Message, WebSocket};

use super::ws::Gateway;
use super::{Machine, eventually};

/// The longest wait. Only a failure reaches it.
const PATIENCE: Duration = Duration::from_secs(40);

/// The kind of window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    Phone,
    Laptop,
}

/// One browser with a profile of its own. It ends when this is dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// The address of the browser's own protocol.
    debugger: String,
    /// The profile, which is removed with the browser.
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. Returns `None`, with the reason printed, if Chromium or its driver is not
    /// installed.
    pub fn start(screen: Screen) -> Option<Self> {
        Self::start_with(screen, &[])
    }

    /// Starts a browser that accepts this certificate, and certificates that its key signed.
    pub fn start_trusting(screen: Screen, certificate: &Path) -> Option<Self> {
        let key = key_hash(certificate);
        Self::start_with(
            screen,
            &[format!("--ignore-certificate-errors-spki-list={key}")],
        )
    }

    fn start_with(screen: Screen, flags: &[String]) -> Option<Self> {
        let program = ["/usr/bin/chromium", "/usr/bin/chromium-browser"];
        let program = program.into_iter().find(|path| Path::new(path).exists());
        let driver = ["/usr/bin/chromedriver", "/usr/lib/chromium/chromedriver"];
        let driver = driver.into_iter().find(|path| Path::new(path).exists());
        let (Some(program), Some(driver)) = (program, driver) else {
            println!("skipped: chromium and chromium-driver are not installed");
            return None;
        };
        let profile = tempfile::Builder::new()
            .prefix("interlock-browser-")
            .tempdir_in("/tmp")
            .unwrap();
        // Another process may take the port that the driver has chosen.
        let started = (0..10).find_map(|_| start_driver(driver));
        let (driver, port) = started.expect("the driver starts");
        let mut browser = Self {
            driver,
            port,
            session: String::new(),
            debugger: String::new(),
            profile,
        };
        let (width, height) = match screen {
            Screen::Phone => (390, 844),
            Screen::Laptop => (1280, 900),
        };
        let mut arguments = json!([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--lang=en-US",
            format!("--user-data-dir={}", browser.profile.path().display()),
            format!("--window-size={width},{height}"),
        ]);
        let all = arguments.as_array_mut().unwrap();
        all.extend(flags.iter().map(|flag| json!(flag)));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": program, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        // On a busy machine, the browser may not start within the driver's time limit.
        let mut tries = (0..3).map(|_| browser.try_request("POST", "/session", Some(&wanted)));
        let made = tries.find_map(Result::ok).expect("the browser starts");
        made["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut browser.session);
        let debugger = &made["capabilities"]["goog:chromeOptions"]["debuggerAddress"];
        debugger
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut browser.debugger);
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": screen == Screen::Phone,
        });
        browser.cdp("Emulation.setDeviceMetricsOverride", &metrics);
        Some(browser)
    }

    /// Starts a browser that logs in to the gateway with a code.
    pub fn inside(machine: &Machine, screen: Screen) -> Option<Self> {
        let browser = Self::start(screen)?;
        browser.go(&dashboard(machine));
        browser.until(
            "the page is open",
            "document.body.dataset.link === 'on' && document.getElementById('main').dataset.view",
        );
        Some(browser)
    }

    /// Sets the color scheme that the system prefers.
    pub fn prefer(&self, theme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.cdp(
            "Emulation.setEmulatedMedia",
            &json!({ "features": features }),
        );
    }

    #[track_caller]
    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.try_request(method, path, body);
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error:#}"))
    }

    fn try_request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE * 2)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .unwrap();
        let (head, body) = read_by_length(stream);
        let said: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{head}\n{body}"));
        let value = said["value"].clone();
        let is_error = value.get("error").is_some() && value.get("stacktrace").is_some();
        if is_error { Err(value) } else { Ok(value) }
    }

    fn of_session(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        let body = (method == "POST").then_some(body);
        self.request(method, &path, body)
    }

    /// Sends a command of the browser's own protocol.
    pub fn cdp(&self, command: &str, params: &Value) -> Value {
        let call = json!({ "cmd": command, "params": params });
        self.of_session("POST", "/goog/cdp/execute", &call)
    }

    /// Connects to a service worker or a page, by its kind, with the browser's own protocol.
    fn target(&self, kind: &str) -> WebSocket<TcpStream> {
        let mut stream = TcpStream::connect(&self.debugger).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "GET /json/list HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.debugger
        )
        .unwrap();
        let (_, listed) = read_by_length(stream);
        let listed: Value = serde_json::from_str(&listed).unwrap_or_else(|_| panic!("{listed}"));
        let mut all = listed.as_array().unwrap().iter();
        let found = all.find(|one| one["type"] == kind);
        let found = found.unwrap_or_else(|| panic!("no {kind}: {listed:#}"));
        let address = found["webSocketDebuggerUrl"].as_str().unwrap();
        let stream = TcpStream::connect(&self.debugger).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        tungstenite::client(address, stream).unwrap().0
    }

    /// Returns the value of an expression in the service worker.
    pub fn in_worker(&self, expression: &str) -> Value {
        let mut socket = self.target("service_worker");
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        command(&mut socket, "Runtime.evaluate", &params)
    }

    /// Delivers a message to the service worker, as a push service would.
    pub fn deliver_push(&self, origin: &str, message: &Value) {
        let mut socket = self.target("page");
        send(&mut socket, 1, "ServiceWorker.enable", &json!({}));
        // An event names the registration.
        let registration = loop {
            let event = next(&mut socket);
            let registrations = &event["params"]["registrations"];
            if let Some(found) = registrations[0]["registrationId"].as_str() {
                break found.to_owned();
            }
        };
        let params = json!({ "origin": format!("{origin}/"), "registrationId": registration, "data": message.to_string() });
        command(&mut socket, "ServiceWorker.deliverPushMessage", &params);
    }

    pub fn go(&self, address: &str) {
        self.of_session("POST", "/url", &json!({ "url": address }));
    }

    pub fn address(&self) -> String {
        self.of_session("GET", "/url", &Value::Null)
            .as_str()
            .unwrap()
            .to_owned()
    }

    pub fn back(&self) {
        self.of_session("POST", "/back", &json!({}));
    }

    /// Returns the value of an expression in the page.
    pub fn js(&self, expression: &str) -> Value {
        self.script(&format!("return ({expression})"))
    }

    /// Runs statements in the page.
    pub fn script(&self, text: &str) -> Value {
        let call = json!({ "script": text, "args": [] });
        self.of_session("POST", "/execute/sync", &call)
    }

    /// Returns the value of a promise in the page.
    pub fn wait_for(&self, promise: &str) -> Value {
        let text = format!(
            "const done = arguments[0]; Promise.resolve({promise}).then((value) => done({{ value }}), (error) => done({{ error: error?.code ?? String(error), message: error?.message }}))"
        );
        let call = json!({ "script": text, "args": [] });
        self.of_session("POST", "/execute/async", &call)
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn until(&self, what: &str, expression: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.js(expression);
            let is_true = match &value {
                Value::Null | Value::Bool(false) => false,
                Value::String(text) => !text.is_empty(),
                Value::Number(number) => number.as_f64() != Some(0.0),
                _ => true,
            };
            if is_true {
                return value;
            }
            assert!(
                Instant::now() < end,
                "never: {what} ({expression})\n{}\n{:#}",
                self.text(),
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    /// Returns all readable text of the page.
    pub fn text(&self) -> String {
        self.js("document.body.innerText")
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn sees(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    #[track_caller]
    pub fn until_sees(&self, text: &str) {
        let quoted = json!(text);
        self.until(text, &format!("document.body.innerText.includes({quoted})"));
    }

    /// Scrolls an element into view and returns its center.
    #[track_caller]
    pub fn place(&self, selector: &str) -> (f64, f64) {
        let selector = json!(selector);
        let at = self.until(
            "an element",
            &format!("(() => {{ const e = document.querySelector({selector}); if (!e || !e.getClientRects().length) return null; e.scrollIntoView({{ block: 'nearest' }}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] }})()"),
        );
        (at[0].as_f64().unwrap(), at[1].as_f64().unwrap())
    }

    pub fn mouse(&self, kind: &str, (x, y): (f64, f64), clicks: u64) {
        let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": clicks });
        self.cdp("Input.dispatchMouseEvent", &event);
    }

    /// Performs a real click on the center of an element.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let at = self.place(selector);
        self.mouse("mousePressed", at, 1);
        self.mouse("mouseReleased", at, 1);
    }

    /// Clicks a field until it has the focus, because a page that is still being drawn may move it
    /// away.
    pub fn click_field(&self, selector: &str) {
        eventually(&format!("{selector} has the focus"), || {
            self.click(selector);
            self.js(&format!("!!document.activeElement?.closest({selector:?})")) == true
        });
    }

    /// Presses one key, with the text that it types.
    pub fn press(&self, key: &str) {
        let (text, code) = match key {
            "Enter" => ("\r", 13),
            "Escape" => ("", 27),
            "Tab" => ("", 9),
            "Backspace" => ("", 8),
            other => (other, 0),
        };
        let down = json!({ "type": if text.is_empty() { "rawKeyDown" } else { "keyDown" }, "key": key, "text": text, "windowsVirtualKeyCode": code });
        self.cdp("Input.dispatchKeyEvent", &down);
        self.cdp(
            "Input.dispatchKeyEvent",
            &json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Types text into the focused element.
    pub fn type_text(&self, text: &str) {
        for character in text.chars() {
            match character {
                '\n' => self.press("Enter"),
                other => self.press(&other.to_string()),
            }
        }
    }

    /// Returns the complaints of the page and the browser.
    pub fn logs(&self) -> Value {
        self.of_session("POST", "/se/log", &json!({ "type": "browser" }))
    }

    /// Saves a picture of the window under `target/ui-shots`.
    pub fn window_shot(&self, name: &str) {
        self.keep_shot(name, &json!({ "format": "png" }));
    }

    /// Saves a picture of the whole page.
    pub fn shot(&self, name: &str) {
        let size = self.js("[document.documentElement.scrollWidth, Math.min(document.documentElement.scrollHeight, 4000)]");
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let wanted = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        self.keep_shot(name, &wanted);
    }

    fn keep_shot(&self, name: &str, wanted: &Value) {
        // An element that is still fading in would look faint.
        self.until(
            "what moves has come to rest",
            "document.getAnimations().every((one) => one.playState !== 'running')",
        );
        let directory = shots();
        fs::create_dir_all(&directory).unwrap();
        let taken = self.cdp("Page.captureScreenshot", wanted);
        let picture = STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        fs::write(directory.join(format!("{name}.png")), picture).unwrap();
    }
}

/// Reads the head and the body of an answer. The driver and the browser keep connections open even
/// if asked to close them, so the length marks the end.
fn read_by_length(stream: TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        let count = reader.read_line(&mut line).unwrap();
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        if count == 0 || line == "\r\n" {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8_lossy(&body).into_owned())
}

fn send(socket: &mut WebSocket<TcpStream>, id: u64, method: &str, params: &Value) {
    let call = json!({ "id": id, "method": method, "params": params });
    socket.send(Message::text(call.to_string())).unwrap();
}

fn next(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = socket.read().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

/// Returns the answer to one command.
fn command(socket: &mut WebSocket<TcpStream>, method: &str, params: &Value) -> Value {
    send(socket, 7, method, params);
    loop {
        let answer = next(socket);
        if answer["id"] == 7 {
            assert!(answer["error"].is_null(), "{method}: {answer:#}");
            return answer["result"].clone();
        }
    }
}

/// Returns the hash by which a browser identifies the public key of a certificate.
fn key_hash(certificate: &Path) -> String {
    let der = crate::tls::certificate(certificate);
    STANDARD.encode(Sha256::digest(crate::tls::public_key(&der)))
}

/// Starts the driver, and returns it with the port that it prints.
fn start_driver(program: &str) -> Option<(Child, u16)> {
    let mut driver = Command::new(program)
        .args(["--port=0", "--log-level=SEVERE"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| {
        let line = line.ok()?;
        let (_, rest) = line.rsplit_once("on port ")?;
        let port = rest.trim_end_matches('.').parse().ok();
        port.filter(|port| *port != 0)
    });
    let Some(port) = port else {
        let _ = driver.kill();
        let _ = driver.wait();
        return None;
    };
    // Later output is read and dropped, so that the driver never blocks on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.request("DELETE", &path, None);
            }));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn shots() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(3).unwrap();
    target.join("ui-shots")
}

/// Returns the address that logs a browser in.
pub fn dashboard(machine: &Machine) -> String {
    let answer = machine.ok(&["dashboard", "--json"]).json();
    answer["url"].as_str().unwrap().to_owned()
}

impl Gateway {
    /// Returns the address of a page.
    pub fn page(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}
