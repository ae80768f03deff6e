use super::*;

fn list(patterns: &[&str]) -> Allowlist {
    let entries = patterns.iter().enumerate();
    let entries = entries.map(|(i, p)| (Entry::for_pattern(*p), format!("allowlist[{i}]")));
    Allowlist::new(entries.collect(), Some("/home/u"))
}

fn program<'a>(name: Option<&'a str>, path: &'a str) -> Candidate<'a> {
    Candidate {
        path_name: name,
        found: path,
        canonical: path,
        protected: true,
        opaque: false,
        arguments: &[],
        cwd: "/w",
        now_ms: 0,
    }
}

#[test]
fn bare_patterns_match_only_through_path() {
    let list = list(&["rg"]);
    assert!(list.find(&program(Some("rg"), "/usr/bin/rg")).is_ok());
    assert!(list.find(&program(None, "/tmp/rg")).is_err());
    assert!(list.find(&program(Some("RG"), "/usr/bin/RG")).is_err());
}

#[test]
fn every_kind_of_path_pattern_is_found_through_the_index() {
    for pattern in [
        "/usr/bin/rg",
        "/usr/bin/*",
        "/usr/**",
        "/**",
        "**/rg",
        "/usr/*/rg",
        "/usr/bin/r*",
        "/usr/b?n/rg",
        "/usr/**/r?",
        "*",
    ] {
        assert!(
            list(&[pattern]).find(&program(None, "/usr/bin/rg")).is_ok(),
            "{pattern}"
        );
    }
    for pattern in [
        "/usr/bin/r",
        "/usr/*",
        "/bin/**",
        "**/g",
        "/usr/bin/rg/**",
        "rg",
        "~/rg",
    ] {
        assert!(
            list(&[pattern])
                .find(&program(None, "/usr/bin/rg"))
                .is_err(),
            "{pattern}"
        );
    }
}

#[test]
fn the_path_as_found_counts_only_when_protected() {
    let list = list(&["/usr/bin/python3"]);
    let mut python = program(Some("python3"), "/usr/bin/python3.11");
    python.found = "/usr/bin/python3";
    assert!(list.find(&python).is_ok());
    python.protected = false;
    let near = list.find(&python).unwrap_err();
    assert!(matches!(near, Some(NearMiss::Unprotected { .. })));
}

#[test]
fn expiry_directory_and_arguments_narrow_an_entry() {
    let entry = Entry {
        expires_at: Some(100),
        cwd: Some("/w/**".to_owned()),
        args: Some(vec!["status".to_owned()]),
        ..Entry::for_pattern("git")
    };
    let list = Allowlist::new(std::iter::once((entry, "x".to_owned())).collect(), None);
    let arguments = ["status".to_owned()];
    let git = Candidate {
        arguments: &arguments,
        ..program(Some("git"), "/usr/bin/git")
    };
    assert!(list.find(&git).is_ok());
    assert!(
        list.find(&Candidate {
            cwd: "/w/sub",
            ..git
        })
        .is_ok()
    );
    for (candidate, expected) in [
        (Candidate { now_ms: 100, ..git }, "Expired"),
        (Candidate { cwd: "/x", ..git }, "Cwd"),
        (
            Candidate {
                arguments: &[],
                ..git
            },
            "Arguments",
        ),
    ] {
        let near = list.find(&candidate).unwrap_err();
        assert!(format!("{near:?}").contains(expected), "{near:?}");
    }
}

#[test]
fn opaque_programs_want_an_entry_that_lists_arguments() {
    let mut sudo = program(Some("sudo"), "/usr/bin/sudo");
    sudo.opaque = true;
    assert!(list(&["sudo", "*", "/usr/bin/*"]).find(&sudo).is_err());
    let entry = Entry {
        args: Some(vec!["ls".to_owned()]),
        ..Entry::for_pattern("sudo")
    };
    let bound = Allowlist::new(std::iter::once((entry, "x".to_owned())).collect(), None);
    let arguments = ["ls".to_owned()];
    assert!(
        bound
            .find(&Candidate {
                arguments: &arguments,
                ..sudo
            })
            .is_ok()
    );
    assert!(bound.find(&sudo).is_err());
}

#[test]
fn remembered_entries_without_arguments_are_inert() {
    let entry = Entry {
        source: Some("allow-always".to_owned()),
        ..Entry::for_pattern("/usr/bin/rg")
    };
    let list = Allowlist::new(std::iter::once((entry, "x".to_owned())).collect(), None);
    let near = list.find(&program(None, "/usr/bin/rg")).unwrap_err();
    assert!(matches!(near, Some(NearMiss::Inert { .. })));
}

#[test]
fn an_exact_command_is_found_by_its_hash() {
    let text = "powershell -NoProfile -Command \"Write-Output hi\"";
    let list = list(&["=command:613b5a60181648fd"]);
    assert!(list.find_command(text, "/w", 0).is_some());
    assert!(list.find_command("other", "/w", 0).is_none());
}

#[test]
fn an_expired_grant_for_a_command_does_not_hide_a_live_one() {
    let text = "powershell -NoProfile -Command \"Write-Output hi\"";
    let grant = |expires_at, cwd: Option<&str>| Entry {
        expires_at,
        cwd: cwd.map(str::to_owned),
        ..Entry::for_pattern("=command:613b5a60181648fd")
    };
    let list = |entries: Vec<Entry>| {
        let entries = entries.into_iter().map(|entry| (entry, String::new()));
        Allowlist::new(entries.collect(), None)
    };
    let both = list(vec![grant(None, None), grant(Some(5), None)]);
    assert!(both.find_command(text, "/w", 10).is_some());
    let expired = list(vec![grant(Some(5), None)]);
    assert!(expired.find_command(text, "/w", 10).is_none());
    let elsewhere = list(vec![grant(None, Some("/x/**"))]);
    assert!(elsewhere.find_command(text, "/w", 10).is_none());
    assert!(elsewhere.find_command(text, "/x", 10).is_some());
}

#[test]
fn every_remembered_grant_is_found_among_many() {
    let words = |index: usize| vec!["-n".to_owned(), index.to_string()];
    let grants = (0..50).map(|index| Entry {
        source: Some("allow-always".to_owned()),
        arg_pattern: Some(crate::digest_pattern(&words(index), "/w")),
        ..Entry::for_pattern("/usr/bin/rg")
    });
    let origins = (0..).map(|index| format!("allowlist[{index}]"));
    let list = Allowlist::new(grants.zip(origins).collect(), None);
    for index in 0..50 {
        let arguments = words(index);
        let candidate = Candidate {
            arguments: &arguments,
            ..program(Some("rg"), "/usr/bin/rg")
        };
        assert_eq!(
            list.find(&candidate).unwrap().origin,
            format!("allowlist[{index}]")
        );
        let elsewhere = Candidate {
            cwd: "/x",
            ..candidate
        };
        assert!(matches!(
            list.find(&elsewhere),
            Err(Some(NearMiss::Arguments { .. }))
        ));
    }
}
