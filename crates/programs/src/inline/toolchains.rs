//! Compilers, build tools, linters and test runners.

use std::path::Path;

use super::grammar::{Grammar, OptionOrder, ProgramGrammar, code, config, loads, program, writes};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine, parse};

pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::table(
        &[
            "gcc", "g++", "cc", "c++", "cpp", "clang", "clang++", "clang-cl", "gfortran", "gnat",
        ],
        &COMPILER,
    ),
    ProgramGrammar::table(
        &["ld", "ld.lld", "ld.gold", "ld.bfd", "lld", "mold", "gold"],
        &LINKER,
    ),
    ProgramGrammar::table(&["rustc", "rustdoc"], &RUSTC),
    ProgramGrammar::table(&["cargo"], &CARGO),
    ProgramGrammar::inspected(&["go"], &GO, go_subcommand),
    ProgramGrammar::table(&["cmake"], &CMAKE),
    ProgramGrammar::table(&["ninja", "samu"], &NINJA),
    ProgramGrammar::table(&["just"], &JUST),
    ProgramGrammar::table(&["bazel", "bazelisk"], &BAZEL),
    ProgramGrammar::table(&["pytest", "py.test"], &PYTEST),
    ProgramGrammar::table(&["pylint", "flake8", "mypy", "tox", "nox"], &PYTHON_TOOLS),
    ProgramGrammar::table(
        &[
            "eslint", "prettier", "jest", "mocha", "vitest", "webpack", "rollup",
        ],
        &JS_TOOLS,
    ),
    ProgramGrammar::table(&["terraform", "tofu"], &TERRAFORM),
];

const PLUGIN: &str = "loads a plug-in";
const HELPER: &str = "names a program to start";
const OPTIONS_FROM_FILE: &str = "options come from a file";
const OTHER_PROJECT: &str = "another project decides what runs";

/// Removes the target from a compiler's name: `aarch64-linux-gnu-gcc-12` becomes `gcc`.
pub(super) fn without_target(name: &str) -> Option<&str> {
    let name = crate::names::without_version(name).unwrap_or(name);
    let last = name.rsplit('-').next()?;
    let compilers = [
        "gcc", "g++", "cc", "c++", "cpp", "clang", "clang++", "gfortran", "ld",
    ];
    (last.len() < name.len() && compilers.contains(&last)).then_some(last)
}

const COMPILER: Grammar = Grammar {
    rules: &[
        loads("-fplugin*", PLUGIN).attached().called("-fplugin"),
        loads("-fpass-plugin*", PLUGIN)
            .attached()
            .called("-fpass-plugin"),
        loads("-iplugindir*", "plug-ins come from another directory").attached(),
        loads("-load", PLUGIN),
        loads("-Wl,*", PLUGIN)
            .attached()
            .when(linker_text_matters)
            .called("-Wl"),
        loads("-Xlinker", PLUGIN).when(linker_text_matters),
        program("-B*", "the compiler's programs come from another directory").called("-B"),
        program("-wrapper", "names a program that starts each step"),
        program("-fuse-ld*", "names the linker")
            .attached()
            .when(|name| name.contains('/')),
        program("-ld-path*", "names the linker").attached(),
        program("-ccc-gcc-name", HELPER),
        program("-no-integrated-cpp", "an outside preprocessor is started").flag(),
        config("-specs*", "a spec file names the programs to start"),
        config("-config*", OPTIONS_FROM_FILE),
        config("-gcc-toolchain*", "programs come from another directory").attached(),
        config("@*", OPTIONS_FROM_FILE).called("@file"),
    ],
    long_values: &[
        "-D",
        "-I",
        "-L",
        "-MF",
        "-MQ",
        "-MT",
        "-U",
        "-Xassembler",
        "-Xpreprocessor",
        "-arch",
        "-idirafter",
        "-imacros",
        "-include",
        "-iquote",
        "-isystem",
        "-l",
        "-o",
        "-target",
        "-x",
    ],
    double_dash_ends: false,
    ..Grammar::WORDS
};

/// Whether an option after `-Wl,` loads a plug-in or reads more options.
fn linker_text_matters(text: &str) -> bool {
    let mut options = text.trim_start_matches(['=', ',']).split(',');
    options.any(|option| {
        let option = option.trim_start_matches('-');
        option.starts_with("plugin") || option.starts_with("load-pass") || option.starts_with('@')
    })
}

const LINKER: Grammar = Grammar {
    rules: &[
        loads("-plugin*", PLUGIN)
            .when(|value| !value.starts_with("-opt"))
            .called("-plugin"),
        loads("-load-pass-plugin*", PLUGIN).called("-load-pass-plugin"),
        loads("-run", HELPER),
        config("@*", OPTIONS_FROM_FILE).called("@file"),
    ],
    long_values: &["-L", "-T", "-e", "-l", "-m", "-o", "-rpath", "-soname"],
    ..Grammar::WORDS
};

const RUSTC: Grammar = Grammar {
    rules: &[
        program("-C", HELPER).when(codegen_matters),
        program("--codegen", HELPER).when(codegen_matters),
        loads("-Z", "an unstable option can load code"),
        loads("--sysroot", "the standard library comes from elsewhere"),
        program("--test-runtool", HELPER),
        program("--runtool", HELPER),
        config("@*", OPTIONS_FROM_FILE).called("@file"),
    ],
    short_values: "LlWADFo",
    abbreviates: false,
    ..Grammar::GNU
};

fn codegen_matters(setting: &str) -> bool {
    let key = setting
        .split('=')
        .next()
        .unwrap_or_default()
        .replace('_', "-");
    matches!(
        key.as_str(),
        "linker" | "link-arg" | "link-args" | "ar" | "dlltool" | "llvm-args" | "passes"
    )
}

const CARGO: Grammar = Grammar {
    rules: &[
        config("--config", "a setting can name programs to start").when(cargo_setting_matters),
        config("-Z", "an unstable option can load code"),
        config("-C", OTHER_PROJECT),
        config("--manifest-path", OTHER_PROJECT),
        config("--lockfile-path", OTHER_PROJECT),
        config("--index", "packages come from elsewhere"),
        config("--git", "packages come from elsewhere"),
        program("--runner", HELPER),
        program("--open", "starts a browser").flag(),
    ],
    short_values: "Fjp",
    long_values: &[
        "--bench",
        "--bin",
        "--example",
        "--features",
        "--jobs",
        "--package",
        "--profile",
        "--target",
        "--test",
    ],
    abbreviates: false,
    ..Grammar::GNU
};

/// Whether a setting of cargo matters. Tables with only numbers and switches do not.
fn cargo_setting_matters(setting: &str) -> bool {
    let key = setting.split('=').next().unwrap_or_default().trim();
    let harmless = [
        "term.",
        "net.offline",
        "net.retry",
        "build.jobs",
        "profile.",
    ];
    !setting.contains('=')
        || setting.contains('\n')
        || !harmless.iter().any(|known| key.starts_with(known))
}

const GO: Grammar = Grammar {
    rules: &[config("-C", OTHER_PROJECT)],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

const GO_BUILD: Grammar = Grammar {
    rules: GO_RULES,
    terminators: &["-args", "--args"],
    ..Grammar::WORDS
};

const GO_RUN: Grammar = Grammar {
    rules: GO_RULES,
    order: OptionOrder::Until(1),
    long_values: &[
        "-asmflags",
        "-buildmode",
        "-gcflags",
        "-mod",
        "-p",
        "-pgo",
        "-tags",
    ],
    ..Grammar::WORDS
};

const GO_RULES: &[super::grammar::Rule] = &[
    program("-exec", "names the program that starts the result"),
    program("-toolexec", "names the program that starts each tool"),
    program("-vettool", HELPER),
    program("-http", "serves pages, and starts a browser"),
    program("-compiler", HELPER).when(|name| !matches!(name, "gc" | "gccgo")),
    program("-ldflags", "flags of the linker can name a program")
        .when(|flags| flags.contains("extld")),
    program("-gccgoflags", "flags of the compiler can load code"),
    loads("-overlay", "replaces source files by others"),
    config("-modfile", "another file names the dependencies"),
    config("-C", OTHER_PROJECT),
    config("-pkgdir", "packages come from another directory"),
];

fn go_subcommand(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let Some(&at) = parsed.operands.first() else {
        return Vec::new();
    };
    let grammar = if call.argv[at] == "run" {
        &GO_RUN
    } else {
        &GO_BUILD
    };
    let own = parse(call.argv, at + 1, grammar);
    let mut hits = call.apply(&own);
    if call.argv[at] == "run"
        && let Some(index) = fetched_go_package(call.argv, at + 1)
    {
        let reason = "fetches a package, whatever go.mod says, and runs it";
        hits.push(call.hit("run PACKAGE@VERSION", HitKind::LoadsCode, index, reason));
    }
    if call.argv[at] == "env" && own.has(&["-w", "--w"]) {
        let reason = "stores settings that can name programs";
        hits.push(call.hit("env -w", HitKind::OtherConfig, at, reason));
    }
    hits
}

/// Returns where `go run` gets a package with a version. Preceding words may be values of unknown
/// options. A local package ends the search, and what follows belongs to the program.
pub fn fetched_go_package(argv: &[impl AsRef<str>], start: usize) -> Option<usize> {
    let words = argv.iter().map(AsRef::as_ref).enumerate().skip(start);
    let is_source = |word: &str| {
        Path::new(word)
            .extension()
            .is_some_and(|ending| ending == "go")
    };
    let is_local = |word: &str| word.starts_with(['.', '/']) || is_source(word);
    let mut operands = words.filter(|(_, word): &(usize, &str)| !word.starts_with('-'));
    operands
        .find(|(_, word)| is_local(word) || word.contains('@'))
        .and_then(|(index, word)| (!is_local(word)).then_some(index))
}

const CMAKE: Grammar = Grammar {
    rules: &[
        loads("-P", "runs a script"),
        loads("-C", "runs a script"),
        program("-E", "runs one of many tools, some of which start programs"),
        config("-toolchain", "the file names the programs to start"),
        program("-D*", "names a program to start")
            .when(cmake_variable_matters)
            .called("-D"),
        config("-S", OTHER_PROJECT)
            .when(|path| path.starts_with(['/', '~']) || path.contains("..")),
    ],
    long_values: &[
        "-A",
        "-B",
        "-G",
        "-T",
        "-U",
        "-build",
        "-config",
        "-install",
        "-parallel",
        "-target",
    ],
    ..Grammar::WORDS
};

fn cmake_variable_matters(definition: &str) -> bool {
    let (name, value) = definition.split_once('=').unwrap_or((definition, ""));
    let name = name
        .split(':')
        .next()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let always = [
        "TOOLCHAIN_FILE",
        "_LAUNCHER",
        "PROJECT_INCLUDE",
        "TOP_LEVEL_INCLUDES",
    ];
    let by_path = ["_COMPILER", "MAKE_PROGRAM", "_LINKER", "_EXECUTABLE"];
    always.iter().any(|part| name.contains(part))
        || name.ends_with("_INCLUDE_BEFORE")
        || (value.contains('/') && by_path.iter().any(|part| name.ends_with(part)))
}

const NINJA: Grammar = Grammar {
    rules: &[
        loads("-f", "another file names the commands to run"),
        config("-C", OTHER_PROJECT),
    ],
    short_values: "djkltw",
    ..Grammar::GNU
};

const JUST: Grammar = Grammar {
    rules: &[
        loads("-f", "another file names the commands to run"),
        loads("--justfile", "another file names the commands to run"),
        config("-d", OTHER_PROJECT),
        config("--working-directory", OTHER_PROJECT),
        program("-c", "runs a command").flag(),
        program("--command", "runs a command").flag(),
        program("--shell", HELPER),
        program("--shell-arg", "options for the shell of every command"),
        program("--chooser", HELPER),
        program("--cygpath", HELPER).when(|path| !path.is_empty()),
        config("-E", "variables come from a file"),
        config("--dotenv-path", "variables come from a file"),
        code("--set", "the value becomes part of commands").flag(),
    ],
    order: OptionOrder::Until(1),
    long_values: &[
        "--color",
        "--dump-format",
        "--list-heading",
        "--list-prefix",
    ],
    abbreviates: false,
    ..Grammar::GNU
};

const BAZEL: Grammar = Grammar {
    rules: &[
        config("--bazelrc", OPTIONS_FROM_FILE),
        program("--run_under", "names a program that starts the result"),
        config("--override_repository", "code comes from elsewhere"),
        config("--output_user_root", "build results come from elsewhere"),
        program("--workspace_status_command", HELPER),
    ],
    abbreviates: false,
    ..Grammar::GNU
};

const PYTEST: Grammar = Grammar {
    rules: &[
        loads("-p", "loads a plug-in").when(|name| !name.starts_with("no:")),
        loads("--pyargs", "loads modules by name").flag(),
        loads("--confcutdir", "other configuration code is loaded"),
        config("-c", "another configuration can name plug-ins"),
        config("--config-file", "another configuration can name plug-ins"),
        config("--rootdir", "another configuration can name plug-ins"),
        config("-o", "a setting can name plug-ins").when(|setting| {
            ["addopts", "pythonpath", "python_files"]
                .iter()
                .any(|key| setting.starts_with(key))
        }),
        program("--pdbcls", "names the class of the debugger"),
    ],
    short_values: "Wkmnr",
    abbreviates: false,
    ..Grammar::GNU
};

const PYTHON_TOOLS: Grammar = Grammar {
    rules: &[
        code("--init-hook", "the argument is program text"),
        loads("--load-plugins", PLUGIN),
        loads("--enable-e|xtensions", PLUGIN).when(|names| names.contains('.')),
        loads("-f", "runs a file"),
        loads("--noxfile", "runs a file"),
        program("--python-executable", HELPER),
        config("--rcfile", "another configuration can name plug-ins"),
        config("--config", "another configuration can name plug-ins"),
        config("--config-file", "another configuration can name plug-ins"),
        config("-c", "another configuration can name commands"),
        config("--conf", "another configuration can name commands"),
        config("--append-config", "another configuration can name plug-ins"),
    ],
    short_values: "ejkmps",
    ..Grammar::GNU
};

const JS_TOOLS: Grammar = Grammar {
    rules: &[
        config("-c", "the configuration is code"),
        config("--config", "the configuration is code"),
        config("--config-path", "the configuration is code"),
        config("--rootDir", OTHER_PROJECT),
        config("--root", OTHER_PROJECT),
        loads("-r", "loads a module"),
        loads("--require", "loads a module"),
        loads("--import", "loads a module"),
        loads("--loader", "loads a module"),
        loads("--plugin", PLUGIN),
        loads("--rulesdir", "rules are code"),
        loads("--resolve-plugins-relative-to", PLUGIN),
        loads("--parser", "the parser is code").when(|name| name.contains(['/', '.'])),
        loads("-f", "loads a module").when(|name| name.contains(['/', '.'])),
        loads("--format", "loads a module").when(|name| name.contains(['/', '.'])),
        loads("--globalSetup", "loads a module"),
        loads("--setupFiles", "loads a module"),
        loads("--testEnvironment", "loads a module").when(|name| name.contains(['/', '.'])),
        loads("--transform", "loads a module"),
        loads("--runner", "loads a module"),
        loads("--reporters", "loads a module").when(|name| name.contains(['/', '.'])),
        writes("-o", "writes to a named file"),
        writes("--output-file", "writes to a named file"),
        writes("--outputFile", "writes to a named file"),
    ],
    abbreviates: false,
    ..Grammar::GNU
};

const TERRAFORM: Grammar = Grammar {
    rules: &[
        config("-chdir", OTHER_PROJECT),
        loads("-plugin-dir", "plug-ins come from another directory"),
        config("-from-module", "code comes from elsewhere"),
        config("-backend-config", "state is kept elsewhere"),
    ],
    ..Grammar::WORDS
};
