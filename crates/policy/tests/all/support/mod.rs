//! Commands and policies for property tests: made of what matters to the judge (wrappers, shells,
//! opaque programs, quotes, redirections, odd characters), not of random letters.

use std::collections::BTreeMap;

use interlock_command::{Analysis, Host, Source, analyse};
use interlock_policy::{
    Ask, CallerInput, DenyRule, Entry, Fallback, JudgedCall, Layer, Levels, Policy, PolicyParts,
    PolicySource as LayerSource, Security, SkillBin, Sourced, Verdict,
};
use interlock_programs::{FileKind, VirtualHost};
use proptest::prelude::*;
use proptest::sample::select;
use sha2::{Digest, Sha256};

pub const NOW: u64 = 50;
pub const HOME: &str = "/home/u";

#[rustfmt::skip]
const PROGRAMS: &[&str] = &[
    "rg", "rg", "head", "tail", "wc", "tr", "git", "python3", "node", "perl", "sed", "awk", "rm",
    "echo", "sudo", "doas", "xargs", "find", "tmux", "watch", "env", "nice", "nohup", "timeout",
    "stdbuf", "flock", "time", "bash", "sh", "zsh", "fish", "pwsh", "busybox", "toybox", "cd",
    "true", "test", "[", "pwd", ":", "/usr/bin/rg", "/tmp/rg", "./x.sh", "~/bin/x", "link", "shady",
    "ld-linux.so.2", "deploy", "npm", "make", "parallel", "RG", "rg.exe", "",
];

#[rustfmt::skip]
const ARGUMENTS: &[&str] = &[
    "-n", "TODO", "src", "-5", "-20", "-c", "-lc", "-e", "-S", "-i", "-u", "-x", "--", "-", "5",
    "10s", "x", "a b", "rm -rf x", "rg x", "rg -n x | head -5", "print(1)", "$(rm x)", "-exec", ";",
    "{}", "+", "A=1", "PATH=/x", "LD_PRELOAD=x", "*.rs", "~/x", "x.sh", "/etc/passwd", "--flag=v",
    "status", "sh", "rg", "sudo", "é", "\u{200b}", "\t", "'", "\"", "\\", "-pe", "s/a/b/e",
];

#[rustfmt::skip]
const CONNECTORS: &[&str] = &[
    " | ", " && ", " || ", "; ", " & ", "\n", " |& ", "&&", " ;; ",
];

/// Pieces that make a text odd, or that are understood although they look odd.
#[rustfmt::skip]
const EXTRAS: &[&str] = &[
    " 2>&1", " >/dev/null", " </dev/null", " &>/dev/null", " > out.txt", " >> x", " << E\nx\nE\n",
    " <<< x", " $x", " `rm x`", " $(rm x)", " \"$x\"", " # note", " (rm x)", " { rm x; }", " *.rs",
    " ~", " \\\n", "\r", "\0", " \u{a0}", " !", " if", " $'a'", " [a-z]", " {a,b}", " <(rm x)",
];

#[rustfmt::skip]
const WRAPPERS: &[&str] = &[
    "", "", "", "", "nice ", "env ", "env A=1 ", "timeout 5 ",
    "sudo ", "sh -c ", "bash -lc ", "A=1 ", "LD_PRELOAD=x ", "nohup nice env stdbuf -oL timeout 5 ",
    "xargs ", "time ", "! ",
];

/// Of entries and deny rules; some do not compile.
#[rustfmt::skip]
const PATTERNS: &[&str] = &[
    "*", "rg", "r?", "/usr/bin/*", "/usr/**", "**/rg", "~/bin/x", "/tmp/*", "/**", "python3",
    "/usr/bin/python3", "/usr/bin/python3.11", "bash", "/bin/bash", "**/sh", "RG", "[rg]",
    "/w/x.sh", "bin/rg", "", "~x",
];

pub fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        6 => text().prop_map(Source::Text),
        3 => proptest::collection::vec(word(), 1..7).prop_map(Source::Argv),
    ]
}

/// Also what no generator above would think of.
pub fn any_source() -> impl Strategy<Value = Source> {
    prop_oneof![
        2 => source(),
        2 => any::<String>().prop_map(Source::Text),
        1 => proptest::collection::vec(any::<String>(), 0..6).prop_map(Source::Argv),
    ]
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![select(PROGRAMS), select(ARGUMENTS)].prop_map(str::to_owned)
}

fn text() -> impl Strategy<Value = String> {
    let rest = proptest::collection::vec((select(CONNECTORS), command()), 0..3);
    let end = select(&["", "", "", " ", "\n", " &", ";"][..]);
    (command(), rest, end).prop_map(|(first, rest, end)| {
        let pieces = rest
            .iter()
            .flat_map(|(connector, command)| [*connector, command]);
        first + &pieces.collect::<String>() + end
    })
}

fn command() -> impl Strategy<Value = String> {
    let argument = (select(ARGUMENTS), 0..4_u8).prop_map(|(word, style)| quoted(word, style));
    let arguments = proptest::collection::vec(argument, 0..5);
    let extra = prop_oneof![3 => Just(""), 1 => select(EXTRAS)];
    (select(WRAPPERS), select(PROGRAMS), arguments, extra).prop_map(
        |(wrapper, program, arguments, extra)| {
            let words = [program.to_owned()].into_iter().chain(arguments);
            let words = words.collect::<Vec<_>>().join(" ");
            format!("{wrapper}{words}{extra}")
        },
    )
}

fn quoted(word: &str, style: u8) -> String {
    match style {
        0 => word.to_owned(),
        1 => format!("\"{word}\""),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A policy that can still be changed.
#[derive(Debug, Clone)]
pub struct Spec {
    pub layers: Vec<Knobs>,
    pub entries: Vec<EntrySpec>,
    pub deny: Vec<DenyRule>,
    pub safe_bins: Option<Vec<String>>,
    pub strict_inline_eval: bool,
    pub auto_allow_skills: bool,
    pub env: BTreeMap<String, String>,
    pub input: CallerInput,
}

/// What one source says.
#[derive(Debug, Clone, Copy)]
pub struct Knobs {
    pub source: LayerSource,
    pub security: Option<Security>,
    pub ask: Option<Ask>,
    pub ask_fallback: Option<Fallback>,
}

impl Knobs {
    pub fn layer(self) -> Layer {
        fn sourced<T>(value: Option<T>, source: LayerSource) -> Option<Sourced<T>> {
            let path = source.as_str().to_owned();
            value.map(|value| Sourced {
                value,
                source,
                path,
            })
        }
        Layer {
            security: sourced(self.security, self.source),
            ask: sourced(self.ask, self.source),
            ask_fallback: sourced(self.ask_fallback, self.source),
        }
    }
}

#[derive(Debug, Clone)]
pub enum EntrySpec {
    Entry(Box<Entry>),
    /// A grant for exactly the command that is judged.
    ExactCommand {
        expires_at: Option<u64>,
    },
}

pub fn knobs(sources: &'static [LayerSource]) -> impl Strategy<Value = Knobs> {
    let level = |all| proptest::option::of(select(all));
    (
        select(sources),
        level(Security::ALL),
        proptest::option::of(select(Ask::ALL)),
        proptest::option::of(select(Fallback::ALL)),
    )
        .prop_map(|(source, security, ask, ask_fallback)| Knobs {
            source,
            security,
            ask,
            ask_fallback,
        })
}

const CONFIGURED: &[LayerSource] = &[LayerSource::Config, LayerSource::Host, LayerSource::Session];
pub const ALL_SOURCES: &[LayerSource] = &[
    LayerSource::Config,
    LayerSource::Host,
    LayerSource::Session,
    LayerSource::Call,
];

/// Mostly `allowlist`, where most is at stake.
pub fn spec() -> impl Strategy<Value = Spec> {
    let base = Knobs {
        source: LayerSource::Host,
        security: Some(Security::Allowlist),
        ask: None,
        ask_fallback: None,
    };
    let layers = (
        any::<bool>(),
        proptest::collection::vec(knobs(CONFIGURED), 0..4),
    )
        .prop_map(move |(allowlist, mut layers)| {
            if allowlist {
                layers.retain(|layer| layer.security != Some(Security::Deny));
                layers.push(base);
            }
            layers
        });
    let safe_bins = proptest::option::of(proptest::collection::vec(
        select(PROGRAMS).prop_map(str::to_owned),
        0..4,
    ));
    let env = proptest::collection::btree_map(
        select(&["LANG", "LD_PRELOAD", "A", "PAGER", "b-d"][..]).prop_map(str::to_owned),
        Just("x".to_owned()),
        0..2,
    );
    let env = prop_oneof![4 => Just(BTreeMap::new()), 1 => env];
    (
        layers,
        proptest::collection::vec(entry(), 0..6),
        proptest::collection::vec(deny_rule(), 0..3),
        safe_bins,
        any::<bool>(),
        any::<bool>(),
        env,
        any_input(),
    )
        .prop_map(
            |(layers, entries, deny, safe_bins, strict, skills, env, input)| Spec {
                layers,
                entries,
                deny,
                safe_bins,
                strict_inline_eval: strict,
                auto_allow_skills: skills,
                env,
                input,
            },
        )
}

/// Most calls cannot be typed into.
pub fn any_input() -> impl Strategy<Value = CallerInput> {
    prop_oneof![
        6 => Just(CallerInput::None),
        1 => Just(CallerInput::Pipe),
        1 => Just(CallerInput::Terminal),
    ]
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(PATTERNS).prop_map(str::to_owned),
        2 => select(PROGRAMS).prop_map(str::to_owned),
    ]
}

fn binding() -> impl Strategy<Value = (Option<String>, Option<Vec<String>>)> {
    let regex = select(
        &[
            "^-n",
            "TODO",
            ".*",
            "x$",
            "^$",
            "(?=a)",
            "(",
            "a\0",
            "sha256:cwd-argv:v1:00",
        ][..],
    );
    let list = proptest::collection::vec(
        prop_oneof![select(ARGUMENTS), select(&["*", "**", "?", "**"][..])].prop_map(str::to_owned),
        0..4,
    );
    prop_oneof![
        4 => Just((None, None)),
        2 => regex.prop_map(|regex| (Some(regex.to_owned()), None)),
        2 => list.prop_map(|list| (None, Some(list))),
        1 => Just((Some("x".to_owned()), Some(Vec::new()))),
    ]
}

fn entry() -> impl Strategy<Value = EntrySpec> {
    let expiry = || proptest::option::weighted(0.3, select(&[NOW - 1, NOW + 1][..]));
    let cwd = proptest::option::weighted(0.2, select(&["/w/**", "/x", "~/x"][..]));
    let entry = (
        pattern(),
        binding(),
        expiry(),
        cwd,
        proptest::bool::weighted(0.2),
        proptest::sample::subsequence(vec!["A", "LANG=x", "LD_PRELOAD"], 0..2),
        any::<bool>(),
    )
        .prop_map(
            |(pattern, (arg_pattern, args), expires_at, cwd, remembered, env, interactive)| {
                EntrySpec::Entry(Box::new(Entry {
                    arg_pattern,
                    args,
                    expires_at,
                    cwd: cwd.map(str::to_owned),
                    source: remembered.then(|| "allow-always".to_owned()),
                    // A remembered entry holds one call; these admit others too.
                    env: env
                        .into_iter()
                        .filter(|_| !remembered)
                        .map(str::to_owned)
                        .collect(),
                    interactive: interactive && !remembered,
                    ..Entry::for_pattern(pattern)
                }))
            },
        );
    prop_oneof![
        5 => entry,
        1 => expiry().prop_map(|expires_at| EntrySpec::ExactCommand { expires_at }),
    ]
}

/// Only rules that compile: a policy with any other is refused as a whole.
pub fn deny_rule() -> impl Strategy<Value = DenyRule> {
    let rule = (pattern(), binding()).prop_map(|(pattern, (arg_pattern, args))| DenyRule {
        pattern,
        arg_pattern,
        args,
        reason: None,
    });
    rule.prop_filter("the rule compiles", |rule| rule.check().is_ok())
}

impl Spec {
    pub fn policy(&self, source: &Source) -> Policy {
        let entries = self.entries.iter().enumerate().map(|(index, entry)| {
            let entry = match entry {
                EntrySpec::Entry(entry) => (**entry).clone(),
                EntrySpec::ExactCommand { expires_at } => Entry {
                    expires_at: *expires_at,
                    ..Entry::for_pattern(exact_pattern(source))
                },
            };
            (entry, format!("allowlist[{index}]"))
        });
        let layers: Vec<Layer> = self.layers.iter().map(|knobs| knobs.layer()).collect();
        let deny = self
            .deny
            .iter()
            .cloned()
            .map(|rule| (rule, "deny".to_owned()));
        let parts = PolicyParts {
            levels: Some(Levels::join(&layers)),
            entries: entries.collect(),
            deny: deny.collect(),
            safe_bins: self.safe_bins.clone(),
            strict_inline_eval: self.strict_inline_eval,
            auto_allow_skills: self.auto_allow_skills,
            skill_bins: vec![SkillBin {
                name: "deploy".to_owned(),
                path: None,
            }],
            ..PolicyParts::default()
        };
        parts.assemble(Some(HOME)).expect("deny rules compile")
    }

    /// `None`: input that nothing can judge.
    pub fn judge(&self, source: &Source) -> Option<(Analysis, Verdict)> {
        let policy = self.policy(source);
        let host = host();
        let trusted_dirs = &policy.safe_bins.trusted_dirs;
        let on = Host {
            resolver: &host,
            trusted_dirs,
        };
        let analysis = analyse(source.clone(), "/w", on).ok()?;
        let call = JudgedCall {
            env: &self.env,
            input: self.input,
            workspace: &[],
            now_ms: NOW,
        };
        let verdict = policy.judge(&analysis, call, &host);
        Some((analysis, verdict))
    }
}

fn exact_pattern(source: &Source) -> String {
    let Source::Text(text) = source else {
        return "=command:0000000000000000".to_owned();
    };
    let digest = Sha256::digest(text.as_bytes());
    let first = digest.iter().take(8);
    let hex = first.fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("=command:{hex:016x}")
}

/// Some names lead elsewhere: through protected links, through links of the user, to a shell.
pub fn host() -> VirtualHost {
    let mut host = VirtualHost::new();
    for (name, found, canonical) in [
        ("python3", "/usr/bin/python3", "/usr/bin/python3.11"),
        ("link", "/home/u/bin/link", "/usr/bin/rg"),
        ("shady", "/home/u/bin/shady", "/usr/bin/bash"),
        ("tr", "/usr/bin/tr", "/usr/bin/busybox"),
    ] {
        let mut executable = VirtualHost::describe(found, canonical);
        executable.kind = FileKind::Native;
        host.insert(name, executable);
    }
    host
}
