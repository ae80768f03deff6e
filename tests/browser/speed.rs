//! How fast the pages are. Figures are printed; only what no machine should exceed is a failure, because
//! this is a debug build on a machine that does other things.

use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::json;
use testkit::browser::{Browser, Screen};
use testkit::ws::EVERYTHING;
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

#[test]
fn many_pages_learn_of_an_approval_together() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let many = std::env::var("INTERLOCK_LOAD_PAGES").ok();
    let many: usize = many.and_then(|many| many.parse().ok()).unwrap_or(60);
    let before = gateway.memory().0;
    let mut pages: Vec<_> = (0..many)
        .map(|_| {
            let mut page = gateway.connect(EVERYTHING);
            page.ok("ui.open", &json!({ "view": "inbox" }));
            page
        })
        .collect();
    let each = gateway.memory().0.saturating_sub(before) / many as u64;
    let mut agent = Agent::new(&gateway);
    let mut times = Vec::new();
    for round in 0..7 {
        let asked = Instant::now();
        let id = agent.ask(&machine, &format!("git push origin many-{round}"));
        for page in &mut pages {
            page.event("ui.patch", |patch| {
                patch["ops"][0]["html"]
                    .as_str()
                    .is_some_and(|html| html.contains(&id))
            });
        }
        times.push(asked.elapsed().as_secs_f64() * 1000.0);
    }
    println!(
        "request to the last of {many} pages {:.1} ms (p50), {each} KiB each",
        p50(times.clone())
    );
    assert!(
        times
            .iter()
            .all(|time| *time < Duration::from_secs(20).as_secs_f64() * 1000.0)
    );
}
