//! Every command that can be seen anywhere in a request: as written, behind each wrapper, inside
//! each text. For deny rules and inline code, which only tighten; trust never comes from here.

use super::{Analysis, Root, Shape, Source};
use crate::Argv;
use crate::describe::{Budget, DYNAMIC, describe_within};
use crate::shell::{Multiplexer, ShellCall};
use crate::wrappers::{Dispatch, Inner};
use crate::{dispatch, lex, multiplexer, names, opaque_reason, shell_call};

/// More layers than this are not followed. A look is over, and not all was seen, when any of these
/// is reached: no request may keep the judge busy.
const MAX_SEEN: usize = 512;
const MAX_DEPTH: usize = 16;
/// Words of commands within commands; a long argv counts once for each layer.
const MAX_NESTED_WORDS: usize = 64 * 1024;
/// Texts that are parsed in full.
const MAX_DESCRIBED: usize = 8;

/// One command that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// [`DYNAMIC`] stands for a word that only the shell will know.
    pub argv: Argv,
    /// `None` when the text may have changed the directory before.
    pub cwd: Option<String>,
}

/// What was seen, and whether that is all.
#[derive(Debug, Clone, Default)]
pub struct Sight {
    pub commands: Vec<Seen>,
    pub unseen: Option<&'static str>,
}

impl Analysis {
    /// Looks through every layer. Costly for odd text (it is parsed in full), so only called
    /// where somebody needs it.
    pub fn sight(&self) -> Sight {
        let mut looker = Looker::default();
        match (&self.shape, &self.source) {
            (Shape::Odd(odd), Source::Text(text)) if !odd.reason.is_of_expansion() => {
                looker.odd_text(text, 0);
            }
            (Shape::Odd(_), Source::Text(text)) => looker.text(text, Some(&self.cwd), 0),
            _ => {
                for Root { argv, cwd } in &self.roots {
                    looker.argv(argv.clone(), Some(cwd), 0);
                }
            }
        }
        looker.sight
    }
}

#[derive(Default)]
struct Looker {
    sight: Sight,
    nested_words: usize,
    described: usize,
    budget: Budget,
    over: bool,
}

impl Looker {
    fn unseen(&mut self, reason: &'static str) {
        self.sight.unseen.get_or_insert(reason);
    }

    fn give_up(&mut self) {
        self.over = true;
        self.unseen("commands are nested too deeply");
    }

    fn text(&mut self, text: &str, cwd: Option<&str>, depth: usize) {
        if depth > MAX_DEPTH {
            return self.give_up();
        }
        if let Ok(line) = lex(text) {
            // A `cd` inside moves what follows: relative names are then not resolved.
            let moved = line.segments().any(|segment| segment.name() == "cd");
            let cwd = if moved { None } else { cwd };
            for segment in line.segments() {
                let word = |word: &crate::Word| {
                    if word.glob.is_some() {
                        DYNAMIC.to_owned()
                    } else {
                        word.text.clone()
                    }
                };
                let argv: Vec<String> = segment.words.iter().map(word).collect();
                self.argv(argv.into(), cwd, depth + 1);
            }
            return;
        }
        self.odd_text(text, depth);
    }

    /// A text that the strict lexer refuses.
    fn odd_text(&mut self, text: &str, depth: usize) {
        self.described += 1;
        if self.described > MAX_DESCRIBED {
            return self.give_up();
        }
        let description = describe_within(text, &mut self.budget);
        if let Some(reason) = description.unseen {
            self.unseen(reason);
        }
        for command in description.commands {
            self.argv(command.into(), None, depth + 1);
        }
    }

    /// Notes the command, then what it would start.
    fn argv(&mut self, argv: Argv, cwd: Option<&str>, depth: usize) {
        if argv.is_empty() || self.over {
            return;
        }
        if depth > 0 {
            self.nested_words += argv.len();
        }
        if depth > MAX_DEPTH
            || self.sight.commands.len() >= MAX_SEEN
            || self.nested_words > MAX_NESTED_WORDS
        {
            return self.give_up();
        }
        self.follow(&argv, cwd, depth);
        self.sight.commands.push(Seen {
            argv,
            cwd: cwd.map(str::to_owned),
        });
    }

    fn follow(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        if argv[0] == DYNAMIC {
            return self.unseen("a command name is only known when it runs");
        }
        match shell_call(argv) {
            ShellCall::Text { index, .. }
            | ShellCall::Closed {
                text: Some(index), ..
            } => {
                let text = &argv[index];
                if text.contains(DYNAMIC) {
                    return self.unseen("a text is only known when it runs");
                }
                return self.text(text, cwd, depth + 1);
            }
            ShellCall::Closed { reason, .. } => return self.unseen(reason),
            ShellCall::File { index } => return self.argv(argv.tail(index), cwd, depth + 1),
            ShellCall::NotShell => {}
        }
        if multiplexer(argv) == Multiplexer::Shell {
            return self.argv(argv.tail(1), cwd, depth + 1);
        }
        if let Dispatch::Unwrapped { inner, .. } = dispatch(argv) {
            let inner = match inner {
                Inner::At(index) => argv.tail(index),
                Inner::Split(words) => words.into(),
            };
            return self.argv(inner, cwd, depth + 1);
        }
        match names::program_name(&argv[0]).as_str() {
            // Runs nothing: it only says where a command is.
            "command" if matches!(argv.get(1).map(String::as_str), Some("-v" | "-V")) => {}
            "command" | "builtin" | "exec" | "busybox" | "toybox" | "noglob" | "coproc" => {
                self.candidates(argv, cwd, depth);
            }
            "find" | "fd" | "fdfind" => self.find(argv, cwd, depth),
            _ if opaque_reason(&argv[0]).is_some() || crate::is_dispatch_wrapper(&argv[0]) => {
                self.candidates(argv, cwd, depth);
            }
            _ => {}
        }
    }

    /// Where a program of which we do not know the options may begin its command: at the first
    /// word that is no option; and if that one may have been the value of an option, at the next.
    fn candidates(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        let mut behind_option = false;
        for (index, word) in argv.iter().enumerate().skip(1) {
            if self.over {
                return;
            }
            if word == DYNAMIC {
                return self.unseen("a command name is only known when it runs");
            }
            if word.starts_with('-') {
                behind_option = true;
                continue;
            }
            if word.contains('=') {
                // `sudo A=1 cmd`
                continue;
            }
            // Some take a whole command in one word (`watch 'rm x'`, `tmux new 'rm x'`).
            if word.contains(char::is_whitespace) {
                self.text(word, None, depth + 1);
            }
            self.argv(argv.tail(index), cwd, depth + 1);
            if !behind_option {
                return;
            }
            behind_option = false;
        }
    }

    fn find(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        for (index, word) in argv.iter().enumerate() {
            let starts = matches!(
                word.as_str(),
                "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch"
            );
            if self.over {
                return;
            }
            if !starts {
                continue;
            }
            let rest = argv.tail(index + 1);
            let end = rest.iter().position(|word| word == ";" || word == "+");
            let command = match end {
                Some(end) => rest[..end].to_vec().into(),
                None => rest,
            };
            // `-execdir` runs in the directory of each file.
            let cwd = if word.ends_with("dir") { None } else { cwd };
            self.argv(command, cwd, depth + 1);
        }
    }
}
