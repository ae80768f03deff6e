use super::*;

fn rules(allow: &[&str], deny: &[&str]) -> SandboxNetworkRules {
    let read = |texts: &[&str], list| -> Vec<HostEntry> {
        let entries = texts.iter().map(|text| HostEntry::read(text, list));
        entries.collect::<Result<_, _>>().unwrap()
    };
    SandboxNetworkRules {
        allow: read(allow, HostEntryList::Allow),
        deny: read(deny, HostEntryList::Deny),
        ask: false,
    }
}

#[test]
fn an_approver_is_asked_about_names_that_no_entry_is_about() {
    let mut rules = rules(&["ok.test:8443"], &["bad.test:*", "no.test:80"]);
    let judge = |rules: &SandboxNetworkRules, target: &str| {
        let (host, port) = TargetHost::read_with_port(target, None).unwrap();
        rules.judge(&host, port)
    };
    assert_eq!(judge(&rules, "new.test:443"), HostVerdict::Unlisted);
    assert_eq!(rules.ports(), [8443]);
    rules.ask = true;
    assert_eq!(rules.ports(), [80, 443, 8443]);
    let public = HostVerdict::Allowed(AddressReach::Public);
    for (target, expected) in [
        ("ok.test:8443", public),
        ("ok.test:443", HostVerdict::Askable),
        ("new.test:443", HostVerdict::Askable),
        ("NEW.test.:80", HostVerdict::Askable),
        ("xn--nw-jma.test:443", HostVerdict::Askable),
        // Ports without a listener, addresses, this machine and its neighbors.
        ("new.test:22", HostVerdict::Unlisted),
        ("93.184.216.34:443", HostVerdict::Unlisted),
        ("[2606:2800::1]:443", HostVerdict::Unlisted),
        ("localhost:80", HostVerdict::Unlisted),
        ("host.internal:80", HostVerdict::Unlisted),
        ("metadata.google.internal:80", HostVerdict::Unlisted),
        ("printer.local:80", HostVerdict::Unlisted),
        ("router:80", HostVerdict::Unlisted),
        // `deny` wins.
        ("bad.test:443", HostVerdict::Denied),
        ("no.test:80", HostVerdict::Denied),
        ("no.test:443", HostVerdict::Askable),
    ] {
        assert_eq!(judge(&rules, target), expected, "{target}");
    }
    let may_reach = |name: &str| rules.may_reach(&name.parse().unwrap());
    assert!(may_reach("new.test") && may_reach("no.test"));
    assert!(!may_reach("bad.test") && !may_reach("localhost"));
    assert_eq!(
        rules.to_string(),
        "ok.test:8443, other names ask, never bad.test:*, no.test:80"
    );
}

#[test]
fn a_connection_is_judged_by_host_and_port_exactly() {
    let rules = rules(
        &[
            "ok.test:443",
            "*.docs.test:443",
            "*.docs.test:80",
            "nas.lan:8443 private",
            "host.internal:5432",
            "203.0.113.7:22",
            "[2001:db8::7]:443",
        ],
        &["bad.docs.test:*", "*.evil.docs.test:443"],
    );
    let public = HostVerdict::Allowed(AddressReach::Public);
    let any = HostVerdict::Allowed(AddressReach::Any);
    let unlisted = HostVerdict::Unlisted;
    for (target, expected) in [
        ("ok.test:443", public),
        ("OK.Test.:443", public),
        ("ok.test:80", unlisted),
        ("ok.test:8443", unlisted),
        ("www.ok.test:443", unlisted),
        ("notok.test:443", unlisted),
        ("ok.test.evil.test:443", unlisted),
        ("docs.test:443", unlisted),
        ("a.docs.test:443", public),
        ("a.b.docs.test:80", public),
        ("xdocs.test:443", unlisted),
        ("bad.docs.test:443", HostVerdict::Denied),
        ("bad.docs.test:80", HostVerdict::Denied),
        ("x.evil.docs.test:443", HostVerdict::Denied),
        ("x.evil.docs.test:80", public),
        ("evil.docs.test:443", public),
        ("nas.lan:8443", any),
        (
            "host.internal:5432",
            HostVerdict::Allowed(AddressReach::HostLoopback),
        ),
        ("host.internal:5433", unlisted),
        ("203.0.113.7:22", any),
        ("[::ffff:203.0.113.7]:22", any),
        ("203.0.113.8:22", unlisted),
        ("[2001:db8::7]:443", any),
        ("[2001:db8:0:0:0:0:0:7]:443", any),
        ("[2001:db8::8]:443", unlisted),
    ] {
        let (host, port) = TargetHost::read_with_port(target, None).unwrap();
        assert_eq!(rules.judge(&host, port), expected, "{target}");
    }
    assert_eq!(rules.ports(), [22, 80, 443, 5432, 8443]);
}

#[test]
fn only_a_name_that_some_connection_could_use_gets_an_address() {
    let rules = rules(
        &[
            "ok.test:443",
            "*.docs.test:443",
            "half.test:80",
            "half.test:443",
        ],
        &["bad.docs.test:*", "half.test:80"],
    );
    for (name, expected) in [
        ("ok.test", true),
        ("ok.test.", true),
        ("half.test", true),
        ("docs.test", false),
        ("a.docs.test", true),
        ("bad.docs.test", false),
        ("secret-data.attacker.test", false),
        ("host.internal", false),
    ] {
        assert_eq!(rules.may_reach(&name.parse().unwrap()), expected, "{name}");
    }
}

#[test]
fn what_could_be_taken_for_another_host_is_no_name() {
    for text in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "-a.test",
        "a-.test",
        "127.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "1.2.3.4.5",
        "a.0x",
        "a b.test",
        "a\u{0}.test",
        "a/b",
        "user@a.test",
        "a.test:1",
        "b\u{fc}cher.test",
        "\u{ff41}.test",
        "a%00.test",
        "[::1]",
        "*",
        "*.test",
        "a.test..",
    ] {
        assert!(text.parse::<HostName>().is_err(), "{text:?}");
    }
    assert!("a".repeat(64).parse::<HostName>().is_err());
    assert!(vec!["abcdefg"; 40].join(".").parse::<HostName>().is_err());
    for text in [
        "xn--bcher-kva.test",
        "_dmarc.a.test",
        "A.Test.",
        "localhost",
        "1a.test",
    ] {
        assert!(text.parse::<HostName>().is_ok(), "{text:?}");
    }
}

#[test]
fn entries_that_say_too_much_or_nothing_are_refused() {
    for text in [
        "",
        "ok.test",
        "ok.test:",
        "ok.test:0",
        "ok.test:65536",
        "ok.test:443x",
        "ok.test:+443",
        "ok.test:0443",
        "*:443",
        "*.com:443",
        "*.:443",
        "a.*.test:443",
        "ok.test:*",
        ":443",
        "https://ok.test:443",
        "ok.test:443 public",
        "203.0.113.7:443 private",
        "[::1:443",
        "::1:443",
        "[::1]:443",
        "127.0.0.1:80",
        "198.18.0.1:53",
        "0.0.0.0:80",
        "[::]:80",
        "ok.test:443  private",
        "b\u{fc}cher.test:443",
        "127.1:80",
    ] {
        assert!(
            HostEntry::read(text, HostEntryList::Allow).is_err(),
            "{text:?}"
        );
    }
    assert!(HostEntry::read("ok.test:*", HostEntryList::Deny).is_ok());
    assert!(HostEntry::read("ok.test:443 private", HostEntryList::Deny).is_err());
}

#[test]
fn an_entry_is_kept_as_it_is_written() {
    for text in [
        "ok.test:443",
        "*.a.test:80",
        "nas.lan:1 private",
        "203.0.113.7:22",
        "[2001:db8::7]:443",
    ] {
        let entry = HostEntry::read(text, HostEntryList::Allow).unwrap();
        assert_eq!(entry.to_string(), text);
        let stored = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<HostEntry>(&stored).unwrap(), entry);
    }
}
