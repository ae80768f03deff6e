//! Finds where the command of an opaque program begins, for programs whose options are all known.
//!
//! The judge trusts none of this: an opaque program stays opaque. An approver can allow `sudo
//! apt-get install x` once, because the request contains every word of what starts, and the binding
//! then holds that command as well.

use crate::names::program_name;

/// What an opaque program starts, by its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedCommand {
    /// It only lists or describes something.
    Nothing,
    /// It starts the command from this index to the end, in the same directory.
    At(usize),
}

/// How a program reads the words before its command. If an option is not listed, the command cannot
/// be seen.
struct StarterProgram {
    names: &'static [&'static str],
    /// The possible first words, if the program has subcommands.
    subcommands: &'static [&'static str],
    /// Options without a value. Single letters may be combined.
    flags: &'static [&'static str],
    /// Options with a value: in the next word, after `=`, or attached to a letter.
    values: &'static [&'static str],
    /// How many words before the command are not options.
    operands: usize,
    /// Variables that may be set for the command.
    variables: &'static [&'static str],
    /// Whether no long option names a program, and all of them have their value after `=`.
    any_long: bool,
    /// Calls that start nothing.
    lists: &'static [&'static [&'static str]],
}

const STARTER: StarterProgram = StarterProgram {
    names: &[],
    subcommands: &[],
    flags: &[],
    values: &[],
    operands: 0,
    variables: &[],
    any_long: false,
    lists: &[],
};

const STARTERS: &[StarterProgram] = &[
    // Not listed: `-i` and `-s`, which start a shell, and `-e`, which starts an editor.
    StarterProgram {
        names: &["sudo"],
        flags: &[
            "-n",
            "-E",
            "-H",
            "-S",
            "--non-interactive",
            "--preserve-env",
            "--set-home",
            "--stdin",
        ],
        values: &["-u", "-g", "--user", "--group", "--preserve-env"],
        variables: &["DEBIAN_FRONTEND"],
        lists: &[&["-l"], &["-v"], &["-V"], &["-k"]],
        ..STARTER
    },
    StarterProgram {
        names: &["doas"],
        flags: &["-n"],
        values: &["-u"],
        ..STARTER
    },
    StarterProgram {
        names: &["setsid"],
        flags: &["-c", "-f", "-w", "--ctty", "--fork", "--wait"],
        ..STARTER
    },
    // `-c` only says how the operand is written.
    StarterProgram {
        names: &["taskset"],
        flags: &["-a", "-c", "--all-tasks", "--cpu-list"],
        operands: 1,
        ..STARTER
    },
    StarterProgram {
        names: &["ionice"],
        flags: &["-t", "--ignore"],
        values: &["-c", "-n", "--class", "--classdata"],
        ..STARTER
    },
    StarterProgram {
        names: &["chrt"],
        flags: &[
            "-b", "-f", "-i", "-o", "-r", "--batch", "--fifo", "--idle", "--other", "--rr",
        ],
        operands: 1,
        ..STARTER
    },
    // Not listed: `-p`, which watches another process, and `-E`, which sets any variable.
    StarterProgram {
        names: &["strace"],
        flags: &[
            "-f", "-ff", "-c", "-C", "-i", "-k", "-n", "-q", "-qq", "-r", "-t", "-tt", "-ttt",
            "-T", "-v", "-x", "-xx", "-y", "-yy",
        ],
        values: &["-a", "-b", "-e", "-o", "-O", "-P", "-s", "-S", "-X"],
        ..STARTER
    },
    StarterProgram {
        names: &["valgrind"],
        flags: &["-d", "-q", "-v"],
        any_long: true,
        ..STARTER
    },
    StarterProgram {
        names: &["perf"],
        subcommands: &["record", "stat"],
        flags: &["-a", "-B", "-d", "-g", "-s", "-v", "--no-inherit"],
        values: &[
            "-c",
            "-e",
            "-F",
            "-o",
            "-r",
            "-x",
            "--call-graph",
            "--event",
            "--freq",
            "--output",
            "--repeat",
        ],
        ..STARTER
    },
    StarterProgram {
        names: &["xvfb-run"],
        flags: &["-a", "--auto-servernum"],
        values: &["-n", "-s", "--server-num", "--server-args"],
        ..STARTER
    },
    StarterProgram {
        names: &["unbuffer"],
        flags: &["-p"],
        ..STARTER
    },
    StarterProgram {
        names: &["faketime"],
        operands: 1,
        ..STARTER
    },
    StarterProgram {
        names: &[
            "catchsegv",
            "chronic",
            "dbus-run-session",
            "eatmydata",
            "fakeroot",
            "nocache",
        ],
        ..STARTER
    },
    StarterProgram {
        names: &["crontab"],
        operands: usize::MAX,
        lists: &[&["-l"]],
        ..STARTER
    },
    StarterProgram {
        names: &["tmux"],
        operands: usize::MAX,
        lists: &[&["ls"], &["list-sessions"], &["list-windows"], &["-V"]],
        ..STARTER
    },
    StarterProgram {
        names: &["screen"],
        operands: usize::MAX,
        lists: &[&["-ls"], &["-list"]],
        ..STARTER
    },
];

/// Returns `None` if it is unknown what the program starts.
pub fn started_command(argv: &[String]) -> Option<StartedCommand> {
    let name = program_name(argv.first()?);
    let words: Vec<&str> = argv[1..].iter().map(String::as_str).collect();
    let row = STARTERS.iter().find(|row| row.names.contains(&&*name))?;
    if row.lists.contains(&words.as_slice()) || matches!(words.as_slice(), ["--version" | "--help"])
    {
        return Some(StartedCommand::Nothing);
    }
    let skipped = if row.subcommands.is_empty() {
        0
    } else {
        row.subcommands.contains(words.first()?).then_some(1)?
    };
    // The index counts the program and the skipped words.
    let at = skipped + row.command(&words[skipped..])?;
    Some(StartedCommand::At(at + 1))
}

impl StarterProgram {
    /// Returns where the command begins among the words.
    fn command(&self, words: &[&str]) -> Option<usize> {
        let mut index = 0;
        let mut operands = self.operands;
        let mut takes_options = true;
        loop {
            let word = *words.get(index)?;
            if takes_options && word == "--" {
                takes_options = false;
                index += 1;
            } else if takes_options && word.len() > 1 && word.starts_with('-') {
                index += self.option(word, words.get(index + 1).copied())?;
            } else if operands > 0 {
                operands -= 1;
                // The first operand ends the options. The command follows.
                takes_options = false;
                index += 1;
            } else if self.sets_variable(word) {
                index += 1;
            } else {
                return (!word.is_empty() && !word.contains('=')).then_some(index);
            }
        }
    }

    fn sets_variable(&self, word: &str) -> bool {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| self.variables.contains(&name))
    }

    /// Returns how many words an option takes.
    fn option(&self, word: &str, next: Option<&str>) -> Option<usize> {
        if self.flags.contains(&word) {
            return Some(1);
        }
        // With such a value, `strace -o` sends its output to a program.
        let is_harmless = |value: &str| !value.starts_with(['|', '!']);
        if self.values.contains(&word) {
            return next.filter(|value| is_harmless(value)).map(|_| 2);
        }
        if word.starts_with("--") {
            let name = word.split_once('=').map_or(word, |(name, _)| name);
            let is_known = name != word && self.values.contains(&name);
            let is_any = self.any_long && !name.contains("command") && !name.contains("prefix");
            return (is_known || is_any).then_some(1);
        }
        let letter = word.get(..2)?;
        if self.values.contains(&letter) {
            return is_harmless(&word[2..]).then_some(1);
        }
        let all = word[1..].chars();
        let mut all = all.map(|letter| format!("-{letter}"));
        all.all(|flag| self.flags.contains(&flag.as_str()))
            .then_some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<StartedCommand> {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        started_command(&argv)
    }

    #[test]
    fn the_command_begins_behind_options_that_are_known() {
        for (line, index) in [
            ("sudo apt-get install x", 1),
            ("sudo -nE -u www -- ls -l", 5),
            (
                "/usr/bin/sudo --user=www DEBIAN_FRONTEND=x apt-get update",
                3,
            ),
            ("setsid -w ls", 2),
            ("taskset -c 0,1 ./bench -x", 3),
            ("ionice -c3 ls", 2),
            ("ionice -c 3 ls", 3),
            ("strace -f -e trace=open -o log ls -p 1", 6),
            ("strace -ff -s200 ls", 3),
            ("valgrind --leak-check=full -q ./bench --x", 3),
            ("perf stat -e cycles -r 3 ./bench", 6),
            ("xvfb-run -a npm test", 2),
            ("faketime yesterday date -s x", 2),
            ("fakeroot -- make", 2),
        ] {
            assert_eq!(read(line), Some(StartedCommand::At(index)), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_seen_in_full_is_not_known() {
        for line in [
            "sudo",
            "sudo -i",
            "sudo -s ls",
            "sudo -e /etc/x",
            "sudo -Unknown ls",
            "sudo LD_PRELOAD=/tmp/x ls",
            "sudo --preserve-env",
            "su -c ls",
            "setsid",
            "taskset -p 1",
            "taskset 1",
            "strace -p 1",
            "strace -E A=b ls",
            "strace -o |sh ls",
            "strace -o|sh ls",
            "strace -fo|sh ls",
            "valgrind --db-command=x ls",
            "perf script x",
            "perf record -p 1",
            "faketime -f x date",
            "fakeroot -l x make",
            "crontab file",
            "crontab -e",
            "tmux new ls",
            "screen -dm ls",
            "watch ls",
            "busybox ls",
            "ls",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn lists_start_nothing() {
        for line in ["crontab -l", "tmux ls", "sudo -l", "strace --version"] {
            assert_eq!(read(line), Some(StartedCommand::Nothing), "{line}");
        }
    }

    #[test]
    fn every_starter_is_opaque() {
        for name in STARTERS.iter().flat_map(|row| row.names) {
            assert!(crate::opaque_reason(name).is_some(), "{name}");
        }
    }
}
