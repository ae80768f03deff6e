//! Finds where a program that starts others, and whose grammar is unknown, may hide a command.
//! Every result is a guess, and it can only add commands to inspect.

use interlock_programs::names::program_name;

/// The number of operands that such a program takes before the command, options aside.
const LEADING_OPERANDS: &[(usize, &[&str])] = &[
    // The operand is a user, group, mask, priority, root, directory, file, time or address.
    (
        1,
        &[
            "chroot",
            "chrt",
            "envdir",
            "envuidgid",
            "faketime",
            "flock",
            "gdbserver",
            "gosu",
            "runuser",
            "s6-envuidgid",
            "s6-setuidgid",
            "setarch",
            "setlock",
            "setuidgid",
            "sg",
            "su",
            "su-exec",
            "taskset",
            "timeout",
        ],
    ),
    // The operand is a subcommand.
    (
        1,
        &[
            "asciinema",
            "byobu",
            "heaptrack",
            "perf",
            "rr",
            "screen",
            "script",
            "tmux",
            "toolbox",
            "trace-cmd",
            "uftrace",
            "zellij",
        ],
    ),
    // The operands are a subcommand and a machine.
    (2, &["distrobox", "machinectl"]),
    // These programs have options with several values, or take a command in every word.
    (usize::MAX, &["bwrap", "concurrently", "hyperfine", "pee"]),
];

/// Programs that read commands from standard input, from files, or in their own address syntax.
const READS_COMMANDS: &[&str] = &["at", "batch", "crontab", "newgrp", "run-parts", "socat"];

/// Programs that start what follows one of these words, after this many words of their own. Their
/// own entries decide whether they are trusted; rules about what they start apply as well.
const RUNNERS: &[(&[&str], &[&str], usize)] = &[
    (
        &["uv", "poetry", "pipenv", "pdm", "hatch", "rye", "pixi"],
        &["run"],
        0,
    ),
    (&["conda", "mamba", "micromamba"], &["run"], 0),
    (
        &["npm", "pnpm", "yarn", "lerna", "nx"],
        &["exec", "x", "dlx"],
        0,
    ),
    (&["bun"], &["x", "run"], 0),
    (&["bundle", "opam", "stack", "cabal"], &["exec"], 0),
    (
        &["asdf", "mise", "rbenv", "pyenv", "nodenv"],
        &["exec", "x"],
        0,
    ),
    (&["direnv", "aws-vault", "chamber"], &["exec"], 1),
    (&["sops"], &["exec-env", "exec-file"], 1),
    (&["rustup"], &["run"], 1),
    (
        &["op", "doppler", "infisical", "teller", "dotenvx", "devbox"],
        &["run"],
        0,
    ),
    (&["foreman", "heroku"], &["run", "local:run"], 0),
    (&["mix"], &["cmd"], 0),
    (&["nix"], &["develop", "shell"], 0),
    (&["cargo"], &["watch"], 0),
    (&["guix"], &["shell", "environment"], 0),
    (&["flox"], &["activate"], 0),
    (
        &[
            "npx",
            "pnpx",
            "bunx",
            "uvx",
            "cross-env",
            "dotenv",
            "env-cmd",
            "nix-shell",
            "npm-run-all",
            "repeat",
        ],
        &[],
        0,
    ),
];

/// Returns where the words of a runner end, and how many operands of its own follow.
pub(super) fn runner(argv: &[String]) -> Option<(usize, usize)> {
    let name = program_name(argv.first()?);
    let (_, verbs, operands) = RUNNERS.iter().find(|(names, ..)| names.contains(&&*name))?;
    if verbs.is_empty() {
        let own = usize::from(name == "repeat");
        return Some((0, own));
    }
    let words = argv.iter().enumerate().skip(1);
    let mut words = words.filter(|(_, word)| verbs.contains(&word.as_str()));
    words.next().map(|(index, _)| (index, *operands))
}

pub(super) fn leading_operands(program: &str) -> usize {
    let name = program_name(program);
    let row = LEADING_OPERANDS
        .iter()
        .find(|(_, names)| names.contains(&&*name));
    row.map_or(0, |(count, _)| *count)
}

/// Whether the commands that the program starts are not in its arguments at all.
pub(super) fn reads_commands(argv: &[String]) -> bool {
    let name = argv
        .first()
        .map_or(String::new(), |first| program_name(first).into_owned());
    let lists = matches!(
        argv.get(1).map(String::as_str),
        Some("-l" | "--list" | "-V" | "--version")
    );
    if READS_COMMANDS.contains(&name.as_str()) {
        return !lists;
    }
    // `parallel` without a command reads whole commands from its input.
    let command = argv.iter().skip(1).find(|word| !word.starts_with('-'));
    name == "parallel" && !lists && command.is_none_or(|word| word.starts_with("::"))
}

/// Returns the parts of an option that may be an attached command: `--exec=rm`, `-c'rm x'`,
/// `-qcrm`.
pub(super) fn attached(option: &str) -> Vec<&str> {
    if let Some(long) = option.strip_prefix("--") {
        return long
            .split_once('=')
            .map(|(_, value)| value)
            .into_iter()
            .collect();
    }
    let mut letters = option.chars();
    letters.next();
    letters.next();
    let behind_first = letters.as_str();
    let behind_c = option.split_once('c').map_or("", |(_, value)| value);
    let mut values = vec![behind_first, behind_c];
    values.dedup();
    values.retain(|value| !value.is_empty() && !value.contains("{}"));
    values
}

/// Returns where the command of `xargs` begins, or `None` if an option is unknown or there is no
/// command.
pub fn xargs_command(argv: &[String]) -> Option<usize> {
    const VALUES: &str = "EILPadns";
    const ATTACHED_VALUES: &str = "eil";
    const LONG_VALUES: &[&str] = &[
        "--arg-file",
        "--delimiter",
        "--max-args",
        "--max-chars",
        "--max-procs",
        "--process-slot-var",
    ];
    let mut index = 1;
    while let Some(word) = argv.get(index) {
        if word == "--" {
            return (index + 1 < argv.len()).then_some(index + 1);
        }
        let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) else {
            return Some(index);
        };
        index += 1;
        if option.starts_with('-') {
            index += usize::from(LONG_VALUES.contains(&word.as_str()));
            continue;
        }
        let valued =
            option.find(|letter| VALUES.contains(letter) || ATTACHED_VALUES.contains(letter));
        if let Some((flags, value)) = valued.map(|at| option.split_at(at + 1))
            && value.is_empty()
            && flags.ends_with(|letter| VALUES.contains(letter))
        {
            index += 1;
        }
    }
    None
}

/// Returns the word that `xargs -I` replaces by its input.
pub(super) fn replaced_word(argv: &[String]) -> Option<&str> {
    argv.iter().enumerate().find_map(|(index, word)| {
        let attached = word
            .strip_prefix("-I")
            .or_else(|| word.strip_prefix("--replace="))?;
        if attached.is_empty() {
            argv.get(index + 1).map(String::as_str)
        } else {
            Some(attached)
        }
    })
}

/// Where the command of an `fd` option begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FdExec<'a> {
    No,
    /// The command begins with the next word.
    Next,
    /// The option itself contains the command.
    Attached(&'a str),
}

/// Recognizes `-x`, `-X`, `--exec` and `--exec-batch`, also in a cluster and with an attached
/// command.
pub(super) fn fd_exec(word: &str) -> FdExec<'_> {
    /// Short options of `fd` whose value may be attached.
    const VALUES: &str = "SEcdejot";
    if let Some(long) = word.strip_prefix("--") {
        return match long.split_once('=') {
            Some(("exec" | "exec-batch", command)) => FdExec::Attached(command),
            None if matches!(long, "exec" | "exec-batch") => FdExec::Next,
            _ => FdExec::No,
        };
    }
    let Some(cluster) = word.strip_prefix('-') else {
        return FdExec::No;
    };
    let stop = cluster.find(|letter| VALUES.contains(letter) || matches!(letter, 'x' | 'X'));
    match stop.map(|index| cluster.split_at(index + 1)) {
        Some((flags, rest)) if flags.ends_with(['x', 'X']) => {
            let command = rest.strip_prefix('=').unwrap_or(rest);
            if command.is_empty() {
                FdExec::Next
            } else {
                FdExec::Attached(command)
            }
        }
        _ => FdExec::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_inside_options_are_found() {
        assert_eq!(attached("--exec=rm"), ["rm"]);
        assert_eq!(attached("-crm x"), ["rm x"]);
        assert_eq!(attached("-qcrm"), ["crm", "rm"]);
        assert!(attached("-I{}").is_empty());
        assert!(attached("-c").is_empty());
    }

    #[test]
    fn the_command_of_xargs_is_found_behind_its_options() {
        for (text, expected) in [
            ("xargs rm", Some(1)),
            ("xargs -0 -n1 -P 4 rm", Some(5)),
            ("xargs -I{} tail -n 5 logs/{}", Some(2)),
            ("xargs -I % sh", Some(3)),
            ("xargs -0I% rm", Some(2)),
            ("xargs --max-args 3 rm", Some(3)),
            ("xargs --max-args=3 -r -- rm", Some(4)),
            ("xargs -0", None),
        ] {
            let argv: Vec<String> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(xargs_command(&argv), expected, "{text}");
        }
    }

    #[test]
    fn fd_options_are_read_like_fd_reads_them() {
        assert_eq!(fd_exec("-x"), FdExec::Next);
        assert_eq!(fd_exec("-Hx"), FdExec::Next);
        assert_eq!(fd_exec("-xrm"), FdExec::Attached("rm"));
        assert_eq!(fd_exec("--exec-batch=rm"), FdExec::Attached("rm"));
        assert_eq!(fd_exec("-tx"), FdExec::No);
        assert_eq!(fd_exec("-e"), FdExec::No);
    }
}
