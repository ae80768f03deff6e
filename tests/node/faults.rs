//! A gateway and a node with a network between them that fails: nothing runs twice, nothing is said to
//! be finished that is not, and who is there is known again.
//!
//! The node lives in a network namespace of its own. That takes root and `ip`; elsewhere the tests say
//! that they were skipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod network;
mod site;

use serde_json::{Value, json};
use site::Site;

#[test]
fn a_slow_and_lossy_way_delays_commands_and_changes_nothing_else() {
    let Some(mut site) = Site::new("2000") else {
        return;
    };
    let port = network::slow_way(site.network.here(), site.port());
    site.start_node(port);
    site.pair();
    let calls: Vec<_> = (0..3).map(|_| site.begin()).collect();
    for call in calls {
        let done = site.finish(call).unwrap();
        assert_eq!(done["status"], "completed", "{done}");
    }
    site.check();
}

#[test]
fn whatever_breaks_no_command_runs_twice_and_the_node_comes_back() {
    let Some(mut site) = Site::new("200") else {
        return;
    };
    site.start_node(site.port());
    site.pair();
    site.works();
    the_way_is_cut(&mut site);
    the_node_stands_still(&mut site);
    the_gateway_is_killed(&mut site);
    the_node_vanishes(&mut site);
    site.check();
}

/// A run goes on while the way is cut. Its caller learns that it runs, or that its state is
/// unknown, and not how it ended.
fn the_way_is_cut(site: &mut Site) {
    let held = site.begin_held();
    site.network.cut();
    site.is_listed(false);
    let lost = site.finish(held).unwrap();
    assert_not_known_to_have_ended(&lost);
    site.let_go();
    site.network.mend();
    site.is_listed(true);
    site.ends_once(&held);
    site.works();
}

/// It runs, or the node was about to say so when it was lost.
#[track_caller]
fn assert_not_known_to_have_ended(told: &Value) {
    let is_open = told["status"] == "running" || told["code"] == "NODE_DISCONNECTED";
    assert!(is_open, "{told}");
}

/// Five ticks without a word are within what a node may take or beyond it, as the machine is busy; what
/// was called meanwhile runs once or not at all.
fn the_node_stands_still(site: &mut Site) {
    site.signal("-STOP");
    let call = site.begin();
    for _ in 0..5 {
        site.admin.event("tick", |_| true);
    }
    site.signal("-CONT");
    site.finish(call).unwrap();
    site.works();
    // For good: it is given up, and comes back when it can.
    site.signal("-STOP");
    site.is_listed(false);
    site.signal("-CONT");
    site.is_listed(true);
    site.works();
}

fn the_gateway_is_killed(site: &mut Site) {
    let held = site.begin_held();
    site.kill_gateway();
    assert_eq!(site.finish(held), None);
    site.start_gateway();
    site.is_listed(true);
    site.let_go();
    site.ends_once(&held);
    site.works();
}

/// Killed behind a cut: no sign of its end reaches the gateway.
fn the_node_vanishes(site: &mut Site) {
    let held = site.begin_held();
    site.network.cut();
    site.kill_node();
    site.is_listed(false);
    let lost = site.finish(held).unwrap();
    assert_not_known_to_have_ended(&lost);
    site.network.mend();
    site.start_node(site.port());
    site.is_listed(true);
    site.let_go();
    // The run belongs to the supervisor there, and was not begun again.
    site.ends_once(&held);
    let listed = site.admin.ok("node.list", &json!({}));
    assert_eq!(listed["nodes"].as_array().unwrap().len(), 1, "{listed}");
    site.works();
}
