//! Where Interlock answers otherwise on purpose: each rule with the sentence of the
//! specification that demands it. A rule goes by the form of a case, never by its id.

use crate::comparison::{Comparison, Direction, Row};
use crate::forms;

pub struct Deviation {
    pub name: &'static str,
    /// File and kind of the rows that it speaks of.
    rows: &'static [(&'static str, &'static str)],
    pub direction: Direction,
    applies: fn(Row<'_>, &Comparison) -> bool,
    /// What the specification says.
    pub because: &'static str,
}

/// Commands that are judged, by themselves or for what "always" would store.
const COMMANDS: &[(&str, &str)] = &[
    ("allowlist", "shell"),
    ("allowlist", "argv"),
    ("allowlist", "host-run"),
    ("allowlist", "resolved"),
    ("allowlist", "parse"),
    ("allow-always", "shell"),
    ("allow-always", "argv"),
];
const DISPATCH: &[(&str, &str)] = &[
    ("wrappers", "dispatch"),
    ("wrappers", "dispatch-probe"),
    ("wrappers", "dispatch-chain"),
    ("wrappers", "resolution"),
];
const DOCUMENTS: &[(&str, &str)] = &[
    ("allowlist", "effective"),
    ("allowlist", "approvals-file"),
    ("allowlist", "defaults"),
    ("allowlist", "host-run"),
];
/// What an approval can hold on to.
const BOUND: &[(&str, &str)] = &[("binder", "operand"), ("binder", "plan")];
const PROFILES: &[(&str, &str)] = &[("safebins", "")];

use Direction::{Different, Looser, Stricter};

const RULES: &[Deviation] = &[
    // Looser: the specification sees more.
    Deviation {
        name: "login-shell-text",
        rows: &[
            ("wrappers", "shell-text"),
            ("wrappers", "shell-wrapper"),
            ("wrappers", "trust-plan"),
        ],
        direction: Looser,
        applies: |row, _| forms::has_login_text(row),
        because: "`SHELL -c TEXT` and `SHELL -lc TEXT` by analysing TEXT (we run it directly, so no start-up file is read)",
    },
    Deviation {
        name: "assignments-of-env",
        rows: &[("wrappers", "resolution"), ("wrappers", "trust-plan")],
        direction: Looser,
        applies: |row, _| forms::has_env_assignment(row),
        because: "`env NAME=VALUE… PROGRAM …`, with assignments only, is transparent too (the reference does not trust this form)",
    },
    Deviation {
        name: "shell-text-is-judged",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_login_text(row) || forms::has_path_in_text(row),
        because: "`SHELL -c TEXT` and `SHELL -lc TEXT` by analysing TEXT (we run it directly, so no start-up file is read)",
    },
    Deviation {
        name: "stream-redirection",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_redirection(row),
        because: "stream-only ones are understood and allowed: `2>&1`, `>&2`, `>/dev/null`, `2>/dev/null`, `&>/dev/null`, `</dev/null`",
    },
    Deviation {
        name: "background",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_background(row),
        because: "the operators `&& || ; | &` and newline",
    },
    Deviation {
        name: "leading-assignment",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_assignment(row),
        because: "An assignment before a command is judged by the env rules",
    },
    Deviation {
        name: "continuation-between-words",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_continuation(row),
        because: "Everything else makes the command not plain: … line continuation inside a word",
    },
    Deviation {
        name: "proven-words",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_comment(row) || forms::has_dollar_quote(row),
        because: "literal words, single quotes, double quotes without `$`, backtick or `!`, backslash escapes, plain `$'…'`, comments, the operators `&& || ; | &` and newline",
    },
    Deviation {
        name: "multi-call-shell",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_multi_call_shell(row),
        because: "`busybox` beyond its shell applets … is opaque",
    },
    Deviation {
        name: "protected-path-as-found",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_linked_pattern(row),
        because: "it matches the path as found (`/usr/bin/python3` → `python3.11`) only if every link and every directory on the way is owned by root and writable by nobody else",
    },
    Deviation {
        name: "stdbuf-attached-value",
        rows: DISPATCH,
        direction: Looser,
        applies: |row, _| forms::has_attached_stdbuf(row),
        because: "`stdbuf` with attached values too",
    },
    Deviation {
        name: "stdbuf-attached-value-in-commands",
        rows: COMMANDS,
        direction: Looser,
        applies: |row, _| forms::has_attached_stdbuf(row),
        because: "`stdbuf` with attached values too",
    },
    Deviation {
        name: "ask-fallback-is-kept",
        rows: &[("allowlist", "effective")],
        direction: Looser,
        // There the fallback is cut down to `security`.
        applies: |row, comparison| {
            let expect = row.expect();
            comparison.got.starts_with("askFallback")
                && expect.text("askFallback") == Row(expect.get("security")).text("effective")
        },
        because: "`askFallback=full` on an allowlist miss: allows, as the reference says, but only if the prompt came from configured policy",
    },
    Deviation {
        name: "linear-time-regex",
        rows: &[
            ("argpattern", "regex"),
            ("argpattern", "entries"),
            ("allowlist", "entries"),
        ],
        direction: Looser,
        applies: |row, _| forms::has_repeated_repetition(row),
        because: "`argPattern` is a linear-time regex",
    },
    Deviation {
        name: "sed-that-only-edits",
        rows: &[("inline-eval", "")],
        direction: Looser,
        applies: |row, _| forms::program_is(row, &["sed", "gsed"]),
        because: "of `sed` only programs that execute, read or write files",
    },
    Deviation {
        name: "counts-of-head-and-tail",
        rows: PROFILES,
        direction: Looser,
        applies: |row, _| forms::program_is(row, &["head", "tail"]) && forms::has_count(row),
        because: "known flags only (`head -20` and `tail -n+2` included)",
    },
    Deviation {
        name: "sets-and-delimiters",
        rows: PROFILES,
        direction: Looser,
        applies: |row, _| forms::program_is(row, &["tr", "cut"]),
        because: "Profiles know value flags and operand kinds (`cut -d/` is a delimiter, `tr` operands are sets, never files)",
    },
    Deviation {
        name: "bound-behind-a-shell",
        rows: BOUND,
        direction: Looser,
        applies: |row, comparison| {
            matches!(comparison.obstacle.as_str(), "native" | "file") && forms::has_text(row)
        },
        because: "native executable (ELF, Mach-O, PE/COFF by header), by absolute path, relative path or name; single-element argv; behind `sh -c`; whoever runs it, root too; file: a file with `#!` or no known header",
    },
    Deviation {
        name: "visible-code-is-bound",
        rows: BOUND,
        direction: Looser,
        applies: |_, comparison| comparison.obstacle == "text",
        because: "text: all code is visible in argv or shell text: inline code (`-c`, `-e`, `-r`), text that is not plain; yes, once; never stored",
    },
    // Different: the same trust in another form.
    Deviation {
        name: "plain-env-is-taken-away",
        rows: &[("binder", "pin")],
        direction: Different,
        applies: |row, _| forms::program_is(row, &["env"]),
        because: "We apply the wrapper's effect ourselves or pass the pinned absolute path on: never a bare inner name that would be looked up again",
    },
    Deviation {
        name: "shell-text-is-the-command",
        rows: &[("wrappers", "resolution")],
        direction: Different,
        applies: |row, _| forms::has_text(row),
        because: "`SHELL -c TEXT` and `SHELL -lc TEXT` by analysing TEXT (we run it directly, so no start-up file is read)",
    },
    Deviation {
        name: "tilde-is-expanded",
        rows: &[("allowlist", "parse")],
        direction: Different,
        applies: |row, _| forms::has_tilde(row),
        because: "Tilde and globs are expanded by us at prepare, before judging",
    },
    // Stricter: the specification demands a proof.
    Deviation {
        name: "code-from-elsewhere",
        rows: BOUND,
        direction: Stricter,
        applies: |_, comparison| {
            [
                "fetched",
                "what its project files say",
                "may load code",
                "may name or fetch code",
                "start-up files",
                "may be a script of the project",
                "starts another program",
            ]
            .iter()
            .any(|form| comparison.obstacle.contains(form))
        },
        because: "unbound: code comes from elsewhere: stdin scripts, package scripts (`npm run x`), loader and preload flags, modules (`-m`), several candidate files, opaque programs",
    },
    Deviation {
        name: "positional-carrier",
        rows: COMMANDS,
        direction: Stricter,
        applies: |row, comparison| {
            comparison.obstacle.starts_with("text ") && forms::has_positional_text(row)
        },
        because: "Our own lexer accepts only what it can prove: … double quotes without `$`, backtick or `!`",
    },
    Deviation {
        name: "expansion",
        rows: COMMANDS,
        direction: Stricter,
        applies: |_, comparison| {
            matches!(
                comparison.obstacle.as_str(),
                "text dynamic-argument" | "text history-mark"
            )
        },
        because: "double quotes without `$`, backtick or `!`",
    },
    Deviation {
        name: "operators",
        rows: COMMANDS,
        direction: Stricter,
        applies: |_, comparison| comparison.obstacle == "text unknown-operator",
        because: "the operators `&& || ; | &` and newline, … Everything else makes the command not plain",
    },
    Deviation {
        name: "not-plain",
        rows: COMMANDS,
        direction: Stricter,
        applies: |_, comparison| {
            [
                "text control-character",
                "text reserved-word",
                "text brace",
                "text dangling-operator",
                "text assignment-only",
                "text builtin",
                "text builtin-assignment",
                "text line-continuation",
            ]
            .contains(&comparison.obstacle.as_str())
        },
        because: "Everything else makes the command not plain: CR and other control characters, reserved words, unquoted braces, dangling operators, an assignment alone, every shell builtin but ours, line continuation inside a word",
    },
    Deviation {
        name: "trusted-directory",
        rows: COMMANDS,
        direction: Stricter,
        applies: |_, comparison| {
            matches!(
                comparison.obstacle.as_str(),
                "untrusted shell" | "untrusted wrapper"
            )
        },
        because: "A wrapper or shell counts only when it resolves in a trusted directory",
    },
    Deviation {
        name: "trusted-directory-of-wrappers",
        rows: &[("wrappers", "resolution")],
        direction: Stricter,
        applies: |row, _| !forms::program_may_be_trusted(row),
        because: "A wrapper or shell counts only when it resolves in a trusted directory",
    },
    Deviation {
        name: "opaque-program",
        rows: COMMANDS,
        direction: Stricter,
        applies: |_, comparison| matches!(comparison.obstacle.as_str(), "opaque" | "wrapper"),
        because: "Every other program whose job is to start another program is opaque: a miss, its own entry does not satisfy it (only one with `args` does), nothing is stored for it",
    },
    Deviation {
        name: "own-builtins",
        rows: &[
            ("allowlist", "builtin"),
            ("allowlist", "shell"),
            ("allowlist", "host-run"),
        ],
        direction: Stricter,
        applies: |row, comparison| comparison.obstacle == "builtin-form" || row.kind() == "builtin",
        because: "its own small implementations; an option that only a shell's builtin has is a miss; `cd` counts only in a leading `cd X &&` chain",
    },
    Deviation {
        name: "package-runner",
        rows: &[
            ("allow-always", "shell"),
            ("allow-always", "argv"),
            ("allow-always", "grant-reuse"),
            ("allowlist", "shell"),
            ("allowlist", "argv"),
        ],
        direction: Stricter,
        applies: |row, _| forms::program_is(row, &["npx", "npm", "pnpm", "yarn", "bunx", "bun"]),
        because: "Unwrap transparent dispatch wrappers, at most 4 deep, by the table (`env` plainly used, `nice`, `nohup`, `stdbuf`, `timeout`, `time` without a file, `flock FILE CMD`)",
    },
    Deviation {
        name: "nothing-stored-for-code",
        rows: &[("allow-always", "shell"), ("allow-always", "argv")],
        direction: Stricter,
        applies: |_, comparison| comparison.obstacle.starts_with("binding "),
        because: "text: yes, once; never stored; unbound: code comes from elsewhere … refused by default",
    },
    Deviation {
        name: "invalid-value",
        rows: DOCUMENTS,
        direction: Stricter,
        applies: |_, comparison| comparison.obstacle == "refused",
        because: "Every unknown key, wrong type or out-of-range value is an error with line, column and the nearest known key; the old config stays in force on reload",
    },
    Deviation {
        name: "decisions-answer-questions",
        rows: &[("allowlist", "run-policy"), ("allowlist", "host-run")],
        direction: Stricter,
        applies: |row, comparison| {
            forms::is_approved(row) && matches!(comparison.got.as_str(), "deny" | "Deny")
        },
        because: "A pending approval is created when the verdict is `ask`; unbound: refused by default",
    },
    Deviation {
        name: "more-than-inline-code",
        rows: &[("inline-eval", "")],
        direction: Stricter,
        applies: |row, _| forms::has_option_hit(row),
        because: "and options that load code, name a helper program, point at another config or repository, or write a file",
    },
    Deviation {
        name: "unsupported-regex",
        rows: &[
            ("argpattern", "regex"),
            ("argpattern", "entries"),
            ("allowlist", "entries"),
        ],
        direction: Stricter,
        applies: |row, _| forms::has_refused_regex(row),
        because: "unsupported syntax (look-around, back-references) is refused when the entry is loaded",
    },
    Deviation {
        name: "mask-inside-proven-words",
        rows: &[("display", "command-text")],
        direction: Different,
        applies: |row, _| forms::has_unproven_words(row),
        because: "Masking applies only inside words that the lexer proved literal. Text that is not plain is shown unmasked",
    },
];

/// Kinds that ask what Interlock has no place for.
const NOT_OURS: &[(&str, &str, &str)] = &[
    (
        "binder",
        "env-binding",
        "the whole environment is part of the plan, and of its digest",
    ),
    (
        "binder",
        "env-hash-match",
        "plans are compared by their digest, not part by part",
    ),
    (
        "binder",
        "binding-match",
        "plans are compared by their digest, not part by part",
    ),
    (
        "binder",
        "approval-match",
        "plans are compared by their digest, not part by part",
    ),
    (
        "binder",
        "mismatch-error",
        "a matter of the gateway's protocol",
    ),
    (
        "binder",
        "raw-command",
        "a request holds either text or argv; a second field has nothing to match",
    ),
    (
        "binder",
        "command-request",
        "a request holds either text or argv; a second field has nothing to match",
    ),
    (
        "allowlist",
        "executable-value",
        "no setting of Interlock holds a command line",
    ),
    (
        "allowlist",
        "mode-of-policy",
        "a mode is a way to write `security` and `ask`; those two are shown",
    ),
    (
        "allowlist",
        "defaults",
        "where a command runs is not a question of policy",
    ),
    (
        "wrappers",
        "shell-wrapper",
        "the text of a shell is taken from argv, never from a second field of the request",
    ),
];

pub fn find(file: &str, row: Row<'_>, comparison: &Comparison) -> Option<&'static Deviation> {
    RULES.iter().find(|rule| {
        rule.rows.contains(&(file, row.kind()))
            && rule.direction == comparison.direction
            && (rule.applies)(row, comparison)
    })
}

pub fn why_not_ours(file: &str, kind: &str) -> &'static str {
    NOT_OURS
        .iter()
        .find(|(of, name, _)| *of == file && *name == kind)
        .map_or("unknown kind", |(_, _, reason)| *reason)
}
