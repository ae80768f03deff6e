//! Scripting languages: program text in argv, and options that load more code.

use super::grammar::{
    Grammar, OptionOrder, ProgramGrammar, Rule, code, config, loads, program, writes,
};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

pub(super) const TEXT: &str = "the argument is program text";
pub(super) const MODULE: &str = "loads a module, which runs when it is loaded";
pub(super) const SEARCH_PATH: &str = "modules are loaded from another directory";
pub(super) const STDIN: &str = "goes on with code from standard input";

/// Rows of the inline table.
pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::table(
        &[
            "python", "python2", "python3", "pypy", "pypy2", "pypy3", "ipython", "ipython3",
        ],
        &PYTHON,
    ),
    ProgramGrammar::table(&["node", "nodejs"], &NODE),
    ProgramGrammar::inspected(&["deno", "bun"], &DENO_BUN, deno_or_bun),
    ProgramGrammar::table(
        &["tsx", "ts-node", "ts-node-esm", "esno", "jiti", "vite-node"],
        &NODE,
    ),
    ProgramGrammar::table(&["ruby", "jruby", "truffleruby", "irb"], &RUBY),
    ProgramGrammar::table(&["perl"], &PERL),
    ProgramGrammar::table(&["php"], &PHP),
];

const PYTHON: Grammar = Grammar {
    rules: &[
        code("-c", TEXT),
        loads(
            "-m",
            "runs a module found by name, not a file that was looked at",
        ),
        loads("-i", STDIN).flag(),
        loads("-W", "a dotted warning category is imported").when(warning_imports),
        loads("-X", "names a module to load, or where compiled ones lie").when(setting_loads),
    ],
    order: OptionOrder::Until(1),
    short_values: "Q",
    long_values: &["--check-hash-based-pycs"],
    abbreviates: false,
    ..Grammar::GNU
};

/// Checks `-W action:message:category:…`. A category `a.b` makes Python import `a`.
fn warning_imports(filter: &str) -> bool {
    filter
        .split(':')
        .nth(2)
        .is_some_and(|category| category.contains('.'))
}

fn setting_loads(setting: &str) -> bool {
    setting.starts_with("presite") || setting.starts_with("pycache_prefix")
}

const NODE_RULES: &[Rule] = &[
    code("-e", TEXT),
    code("--eval", TEXT),
    code("-p", TEXT),
    code("--print", TEXT),
    loads("-r", MODULE),
    loads("--require", MODULE),
    loads("--preload", MODULE),
    loads("--import", MODULE),
    loads(
        "--loader",
        "loads a module that decides what other modules contain",
    ),
    loads(
        "--experimental-loader",
        "loads a module that decides what other modules contain",
    ),
    loads("--test-reporter", MODULE).when(|name| name.contains(['/', '.'])),
    loads("--run", "runs a script of package.json"),
    loads("--snapshot-blob", "starts from a stored program state"),
    loads("-i", STDIN).flag(),
    loads("--interactive", STDIN).flag(),
    config(
        "--env-file",
        "variables such as NODE_OPTIONS come from a file",
    ),
    config(
        "--env-file-if-exists",
        "variables such as NODE_OPTIONS come from a file",
    ),
    config("--experimental-config-file", "options come from a file").attached(),
    config("--openssl-config", "the file may name engines to load"),
    config(
        "--tsconfig",
        "another project decides how code is transformed",
    ),
    program("--inspect", "opens a port through which code can be run").attached(),
    program(
        "--inspect-brk",
        "opens a port through which code can be run",
    )
    .attached(),
    program(
        "--inspect-wait",
        "opens a port through which code can be run",
    )
    .attached(),
    writes("--redirect-warnings", "warnings are written to a file"),
    writes("--tls-keylog", "session keys are written to a file"),
];

const NODE: Grammar = Grammar {
    rules: NODE_RULES,
    order: OptionOrder::Until(1),
    short_values: "C",
    long_values: &[
        "--conditions",
        "--diagnostic-dir",
        "--disable-warning",
        "--dns-result-order",
        "--experimental-default-type",
        "--icu-data-dir",
        "--input-type",
        "--inspect-port",
        "--title",
        "--unhandled-rejections",
        "--watch-path",
    ],
    abbreviates: false,
    underscores: true,
    ..Grammar::GNU
};

const DENO_BUN: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        code("--eval", TEXT),
        code("-p", TEXT),
        code("--print", TEXT),
        loads("--require", MODULE),
        loads("--import", MODULE),
        loads("--preload", MODULE),
        loads("--plugin", MODULE),
        config("-c", "another configuration may name code to load"),
        config("--config", "another configuration may name code to load"),
        config(
            "--import-map",
            "decides which code a module name stands for",
        ),
        config("--env-file", "variables come from a file"),
        config("--cwd", "another project's configuration is read"),
        program("--shell", "names the shell for package scripts"),
        program("--inspect", "opens a port through which code can be run").attached(),
        program(
            "--inspect-brk",
            "opens a port through which code can be run",
        )
        .attached(),
        program(
            "--inspect-wait",
            "opens a port through which code can be run",
        )
        .attached(),
    ],
    order: OptionOrder::Until(2),
    abbreviates: false,
    ..Grammar::GNU
};

/// Finds `deno eval TEXT` and `bun x PACKAGE`. `-r` loads a module in Bun, but only reloads in
/// Deno.
fn deno_or_bun(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let is_bun = call.program == "bun";
    let preloads = parsed
        .options
        .iter()
        .filter(|option| is_bun && option.name == "-r");
    let mut hits: Vec<_> = preloads
        .map(|option| call.hit("-r", HitKind::LoadsCode, option.index, MODULE))
        .collect();
    let first = parsed.operands.first().copied();
    let hit = first.and_then(|index| match call.argv[index] {
        "eval" => Some(call.hit("eval", HitKind::Code, index, TEXT)),
        "x" if is_bun => Some(call.hit(
            "x",
            HitKind::LoadsCode,
            index,
            "fetches a package and runs it",
        )),
        _ => None,
    });
    hits.extend(hit);
    hits
}

const RUBY: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        loads("-r", MODULE),
        loads("-I", SEARCH_PATH),
        loads("-x", "runs the part of a file behind other text").attached(),
    ],
    order: OptionOrder::Until(1),
    short_values: "CEX",
    short_attached: "Fi",
    long_values: &[
        "--disable",
        "--dump",
        "--enable",
        "--encoding",
        "--external-encoding",
        "--internal-encoding",
        "--parser",
    ],
    swallows: Some(ruby_swallows),
    ..Grammar::GNU
};

/// Returns what the letter consumes: `-0777`, `-W2`, `-W:no-deprecated`, `-Ku`. A cluster cannot
/// start with another digit.
fn ruby_swallows(letter: char, rest: &str) -> usize {
    match letter {
        '0' => count(rest, |c| c.is_digit(8)).min(3),
        'T' => count(rest, |c| c.is_ascii_digit()),
        'W' if rest.starts_with(':') => rest.len(),
        'W' => count(rest, |c| c.is_ascii_digit()).min(1),
        'K' => rest.chars().next().map_or(0, char::len_utf8),
        '1'..='9' => rest.len(),
        _ => 0,
    }
}

const PERL: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        code("-E", TEXT),
        code("-F", "text behind the pattern becomes program text")
            .attached()
            .when(pattern_leaks),
        loads("-M", MODULE).attached(),
        loads("-m", MODULE).attached(),
        loads("-I", SEARCH_PATH),
        loads("-d", "starts a debugger, which runs commands").flag(),
        loads("-x", "runs the part of a file behind other text").attached(),
    ],
    order: OptionOrder::Until(1),
    swallows: Some(perl_swallows),
    ..Grammar::GNU
};

/// Whether a `-F` pattern can contain code, because Perl pastes a quoted pattern into the program
/// as it is.
fn pattern_leaks(pattern: &str) -> bool {
    if pattern.contains(char::is_whitespace) {
        return true; // further switches may follow
    }
    let Some(quote) = pattern
        .chars()
        .next()
        .filter(|c| matches!(c, '/' | '"' | '\''))
    else {
        return false;
    };
    let behind = pattern[1..].split_once(quote).map(|(_, behind)| behind);
    behind.is_some_and(|behind| !behind.is_empty() || pattern.contains(['`', '$', '@', '{']))
}

/// Returns what the letter itself consumes. After a blank, Perl reads further switches.
fn perl_swallows(letter: char, rest: &str) -> usize {
    let word = count(rest, |c| !c.is_whitespace());
    match letter {
        'C' | 'i' => word,
        'D' => count(rest, |c| c.is_alphanumeric() || c == '_'),
        '0' if rest.starts_with('x') => word,
        'V' if rest.starts_with(':') => word,
        'd' if rest.trim_start_matches('t').starts_with([':', '=']) => word,
        _ => 0,
    }
}

fn count(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

const PHP: Grammar = Grammar {
    rules: &[
        code("-r", TEXT),
        code("--run", TEXT),
        code("-B", TEXT),
        code("--process-begin", TEXT),
        code("-R", TEXT),
        code("--process-code", TEXT),
        code("-E", TEXT),
        code("--process-end", TEXT),
        loads("-a", STDIN).flag(),
        loads("--interactive", STDIN).flag(),
        loads("-z", "loads a library"),
        loads("--zend-extension", "loads a library"),
        loads(
            "-S",
            "serves a directory, running each script that is asked for",
        ),
        loads(
            "--server",
            "serves a directory, running each script that is asked for",
        ),
        config("-d", "a setting can name code to load").when(php_setting_matters),
        config("--define", "a setting can name code to load").when(php_setting_matters),
        config("-c", "settings from elsewhere can name code to load"),
        config("--php-ini", "settings from elsewhere can name code to load"),
    ],
    order: OptionOrder::Until(1),
    short_values: "fFt",
    long_values: &[
        "--docroot",
        "--file",
        "--process-file",
        "--rc",
        "--re",
        "--rf",
        "--ri",
        "--rz",
    ],
    abbreviates: false,
    ..Grammar::GNU
};

/// Settings that change only limits and messages.
const HARMLESS_PHP_SETTINGS: [&str; 11] = [
    "assert.exception",
    "date.timezone",
    "display_errors",
    "error_reporting",
    "html_errors",
    "max_execution_time",
    "memory_limit",
    "opcache.enable",
    "opcache.enable_cli",
    "xdebug.mode",
    "zend.assertions",
];

fn php_setting_matters(setting: &str) -> bool {
    let key = setting.split('=').next().unwrap_or_default().trim();
    // A line break in the value would start a second setting.
    !HARMLESS_PHP_SETTINGS.contains(&key) || setting.contains(['\n', '\r'])
}
