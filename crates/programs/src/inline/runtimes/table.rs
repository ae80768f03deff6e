//! The interpreters, one row each.

/// How an interpreter finds its code, as far as the inline tables do not say so.
pub(super) struct Runtime {
    /// The names, in lower case and without a trailing version number.
    pub names: &'static [&'static str],
    /// What an approval can bind, in words.
    pub shape: &'static str,
    /// Options that do not affect where code comes from. A final `*` stands for any rest.
    pub harmless: &'static [&'static str],
    /// The same, for options that are known to take the next word as their value.
    pub with_value: &'static [&'static str],
    /// Options that, if used alone, make the program print something and exit.
    pub questions: &'static [&'static str],
    pub operand: Operand,
    /// Options whose value is the file.
    pub file_options: &'static [&'static str],
    /// Operands that are the interpreter's own words, even if files of that name exist.
    pub not_files: &'static [&'static str],
    /// Whether code is read from standard input if there is no file.
    pub reads_stdin: bool,
    /// Whether everything after program text belongs to the program.
    pub text_ends_options: bool,
    /// Whether a file is read even if there is program text.
    pub file_besides_text: bool,
    /// Files of the working directory that are read unasked and may name code to load.
    pub settings: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    None,
    First,
    /// `run FILE`, or a path without `run`. If `bare`, a bare name after `run` is always a file.
    BehindRun {
        bare: bool,
    },
}

/// One file and no options: the row for interpreters about which little is known.
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
    // `-m` finds a module by name; `-i`, or no file, reads standard input. `-x` skips a line of the
    // bound file. `-X` is not listed, because some of its settings name places to load code from.
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
    // A leading `inspect` is a debugger. Node resolves a directory or a name without its ending by
    // its own rules, which a file lookup does not follow, so such an operand counts as missing.
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
    // These pass their options on to node and add some of their own. The project's settings can
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
    // Permissions limit what the code may do, but do not decide which code it is. An import map or
    // another configuration decides which code a name stands for.
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
    // After `run`, scripts of package.json take precedence. `bunfig.toml` can name modules to load.
    Runtime {
        names: &["bun"],
        shape: "bun [run] ./FILE.ts",
        harmless: &["--bun", "-b", "--silent", "--no-install", "--smol"],
        questions: &["--version", "-v", "--revision", "--help", "-h"],
        operand: Operand::BehindRun { bare: false },
        settings: &["bunfig.toml"],
        ..BASIC
    },
    // Not listed: `-S`, which looks the file up in PATH; `-C` and `-X`, which leave the directory.
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
    // Not listed: `-S`, which looks the file up in PATH; `-i`, whose value may be anything.
    Runtime {
        names: &["perl"],
        shape: "perl [options] FILE.pl",
        harmless: &[
            "-0", "-T", "-U", "-W", "-X", "-a", "-c", "-i", "-l", "-n", "-p", "-s", "-t", "-w",
        ],
        questions: &["--version", "-v", "-V", "--help", "-h"],
        ..BASIC
    },
    // Not listed: `-F`, which runs a file for each line. `-B`, `-R` and `-E` are program text.
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
    // Startup files are read unless an option forbids it. They belong to the user, not to the
    // request.
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
    // Of these interpreters' options, only those for code are known.
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
    // The program is the first operand or comes from one file. The other operands are data.
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
    // The rules are code in one file. If no file is named, the project decides.
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
