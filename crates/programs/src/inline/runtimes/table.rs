//! The interpreters, one row each.

/// How an interpreter finds its code, as far as the inline tables do not say it.
pub(super) struct Runtime {
    /// Lower case, without a trailing version number.
    pub names: &'static [&'static str],
    /// What an approval can bind, in words.
    pub shape: &'static str,
    /// Options that say nothing about where code comes from; a `*` at the end stands for the rest.
    pub harmless: &'static [&'static str],
    /// The same for options that are known to take the next word as their value.
    pub with_value: &'static [&'static str],
    /// Standing alone, they make the program print something and end.
    pub questions: &'static [&'static str],
    pub operand: Operand,
    /// Options whose value is the file.
    pub file_options: &'static [&'static str],
    /// Operands that are words of the interpreter's own, whatever files there are.
    pub not_files: &'static [&'static str],
    /// Without a file, code is read from standard input.
    pub reads_stdin: bool,
    /// Behind program text everything belongs to the program.
    pub text_ends_options: bool,
    /// A file is read even when there is program text.
    pub file_besides_text: bool,
    /// Files of the working directory that are read unasked and can name code to load.
    pub settings: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    None,
    First,
    /// `run FILE`, or a path without `run`. `bare`: a name alone behind `run` is always a file.
    BehindRun {
        bare: bool,
    },
}

/// One file, no options: what is known of an interpreter about which little is known.
const BASIC: Runtime = Runtime {
    names: &[],
    shape: "the interpreter and one local file",
    harmless: &[],
    with_value: &[],
    questions: &["--version", "--help"],
    operand: Operand::First,
    file_options: &[],
    not_files: &[],
    reads_stdin: true,
    text_ends_options: false,
    file_besides_text: false,
    settings: &[],
};

pub(super) const RUNTIMES: &[Runtime] = &[
    // `-m` finds a module by name, `-i` and no file read standard input. `-x` skips a line of the
    // bound file. Not here: `-X`, of which some settings name places to load from.
    Runtime {
        names: &["python", "python2", "python3", "pypy", "pypy2", "pypy3"],
        shape: "python [options] FILE.py",
        harmless: &[
            "-B", "-E", "-I", "-O", "-P", "-R", "-S", "-b", "-d", "-q", "-s", "-u", "-v", "-x",
        ],
        questions: &["--version", "-V", "-VV", "--help", "-h"],
        text_ends_options: true,
        ..BASIC
    },
    // `inspect` in front is a debugger. A directory or a name without its ending is looked up by
    // rules of its own, which a look-up of the file does not find: such an operand is missing.
    Runtime {
        names: &["node", "nodejs"],
        shape: "node [options] FILE.js",
        harmless: &[
            "-c",
            "--check",
            "--enable-source-maps",
            "--experimental-strip-types",
            "--expose-gc",
            "--max-old-space-size",
            "--no-deprecation",
            "--no-warnings",
            "--stack-size",
            "--stack-trace-limit",
            "--throw-deprecation",
            "--trace-deprecation",
            "--trace-uncaught",
            "--trace-warnings",
        ],
        with_value: &["--disable-warning", "--title", "--unhandled-rejections"],
        questions: &["--version", "-v", "--help", "-h", "--v8-options"],
        not_files: &["inspect", "debug"],
        ..BASIC
    },
    // They pass their options on to node and add some of their own. The project's settings can
    // name modules to load first.
    Runtime {
        names: &["tsx", "ts-node", "ts-node-esm", "esno", "jiti", "vite-node"],
        shape: "tsx FILE.ts",
        harmless: &["--no-warnings", "--enable-source-maps", "--trace-warnings"],
        questions: &["--version", "-v", "--help", "-h"],
        not_files: &["watch"],
        settings: &["tsconfig.json"],
        ..BASIC
    },
    // Permissions say what the code may do, not which code it is. An import map or another
    // configuration decides which code a name stands for.
    Runtime {
        names: &["deno"],
        shape: "deno run [options] FILE.ts",
        harmless: &[
            "-A",
            "-E",
            "-N",
            "-R",
            "-S",
            "-W",
            "-q",
            "--allow-*",
            "--cached-only",
            "--check",
            "--deny-*",
            "--frozen",
            "--no-check",
            "--no-config",
            "--no-lock",
            "--no-npm",
            "--no-prompt",
            "--no-remote",
            "--quiet",
            "--unstable*",
        ],
        questions: &["--version", "-V", "--help", "-h"],
        operand: Operand::BehindRun { bare: true },
        settings: &["deno.json", "deno.jsonc"],
        ..BASIC
    },
    // Behind `run` the scripts of package.json come first. `bunfig.toml` can name modules to load.
    Runtime {
        names: &["bun"],
        shape: "bun [run] ./FILE.ts",
        harmless: &["--bun", "-b", "--silent", "--no-install", "--smol"],
        questions: &["--version", "-v", "--revision", "--help", "-h"],
        operand: Operand::BehindRun { bare: false },
        settings: &["bunfig.toml"],
        ..BASIC
    },
    // Not here: `-S`, which looks the file up in PATH; `-C` and `-X`, which leave the directory.
    Runtime {
        names: &["ruby", "jruby", "truffleruby"],
        shape: "ruby [options] FILE.rb",
        harmless: &[
            "-U",
            "-W",
            "-a",
            "-c",
            "-i",
            "-l",
            "-n",
            "-p",
            "-s",
            "-v",
            "-w",
            "--yjit",
            "--jit",
            "--verbose",
            "--disable-*",
            "--enable-*",
        ],
        questions: &["--version", "-v", "--help", "-h"],
        ..BASIC
    },
    // Not here: `-S`, which looks the file up in PATH; `-i`, whose value may be anything.
    Runtime {
        names: &["perl"],
        shape: "perl [options] FILE.pl",
        harmless: &[
            "-0", "-T", "-U", "-W", "-X", "-a", "-c", "-i", "-l", "-n", "-p", "-s", "-t", "-w",
        ],
        questions: &["--version", "-v", "-V", "--help", "-h"],
        ..BASIC
    },
    // Not here: `-F`, which runs a file for each line; `-B`, `-R`, `-E` are program text.
    Runtime {
        names: &["php"],
        shape: "php [options] FILE.php",
        harmless: &["-C", "-H", "-l", "-n", "-q", "-s", "-w"],
        questions: &["--version", "-v", "--help", "-h", "-i", "-m", "--ini"],
        file_options: &["-f", "--file"],
        ..BASIC
    },
    Runtime {
        names: &["lua", "luajit", "texlua"],
        shape: "lua [options] FILE.lua",
        harmless: &["-E", "-W", "-v", "-O"],
        questions: &["-v"],
        ..BASIC
    },
    // Start-up files are read unless an option forbids it; they are the user's, not the request's.
    Runtime {
        names: &["rscript"],
        shape: "Rscript [options] FILE.R",
        harmless: &[
            "--no-environ",
            "--no-init-file",
            "--no-restore",
            "--no-save",
            "--no-site-file",
            "--quiet",
            "--slave",
            "--vanilla",
            "--verbose",
        ],
        ..BASIC
    },
    Runtime {
        names: &["julia"],
        shape: "julia [options] FILE.jl",
        harmless: &["-q", "--quiet", "--startup-file", "-O", "-g"],
        with_value: &["-p", "-t"],
        questions: &["--version", "-v", "--help", "-h"],
        ..BASIC
    },
    Runtime {
        names: &["guile"],
        shape: "guile [-s] FILE.scm",
        harmless: &["--no-auto-compile", "-q"],
        file_options: &["-s"],
        ..BASIC
    },
    Runtime {
        names: &["expect"],
        shape: "expect FILE",
        harmless: &["-n", "-N"],
        file_options: &["-f"],
        ..BASIC
    },
    // Nothing is known of their options but the ones for code.
    Runtime {
        names: &[
            "clj",
            "clojure",
            "ecl",
            "elixir",
            "erl",
            "escript",
            "ghci",
            "gjs",
            "gnuplot",
            "groovy",
            "iex",
            "ipython",
            "ipython3",
            "irb",
            "jrunscript",
            "kotlin",
            "ocaml",
            "octave",
            "osascript",
            "perl6",
            "r",
            "racket",
            "raku",
            "runghc",
            "runhaskell",
            "sbcl",
            "scala",
            "scala-cli",
            "swipl",
            "tclsh",
            "wish",
        ],
        ..BASIC
    },
    // The program is the first operand or comes from one file; the rest is data.
    Runtime {
        names: &["awk", "gawk", "mawk", "nawk"],
        shape: "awk -f FILE.awk, or the program text",
        harmless: &[
            "-b",
            "-c",
            "-n",
            "-P",
            "-r",
            "-S",
            "-s",
            "-t",
            "--posix",
            "--sandbox",
            "--traditional",
            "--re-interval",
        ],
        with_value: &["-F", "-v", "--assign", "--field-separator"],
        operand: Operand::None,
        file_options: &["-f", "--file", "-E", "--exec"],
        reads_stdin: false,
        ..BASIC
    },
    Runtime {
        names: &["sed", "gsed"],
        shape: "sed -f FILE.sed, or the program text",
        harmless: &[
            "-E",
            "-n",
            "-r",
            "-s",
            "-u",
            "-z",
            "--debug",
            "--null-data",
            "--posix",
            "--quiet",
            "--regexp-extended",
            "--sandbox",
            "--separate",
            "--silent",
            "--unbuffered",
        ],
        with_value: &["-e", "-l", "--expression", "--line-length"],
        operand: Operand::None,
        file_options: &["-f", "--file"],
        reads_stdin: false,
        file_besides_text: true,
        ..BASIC
    },
    // The rules are code, in one file. Where none is named, the project decides.
    Runtime {
        names: &["make", "gmake"],
        shape: "make [-f FILE] [targets]",
        harmless: &[
            "-B",
            "-O",
            "-R",
            "-S",
            "-b",
            "-d",
            "-i",
            "-j",
            "-k",
            "-l",
            "-n",
            "-p",
            "-q",
            "-r",
            "-s",
            "-t",
            "-w",
            "--always-make",
            "--debug",
            "--dry-run",
            "--ignore-errors",
            "--jobs",
            "--just-print",
            "--keep-going",
            "--load-average",
            "--no-builtin-rules",
            "--no-print-directory",
            "--output-sync",
            "--print-directory",
            "--question",
            "--quiet",
            "--silent",
            "--touch",
            "--trace",
            "--warn-undefined-variables",
        ],
        with_value: &["-W", "-o"],
        questions: &["--version", "-v", "--help", "-h"],
        operand: Operand::None,
        file_options: &["-f", "--file", "--makefile"],
        reads_stdin: false,
        file_besides_text: true,
        ..BASIC
    },
];
