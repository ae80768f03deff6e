//! Words with a meaning to a shell: the reserved words, the builtins, and the few builtins that
//! Interlock implements itself.

/// The meaning of a command word to a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellWord {
    /// Grammar (`if`, `{`), but only if the word is unquoted.
    Reserved,
    /// A builtin that changes the shell itself or runs in it. No program can replace it.
    Builtin,
    /// A builtin that Interlock implements itself. It needs no entry.
    Implemented,
    /// A program, even if a shell has a builtin of that name (`echo`, `printf`, `kill`).
    Program,
}

/// The reserved words, without `time`, which the lexer handles where it is a keyword.
const RESERVED: &[&str] = &[
    "!",
    "[[",
    "]]",
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "esac",
    "fi",
    "for",
    "foreach",
    "function",
    "if",
    "in",
    "nocorrect",
    "noglob",
    "repeat",
    "select",
    "then",
    "time",
    "until",
    "while",
    "{",
    "}",
];

/// Builtins of bash, dash, ksh and zsh, without Interlock's own and without those that every system
/// also has as a program (`echo`, `printf`, `kill`).
const BUILTINS: &[&str] = &[
    "-",
    ".",
    "alias",
    "autoload",
    "bg",
    "bind",
    "bindkey",
    "break",
    "builtin",
    "bye",
    "caller",
    "chdir",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "declare",
    "dirs",
    "disable",
    "disown",
    "echotc",
    "echoti",
    "emulate",
    "enable",
    "eval",
    "exec",
    "exit",
    "export",
    "fc",
    "fg",
    "float",
    "functions",
    "getln",
    "getopts",
    "hash",
    "help",
    "history",
    "integer",
    "jobs",
    "let",
    "limit",
    "local",
    "logout",
    "mapfile",
    "popd",
    "print",
    "pushd",
    "pushln",
    "read",
    "readarray",
    "readonly",
    "rehash",
    "return",
    "sched",
    "set",
    "setopt",
    "shift",
    "shopt",
    "source",
    "suspend",
    "times",
    "trap",
    "ttyctl",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unfunction",
    "unhash",
    "unlimit",
    "unset",
    "unsetopt",
    "vared",
    "wait",
    "whence",
    "where",
    "which-command",
    "zcompile",
    "zformat",
    "zle",
    "zmodload",
    "zparseopts",
    "zregexparse",
    "zstat",
    "zstyle",
];

pub fn shell_word(word: &str) -> ShellWord {
    if Builtin::named(word).is_some() {
        ShellWord::Implemented
    } else if RESERVED.contains(&word) {
        ShellWord::Reserved
    } else if BUILTINS.binary_search(&word).is_ok() || word.starts_with('%') {
        // `%1`, and every other name with this prefix, means `fg %1` to bash and zsh.
        ShellWord::Builtin
    } else {
        ShellWord::Program
    }
}

/// The builtins that Interlock implements itself. They touch only the working directory and file
/// metadata, and need no allowlist entry in shell text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    Cd,
    Colon,
    True,
    False,
    Pwd,
    Test,
    Bracket,
}

impl Builtin {
    pub fn named(word: &str) -> Option<Self> {
        Some(match word {
            "cd" => Self::Cd,
            ":" => Self::Colon,
            "true" => Self::True,
            "false" => Self::False,
            "pwd" => Self::Pwd,
            "test" => Self::Test,
            "[" => Self::Bracket,
            _ => return None,
        })
    }

    /// Whether Interlock's implementation understands these arguments. Options that only a shell's
    /// own builtin has are refused, with the reason.
    pub fn accepts(self, arguments: &[impl AsRef<str>]) -> Result<(), &'static str> {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        match self {
            Self::Colon | Self::True | Self::False => Ok(()),
            Self::Pwd => match arguments.as_slice() {
                [] | ["-L" | "-P"] => Ok(()),
                _ => Err("`pwd` takes at most `-L` or `-P`"),
            },
            Self::Cd => match arguments.as_slice() {
                [directory] | ["--", directory]
                    if !directory.is_empty() && !directory.starts_with('-') =>
                {
                    Ok(())
                }
                _ => Err("`cd` takes one literal directory"),
            },
            Self::Test => test_expression(&arguments),
            Self::Bracket => match arguments.split_last() {
                Some((&"]", expression)) => test_expression(expression),
                _ => Err("`[` wants a closing `]`"),
            },
        }
    }
}

/// Accepts the POSIX forms of up to four arguments, which every implementation reads the same way.
fn test_expression(arguments: &[&str]) -> Result<(), &'static str> {
    const UNARY: &[&str] = &[
        "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-L", "-n", "-p", "-r", "-S", "-s", "-t",
        "-u", "-w", "-x", "-z", "-G", "-O",
    ];
    const BINARY: &[&str] = &[
        "=", "==", "!=", "-eq", "-ne", "-gt", "-ge", "-lt", "-le", "-nt", "-ot", "-ef",
    ];
    let fits = match arguments {
        [] | [_] | ["!", _] => true,
        [_, operator, _] if BINARY.contains(operator) => true,
        [operator, _] | ["!", operator, _] => UNARY.contains(operator),
        ["!", _, operator, _] => BINARY.contains(operator),
        _ => false,
    };
    if fits {
        Ok(())
    } else {
        Err("only the POSIX forms of `test` with one condition are understood")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_table_is_sorted() {
        assert!(BUILTINS.is_sorted());
    }

    #[test]
    fn programs_that_shadow_builtins_stay_programs() {
        for name in ["echo", "printf", "kill", "ls"] {
            assert_eq!(shell_word(name), ShellWord::Program, "{name}");
        }
    }

    #[test]
    fn only_portable_conditions_are_understood() {
        let accepts = |words: &[&str]| Builtin::Test.accepts(words).is_ok();
        assert!(accepts(&["-d", "/tmp"]));
        assert!(accepts(&["a", "=", "b"]));
        assert!(accepts(&["!", "-f", "x"]));
        assert!(!accepts(&["-v", "NAME"]));
        assert!(!accepts(&["a", "-a", "b"]));
        assert!(!accepts(&["(", "a", ")"]));
        assert!(Builtin::Bracket.accepts(&["-d", "/tmp", "]"]).is_ok());
        assert!(Builtin::Bracket.accepts(&["-d", "/tmp"]).is_err());
    }
}
