//! Package managers: where packages come from, which shell runs their scripts, and subcommands that
//! run a package directly.

use super::grammar::{
    Grammar, OptionOrder, ProgramGrammar, Rule, code, config, loads, program, writes,
};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::inspected(&["npm", "pnpm", "yarn"], &NPM, npm_subcommand),
    ProgramGrammar::table(&["npx", "pnpx", "bunx", "pnx"], &NPX),
    ProgramGrammar::table(&["pip", "pipx"], &PIP),
    ProgramGrammar::table(&["uv", "uvx", "poetry", "pdm"], &UV),
    ProgramGrammar::table(&["gem", "bundle", "bundler"], &GEM),
    ProgramGrammar::table(&["composer"], &COMPOSER),
    ProgramGrammar::table(&["apt", "apt-get", "aptitude", "apt-cache"], &APT),
    ProgramGrammar::table(&["dpkg"], &DPKG),
    ProgramGrammar::table(&["dnf", "yum", "microdnf", "zypper"], &DNF),
    ProgramGrammar::table(&["rpm", "rpmbuild", "rpmspec", "rpmquery"], &RPM),
];

const HELPER: &str = "names a program to start";
const SCRIPT_SHELL: &str = "names the shell that runs package scripts";
const OTHER_SOURCE: &str = "packages, which run code when installed, come from elsewhere";
const OTHER_PROJECT: &str = "another project decides what runs";
const OTHER_CONFIG: &str = "another configuration can name programs";

const NPM: Grammar = Grammar {
    rules: NPM_RULES,
    short_values: "w",
    ..Grammar::GNU
};

const NPM_RULES: &[Rule] = &[
    code("-c", "runs a command"),
    code("--call", "runs a command"),
    program("--script-shell", SCRIPT_SHELL),
    program("--shell", HELPER),
    program("--node-options", "options of node can load code"),
    program("--editor", HELPER),
    program("--viewer", HELPER),
    program("--browser", HELPER).attached(),
    program("--git", HELPER),
    config("--pref|ix", OTHER_PROJECT),
    config("-C", OTHER_PROJECT),
    config("--dir", OTHER_PROJECT),
    config("--cwd", OTHER_PROJECT),
    config("--userc|onfig", OTHER_CONFIG),
    config("--globalc|onfig", OTHER_CONFIG),
    config("--use-yarnrc", OTHER_CONFIG),
    config("--registry", OTHER_SOURCE),
];

/// Subcommands that start a program, with their canonical names.
const NPM_RUNNING: [(&str, &str); 8] = [
    ("exec", "exec"),
    ("x", "exec"),
    ("dlx", "dlx"),
    ("explore", "explore"),
    ("init", "init"),
    ("create", "create"),
    ("innit", "init"),
    ("node", "node"),
];

fn npm_subcommand(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let mut operands = parsed.operands.iter();
    let Some(&index) = operands.next() else {
        return Vec::new();
    };
    let more = operands.next().map(|&next| call.argv[next]);
    let running = NPM_RUNNING
        .iter()
        .find(|(typed, _)| *typed == call.argv[index]);
    let hit = match running {
        // `npm init -y` fills in a form, but with a name it fetches and runs a package.
        Some((_, name @ ("init" | "create"))) if more.is_some() => Some(call.hit(
            name,
            HitKind::LoadsCode,
            index,
            "fetches a package and runs it",
        )),
        Some((_, "init" | "create")) => None,
        Some((_, "node")) if call.program != "yarn" => None,
        Some((_, name)) => Some(call.hit(name, HitKind::ProgramOption, index, "starts a program")),
        None if matches!(call.argv[index], "config" | "c") && more == Some("set") => {
            Some(call.hit(
                "config set",
                HitKind::OtherConfig,
                index,
                "stores a setting that can name programs",
            ))
        }
        None => None,
    };
    hit.into_iter().collect()
}

const NPX: Grammar = Grammar {
    rules: &[
        code("-c", "runs a command"),
        code("--call", "runs a command"),
        loads("-p", "fetches a package"),
        loads("--package", "fetches a package"),
        program("--script-shell", SCRIPT_SHELL),
        program("--shell", HELPER),
        program("-n", "options of node can load code"),
        program("--node-arg", "options of node can load code"),
        program("--node-options", "options of node can load code"),
        config("--pref|ix", OTHER_PROJECT),
        config("--userc|onfig", OTHER_CONFIG),
        config("--registry", OTHER_SOURCE),
    ],
    order: OptionOrder::Until(1),
    ..Grammar::GNU
};

const PIP: Grammar = Grammar {
    rules: &[
        config("-i", OTHER_SOURCE),
        config("--index-url", OTHER_SOURCE),
        config("--pypi-url", OTHER_SOURCE),
        config("--extra-index-url", OTHER_SOURCE),
        config("-f", OTHER_SOURCE),
        config("--find-links", OTHER_SOURCE),
        config(
            "--trusted-host",
            "a source is trusted without a certificate",
        ),
        program("--python", "names the interpreter to start"),
        loads("-e", "runs the set-up code of a directory or repository"),
        loads(
            "--editable",
            "runs the set-up code of a directory or repository",
        ),
        loads("-C", "passes options to the code that builds"),
        loads(
            "--config-settings",
            "passes options to the code that builds",
        ),
        loads("--global-option", "passes options to the code that builds"),
        writes("-t", "installs into a named directory"),
        writes("--target", "installs into a named directory"),
        writes("--root", "installs into a named directory"),
        writes("--pref|ix", "installs into a named directory"),
        writes("--log", "writes a log"),
    ],
    short_values: "cr",
    ..Grammar::GNU
};

const UV: Grammar = Grammar {
    rules: &[
        config("-i", OTHER_SOURCE),
        config("--index", OTHER_SOURCE),
        config("--index-url", OTHER_SOURCE),
        config("--default-index", OTHER_SOURCE),
        config("--extra-index-url", OTHER_SOURCE),
        config("--find-links", OTHER_SOURCE),
        config("--config-file", OTHER_CONFIG),
        config("--directory", OTHER_PROJECT),
        config("--project", OTHER_PROJECT),
        config("--env-file", "variables come from a file"),
        program("--python", "names the interpreter to start").when(|name| name.contains('/')),
        program("-p", "names the interpreter to start").when(|name| name.contains('/')),
        loads("--with", "fetches a package"),
        loads("--from", "fetches a package"),
        loads("--with-editable", "runs the set-up code of a directory"),
    ],
    order: OptionOrder::Until(2),
    abbreviates: false,
    ..Grammar::GNU
};

const GEM: Grammar = Grammar {
    rules: &[
        config("-s", OTHER_SOURCE),
        config("--source", OTHER_SOURCE),
        config("--config-file", OTHER_CONFIG),
        config("--gemfile", OTHER_PROJECT),
        program("-e", HELPER),
        program("--editor", HELPER),
    ],
    short_values: "Pinv",
    ..Grammar::GNU
};

const COMPOSER: Grammar = Grammar {
    rules: &[
        config("-d", OTHER_PROJECT),
        config("--working-dir", OTHER_PROJECT),
        config("--repository", OTHER_SOURCE),
    ],
    ..Grammar::GNU
};

const APT: Grammar = Grammar {
    rules: &[
        config("-c", OTHER_CONFIG),
        config("--config-file", OTHER_CONFIG),
        program("-o", "a setting can name commands").when(apt_setting_matters),
        program("--option", "a setting can name commands").when(apt_setting_matters),
    ],
    short_values: "at",
    ..Grammar::GNU
};

/// Whether a setting matters. Settings about waiting, retrying and asking do not; all others may
/// name commands or files.
fn apt_setting_matters(setting: &str) -> bool {
    let key = setting
        .split('=')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let harmless = [
        "acquire::retries",
        "acquire::http::timeout",
        "acquire::https::timeout",
        "apt::color",
        "apt::get::assume-yes",
        "apt::install-recommends",
        "dpkg::lock::timeout",
        "dpkg::progress-fancy",
        "dpkg::use-pty",
        "quiet",
    ];
    // `Dpkg::Options::` passes options on. Those about changed settings files are customary.
    let keeps_settings = key == "dpkg::options::" && setting.contains("=--force-conf");
    !keeps_settings && !harmless.contains(&key.as_str())
}

const DPKG: Grammar = Grammar {
    rules: &[
        program("--pre-invoke", "runs a command first"),
        program("--post-invoke", "runs a command afterwards"),
        program("--status-logger", "pipes its progress into a command"),
        config("--admindir", "another database of packages"),
        config("--root", "works on another system"),
        config("--instdir", "works on another system"),
        writes("--log", "writes a log"),
    ],
    abbreviates: false,
    ..Grammar::GNU
};

const DNF: Grammar = Grammar {
    rules: &[
        config("-c", OTHER_CONFIG),
        config("--config", OTHER_CONFIG),
        config("--setopt", "a setting can name sources and plug-ins"),
        config("--installroot", "works on another system"),
        config("--repof|rompath", OTHER_SOURCE),
        config("--plus-repo", OTHER_SOURCE),
        loads("--enablep|lugin", "loads a plug-in"),
    ],
    ..Grammar::GNU
};

const RPM: Grammar = Grammar {
    rules: &[
        code("-E", "macros can run commands"),
        code("--eval", "macros can run commands"),
        code("-D", "macros can run commands").when(|text| text.contains('%')),
        code("--define", "macros can run commands").when(|text| text.contains('%')),
        program("--pipe", "pipes the output into a command"),
        config("--rcfile", OTHER_CONFIG),
        config("--macros", OTHER_CONFIG),
        config("--load", OTHER_CONFIG),
        config("--root", "works on another system"),
        config("-r", "works on another system"),
        config("--dbpath", "another database of packages"),
    ],
    abbreviates: false,
    ..Grammar::GNU
};
