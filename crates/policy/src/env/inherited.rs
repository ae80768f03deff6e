//! The part of a run's environment that comes from the service that starts it.

use std::collections::BTreeMap;

use super::table::scope;

/// Returns the part of the service's own environment that a run may see. The owner chose these
/// values, so more of them pass than of a caller's: proxies and home directories stay, hooks and
/// secrets are removed. Git's two protocol switches stay, without their permissive part, because
/// removing the switches would loosen git.
#[must_use]
pub fn inherited(base: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    base.iter()
        .filter(|(key, value)| {
            !key.is_empty() && !key.contains(['=', '\0']) && !value.contains('\0')
        })
        .filter_map(|(key, value)| {
            let value = match key.to_ascii_uppercase().as_str() {
                "GIT_ALLOW_PROTOCOL" => without_program_protocols(value),
                "GIT_PROTOCOL_FROM_USER" => not_permissive(value),
                upper => match scope(upper) {
                    Some(scope) if !scope.is_inherited() => return None,
                    _ => value.clone(),
                },
            };
            Some((key.clone(), value))
        })
        .collect()
}

/// Keeps only protocols that move data. Others, such as `ext`, start a program named in the URL. An
/// empty list stays, because git then allows no protocol.
fn without_program_protocols(value: &str) -> String {
    let kept: Vec<&str> = value
        .split(':')
        .filter(|protocol| matches!(*protocol, "git" | "http" | "https" | "ssh"))
        .collect();
    kept.join(":")
}

/// Turns every value that git would not read as false into `0`.
fn not_permissive(value: &str) -> String {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    let zero = !digits.is_empty() && digits.bytes().all(|byte| byte == b'0');
    let word = ["", "false", "no", "off"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word));
    if zero || word {
        value.to_owned()
    } else {
        "0".to_owned()
    }
}
