//! Further languages and debuggers: program text in argv, and options that load more code.

use super::grammar::{Grammar, OptionOrder, ProgramGrammar, code, config, loads, program};
use super::interpreters::{MODULE, SEARCH_PATH, STDIN, TEXT};

/// Rows of the inline table.
pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::table(&["r", "rscript"], &R),
    ProgramGrammar::table(&["julia"], &JULIA),
    ProgramGrammar::table(&["elixir", "iex"], &ELIXIR),
    ProgramGrammar::table(&["guile"], &GUILE),
    ProgramGrammar::table(&["raku", "perl6"], &RAKU),
    ProgramGrammar::table(&["ghc", "ghci", "runghc", "runhaskell"], &GHC),
    ProgramGrammar::table(&["erl", "werl"], &ERLANG),
    ProgramGrammar::table(&["gdb"], &GDB),
    ProgramGrammar::table(&["lldb"], &LLDB),
    ProgramGrammar::table(&["expect"], &EXPECT),
    ProgramGrammar::table(&["lua", "luajit", "texlua"], &LUA),
    ProgramGrammar::table(&["osascript"], &OSASCRIPT),
    ProgramGrammar::table(
        &[
            "ocaml", "racket", "swift", "octave", "gnuplot", "sbcl", "ecl",
        ],
        &EVAL_WORDS,
    ),
];

const R: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        program("-d", "names a debugger to start"),
        program("--debugger", "names a debugger to start"),
        loads("--default-packages", MODULE).attached(),
    ],
    long_values: &["-f", "-g", "--file"],
    terminators: &["--args"],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

const JULIA: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        code("--eval", TEXT),
        code("-E", TEXT),
        code("--print", TEXT),
        loads("-L", "loads a file before the program"),
        loads("--load", "loads a file before the program"),
        loads("-m", "runs a module found by name"),
        loads("-J", "starts from a stored program state"),
        loads("--sysimage", "starts from a stored program state"),
        loads("-i", STDIN).flag(),
        config("-H", "another home decides which code is loaded"),
        config("--home", "another home decides which code is loaded"),
    ],
    order: OptionOrder::Until(1),
    short_values: "Cpt",
    short_attached: "Og",
    long_values: &["--cpu-target", "--machine-file", "--procs", "--threads"],
    abbreviates: false,
    ..Grammar::GNU
};

const ELIXIR: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        code("-eval", TEXT),
        code("-rpc-eval", TEXT),
        loads("-r", "loads a file before the program"),
        loads("-pr", "loads files before the program"),
        loads("-pa", SEARCH_PATH),
        loads("-pz", SEARCH_PATH),
        loads("-S", "runs a script found by name"),
        loads("-dot-iex", "loads a file before the program"),
        loads("-erl", "options of the virtual machine can run code"),
        config("-erl-config", "another configuration may name code to load"),
        config("-vm-args", "options of the virtual machine can run code"),
        config("-boot", "another boot file decides what is started"),
    ],
    long_values: &["-cookie", "-name", "-remsh", "-sname"],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

const GUILE: Grammar = Grammar {
    rules: &[
        code("-c", TEXT),
        code("-e", "names the function to call, as an expression"),
        loads("-l", "loads a file before the program"),
        loads("-L", SEARCH_PATH),
        loads("-C", SEARCH_PATH),
        loads("-listen", "opens a port through which code can be run").attached(),
    ],
    long_values: &["-s", "-x"],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

const RAKU: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        loads("-M", MODULE),
        loads("-I", SEARCH_PATH),
    ],
    order: OptionOrder::Until(1),
    abbreviates: false,
    ..Grammar::GNU
};

const GHC: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        loads("-fplugin*", "loads a plug-in into the compiler").called("-fplugin"),
        loads("-ghci-script", "runs the commands of a file"),
        program("-pgm*", "names a program for one step of compiling").called("-pgm"),
        config("@*", "options come from a file").called("@file"),
    ],
    double_dash_ends: false,
    ..Grammar::WORDS
};

const ERLANG: Grammar = Grammar {
    rules: &[
        code("-eval", TEXT),
        code("-run", "calls a function named in the arguments"),
        code("-s", "calls a function named in the arguments"),
        loads("-pa", SEARCH_PATH),
        loads("-pz", SEARCH_PATH),
        loads("-remsh", "opens a shell on another node"),
        config("-config", "another configuration may name code to load"),
        config("-args_file", "options come from a file"),
        config("-boot", "another boot file decides what is started"),
    ],
    terminators: &["-extra"],
    double_dash_ends: false,
    ..Grammar::WORDS
};

const COMMANDS: &str = "debugger commands can start programs";

const GDB: Grammar = Grammar {
    rules: &[
        code("-ex", COMMANDS),
        code("-iex", COMMANDS),
        code("-eiex", COMMANDS),
        code("-ev|al-command", COMMANDS),
        code("-init-e|val-command", COMMANDS),
        code("-early-init-e|val-command", COMMANDS),
        loads(
            "-data-d|irectory",
            "scripts are loaded from another directory",
        ),
    ],
    long_values: &[
        "-b",
        "-c",
        "-cd",
        "-command",
        "-core",
        "-d",
        "-directory",
        "-e",
        "-early-init-command",
        "-eix",
        "-exec",
        "-init-command",
        "-ix",
        "-l",
        "-p",
        "-pid",
        "-s",
        "-se",
        "-symbols",
        "-tty",
        "-x",
    ],
    terminators: &["--args", "-args"],
    ..Grammar::WORDS
};

const LLDB: Grammar = Grammar {
    rules: &[
        code("-o", COMMANDS),
        code("--one-line", COMMANDS),
        code("-O", COMMANDS),
        code("--one-line-before-file", COMMANDS),
        code("-k", COMMANDS),
        code("--one-line-on-crash", COMMANDS),
        loads("-s", "runs the commands of a file"),
        loads("--source", "runs the commands of a file"),
        loads("-S", "runs the commands of a file"),
        loads("--source-before-file", "runs the commands of a file"),
    ],
    short_values: "acfnp",
    ..Grammar::GNU
};

const EXPECT: Grammar = Grammar {
    rules: &[code("-c", TEXT)],
    order: OptionOrder::Until(1),
    short_values: "Df",
    ..Grammar::GNU
};

const LUA: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        loads("-l", MODULE),
        loads("-j", "commands of the compiler are modules"),
        loads("-i", STDIN).flag(),
    ],
    order: OptionOrder::Until(1),
    short_attached: "Ob",
    ..Grammar::GNU
};

const OSASCRIPT: Grammar = Grammar {
    rules: &[code("-e", TEXT), loads("-i", STDIN).flag()],
    order: OptionOrder::Until(1),
    short_values: "ls",
    ..Grammar::GNU
};

/// Interpreters with the same convention: `-e TEXT`, `--eval TEXT`, and few other options that
/// matter.
const EVAL_WORDS: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        code("-eval", TEXT),
        loads("-l", MODULE),
        loads("-load", MODULE),
        loads("-r", MODULE),
        loads("-require", MODULE),
    ],
    ..Grammar::WORDS
};
