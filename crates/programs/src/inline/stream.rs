//! The classic tools whose arguments are programs or commands: awk, sed, find, xargs, make.

use super::grammar::{Grammar, OptionOrder, ProgramGrammar, code, config, loads, program, writes};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};
use super::sed;

const TEXT: &str = "the argument is program text";

pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::inspected(&["awk", "gawk", "mawk", "nawk"], &AWK, awk_program),
    ProgramGrammar::inspected(&["sed", "gsed"], &sed::GRAMMAR, sed::inspect),
    ProgramGrammar::table(&["find", "gfind"], &FIND),
    ProgramGrammar::inspected(&["xargs", "gxargs"], &XARGS, xargs_command),
    ProgramGrammar::inspected(&["make", "gmake"], &MAKE, make_variables),
];

const AWK: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        code("--source", TEXT),
        loads("-i", "includes a file found by name"),
        loads("--include", "includes a file found by name"),
        loads("-l", "loads a library"),
        loads("--load", "loads a library"),
        writes("-o", "writes the program to a file").attached(),
        writes("--pretty-print", "writes the program to a file").attached(),
        writes("-p", "writes a profile to a file").attached(),
        writes("--profile", "writes a profile to a file").attached(),
        writes("-d", "writes the variables to a file").attached(),
        writes("--dump-variables", "writes the variables to a file").attached(),
    ],
    order: OptionOrder::Until(1),
    short_values: "EFfvW",
    short_attached: "LD",
    long_values: &["--assign", "--exec", "--field-separator", "--file"],
    ..Grammar::GNU
};

/// Without `-f` the first operand is the program.
fn awk_program(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let elsewhere = ["-f", "--file", "-E", "--exec", "-e", "--source"];
    let in_file = parsed.options.iter().any(|option| {
        elsewhere.contains(&option.name.as_str())
            || (option.name == "-W" && option.value.is_some_and(|value| value.starts_with("exec")))
    });
    let first = parsed.operands.first().filter(|_| !in_file);
    let hit = first.map(|&index| call.hit("inline program", HitKind::Code, index, TEXT));
    hit.into_iter().collect()
}

const STARTS: &str = "starts a program for what it finds";
const PRINTS: &str = "writes what it finds to a file";

const FIND: Grammar = Grammar {
    values_are_sure: true,
    rules: &[
        program("-exec", STARTS).flag(),
        program("-execdir", STARTS).flag(),
        program("-ok", STARTS).flag(),
        program("-okdir", STARTS).flag(),
        writes("-fprint", PRINTS),
        writes("-fprint0", PRINTS),
        writes("-fprintf", PRINTS),
        writes("-fls", PRINTS),
        // A search tool is trusted only to search.
        writes("-delete", "removes what it finds").flag(),
    ],
    long_values: &[
        "-amin",
        "-anewer",
        "-atime",
        "-cmin",
        "-cnewer",
        "-context",
        "-ctime",
        "-fstype",
        "-gid",
        "-group",
        "-ilname",
        "-iname",
        "-inum",
        "-ipath",
        "-iregex",
        "-iwholename",
        "-links",
        "-lname",
        "-maxdepth",
        "-mindepth",
        "-mmin",
        "-mtime",
        "-name",
        "-newer",
        "-path",
        "-perm",
        "-printf",
        "-regex",
        "-regextype",
        "-samefile",
        "-size",
        "-type",
        "-uid",
        "-used",
        "-user",
        "-wholename",
        "-xtype",
    ],
    double_dash_ends: false,
    ..Grammar::WORDS
};

const XARGS: Grammar = Grammar {
    order: OptionOrder::Until(1),
    short_values: "EIJLPRSadns",
    short_attached: "eil",
    long_values: &[
        "--arg-file",
        "--delimiter",
        "--max-args",
        "--max-chars",
        "--max-procs",
        "--process-slot-var",
    ],
    ..Grammar::GNU
};

/// The first operand is the command that xargs runs for its input. Without an operand it is `echo`.
fn xargs_command(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    // Operands that may be the value of an unknown option are reported too.
    let first = parsed.operands.first();
    let reason = "starts a program with arguments from standard input";
    let hit = first.map(|&index| call.hit("inline command", HitKind::ProgramOption, index, reason));
    hit.into_iter().collect()
}

const RULES_FROM_FILE: &str = "another file names the commands to run";

const MAKE: Grammar = Grammar {
    rules: &[
        code("-E", TEXT),
        code("--eval", TEXT),
        loads("-f", RULES_FROM_FILE),
        loads("--file", RULES_FROM_FILE),
        loads("--makefile", RULES_FROM_FILE),
        config(
            "-C",
            "another directory's makefile names the commands to run",
        ),
        config(
            "--directory",
            "another directory's makefile names the commands to run",
        ),
        config("-I", "makefiles are included from another directory"),
        config(
            "--include-dir",
            "makefiles are included from another directory",
        ),
    ],
    short_values: "Wo",
    short_attached: "Ojl",
    long_values: &[
        "--assume-new",
        "--assume-old",
        "--new-file",
        "--old-file",
        "--what-if",
    ],
    ..Grammar::GNU
};

/// Variables that make itself starts as programs or reads options from.
const MAKE_CONTROLS: [&str; 6] = [
    "SHELL",
    ".SHELLFLAGS",
    "MAKE",
    "MAKEFLAGS",
    "GNUMAKEFLAGS",
    "MAKEFILES",
];

/// Variables that built-in and customary rules start as programs.
const MAKE_PROGRAMS: [&str; 22] = [
    "AR", "AS", "AWK", "CC", "CPP", "CXX", "FC", "GO", "GREP", "INSTALL", "LD", "LEX", "NM",
    "NODE", "NPM", "PYTHON", "RANLIB", "RM", "SED", "STRIP", "TAR", "YACC",
];

/// `NAME=VALUE` overrides a variable of the makefile, and make pastes the value into commands.
fn make_variables(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let judge = |index: usize| {
        let (name, value) = call.argv[index].split_once('=')?;
        let runs_now = name.ends_with('!');
        let name = name.trim_end_matches([':', '?', '+', '!']).trim();
        if MAKE_CONTROLS.contains(&name) {
            let reason = "names the shell or the options for every command";
            return Some(call.hit(&format!("{name}="), HitKind::ProgramOption, index, reason));
        }
        if runs_now || value.contains(['$', '`', ';', '|', '&', '<', '>', '(', '\n']) {
            let reason = "the value is run or becomes part of commands";
            return Some(call.hit("inline variable", HitKind::Code, index, reason));
        }
        let is_path = MAKE_PROGRAMS.contains(&name) && value.contains('/');
        let reason = "names a program for the rules";
        is_path.then(|| call.hit(&format!("{name}="), HitKind::ProgramOption, index, reason))
    };
    parsed
        .operands
        .iter()
        .filter_map(|&index| judge(index))
        .collect()
}
