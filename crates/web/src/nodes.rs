//! Machines that run commands, devices that may connect, and pairing requests.

use interlock_wire::node::{NodeEntry, NodePairRequested};
use interlock_wire::results::{DevicePairRequested, PairedDeviceEntry};
use maud::{Markup, html};

use crate::text;

/// The data of the page.
#[derive(Debug, Default)]
pub struct NodesFacts<'a> {
    pub nodes: &'a [NodeEntry],
    pub total: usize,
    pub waiting_devices: &'a [DevicePairRequested],
    pub waiting_nodes: &'a [NodePairRequested],
    pub devices: &'a [PairedDeviceEntry],
    /// The reader's own device.
    pub own_device: Option<&'a str>,
    pub may_pair: bool,
    pub may_administer: bool,
}

/// Renders the page. The browser fills the two editors at its end through the same methods that
/// every client calls.
pub fn nodes_page(facts: &NodesFacts<'_>) -> Markup {
    html! {
        div class="top" { h1 class="grow" { "Nodes" } @if facts.total > 0 { span class="muted small" { (facts.total) " in all" } } }
        div id="listed" {
            @if facts.may_pair && !(facts.waiting_devices.is_empty() && facts.waiting_nodes.is_empty()) {
                section class="block" {
                    header { h2 { "Waiting to be let in" } }
                    ul class="list" {
                        @for request in facts.waiting_devices { (waiting_device(request)) }
                        @for request in facts.waiting_nodes { (waiting_node(request)) }
                    }
                }
            }
            section class="block" {
                header { h2 { "Machines" } }
                @if facts.nodes.is_empty() {
                    div class="list pad" {
                        p { "No other machine runs commands for this gateway." }
                        p class="muted" { "On the machine that should: " code { "interlock node install --help" } ", with a token from " code { "interlock nodes enroll" } "." }
                    }
                } @else {
                    ul class="list" { @for node in facts.nodes { (machine(node, facts.may_pair)) } }
                    @if facts.nodes.len() < facts.total {
                        p class="muted small" { "These are the first " (facts.nodes.len()) " by name; " code { "interlock nodes list" } " has all of them." }
                    }
                }
            }
        }
        @if facts.may_administer {
            section class="block" id="binding" aria-busy="true" { header { h2 { "Exec node binding" } } div class="list pad muted" { "Reading…" } }
            section class="block" id="approvals" aria-busy="true" { header { h2 { "Exec approvals" } } div class="list pad muted" { "Reading…" } }
        }
        @if facts.may_pair {
            section class="block" id="paired" {
                header { h2 { "Devices that may connect" } }
                ul class="list" {
                    @for device in facts.devices.iter().filter(|device| device.roles.iter().any(|role| role == "operator")) { (paired(device, facts.own_device)) }
                }
            }
        }
    }
}

fn named(name: Option<&str>, id: &str) -> String {
    let short = id.get(..12).unwrap_or(id);
    name.map_or_else(|| text::line(short), text::line)
}

fn waiting_device(request: &DevicePairRequested) -> Markup {
    html! {
        li class="entry" {
            span class="grow" {
                b { (named(request.display_name.as_deref(), &request.device_id)) }
                @if let Some(words) = &request.words { " · the phone shows " b class="words" { (text::line(words)) } }
                span class="sub" {
                    "wants to be " (text::line(&request.role)) ": " (text::line(&request.scopes.join(", ").replace("operator.", "")))
                    @if let Some(ip) = &request.remote_ip { " · from " (text::line(ip)) }
                    " · device " code { (text::line(request.device_id.get(..12).unwrap_or_default())) } " · " (text::at(i64::try_from(request.ts).unwrap_or_default()))
                }
            }
            button class="button small deny" data-call="device.pair.reject" data-id=(request.request_id) { "Reject" }
            button class="button small" data-call="device.pair.approve" data-id=(request.request_id) { "Approve" }
        }
    }
}

fn waiting_node(request: &NodePairRequested) -> Markup {
    html! {
        li class="entry" {
            span class="grow" {
                b { (named(request.display_name.as_deref(), &request.node_id)) }
                span class="sub" { "a machine that offers " (text::line(&request.commands.join(", "))) }
            }
            button class="button small deny" data-call="node.pair.reject" data-id=(request.request_id) { "Reject" }
            button class="button small" data-call="node.pair.approve" data-id=(request.request_id) { "Approve" }
        }
    }
}

fn machine(node: &NodeEntry, may_pair: bool) -> Markup {
    html! {
        li class="entry" {
            span class=(if node.connected { "dot" } else { "dot off" }) aria-hidden="true" {}
            span class="grow" {
                b { (named(node.display_name.as_deref(), &node.node_id)) }
                " " span class="muted small" { (if node.connected { "connected" } else { "away" }) @if !node.paired { ", not approved" } }
                span class="sub" {
                    (text::line(node.platform.as_deref().unwrap_or("unknown system"))) " "
                    (text::line(node.version.as_deref().unwrap_or("")))
                    @if let Some(at) = node.last_seen_at_ms { " · seen " (text::at(i64::try_from(at).unwrap_or_default())) }
                }
                @if !node.commands.is_empty() {
                    details class="offers" {
                        summary { (node.commands.len()) (if node.commands.len() == 1 { " command" } else { " commands" }) }
                        span class="sub" { @for command in &node.commands { code { (text::line(command)) } " " } }
                    }
                }
            }
            @if may_pair {
                button class="button small quiet" data-rename=(node.node_id) data-name=(named(node.display_name.as_deref(), &node.node_id)) { "Rename" }
                button class="button small quiet" data-call="node.pair.remove" data-id=(node.node_id) data-sure="Take the approval of this machine back?" { "Remove" }
            }
        }
    }
}

pub(crate) fn paired(device: &PairedDeviceEntry, own: Option<&str>) -> Markup {
    let is_own = own == Some(&device.device_id);
    html! {
        li class="entry" {
            span class="grow" {
                b { (named(device.display_name.as_deref(), &device.device_id)) }
                @if is_own { " " span class="muted small" { "this browser" } }
                span class="sub" {
                    (text::line(&device.scopes.join(", ").replace("operator.", "")))
                    @if let Some(ip) = &device.remote_ip { " · from " (text::line(ip)) }
                    " · device " code { (text::line(device.device_id.get(..12).unwrap_or_default())) }
                    " · since " (text::at(i64::try_from(device.approved_at_ms).unwrap_or_default()))
                }
            }
            button class="button small quiet" data-call="device.pair.remove" data-id=(device.device_id) data-sure="Forget this device? Its connections end now." { "Remove" }
        }
    }
}
