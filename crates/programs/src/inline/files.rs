//! Tools that read, search, sort and pack files.

use super::grammar::{
    Grammar, OptionOrder, ProgramGrammar, Rule, code, config, loads, program, writes,
};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::inspected(&["tar", "gtar", "bsdtar"], &TAR, tar_more),
    ProgramGrammar::table(&["cpio"], &CPIO),
    ProgramGrammar::inspected(&["zip"], &ZIP, zip_test_command),
    ProgramGrammar::table(&["split", "gsplit"], &SPLIT),
    ProgramGrammar::table(&["sort", "gsort"], &SORT),
    ProgramGrammar::table(&["shuf"], &SHUF),
    ProgramGrammar::table(&["iconv"], &ICONV),
    ProgramGrammar::table(&["tree"], &TREE),
    ProgramGrammar::inspected(&["uniq", "guniq"], &UNIQ, uniq_output),
    ProgramGrammar::table(&["rg"], &RIPGREP),
    ProgramGrammar::table(&["ag", "ack", "bat", "batcat", "delta"], &PAGED),
    ProgramGrammar::table(&["fd", "fdfind"], &FD),
    ProgramGrammar::table(&["fzf", "sk"], &FZF),
    ProgramGrammar::table(&["yq"], &YQ),
    ProgramGrammar::table(&["dc"], &CALCULATOR),
    ProgramGrammar::table(&["pandoc"], &PANDOC),
    ProgramGrammar::table(
        &[
            "tex", "latex", "pdflatex", "pdftex", "xelatex", "lualatex", "latexmk",
        ],
        &TEX,
    ),
    ProgramGrammar::table(&["ctags"], &CTAGS),
];

const HELPER: &str = "names a program to start";
const COMPRESSOR: &str = "names a program that packs or unpacks";
const TAPE_SCRIPT: &str = "runs a script at the end of each tape";
const OUTPUT_FILE: &str = "writes to a named file";

const TAR: Grammar = Grammar {
    rules: &[
        program("-I", COMPRESSOR).when(is_odd_compressor),
        program("--use-compress-program", COMPRESSOR).when(is_odd_compressor),
        program("--checkpoint-|action", "runs a command at each checkpoint").when(runs_command),
        program("--to-command", "pipes each file into a command"),
        program("-F", TAPE_SCRIPT),
        program("--info-script", TAPE_SCRIPT),
        program("--new-volume-script", TAPE_SCRIPT),
        program("--rmt-command", HELPER),
        program("--rsh-command", HELPER),
        writes("--index-file", OUTPUT_FILE),
        writes("--remove-files", "removes the files it has packed").flag(),
    ],
    short_values: "bCfgHKLNTVX",
    long_values: &[
        "--add-file",
        "--after-date",
        "--blocking-factor",
        "--directory",
        "--exclude",
        "--exclude-from",
        "--exclude-tag",
        "--file",
        "--files-from",
        "--format",
        "--group",
        "--label",
        "--level",
        "--listed-incremental",
        "--mode",
        "--mtime",
        "--newer",
        "--newer-mtime",
        "--owner",
        "--record-size",
        "--sort",
        "--starting-file",
        "--strip-components",
        "--suffix",
        "--tape-length",
        "--transform",
        "--volno-file",
        "--xform",
    ],
    ..Grammar::GNU
};

/// The only harmless compressors, with a level or a number of threads.
const COMPRESSORS: [&str; 14] = [
    "brotli", "bzip2", "compress", "gzip", "lbzip2", "lz4", "lzip", "lzma", "lzop", "pbzip2",
    "pigz", "pixz", "xz", "zstd",
];

fn is_odd_compressor(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let known = words.next().is_some_and(|name| COMPRESSORS.contains(&name));
    let is_setting = |word: &str| {
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        match word.strip_prefix("--") {
            Some(long) => {
                let long = long.split('=').next().unwrap_or_default();
                matches!(
                    long,
                    "fast" | "best" | "ultra" | "long" | "threads" | "rsyncable"
                )
            }
            None => word
                .strip_prefix('-')
                .is_some_and(|short| short == "d" || digits(short.trim_start_matches(['T', 'p']))),
        }
    };
    !(known && words.all(is_setting))
}

fn runs_command(action: &str) -> bool {
    !matches!(
        action.split('=').next().unwrap_or_default(),
        "bell" | "dot" | "." | "echo" | "sleep" | "totals" | "ttyout"
    )
}

/// Finds what the table cannot express about tar: the old style `tar cfI archive program`, with
/// letters without a dash and their values following in the same order; and lists of files, which
/// are only lists if tar reads them as such.
fn tar_more(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let options = parsed.options.iter();
    let lists = options.filter(|option| matches!(option.name.as_str(), "-T" | "--files-from"));
    let mut lists: Vec<_> = lists
        .map(|option| (option.name.as_str(), option.index))
        .collect();
    let mut hits = Vec::new();
    let mut values = 2..call.argv.len();
    let old_style = call.argv.get(1).filter(|first| !first.starts_with('-'));
    for letter in old_style.map_or("", |letters| letters).chars() {
        if !TAR.short_values.contains(letter) && !matches!(letter, 'I' | 'F') {
            continue;
        }
        let Some(index) = values.next() else { break };
        let (kind, value) = (HitKind::ProgramOption, call.argv[index]);
        match letter {
            'I' if is_odd_compressor(value) => hits.push(call.hit("-I", kind, index, COMPRESSOR)),
            'F' => hits.push(call.hit("-F", kind, index, TAPE_SCRIPT)),
            'T' => lists.push(("-T", index)),
            _ => {}
        }
    }
    if !parsed.has(&["--verbatim-files-from", "--null"]) {
        let reason = "a list of files may hold options";
        let list_hit = |(flag, index)| call.hit(flag, HitKind::OtherConfig, index, reason);
        hits.extend(lists.into_iter().map(list_hit));
    }
    hits
}

const CPIO: Grammar = Grammar {
    rules: &[
        program("--rsh-command", HELPER),
        program("--rmt-command", HELPER),
    ],
    short_values: "CDEFHIMORW",
    ..Grammar::GNU
};

const ZIP: Grammar = Grammar {
    rules: &[program(
        "--unzip-command",
        "names the program that tests the archive",
    )],
    long_values: &["-b", "-n", "-P", "-s", "-t", "-tt", "-x", "-i"],
    ..Grammar::WORDS
};

/// Finds `-TT COMMAND`, alone or within a cluster such as `-rTT`.
fn zip_test_command(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let clusters = parsed
        .options
        .iter()
        .filter(|option| !option.name.starts_with("--") && option.name.contains("TT"));
    let reason = "names the program that tests the archive";
    clusters
        .map(|option| call.hit("-TT", HitKind::ProgramOption, option.index, reason))
        .collect()
}

const SPLIT: Grammar = Grammar {
    rules: &[program("--filter", "pipes each part into a command")],
    short_values: "Cabdlnt",
    ..Grammar::GNU
};

const SORT: Grammar = Grammar {
    rules: &[
        program("--compress-program", COMPRESSOR).when(is_odd_compressor),
        writes("-o", OUTPUT_FILE),
        writes("--output", OUTPUT_FILE),
        writes("-T", "writes temporary files to a named directory"),
        writes(
            "--temporary-directory",
            "writes temporary files to a named directory",
        ),
    ],
    short_values: "Skt",
    long_values: &[
        "--batch-size",
        "--buffer-size",
        "--field-separator",
        "--files0-from",
        "--key",
        "--parallel",
        "--random-source",
        "--sort",
    ],
    ..Grammar::GNU
};

const TO_FILE: &[Rule] = &[
    writes("-o", OUTPUT_FILE).when(is_a_file),
    writes("--output", OUTPUT_FILE).when(is_a_file),
];

const SHUF: Grammar = Grammar {
    rules: TO_FILE,
    short_values: "in",
    ..Grammar::GNU
};

const ICONV: Grammar = Grammar {
    rules: TO_FILE,
    short_values: "ft",
    ..Grammar::GNU
};

const TREE: Grammar = Grammar {
    rules: TO_FILE,
    short_values: "HILPT",
    ..Grammar::GNU
};

/// Whether the name is a file. `-` and the null device leave nothing behind.
pub(super) fn is_a_file(name: &str) -> bool {
    !matches!(name, "-" | "/dev/null" | "/dev/stdout" | "/dev/stderr")
}

const UNIQ: Grammar = Grammar {
    short_values: "fsw",
    long_values: &["--check-chars", "--skip-chars", "--skip-fields"],
    ..Grammar::GNU
};

/// The second operand of `uniq` is written.
fn uniq_output(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let second = parsed
        .operands
        .get(1)
        .filter(|&&index| is_a_file(call.argv[index]));
    let hit = second.map(|&index| call.hit("OUTPUT", HitKind::WritesFile, index, OUTPUT_FILE));
    hit.into_iter().collect()
}

const RIPGREP: Grammar = Grammar {
    values_are_sure: true,
    rules: &[
        program("--pre", "pipes each file through a program").when(|command| !command.is_empty()),
        program("--hostname-bin", HELPER),
    ],
    short_values: "ABCEMTdefgjmrt",
    long_values: &[
        "--after-context",
        "--before-context",
        "--color",
        "--colors",
        "--context",
        "--encoding",
        "--engine",
        "--file",
        "--glob",
        "--iglob",
        "--ignore-file",
        "--max-columns",
        "--max-count",
        "--max-depth",
        "--pre-glob",
        "--regexp",
        "--replace",
        "--sort",
        "--sortr",
        "--threads",
        "--type",
        "--type-not",
    ],
    abbreviates: false,
    ..Grammar::GNU
};

const PAGED: Grammar = Grammar {
    rules: &[
        program("--pager", HELPER).when(is_odd_pager),
        config("--ackrc", "options come from a file"),
        config("--config-file", "options come from a file"),
        program("--diff-so-fancy-command", HELPER),
    ],
    short_values: "ABCGHlmprw",
    ..Grammar::GNU
};

/// Whether the command is anything but a known pager that only shows text.
pub(super) fn is_odd_pager(command: &str) -> bool {
    !matches!(
        command,
        "" | "cat" | "/bin/cat" | "/usr/bin/cat" | "less" | "less -R" | "less -FRX" | "more"
    )
}

const FD: Grammar = Grammar {
    rules: &[
        program("-x", "starts a program for what it finds"),
        program("--exec", "starts a program for what it finds"),
        program("-X", "starts a program for what it finds"),
        program("--exec-batch", "starts a program for what it finds"),
    ],
    short_values: "CESTcdejot",
    abbreviates: false,
    ..Grammar::GNU
};

const FZF: Grammar = Grammar {
    rules: &[
        program("--preview", "runs a command for each line").when(|command| !command.is_empty()),
        program("--bind", "keys and events can run commands").when(|bindings| {
            let runs = [
                "execute",
                "reload",
                "become",
                "transform",
                "preview",
                "command",
            ];
            runs.iter().any(|action| bindings.contains(action))
        }),
        program("--with-shell", HELPER),
        program("--listen", "opens a port through which commands can be run").attached(),
        program("--cmd", "runs a command for its input"),
        program("-c", "runs a command for its input"),
    ],
    abbreviates: false,
    ..Grammar::GNU
};

const YQ: Grammar = Grammar {
    rules: &[
        writes("-i", "replaces the files it reads").flag(),
        writes("--inplace", "replaces the files it reads").flag(),
        writes("--in-place", "replaces the files it reads").flag(),
        writes("-s", "writes one file for each document"),
        writes("--split-exp", "writes one file for each document"),
        writes("--split-exp-file", "writes one file for each document"),
    ],
    short_values: "Iopf",
    abbreviates: false,
    ..Grammar::GNU
};

const CALCULATOR: Grammar = Grammar {
    rules: &[
        code("-e", "an exclamation mark starts a command").when(|text| text.contains('!')),
        code("--expression", "an exclamation mark starts a command")
            .when(|text| text.contains('!')),
    ],
    short_values: "f",
    ..Grammar::GNU
};

const PANDOC: Grammar = Grammar {
    rules: &[
        program("-F", "pipes the document through a program"),
        program("--filter", "pipes the document through a program"),
        loads("-L", "runs a script on the document"),
        loads("--lua-filter", "runs a script on the document"),
        program("--pdf-engine", HELPER).when(|engine| engine.contains('/')),
        config("-d", "options come from a file"),
        config("--defaults", "options come from a file"),
        config(
            "--data-dir",
            "filters and templates come from another directory",
        ),
        writes("--extract-media", "writes files into a directory"),
        writes("--log", OUTPUT_FILE),
    ],
    short_values: "ABHMTVcfortw",
    ..Grammar::GNU
};

const TEX: Grammar = Grammar {
    rules: &[
        program("-shell-escape", "documents may start programs").flag(),
        program("-enable-write18", "documents may start programs").flag(),
        program("-shell-restricted", "documents may start some programs").flag(),
        code("-e", "the argument is program text"),
        loads("-r", "runs a configuration file"),
        program("-pdflatex*", HELPER)
            .when(|command| !command.is_empty())
            .attached(),
        program("-latex*", HELPER)
            .when(|command| !command.is_empty())
            .attached(),
        code("\\*", "the argument is program text").called("inline program"),
    ],
    long_values: &["-interaction", "-jobname", "-output-directory", "-outdir"],
    ..Grammar::WORDS
};

const CTAGS: Grammar = Grammar {
    rules: &[
        config("--options", "options come from a file").attached(),
        config("--optlib-dir", "options come from another directory").attached(),
        program("--_interactive", "takes commands from standard input").attached(),
    ],
    order: OptionOrder::Anywhere,
    ..Grammar::GNU
};
