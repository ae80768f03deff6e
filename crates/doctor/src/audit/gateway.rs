//! Checks of how the gateway can be reached.

use std::net::IpAddr;

use interlock_config::types::Gateway;
use interlock_config::{GatewayAuthMode, GatewayBind};

use super::table::checks;
use super::{AuditSubject, FindingSeverity, SecurityFinding};

pub(super) fn check(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let gateway = &subject.config.gateway;
    let beyond = goes_beyond_loopback(gateway);
    if gateway.auth.mode == Some(GatewayAuthMode::None) {
        let (severity, what) = if beyond {
            (
                FindingSeverity::Critical,
                "gateway.bind goes beyond this machine, and gateway.auth.mode is `none`: the gateway refuses to start",
            )
        } else {
            (
                FindingSeverity::Warn,
                "gateway.auth.mode is `none`: every process of this machine can call tools",
            )
        };
        findings.push(checks::BIND_NO_AUTH.finding(
            severity,
            "gateway.auth.mode",
            what,
            "interlock config set gateway.auth.mode token",
        ));
    }
    if beyond && gateway.tls.enabled != Some(true) {
        findings.push(checks::BIND_NO_TLS.finding(
            FindingSeverity::Warn,
            "gateway.tls.enabled",
            "gateway.bind goes beyond this machine, and the port speaks plain text",
            "interlock config set gateway.tls.enabled true",
        ));
    }
}

fn goes_beyond_loopback(gateway: &Gateway) -> bool {
    match gateway.bind.unwrap_or(GatewayBind::Loopback) {
        GatewayBind::Loopback => false,
        GatewayBind::Lan | GatewayBind::Tailnet => true,
        GatewayBind::Custom => {
            let host = gateway.custom_bind_host.as_deref().unwrap_or_default();
            !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}
