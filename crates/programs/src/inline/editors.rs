//! Editors and pagers: commands in argv, other startup files, helper programs.

use super::files::{is_a_file, is_odd_pager};
use super::grammar::{Grammar, ProgramGrammar, code, config, loads, program, writes};

pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::table(
        &[
            "vim",
            "vi",
            "nvim",
            "view",
            "vimdiff",
            "gvim",
            "gview",
            "ex",
            "rvim",
            "rview",
            "evim",
            "vim.basic",
            "vim.tiny",
            "vim.nox",
            "vim.gtk3",
        ],
        &VIM,
    ),
    ProgramGrammar::table(&["emacs", "emacs-nox", "emacs-gtk", "emacs-lucid"], &EMACS),
    ProgramGrammar::table(&["emacsclient"], &EMACSCLIENT),
    ProgramGrammar::table(&["nano", "pico"], &NANO),
    ProgramGrammar::table(&["less"], &LESS),
    ProgramGrammar::table(&["more", "most"], &MORE),
    ProgramGrammar::table(&["man", "apropos", "whatis"], &MAN),
];

const COMMANDS: &str = "editor commands can start programs";
const SCRIPT: &str = "runs the commands of a file";
const START_UP: &str = "another start-up file can run commands";

const VIM: Grammar = Grammar {
    rules: &[
        code("-c", COMMANDS),
        code("--cmd", COMMANDS),
        code("+*", COMMANDS)
            .when(is_more_than_a_place)
            .called("+command"),
        code("--remote-send", COMMANDS),
        code("--remote-expr", COMMANDS),
        loads("-S", SCRIPT),
        loads("-s", SCRIPT),
        loads("-l", SCRIPT),
        loads("-u", START_UP).when(|file| !matches!(file, "NONE" | "NORC" | "DEFAULTS")),
        loads("-U", START_UP).when(|file| file != "NONE"),
        loads("-i", "another state file is loaded").when(|file| file != "NONE"),
        program("--listen", "opens a socket that takes commands"),
        program("--server", "sends commands to another editor"),
        writes("-w", "writes what is typed to a file"),
        writes("-W", "writes what is typed to a file"),
        writes("--startuptime", "writes a file"),
        writes("--log", "writes a file"),
    ],
    short_values: "PTqt",
    short_attached: "OopVr",
    long_values: &["--servername", "--socketid"],
    abbreviates: false,
    ..Grammar::GNU
};

/// Whether the text is a command. `+`, `+12` and `+/pattern` only say where to start reading.
fn is_more_than_a_place(text: &str) -> bool {
    let pattern_alone = text.starts_with('/') && !text.contains('|');
    !pattern_alone && !text.chars().all(|c| c.is_ascii_digit())
}

const EMACS: Grammar = Grammar {
    rules: &[
        code("--ev|al", COMMANDS),
        code("--ex|ecute", COMMANDS),
        code("-f", "calls a function by name"),
        code("--fu|ncall", "calls a function by name"),
        code("-e", "calls a function by name"),
        loads("-l", SCRIPT),
        loads("--lo|ad", SCRIPT),
        loads("--sc|ript", SCRIPT),
        loads("-x", SCRIPT),
        loads("-L", "code is loaded from another directory"),
        loads("--dir|ectory", "code is loaded from another directory"),
        loads("--ini|t-directory", START_UP),
        loads("-u", START_UP),
        loads("--us|er", START_UP),
        program("--daemon*", "starts a server that takes commands").attached(),
        program("--bg-daemon*", "starts a server that takes commands").attached(),
        program("--fg-daemon*", "starts a server that takes commands").attached(),
    ],
    ..Grammar::WORDS
};

const EMACSCLIENT: Grammar = Grammar {
    rules: &[
        code("-e", COMMANDS).flag(),
        code("--eval", COMMANDS).flag(),
        program("-a", "names an editor to start"),
        program("--alternate-editor", "names an editor to start"),
    ],
    short_values: "FTdfs",
    ..Grammar::GNU
};

const NANO: Grammar = Grammar {
    rules: &[
        program("-s", "names a spelling checker to start"),
        program("--speller", "names a spelling checker to start"),
        config("-f", START_UP),
        config("--rcfile", START_UP),
        writes("-C", "copies of files are written to a named directory"),
        writes(
            "--backupd|ir",
            "copies of files are written to a named directory",
        ),
    ],
    short_values: "JQTXYor",
    ..Grammar::GNU
};

const LESS: Grammar = Grammar {
    rules: &[
        code("+*", "pager commands can start programs")
            .when(pager_acts)
            .called("+command"),
        writes("-o", "copies its input to a file").when(is_a_file),
        writes("-O", "copies its input to a file").when(is_a_file),
        writes("--log-file", "copies its input to a file"),
        writes("--LOG-FILE", "copies its input to a file"),
        config("-k", "another key file can bind commands"),
        config("--lesskey-file", "another key file can bind commands"),
        config("--lesskey-src", "another key file can bind commands"),
        config("--lesskey-content", "keys can be bound to commands"),
    ],
    short_values: "DPTbhjptxyz",
    short_attached: "#",
    ..Grammar::GNU
};

/// Whether a pager's start command acts. Starting at a line, the end or a match is harmless; `!`,
/// `|`, `s`, `v`, `#` are not.
fn pager_acts(text: &str) -> bool {
    let text = text.trim_start_matches('+');
    let searches = text.starts_with(['/', '?', '&']) && !text.contains(['\n', '\r']);
    let moves = text
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, 'G' | 'g' | 'F' | 'p' | '%'));
    !searches && !moves
}

const MORE: Grammar = Grammar {
    rules: &[code("+*", "pager commands can start programs")
        .when(pager_acts)
        .called("+command")],
    short_values: "n",
    ..Grammar::GNU
};

const MAN: Grammar = Grammar {
    rules: &[
        program("-P", "names the pager").when(is_odd_pager),
        program("--pager", "names the pager").when(is_odd_pager),
        program("-H", "names the browser").attached(),
        program("--html", "names the browser").attached(),
        config("-C", "another configuration can name programs"),
        config("--config-file", "another configuration can name programs"),
        loads(
            "-M",
            "pages, which can hold macros, come from another directory",
        ),
        loads(
            "--manpath",
            "pages, which can hold macros, come from another directory",
        ),
    ],
    short_values: "ELRSemprs",
    short_attached: "TXZ",
    ..Grammar::GNU
};
