//! How long a verdict takes. `cargo bench -p interlock`; the bars are in SPECIFICATION.md.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use divan::{Bencher, black_box};
use interlock_command::{Host, MAX_PLAIN_BYTES, MAX_PLAIN_COMMANDS, Source, analyse};
use interlock_policy::{
    Ask, CallerInput, DenyRule, Entry, JudgedCall, Layer, Levels, Policy, PolicyParts,
    PolicySource as LayerSource, Security, Verdict,
};
use interlock_programs::VirtualHost;

const EVERYDAY: &str = "rg -n TODO src | head -5";

fn main() {
    divan::main();
}

/// The policy is ready; the command is everyday; one entry in the middle matches.
#[divan::bench(args = [0, 1_000, 10_000])]
fn everyday_command_with_entries(bencher: Bencher, entries: usize) {
    let policy = parts(entries).assemble(Some("/home/u")).unwrap();
    assert!(judge(&policy, EVERYDAY).outcome.is_allow());
    bencher.bench_local(|| judge(&policy, black_box(EVERYDAY)));
}

/// Text that is not plain is parsed in full when a prompt or a deny rule wants to know.
#[divan::bench]
fn odd_text(bencher: Bencher) {
    let policy = parts(1_000).assemble(Some("/home/u")).unwrap();
    let text = "for f in $(git ls-files); do wc -l \"$f\" >> sizes.txt; done";
    bencher.bench_local(|| judge(&policy, black_box(text)));
}

/// As long as a text may be and as bad as one can think of, with deny rules to look for.
#[divan::bench(args = HOSTILE.iter().map(|hostile| hostile.name))]
fn hostile_text(bencher: Bencher, name: &str) {
    let text = HOSTILE
        .iter()
        .find(|hostile| hostile.name == name)
        .unwrap()
        .text();
    let deny = [("rm", Some("-rf")), ("shutdown", None), ("/sbin/**", None)];
    let deny = deny.map(|(pattern, arg_pattern)| DenyRule {
        pattern: pattern.to_owned(),
        arg_pattern: arg_pattern.map(str::to_owned),
        ..DenyRule::default()
    });
    let parts = PolicyParts {
        deny: deny.map(|rule| (rule, "defaults.deny".to_owned())).into(),
        ..parts(1_000)
    };
    let policy = parts.assemble(Some("/home/u")).unwrap();
    bencher.bench_local(|| judge(&policy, black_box(&text)));
}

/// A text of exactly the longest length: a beginning, and a unit over and over.
struct Hostile {
    name: &'static str,
    start: &'static str,
    unit: &'static str,
    /// Blanks are added to each unit up to this length. Of a plain text only so many commands are read.
    width: usize,
}

impl Hostile {
    const fn new(name: &'static str, start: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            start,
            unit,
            width: 0,
        }
    }

    const fn wide(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            start: "x ",
            unit,
            width: MAX_PLAIN_BYTES / MAX_PLAIN_COMMANDS,
        }
    }

    fn text(&self) -> String {
        let unit = format!("{:width$}", self.unit, width = self.width);
        let times = (MAX_PLAIN_BYTES - self.start.len()) / unit.len();
        format!("{}{}", self.start, unit.repeat(times))
    }
}

const HOSTILE: &[Hostile] = &[
    Hostile::new("single quotes", "x ", "'"),
    Hostile::new("double quotes", "x ", "\""),
    Hostile::new("backslashes", "x ", "\\"),
    Hostile::new("brackets", "x ", "["),
    Hostile::new("dollar parentheses", "x ", "$("),
    Hostile::new("double parentheses", "x ", "(("),
    Hostile::new("blanks", "x ", " "),
    Hostile::new("operators", "x ", "|a&&b;"),
    Hostile::new("here-documents", "x ", "<<E "),
    Hostile::new("globs", "x ", "*?"),
    Hostile::new("wide characters", "x ", "é"),
    Hostile::new("one giant word", "", "a"),
    Hostile::new("small words", "x ", "a "),
    Hostile::new("words", "x ", "a-longer "),
    Hostile::new("assignments", "", "A=1 "),
    Hostile::new("vendor tokens", "x ", "sk-"),
    Hostile::new("web tokens", "x ", "eyJ."),
    Hostile::new("parameters of a URL", "x 'http://h?", "&key="),
    Hostile::new("cookies", "x 'a", "cookie: a=b;"),
    Hostile::new("wrappers", "", "env nice nohup "),
    Hostile::new("options of an opaque program", "sudo ", "-a rm "),
    Hostile::new("opaque programs", "", "sudo -a "),
    Hostile::new("nested find", "", "find -execdir "),
    Hostile::wide("256 commands", "; rm x"),
    Hostile::wide("256 pipes", "| sudo -a rm -b rm"),
    Hostile::wide(
        "256 shells",
        "&& sh -c 'nice rm x; sudo rm y; sh -c \"a|b|c\"'",
    ),
    Hostile::wide("256 odd shells", "&& sh -c 'rm $x'"),
    Hostile::wide("256 odd texts", "|| tmux -a 'rm $((x))'"),
];

/// Done once for each change of the policy, not for each command.
#[divan::bench(args = [1_000, 10_000])]
fn assembling_the_policy(bencher: Bencher, entries: usize) {
    bencher
        .with_inputs(|| parts(entries))
        .bench_local_values(|parts| parts.assemble(Some("/home/u")).unwrap());
}

mod process {
    use super::{Bencher, Command, EVERYDAY, Stdio};

    fn run(state: &std::path::Path, arguments: &[&str]) {
        let status = Command::new(testkit::binary())
            .args(arguments)
            .env("INTERLOCK_STATE_DIR", state)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.is_ok_and(|status| status.code().is_some()));
    }

    /// A whole process, with a state directory that is there already.
    #[divan::bench]
    fn explain(bencher: Bencher) {
        let state = tempfile::tempdir().unwrap();
        run(state.path(), &["explain", "--", EVERYDAY]);
        bencher.bench_local(|| run(state.path(), &["explain", "--", EVERYDAY]));
    }

    /// What the process itself costs.
    #[divan::bench]
    fn version(bencher: Bencher) {
        let state = tempfile::tempdir().unwrap();
        bencher.bench_local(|| run(state.path(), &["--version"]));
    }
}

fn judge(policy: &Policy, text: &str) -> Verdict {
    let resolver = VirtualHost::new();
    let host = Host {
        resolver: &resolver,
        trusted_dirs: &policy.safe_bins.trusted_dirs,
    };
    let analysis = analyse(Source::Text(text.to_owned()), "/srv/project", host).unwrap();
    let env = BTreeMap::new();
    let call = JudgedCall {
        workspace: &[],
        env: &env,
        input: CallerInput::None,
        now_ms: 1_000,
    };
    policy.judge(&analysis, call, &resolver)
}

/// `allowlist` and `on-miss`, with as many entries as asked for; without any, `rg` alone.
fn parts(entries: usize) -> PolicyParts {
    let level = Layer::new(
        LayerSource::Host,
        "defaults.",
        Some(Security::Allowlist),
        Some(Ask::OnMiss),
    );
    let mut list: Vec<Entry> = (0..entries).map(entry).collect();
    list.insert(entries / 2, Entry::for_pattern("rg"));
    let origin = |index| format!("agents.main.allowlist[{index}]");
    PolicyParts {
        levels: Some(Levels::join(&[level])),
        entries: list
            .into_iter()
            .enumerate()
            .map(|(index, entry)| (entry, origin(index)))
            .collect(),
        ..PolicyParts::default()
    }
}

/// What people and prompts write, in turn.
fn entry(index: usize) -> Entry {
    let pattern = match index % 10 {
        0..=2 => format!("tool-{index}"),
        3 => format!("/usr/bin/tool-{index}"),
        4 => format!("/opt/tools-{index}/bin/*"),
        5 => format!("~/projects/p{index}/**"),
        6 => format!("**/tool-{index}"),
        7 => "rg".to_owned(),
        8 => format!("/usr/lib/tool-{index}/run"),
        _ => format!("git-{index}"),
    };
    let entry = Entry::for_pattern(pattern);
    match index % 10 {
        1 => Entry {
            args: Some(vec!["build".to_owned(), "**".to_owned()]),
            ..entry
        },
        2 => Entry {
            arg_pattern: Some(r"^(status|log|diff)( -\w+)*$".to_owned()),
            ..entry
        },
        // Remembered grants for other calls of the program that is judged.
        7 => Entry {
            pattern: "/usr/bin/rg".to_owned(),
            source: Some("allow-always".to_owned()),
            arg_pattern: Some(interlock_policy::digest_pattern(
                &[index.to_string()],
                "/srv/project",
            )),
            ..entry
        },
        9 => Entry {
            cwd: Some(format!("/srv/p{index}/**")),
            ..entry
        },
        _ => entry,
    }
}
