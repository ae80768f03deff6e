//! Git: settings for one call, other repositories, and the many options that name a program.

use super::git_settings::{SETTING, config_write, setting_matters};
use super::grammar::{
    Grammar, OptionOrder, ProgramGrammar, Rule, code, config, loads, program, writes,
};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine, parse};

pub(super) const PROGRAMS: &[ProgramGrammar] =
    &[ProgramGrammar::inspected(&["git"], &GLOBAL, subcommand)];

const OTHER_REPOSITORY: &str = "another repository brings its own settings and hooks";
const HELPER: &str = "names a program to start";
const OTHER_SIDE: &str = "names the program to start on the other side";
const EACH: &str = "runs a command for each step";
const DRIVER: &str = "allows programs that the settings name";
const OUTPUT_FILE: &str = "writes to a named file";

/// Options before the subcommand. Git compares these exactly and accepts no abbreviation.
const GLOBAL: Grammar = Grammar {
    rules: &[
        config("-c", SETTING).when(setting_matters),
        config("--config-env", SETTING),
        config("-C", OTHER_REPOSITORY).when(|path| !matches!(path, "" | "." | "./")),
        config("--git-dir", OTHER_REPOSITORY),
        config("--work-tree", OTHER_REPOSITORY),
        program(
            "--exec-path",
            "git's own programs come from another directory",
        )
        .attached()
        .when(|path| !path.is_empty()),
    ],
    long_values: &[
        "--namespace",
        "--super-prefix",
        "--attr-source",
        "--shallow-file",
    ],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

/// The options of one subcommand. Git accepts no abbreviated subcommands, but it accepts
/// unambiguous abbreviations of their options.
struct Subcommand {
    names: &'static [&'static str],
    grammar: &'static Grammar,
}

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        names: &["clone"],
        grammar: &CLONE,
    },
    Subcommand {
        names: &["init"],
        grammar: &INIT,
    },
    Subcommand {
        names: &["fetch", "pull", "ls-remote", "fetch-pack"],
        grammar: &FETCH,
    },
    Subcommand {
        names: &["push", "send-pack"],
        grammar: &PUSH,
    },
    Subcommand {
        names: &["archive"],
        grammar: &ARCHIVE,
    },
    Subcommand {
        names: &["rebase"],
        grammar: &REBASE,
    },
    Subcommand {
        names: &["merge", "cherry-pick", "revert"],
        grammar: &MERGE,
    },
    Subcommand {
        names: &["difftool", "mergetool"],
        grammar: &DIFFTOOL,
    },
    Subcommand {
        names: &["config"],
        grammar: &CONFIG,
    },
    Subcommand {
        names: &["grep"],
        grammar: &GREP,
    },
    Subcommand {
        names: &["filter-branch"],
        grammar: &FILTER_BRANCH,
    },
    Subcommand {
        names: &["send-email"],
        grammar: &SEND_EMAIL,
    },
    Subcommand {
        names: &["shell"],
        grammar: &SHELL,
    },
    Subcommand {
        names: &["instaweb", "web--browse"],
        grammar: &BROWSE,
    },
    Subcommand {
        names: &[
            "diff",
            "log",
            "show",
            "diff-tree",
            "diff-index",
            "diff-files",
            "format-patch",
            "reflog",
            "whatchanged",
            "stash",
            "range-diff",
            "blame",
            "cat-file",
        ],
        grammar: &DIFF,
    },
];

const CONFIG: Grammar = Grammar {
    short_values: "f",
    long_values: &[
        "--blob",
        "--comment",
        "--default",
        "--file",
        "--type",
        "--url",
        "--value",
    ],
    ..Grammar::GNU
};

/// The grammar of subcommands without a row.
const PLAIN: Grammar = Grammar::GNU;

const CLONE: Grammar = Grammar {
    rules: &[
        program("-u", OTHER_SIDE),
        program("--upload-pack", OTHER_SIDE),
        loads("--template", "the template can hold hooks"),
        config("-c", SETTING).when(setting_matters),
        config("--config", SETTING).when(setting_matters),
        config("--separate-git-dir", OTHER_REPOSITORY),
    ],
    short_values: "bjo",
    long_values: &[
        "--branch",
        "--depth",
        "--filter",
        "--jobs",
        "--origin",
        "--reference",
        "--shallow-since",
    ],
    ..Grammar::GNU
};

const INIT: Grammar = Grammar {
    rules: &[
        loads("--template", "the template can hold hooks"),
        config("--separate-git-dir", OTHER_REPOSITORY),
    ],
    short_values: "b",
    ..Grammar::GNU
};

const MERGER: &str = "names the program that merges";

const FETCH: Grammar = Grammar {
    rules: &[
        program("--upload-pack", OTHER_SIDE),
        program("--exec", OTHER_SIDE),
        // These options belong to `pull`, which merges.
        program("-s", MERGER).when(is_odd_strategy),
        program("--strategy", MERGER).when(is_odd_strategy),
    ],
    short_values: "Xjo",
    long_values: &[
        "--depth",
        "--filter",
        "--jobs",
        "--refmap",
        "--strategy-option",
    ],
    ..Grammar::GNU
};

const PUSH: Grammar = Grammar {
    rules: &[
        program("--receive-pack", OTHER_SIDE),
        program("--exec", OTHER_SIDE),
    ],
    short_values: "o",
    long_values: &["--push-option", "--repo"],
    ..Grammar::GNU
};

const ARCHIVE: Grammar = Grammar {
    rules: &[
        program("--exec", OTHER_SIDE),
        writes("-o", OUTPUT_FILE),
        writes("--output", OUTPUT_FILE),
    ],
    long_values: &["--add-file", "--format", "--prefix", "--remote"],
    ..Grammar::GNU
};

const REBASE: Grammar = Grammar {
    rules: &[
        code("-x", EACH),
        code("--exec", EACH),
        program("-s", MERGER).when(is_odd_strategy),
        program("--strategy", MERGER).when(is_odd_strategy),
    ],
    short_values: "CX",
    long_values: &["--onto", "--strategy-option"],
    ..Grammar::GNU
};

const MERGE: Grammar = Grammar {
    rules: &[
        program("-s", MERGER).when(is_odd_strategy),
        program("--strategy", MERGER).when(is_odd_strategy),
    ],
    short_values: "FXm",
    short_attached: "S",
    long_values: &["--file", "--mainline", "--message", "--strategy-option"],
    ..Grammar::GNU
};

fn is_odd_strategy(name: &str) -> bool {
    !matches!(
        name,
        "" | "octopus" | "ort" | "ours" | "recursive" | "resolve" | "subtree"
    )
}

const DIFFTOOL: Grammar = Grammar {
    rules: &[
        program("-x", HELPER),
        program("--extcmd", HELPER),
        program("-t", HELPER),
        program("--tool", HELPER),
    ],
    ..Grammar::GNU
};

const GREP: Grammar = Grammar {
    rules: &[
        program("-O", "names the pager").attached(),
        program("--open-files-in-pager", "names the pager").attached(),
        program("--textc|onv", DRIVER).flag(),
        program("--ext-grep", DRIVER).flag(),
    ],
    short_values: "ABCefm",
    ..Grammar::GNU
};

const FILTER_BRANCH: Grammar = Grammar {
    rules: &[
        code("--setup", EACH),
        code("--env-filter", EACH),
        code("--tree-filter", EACH),
        code("--index-filter", EACH),
        code("--parent-filter", EACH),
        code("--msg-filter", EACH),
        code("--commit-filter", EACH),
        code("--tag-name-filter", EACH),
    ],
    long_values: &["--subdirectory-filter"],
    ..Grammar::GNU
};

const SEND_EMAIL: Grammar = Grammar {
    rules: &[
        program("--sendmail-cmd", HELPER),
        program("--to-c|md", HELPER),
        program("--cc-c|md", HELPER),
        program("--header-cmd", HELPER),
        program("--smtp-server", HELPER).when(|server| server.contains('/')),
    ],
    ..Grammar::GNU
};

const SHELL: Grammar = Grammar {
    rules: &[code("-c", "the argument is a command")],
    ..Grammar::GNU
};

const BROWSE: Grammar = Grammar {
    rules: &[
        program("-b", HELPER),
        program("--browser", HELPER),
        program("-d", HELPER),
        program("--httpd", HELPER),
        program("-t", HELPER),
        program("--tool", HELPER),
        config("-c", SETTING),
        config("--config", SETTING),
    ],
    ..Grammar::GNU
};

const DIFF_RULES: &[Rule] = &[
    program("--ext-diff", DRIVER).flag(),
    program("--textc|onv", DRIVER).flag(),
    writes("--output", OUTPUT_FILE).when(super::files::is_a_file),
    writes("--output-directory", "writes into a named directory"),
];

const DIFF: Grammar = Grammar {
    rules: DIFF_RULES,
    long_values: &["--author", "--format", "--grep", "--since", "--until"],
    short_values: "GILSn",
    ..Grammar::GNU
};

/// Subcommands that take the address of a repository.
const CONNECTING: [&str; 10] = [
    "archive",
    "clone",
    "fetch",
    "fetch-pack",
    "ls-remote",
    "pull",
    "push",
    "remote",
    "send-pack",
    "submodule",
];

/// Finds hits in the subcommand's own options and operands, and addresses that start a program.
fn subcommand(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let Some(&at) = parsed.operands.first() else {
        return Vec::new();
    };
    let name = call.argv[at];
    let row = SUBCOMMANDS.iter().find(|row| row.names.contains(&name));
    let grammar = row.map_or(&PLAIN, |row| row.grammar);
    let own = parse(call.argv, at + 1, grammar);
    let mut hits = call.apply(&own);
    let words: Vec<&str> = own.operands.iter().map(|&index| call.argv[index]).collect();
    let operand = |position: usize| words.get(position).copied().unwrap_or_default();
    let steps = |flag, index, reason| call.hit(flag, HitKind::ProgramOption, index, reason);
    match name {
        "bisect" if operand(0) == "run" => hits.push(steps("bisect run", own.operands[0], EACH)),
        "submodule" if operand(0) == "foreach" => {
            hits.push(call.hit("submodule foreach", HitKind::Code, own.operands[0], EACH));
        }
        "hook" if operand(0) == "run" => {
            hits.push(steps(
                "hook run",
                own.operands[0],
                "runs a hook of the repository",
            ));
        }
        "difftool" | "mergetool" if hits.is_empty() => {
            hits.push(steps(name, at, "starts the tool that the settings name"));
        }
        "daemon" | "http-backend" | "cvsserver" => {
            hits.push(steps(name, at, "serves repositories to others"));
        }
        "config" => hits.extend(config_write(call, at, &own)),
        _ => {}
    }
    let runs = |index: &&usize| {
        let address = call.argv[**index].trim_start();
        CONNECTING.contains(&name) && (address.starts_with("ext::") || address.starts_with("fd::"))
    };
    let addresses = own.operands.iter().filter(runs);
    hits.extend(addresses.map(|&index| steps("ext::", index, "the address is a command")));
    hits
}
