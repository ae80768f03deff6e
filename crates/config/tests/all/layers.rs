//! What an agent gets: its own values over the global ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_config::types::{ExecLimits, SafeBinProfile};
use interlock_config::{Config, ExecMode, Host, Json5Text};
use interlock_policy::{Ask, Security};

fn config(text: &str) -> Config {
    let text = Json5Text::parse("interlock.json", text).unwrap();
    Config::from_text(&text).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn an_agents_values_lie_over_the_global_ones_field_by_field() {
    let config = config(
        "{
          tools: { exec: { host: 'gateway', timeoutSec: 60, safeBins: ['wc'], applyPatch: { enabled: true, workspaceOnly: true },
            safeBinProfiles: { a: { maxPositional: 1 }, b: { maxPositional: 1 } } } },
          agents: {
            defaults: { workspace: '/w' },
            list: [{ id: 'Ops', default: true,
              tools: { exec: { host: 'node', node: 'n1', timeoutSeconds: 5, safeBins: [], applyPatch: { workspaceOnly: false },
                safeBinProfiles: { b: { minPositional: 0 } } } } }],
          },
        }",
    );
    let ops = config.exec_for("oPS");
    assert_eq!(
        (ops.host, ops.node.as_deref(), ops.timeout()),
        (Some(Host::Node), Some("n1"), Some(5))
    );
    assert_eq!(ops.timeout_sec, None);
    assert_eq!(ops.safe_bins, Some(vec![]));
    assert_eq!(
        (ops.apply_patch.enabled, ops.apply_patch.workspace_only),
        (Some(true), Some(false))
    );
    let profile = |least, most| SafeBinProfile {
        min_positional: least,
        max_positional: most,
        ..SafeBinProfile::default()
    };
    assert_eq!(ops.safe_bin_profiles["a"], profile(None, Some(1)));
    assert_eq!(ops.safe_bin_profiles["b"], profile(Some(0), None));
    assert_eq!(config.exec_for("other"), config.tools.exec);
    assert_eq!(config.workspace_for("ops"), Some("/w"));
    assert_eq!(config.default_agent_id(), "ops");
    assert_eq!(Config::default().default_agent_id(), "main");
}

#[test]
fn limits_of_runs_are_layered_one_by_one() {
    let config = config(
        "{
          tools: { exec: { limits: { memory: '512m', pids: 100 } } },
          agents: { list: [{ id: 'ops', tools: { exec: { limits: { memory: '2G', cpus: 1.5 } } } }] },
        }",
    );
    let limits = |agent: &str| {
        let limits = config.exec_for(agent).limits;
        (limits.memory_bytes(), limits.pids, limits.cpus)
    };
    assert_eq!(limits("main"), (Some(512 << 20), Some(100), None));
    assert_eq!(limits("ops"), (Some(2 << 30), Some(100), Some(1.5)));
    let of = |memory: &str| ExecLimits {
        memory: Some(memory.to_owned()),
        ..ExecLimits::default()
    };
    assert_eq!(of("4096").memory_bytes(), Some(4096));
    assert_eq!(of("3k").memory_bytes(), Some(3072));
    assert_eq!(of("much").memory_bytes(), None);
    assert_eq!(ExecLimits::default().memory_bytes(), None);
}

#[test]
fn a_mode_stands_for_security_and_ask_unless_something_more_specific_is_set() {
    let table = [
        // global, agent, what comes out
        ("", "", (None, None, None)),
        (
            "mode: 'deny'",
            "",
            (Some(Security::Deny), Some(Ask::Off), Some(ExecMode::Deny)),
        ),
        (
            "mode: 'allowlist'",
            "",
            (
                Some(Security::Allowlist),
                Some(Ask::Off),
                Some(ExecMode::Allowlist),
            ),
        ),
        (
            "mode: 'ask'",
            "",
            (
                Some(Security::Allowlist),
                Some(Ask::OnMiss),
                Some(ExecMode::Ask),
            ),
        ),
        (
            "mode: 'full'",
            "",
            (Some(Security::Full), Some(Ask::Off), Some(ExecMode::Full)),
        ),
        (
            "mode: 'ask'",
            "host: 'gateway'",
            (
                Some(Security::Allowlist),
                Some(Ask::OnMiss),
                Some(ExecMode::Ask),
            ),
        ),
        (
            "mode: 'ask'",
            "ask: 'always'",
            (Some(Security::Allowlist), Some(Ask::Always), None),
        ),
        (
            "mode: 'full'",
            "security: 'deny'",
            (Some(Security::Deny), Some(Ask::Off), None),
        ),
        (
            "security: 'deny', ask: 'always'",
            "mode: 'ask'",
            (
                Some(Security::Allowlist),
                Some(Ask::OnMiss),
                Some(ExecMode::Ask),
            ),
        ),
        (
            "security: 'full'",
            "ask: 'always'",
            (Some(Security::Full), Some(Ask::Always), None),
        ),
        (
            "mode: 'full'",
            "mode: 'deny'",
            (Some(Security::Deny), Some(Ask::Off), Some(ExecMode::Deny)),
        ),
    ];
    for (global, agent, expected) in table {
        let text = format!(
            "{{tools: {{exec: {{{global}}}}}, agents: {{list: [{{id: 'a', tools: {{exec: {{{agent}}}}}}}]}}}}"
        );
        let exec = config(&text).exec_for("a");
        assert_eq!(
            (exec.security, exec.ask, exec.mode),
            expected,
            "{global} / {agent}"
        );
    }
}
