//! What a run gets from `tools.exec`: what is set, else the default, always within the limits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use interlock_config::schema::{CONFIG, ConfigField, ConfigKind};
use interlock_config::types::ExecConfig;
use interlock_config::{Config, Json5Text, Leftovers, YIELD_MS};

fn exec_of(agent: &str, global: &str, own: &str) -> ExecConfig {
    let text = format!(
        "{{ tools: {{ exec: {{ {global} }} }}, agents: {{ list: [{{ id: 'a', tools: {{ exec: {{ {own} }} }} }}] }} }}"
    );
    let text = Json5Text::parse("interlock.json", &text).unwrap();
    let config = Config::from_text(&text).unwrap_or_else(|problems| panic!("{problems}"));
    config.exec_for(agent)
}

fn key(name: &str) -> &'static ConfigField {
    fn beneath(fields: &'static [ConfigField], name: &str) -> &'static [ConfigField] {
        let field = fields.iter().find(|field| field.key == name).unwrap();
        match field.kind {
            ConfigKind::Object(inner) => inner,
            _ => panic!("{name} is no object"),
        }
    }
    let exec = beneath(beneath(CONFIG, "tools"), "exec");
    exec.iter().find(|field| field.key == name).unwrap()
}

#[test]
fn defaults_and_limits_are_those_of_the_schema() {
    type Get = fn(&ExecConfig) -> u64;
    type Set = fn(&mut ExecConfig, u64);
    let table: [(&str, Get, Set); 4] = [
        (
            "backgroundMs",
            |exec| u64::try_from(exec.background_after().as_millis()).unwrap(),
            |exec, value| exec.background_ms = Some(value),
        ),
        (
            "cleanupMs",
            |exec| u64::try_from(exec.keep_finished().as_millis()).unwrap(),
            |exec, value| exec.cleanup_ms = Some(value),
        ),
        (
            "resultChars",
            |exec| u64::try_from(exec.result_chars()).unwrap(),
            |exec, value| exec.result_chars = Some(value),
        ),
        ("maxSpoolBytes", ExecConfig::spool_quota, |exec, value| {
            exec.max_spool_bytes = Some(value);
        }),
    ];
    for (name, get, set) in table {
        let field = key(name);
        let ConfigKind::Integer(least, most) = field.kind else {
            panic!("{name}")
        };
        let mut exec = ExecConfig::default();
        assert_eq!(get(&exec).to_string(), field.default, "{name}");
        let inside = least.midpoint(most);
        for (value, expected) in [
            (0, least),
            (least - 1, least),
            (least, least),
            (inside, inside),
            (most, most),
            (most + 1, most),
            (u64::MAX, most),
        ] {
            set(&mut exec, value);
            assert_eq!(get(&exec), expected, "{name} = {value}");
        }
    }
    let ConfigKind::Integer(least, most) = key("backgroundMs").kind else {
        panic!()
    };
    assert_eq!(YIELD_MS, least..=most);
    let unset = ExecConfig::default();
    assert_eq!(
        format!("\"{}\"", unset.leftovers()),
        key("leftovers").default
    );
    assert_eq!(
        unset.requires_race_free().to_string(),
        key("requireRaceFree").default
    );
}

#[test]
fn an_agent_has_its_own_values() {
    let global = "backgroundMs: 50, cleanupMs: 60000, maxSpoolBytes: 65536, leftovers: 'keep', requireRaceFree: true";
    let own = "backgroundMs: 70, cleanupMs: 90000, maxSpoolBytes: 70000, leftovers: 'end', requireRaceFree: false";
    let seen = |exec: &ExecConfig| {
        (
            exec.background_after(),
            exec.keep_finished(),
            exec.spool_quota(),
            exec.leftovers(),
            exec.requires_race_free(),
        )
    };
    let (ms, secs) = (Duration::from_millis, Duration::from_secs);
    let of_all = (ms(50), secs(60), 65_536, Leftovers::Keep, true);
    let of_one = (ms(70), secs(90), 70_000, Leftovers::End, false);
    assert_eq!(seen(&exec_of("other", global, own)), of_all);
    assert_eq!(seen(&exec_of("a", global, own)), of_one);
    assert_eq!(seen(&exec_of("a", global, "")), of_all);
    assert_eq!(seen(&exec_of("a", "", own)), of_one);
}
