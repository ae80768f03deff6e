//! Numbers for Prometheus.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::tools::Tool;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabel {
    tool: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum MetricsTransport {
    Unix,
    Tcp,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoorLabel {
    door: MetricsTransport,
}

#[derive(Debug, Default)]
pub struct Metrics {
    calls: Family<ToolLabel, Counter>,
    connections: Family<DoorLabel, Gauge<i64, AtomicI64>>,
    refused: Counter,
    pub clients: Gauge<i64, AtomicI64>,
}

/// Counts a connection for as long as this value lives.
#[derive(Debug)]
pub struct Counted(Gauge<i64, AtomicI64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub fn called(&self, tool: Tool) {
        let label = ToolLabel { tool: tool.name() };
        self.calls.get_or_create(&label).inc();
    }

    pub fn refused(&self) {
        self.refused.inc();
    }

    pub fn connected(&self, door: MetricsTransport) -> Counted {
        let gauge = self.connections.get_or_create(&DoorLabel { door }).clone();
        gauge.inc();
        Counted(gauge)
    }

    pub fn text(&self) -> String {
        let mut registry = Registry::with_prefix("interlock");
        registry.register("tool_calls", "Calls of a tool", self.calls.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "auth_refused",
            "Callers that were not let in",
            self.refused.clone(),
        );
        registry.register(
            "clients",
            "Clients that are connected by WebSocket",
            self.clients.clone(),
        );
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}
