//! Database clients: statements in argv, and the ways from a statement to a file or a program.

use super::grammar::{Grammar, ProgramGrammar, Rule, code, config, loads, program, writes};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::table(&["psql"], &PSQL),
    ProgramGrammar::table(&["mysql", "mariadb"], &MYSQL),
    ProgramGrammar::table(
        &["mysqldump", "mariadb-dump", "mysqlimport", "mysqladmin"],
        &MYSQL_TOOLS,
    ),
    ProgramGrammar::inspected(&["sqlite3", "sqlite"], &SQLITE, sqlite_statements),
    ProgramGrammar::table(&["mongo", "mongosh"], &MONGO),
    ProgramGrammar::table(&["redis-cli", "valkey-cli"], &REDIS),
    ProgramGrammar::table(&["duckdb"], &DUCKDB),
];

const STATEMENT: &str = "the argument is run as statements or client commands";
const SCRIPT: &str = "runs the statements and client commands of a file";
const OUTPUT_FILE: &str = "writes to a named file";

const PSQL: Grammar = Grammar {
    rules: &[
        code("-c", STATEMENT),
        code("--command", STATEMENT),
        loads("-f", SCRIPT),
        loads("--file", SCRIPT),
        program("-o", "writes to a file or into a command"),
        program("--output", "writes to a file or into a command"),
        writes("-L", OUTPUT_FILE),
        writes("--log-file", OUTPUT_FILE),
    ],
    short_values: "FPRTUdhpv",
    long_values: &[
        "--dbname",
        "--host",
        "--port",
        "--set",
        "--username",
        "--variable",
    ],
    ..Grammar::GNU
};

const MYSQL_CONFIG: &[Rule] = &[
    config(
        "--defaults-file",
        "another configuration can name libraries",
    ),
    config(
        "--defaults-extra-file",
        "another configuration can name libraries",
    ),
    loads("--plugin-dir", "libraries come from another directory"),
    loads("--default-auth", "loads a library"),
    writes("-r", OUTPUT_FILE),
    writes("--result-file", OUTPUT_FILE),
    writes("-T", "writes into a named directory"),
    writes("--tab", "writes into a named directory"),
];

const MYSQL: Grammar = Grammar {
    rules: &[
        code("-e", STATEMENT),
        code("--execute", STATEMENT),
        code("--init-command", STATEMENT),
        program("--pager", "names a program for the output").attached(),
        config(
            "--defaults-file",
            "another configuration can name libraries",
        ),
        config(
            "--defaults-extra-file",
            "another configuration can name libraries",
        ),
        loads("--plugin-dir", "libraries come from another directory"),
        loads("--default-auth", "loads a library"),
        writes("--tee", OUTPUT_FILE),
    ],
    short_values: "DOPSVhu",
    short_attached: "#p",
    long_values: &["--database", "--host", "--port", "--socket", "--user"],
    underscores: true,
    ..Grammar::GNU
};

const MYSQL_TOOLS: Grammar = Grammar {
    rules: MYSQL_CONFIG,
    short_values: "PShuw",
    short_attached: "#p",
    underscores: true,
    ..Grammar::GNU
};

const SQLITE: Grammar = Grammar {
    rules: &[
        code("-cmd", STATEMENT).when(sqlite_acts),
        loads("-init", SCRIPT),
        loads("-vfstrace", "traces file access").flag(),
    ],
    long_values: &[
        "-lookaside",
        "-maxsize",
        "-mmap",
        "-newline",
        "-nullvalue",
        "-pagecache",
        "-separator",
        "-vfs",
    ],
    ..Grammar::WORDS
};

/// Every operand after the database file is run.
fn sqlite_statements(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let statements = parsed.operands.iter().skip(1);
    let acting = statements.filter(|&&index| sqlite_acts(call.argv[index]));
    acting
        .map(|&index| call.hit("inline program", HitKind::Code, index, STATEMENT))
        .collect()
}

/// Client commands that only show or format something.
const SQLITE_SHOWING: [&str; 18] = [
    ".bail",
    ".changes",
    ".databases",
    ".dbinfo",
    ".dump",
    ".explain",
    ".fullschema",
    ".headers",
    ".header",
    ".help",
    ".indexes",
    ".indices",
    ".mode",
    ".nullvalue",
    ".schema",
    ".show",
    ".tables",
    ".width",
];

/// Functions through which a query reaches files and libraries.
const SQLITE_REACHING: [&str; 6] = [
    "edit",
    "fts3_tokenizer",
    "load_extension",
    "readfile",
    "writefile",
    "zipfile",
];

/// Whether the text does more than query one database, that is, anything but plain queries and
/// showing commands.
fn sqlite_acts(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    if SQLITE_REACHING.iter().any(|name| lower.contains(name)) {
        return true;
    }
    let (commands, statements): (Vec<&str>, Vec<&str>) = lower
        .lines()
        .partition(|line| line.trim_start().starts_with('.'));
    let shows = |line: &&str| {
        let command = line.split_whitespace().next().unwrap_or_default();
        SQLITE_SHOWING.contains(&command)
    };
    !commands.iter().all(shows) || !statements.join("\n").split(';').all(is_query)
}

fn is_query(statement: &str) -> bool {
    let changes = ["insert", "update", "delete", "replace"];
    match statement.split_whitespace().next() {
        None | Some("select" | "values" | "explain") => true,
        Some("with") => !changes.iter().any(|word| statement.contains(word)),
        Some("pragma") => !statement.contains('='),
        Some(_) => false,
    }
}

const MONGO: Grammar = Grammar {
    rules: &[
        code("-eval", STATEMENT),
        loads("-f", SCRIPT),
        loads("-file", SCRIPT),
        loads("-shell", "goes on with commands from standard input").flag(),
    ],
    ..Grammar::WORDS
};

const REDIS: Grammar = Grammar {
    rules: &[
        loads("-eval", SCRIPT),
        writes("-rdb", OUTPUT_FILE),
        writes("-functions-rdb", OUTPUT_FILE),
    ],
    long_values: &["-h", "-p", "-a", "-n", "-s", "-u", "-r", "-i"],
    ..Grammar::WORDS
};

const DUCKDB: Grammar = Grammar {
    rules: &[
        code("-c", STATEMENT),
        code("-s", STATEMENT),
        code("-cmd", STATEMENT),
        loads("-f", SCRIPT),
        loads("-init", SCRIPT),
        loads("-unsigned", "libraries without a signature may be loaded").flag(),
    ],
    ..Grammar::WORDS
};
