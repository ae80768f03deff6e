//! How fast the pages are. Figures are printed; only what no machine should exceed is a failure, because
//! this is a debug build on a machine that does other things.

use std::net::TcpStream;
use std::time::{Duration, Instant, UNIX_EPOCH};

use interlock_store::{AuditKind, Store, StoreError};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::json;
use testkit::browser::{Browser, Screen};
use testkit::ws::{EVERYTHING, Gateway, WsClient, now_ms};
use testkit::{Machine, eventually};

use super::inbox::ready;
use super::{Agent, marker};

fn p50(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn the_inbox_is_there_at_once_and_a_click_starts_the_run() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let mut agent = Agent::new(&gateway);
    let (mut paints, mut usable) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        browser.go(&gateway.page("/inbox"));
        let at = browser.until(
            "usable",
            "performance.getEntriesByName('usable')[0]?.startTime",
        );
        usable.push(at.as_f64().unwrap());
        let paint = browser.until(
            "painted",
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime",
        );
        paints.push(paint.as_f64().unwrap());
    }
    let loaded = browser.js("performance.getEntriesByType('resource').filter((one) => ['script', 'link', 'css', 'img', 'other'].includes(one.initiatorType)).length");
    let foreign = browser.js("performance.getEntriesByType('resource').filter((one) => new URL(one.name).origin !== location.origin).length");
    assert_eq!(foreign, 0);
    assert!(loaded.as_u64().unwrap() <= 6, "{loaded}");
    let mut starts = Vec::new();
    for round in 0..15 {
        let (file, command) = marker(&machine, &format!("speed-{round}"));
        let id = agent.ask(&machine, &command);
        browser.go(&gateway.page(&format!("/approve/{id}")));
        ready(&browser, &id);
        browser.script("document.querySelector('[data-word=allow-once]').addEventListener('click', () => (window.clicked = performance.timeOrigin + performance.now()), true)");
        browser.click("[data-word=allow-once]");
        eventually("it runs", || file.exists());
        let clicked = browser.js("window.clicked").as_f64().unwrap();
        let made = std::fs::metadata(&file).unwrap().modified().unwrap();
        let made = made.duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0;
        starts.push(made - clicked);
    }
    let (paint, usable, start) = (p50(paints), p50(usable), p50(starts));
    println!(
        "first paint {paint:.0} ms, inbox usable {usable:.0} ms, click to started process {start:.1} ms (p50)"
    );
    assert!(paint < 3000.0 && usable < 5000.0 && start < 2000.0);
}

/// The page Audit over 10,000 records: its rows, a search, and the picture of decisions.
#[test]
fn the_audit_is_read_by_pages_however_long_it_is() {
    let machine = Machine::new();
    machine.start();
    let store = Store::open(&machine.state()).unwrap();
    let now = i64::try_from(now_ms()).unwrap();
    for block in 0..10 {
        let written: Result<(), StoreError> = store.change(|change| {
            for number in 0..1000 {
                let command = format!("/usr/bin/make target-{}", block * 1000 + number);
                let (kind, body) = match number % 10 {
                    0 => (
                        AuditKind::Decision,
                        json!({ "decision": "allow-once", "agent": "main" }),
                    ),
                    _ => (
                        AuditKind::Verdict,
                        json!({ "verdict": "allow", "agent": "main", "command": command }),
                    ),
                };
                change.append(kind, &body, now - i64::from(number) * 60_000)?;
            }
            Ok(())
        });
        written.unwrap();
    }
    drop(store);
    let gateway = machine.gateway();
    let mut page = gateway.connect(EVERYTHING);
    let mut time = |params: serde_json::Value| {
        let times = (0..9).map(|_| {
            let begun = Instant::now();
            page.ok("ui.open", &json!({ "view": "audit", "params": params }));
            begun.elapsed().as_secs_f64() * 1000.0
        });
        p50(times.collect())
    };
    let rows = time(json!({}));
    let search = time(json!({ "text": "target-9001" }));
    println!(
        "10,000 audit records: a page with its picture {rows:.0} ms, a search {search:.0} ms (p50)"
    );
    assert!(rows < 3000.0 && search < 5000.0);
}

/// A page without a browser, and another handle of its socket.
struct Viewer {
    page: WsClient,
    socket: TcpStream,
}

impl Viewer {
    fn open(gateway: &Gateway) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        let stream = Box::new(socket.try_clone().unwrap());
        let mut page = gateway.join(stream, EVERYTHING);
        page.ok("ui.open", &json!({ "view": "inbox" }));
        Self { page, socket }
    }

    /// Reads up to the row of this approval.
    fn read(&mut self, id: &str) {
        self.page.event("ui.patch", |patch| {
            let html = patch["ops"][0]["html"].as_str();
            html.is_some_and(|html| html.contains(id))
        });
    }
}

/// The times at which the first and the last of these sockets have something to read.
fn first_and_last(viewers: &[Viewer], begun: Instant) -> (f64, f64) {
    let mut waiting: Vec<&TcpStream> = viewers.iter().map(|viewer| &viewer.socket).collect();
    let mut first = None;
    while !waiting.is_empty() {
        let mut polled: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|socket| PollFd::new(*socket, PollFlags::IN))
            .collect();
        let limit = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let ready = rustix::event::poll(&mut polled, Some(&limit)).unwrap();
        assert!(ready > 0, "{} have heard nothing", waiting.len());
        let now = begun.elapsed().as_secs_f64() * 1000.0;
        first.get_or_insert(now);
        let left = polled.iter().map(|one| one.revents().is_empty());
        let mut left: Vec<bool> = left.collect();
        left.reverse();
        waiting.retain(|_| left.pop().unwrap_or(true));
    }
    let last = begun.elapsed().as_secs_f64() * 1000.0;
    (first.unwrap_or(last), last)
}

/// Memory that is a gateway's own, in KiB: how much of the program's file is mapped has nothing to do with
/// pages. Where it is measured, the least over a minute: what it took to greet a page is given back when the
/// gateway rests, and is no memory of that page.
fn rested(gateway: &Gateway, viewers: &mut [Viewer], is_measured: bool) -> u64 {
    let samples = (0..if is_measured { 60 } else { 1 }).map(|number| {
        if number > 0 {
            std::thread::sleep(Duration::from_secs(1));
            // A page that reads nothing gives no sign of life.
            drain(viewers, Duration::ZERO);
        }
        testkit::own_memory(gateway.pid())
    });
    samples.min().unwrap()
}

#[test]
fn many_pages_learn_of_an_approval_together() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let many = std::env::var("INTERLOCK_LOAD_PAGES").ok();
    let is_measured = many.is_some();
    let rounds = if is_measured { 15 } else { 3 };
    let many: usize = many.and_then(|many| many.parse().ok()).unwrap_or(60);
    // The first ones warm up what all of them share.
    let warm = many / 5;
    let mut viewers: Vec<Viewer> = Vec::with_capacity(many);
    let mut before = 0;
    for number in 0..many {
        if number == warm {
            drain(&mut viewers, QUIET);
            before = rested(&gateway, &mut viewers, is_measured);
        }
        viewers.push(Viewer::open(&gateway));
        // A page that reads nothing gives no sign of life.
        if number % 10 == 0 {
            drain(&mut viewers, Duration::ZERO);
        }
    }
    drain(&mut viewers, QUIET);
    let after = rested(&gateway, &mut viewers, is_measured);
    let each = after.saturating_sub(before) / (many - warm) as u64;
    let mut agent = Agent::new(&gateway);
    let (mut whole, mut spread) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // All that is on its way is read: presence of those that came, receipts of the last round.
        let quiet = agent.ask(&machine, &format!("git push origin quiet-{round}"));
        for viewer in &mut viewers {
            viewer.read(&quiet);
        }
        drain(&mut viewers, QUIET);
        let asked = Instant::now();
        let id = agent.ask_later(&machine, &format!("git push origin many-{round}"));
        let (first, last) = first_and_last(&viewers, asked);
        whole.push(last);
        spread.push(last - first);
        let id = agent.asked(&id);
        for viewer in &mut viewers {
            viewer.read(&id);
        }
    }
    println!(
        "of {many} pages: an approval is at the last {:.1} ms after the first page has it, {:.1} ms after the request (p50); {each} KiB each",
        p50(spread),
        p50(whole.clone())
    );
    assert!(whole.iter().all(|time| *time < 20_000.0));
}

/// For so long nothing comes when all is read.
const QUIET: Duration = Duration::from_millis(150);

/// Reads what is there until nothing has come for so long.
fn drain(viewers: &mut [Viewer], quiet: Duration) {
    loop {
        let mut polled: Vec<PollFd<'_>> = viewers
            .iter()
            .map(|viewer| PollFd::new(&viewer.socket, PollFlags::IN))
            .collect();
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(quiet.subsec_nanos()),
        };
        if rustix::event::poll(&mut polled, Some(&moment)).unwrap() == 0 {
            return;
        }
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        for (viewer, _) in viewers.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            viewer.page.next();
        }
    }
}
