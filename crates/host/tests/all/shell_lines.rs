//! Lines that only a shell can run: how they would run, and what an approval of them binds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use interlock_command::Source;
use interlock_plan::FsResolver;
use interlock_policy::{
    Ask, BindingKind, CallerInput, Layer, Levels, PolicyParts, PolicySource as LayerSource,
    RunRequest, Security, Transport, Verdict, evaluate,
};

fn verdict(source: Source) -> Verdict {
    let (security, ask) = (Some(Security::Allowlist), Some(Ask::OnMiss));
    let layer = Layer::new(LayerSource::Host, "", security, ask);
    let policy = PolicyParts {
        levels: Some(Levels::join(&[layer])),
        ..PolicyParts::default()
    };
    let policy = policy.assemble(None).unwrap();
    let resolver = FsResolver::from_path_value("/usr/bin:/bin", Some("/".to_owned()));
    let request = RunRequest {
        source,
        cwd: "/".to_owned(),
        env: BTreeMap::new(),
        input: CallerInput::None,
        workspace: Vec::new(),
        now_ms: 0,
    };
    evaluate(request, &policy, &resolver).unwrap().verdict
}

fn text(text: &str) -> Verdict {
    verdict(Source::Text(text.to_owned()))
}

#[test]
fn a_cd_that_is_not_followed_is_left_to_the_shell() {
    for line in ["cd /usr; ls", "ls; cd /usr && ls", "test -Q x && ls"] {
        let verdict = text(line);
        assert_eq!(verdict.transport, Transport::Shell, "{line}");
        assert_eq!(verdict.binding.kind, BindingKind::Text, "{line}");
        assert!(verdict.remember.entries.is_empty(), "{line}");
    }
    assert_eq!(text("cd /usr && ls").transport, Transport::Direct);
}

#[test]
fn behind_a_shell_it_is_the_shell_that_runs() {
    let words = ["sh", "-c", "cd /usr; ls"].map(str::to_owned).to_vec();
    let verdict = verdict(Source::Argv(words));
    assert_eq!(verdict.segments.len(), 1);
    assert_eq!(verdict.segments[0].argv[0], "sh");
    assert_eq!(verdict.binding.kind, BindingKind::Text);
}

#[test]
fn builtins_do_not_make_a_text_unbound() {
    for line in [
        "(cd /usr; ls)",
        "set -e; ls",
        "ls | while read x; do ls; done",
    ] {
        assert_eq!(text(line).binding.kind, BindingKind::Text, "{line}");
    }
    for line in ["(cd /usr; ./missing-program)", "source x", "enable -f x y"] {
        assert_eq!(text(line).binding.kind, BindingKind::Unbound, "{line}");
    }
}
