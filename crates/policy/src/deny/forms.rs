//! Other spellings of a command line that a deny rule also matches: options before the subcommand,
//! and flags in other orders, clusters and long forms. They only tighten: no entry that allows uses
//! this module.

use crate::arguments::argument_matches;

/// A program whose subcommand may follow options.
struct SubcommandProgram {
    names: &'static [&'static str],
    /// Options that take the next word.
    values: &'static [&'static str],
    /// Options that take no word. Any other option may or may not take the next word, so both
    /// readings are compared.
    switches: &'static [&'static str],
}

/// Programs whose first operand is a subcommand.
const SUBCOMMAND_PROGRAMS: &[SubcommandProgram] = &[
    SubcommandProgram {
        names: &["git"],
        values: &[
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--super-prefix",
            "--config-env",
            "--attr-source",
        ],
        switches: &[
            "-p",
            "-P",
            "-v",
            "-h",
            "--paginate",
            "--no-pager",
            "--bare",
            "--no-replace-objects",
            "--literal-pathspecs",
            "--glob-pathspecs",
            "--noglob-pathspecs",
            "--icase-pathspecs",
            "--no-optional-locks",
            "--no-lazy-fetch",
            "--no-advice",
            "--exec-path",
        ],
    },
    SubcommandProgram {
        names: &["docker", "podman", "nerdctl"],
        values: &[
            "-H",
            "-c",
            "-l",
            "--host",
            "--context",
            "--config",
            "--log-level",
            "--tlscacert",
            "--tlscert",
            "--tlskey",
            "--url",
            "--root",
        ],
        switches: &["-D", "--debug", "--tls", "--tlsverify", "--remote"],
    },
    SubcommandProgram {
        names: &["kubectl", "helm", "oc"],
        values: &[
            "-n",
            "-s",
            "--namespace",
            "--context",
            "--cluster",
            "--kubeconfig",
            "--server",
            "--user",
            "--as",
            "--token",
        ],
        switches: &["--insecure-skip-tls-verify", "--debug"],
    },
    SubcommandProgram {
        names: &["cargo"],
        values: &["-C", "-Z", "--config", "--color"],
        switches: &[
            "-v",
            "-q",
            "--verbose",
            "--quiet",
            "--locked",
            "--offline",
            "--frozen",
        ],
    },
    SubcommandProgram {
        names: &["npm", "pnpm", "yarn"],
        values: &[
            "-C",
            "--prefix",
            "--dir",
            "--cwd",
            "--registry",
            "--userconfig",
        ],
        switches: &["-g", "--global", "-s", "--silent", "--workspaces"],
    },
    SubcommandProgram {
        names: &["systemctl", "journalctl", "loginctl"],
        values: &[
            "-H",
            "-M",
            "-t",
            "--host",
            "--machine",
            "--type",
            "--root",
            "--state",
        ],
        switches: &[
            "--user",
            "--system",
            "--now",
            "-q",
            "--quiet",
            "--no-pager",
            "-f",
            "--force",
        ],
    },
    SubcommandProgram {
        names: &["apt", "apt-get", "dnf", "yum", "zypper"],
        values: &["-o", "-c", "-t"],
        switches: &["-y", "-q", "-qq", "--yes", "--assume-yes", "--quiet"],
    },
    SubcommandProgram {
        names: &[
            "terraform",
            "tofu",
            "gh",
            "glab",
            "aws",
            "gcloud",
            "az",
            "pip",
            "pip3",
            "poetry",
            "uv",
            "brew",
            "svn",
            "hg",
            "ip",
        ],
        values: &[],
        switches: &[],
    },
];

/// A program whose flags have other spellings.
struct FlagProgram {
    names: &'static [&'static str],
    /// Long options and capital letters, with the letters that they are equal to.
    same: &'static [(&'static str, &'static str)],
}

const FLAG_PROGRAMS: &[FlagProgram] = &[
    FlagProgram {
        names: &["rm"],
        same: &[
            ("--recursive", "r"),
            ("-R", "r"),
            ("--force", "f"),
            ("--dir", "d"),
            ("--verbose", "v"),
            ("--interactive", "i"),
        ],
    },
    FlagProgram {
        names: &["chmod", "chown", "chgrp"],
        same: &[
            ("--recursive", "R"),
            ("--verbose", "v"),
            ("--changes", "c"),
            ("--silent", "f"),
            ("--quiet", "f"),
        ],
    },
    FlagProgram {
        names: &["cp", "mv", "ln"],
        same: &[
            ("--recursive", "r"),
            ("-R", "r"),
            ("--archive", "a"),
            ("--force", "f"),
            ("--no-clobber", "n"),
            ("--symbolic", "s"),
            ("--verbose", "v"),
        ],
    },
    FlagProgram {
        names: &["git"],
        same: &[
            ("--force", "f"),
            ("--delete", "d"),
            ("-D", "df"),
            ("--quiet", "q"),
            ("--verbose", "v"),
        ],
    },
];

/// The most spellings that are compared for one command. An honest line has one or two.
const MAX_FORMS: usize = 16;

/// The spellings of the arguments of one command that a deny rule is compared with.
#[derive(Debug)]
pub(super) struct Spellings<'a> {
    /// As written, and without the options before the subcommand.
    pub lines: Vec<&'a [String]>,
    /// Whether there are more than are compared. A rule about the program must then count as one
    /// that may match: otherwise more options would lead past it.
    pub has_more: bool,
}

/// Returns the arguments as written and, for programs with subcommands, without the options before
/// the subcommand. If an option may or may not take the next word, both readings are followed.
pub(super) fn spellings<'a>(names: &[String], arguments: &'a [String]) -> Spellings<'a> {
    let mut found = Spellings {
        lines: vec![arguments],
        has_more: false,
    };
    let is_one = |program: &&SubcommandProgram| {
        names
            .iter()
            .any(|name| program.names.contains(&name.as_str()))
    };
    let Some(program) = SUBCOMMAND_PROGRAMS.iter().find(is_one) else {
        return found;
    };
    let mut starts = vec![0];
    let mut seen = vec![false; arguments.len() + 1];
    while let Some(start) = starts.pop() {
        let Some(word) = arguments.get(start) else {
            continue;
        };
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        if !word.starts_with(['-', '+']) || word == "-" {
            found.has_more |= found.lines.len() > MAX_FORMS;
            if start > 0 && !found.has_more {
                found.lines.push(&arguments[start..]);
            }
            continue;
        }
        let takes_next = program.values.contains(&word.as_str());
        let takes_none = program.switches.contains(&word.as_str())
            || word.contains('=')
            || word.starts_with('+');
        if !takes_next {
            starts.push(start + 1);
        }
        if !takes_none {
            starts.push(start + 2);
        }
    }
    found
}

/// Whether a list of patterns matches these arguments if flags are compared by their meaning and
/// not by their position and spelling. Each flag of the patterns must be present, and the other
/// patterns must match the other arguments.
pub(super) fn means_flags(names: &[String], patterns: &[String], arguments: &[String]) -> bool {
    let is_one = |program: &&FlagProgram| {
        names
            .iter()
            .any(|name| program.names.contains(&name.as_str()))
    };
    let Some(program) = FLAG_PROGRAMS.iter().find(is_one) else {
        return false;
    };
    let (wanted, operands) = program.split(patterns);
    if wanted.is_empty() {
        return false;
    }
    let (given, rest) = program.split(arguments);
    let is_given = |flag: &Flag| {
        given.iter().any(|other| match (flag, other) {
            (Flag::Letter(one), Flag::Letter(other)) => one == other,
            (Flag::Word(pattern), Flag::Word(word)) => argument_matches(pattern, word),
            _ => false,
        })
    };
    wanted.iter().all(is_given) && crate::arguments::list_matches(&operands, &rest)
}

#[derive(Debug, PartialEq, Eq)]
enum Flag {
    Letter(char),
    /// A long option without an equal letter.
    Word(String),
}

impl FlagProgram {
    /// Splits a line into its flags and the remaining words, in order.
    fn split(&self, words: &[String]) -> (Vec<Flag>, Vec<String>) {
        let (mut flags, mut rest) = (Vec::new(), Vec::new());
        let mut is_over = false;
        for word in words {
            if is_over || !word.starts_with('-') || word == "-" {
                rest.push(word.clone());
            } else if word == "--" {
                is_over = true;
            } else if let Some(long) = word.strip_prefix("--") {
                flags.extend(self.long(long));
            } else {
                for letter in word.chars().skip(1) {
                    flags.extend(self.letters(&format!("-{letter}"), letter));
                }
            }
        }
        (flags, rest)
    }

    /// Returns the meaning of a long option, which may be abbreviated.
    fn long(&self, name: &str) -> Vec<Flag> {
        let full = format!("--{name}");
        let begins = |(long, _): &&(&str, &str)| !name.is_empty() && long.starts_with(&full);
        let letters: Vec<Flag> = self
            .same
            .iter()
            .filter(begins)
            .flat_map(|(_, letters)| letters.chars().map(Flag::Letter))
            .collect();
        if letters.is_empty() {
            return vec![Flag::Word(full)];
        }
        letters
    }

    fn letters(&self, written: &str, letter: char) -> Vec<Flag> {
        let same = self.same.iter().find(|(one, _)| *one == written);
        match same {
            Some((_, letters)) => letters.chars().map(Flag::Letter).collect(),
            None => vec![Flag::Letter(letter)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_in_front_of_a_subcommand_are_passed_over() {
        for (program, line, has) in [
            ("git", "-C . push", true),
            ("git", "-c a=b -C /x --no-pager push origin", true),
            ("git", "--git-dir=x push", true),
            ("git", "--git-dir x --work-tree y push", true),
            ("git", "--unknown x push", true),
            ("git", "--unknown push", true),
            ("git", "-p stash push", false),
            ("git", "stash push", false),
            ("docker", "-H tcp://x push", true),
            ("cargo", "+nightly push", true),
            ("ls", "-C . push", false),
        ] {
            let line = words(line);
            let forms = spellings(&[program.to_owned()], &line);
            let is_there = forms.lines.iter().any(|form| form[0] == "push");
            assert_eq!(is_there, has, "{program} {line:?}: {forms:?}");
            assert!(!forms.has_more, "{program} {line:?}");
        }
    }

    #[test]
    fn no_number_of_words_leads_past_a_rule() {
        let git = ["git".to_owned()];
        let many = format!("{}push --force", "-c a=b ".repeat(2_000));
        let many = words(&many);
        let forms = spellings(&git, &many);
        assert!(forms.lines.iter().any(|form| form[0] == "push"));
        // Each of these options may take the next word, so that there are too many readings.
        let odd = words(&format!("{}push", "--odd x ".repeat(MAX_FORMS + 1)));
        assert!(spellings(&git, &odd).has_more);
        let rm = ["rm".to_owned()];
        let files = words(&format!("-r -f {}", "file ".repeat(2_000)));
        assert!(means_flags(&rm, &words("-rf **"), &files));
    }

    #[test]
    fn flags_count_by_what_they_say() {
        for (program, patterns, line, expected) in [
            ("rm", "-rf **", "-fr /x", true),
            ("rm", "-rf **", "-r -f /x", true),
            ("rm", "-rf **", "--recursive --force /x", true),
            ("rm", "-rf **", "--recurs -vf /x", true),
            ("rm", "-rf **", "/x -Rf", true),
            ("rm", "-rf **", "-r /x", false),
            ("rm", "-rf **", "-- -rf", false),
            ("rm", "-rf /", "-fr /", true),
            ("rm", "-rf /", "-fr /x", false),
            ("git", "push --force **", "push -f origin", true),
            ("git", "push -f **", "push origin --force", true),
            ("git", "push -f **", "push origin", false),
            ("git", "branch -D **", "branch --delete --force x", true),
            ("ls", "-rf **", "-fr", false),
        ] {
            let found = means_flags(&[program.to_owned()], &words(patterns), &words(line));
            assert_eq!(found, expected, "{program} {patterns} / {line}");
        }
    }
}
