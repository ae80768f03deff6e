//! Finds every command that can be seen anywhere in a request: as written, behind each wrapper, and
//! inside each text. Deny rules and the search for inline code use this. They only tighten; trust
//! never comes from here.

use interlock_programs::inline::{CarriedBuiltin, HitKind, carried_builtin, detect};
use interlock_programs::{
    DYNAMIC, Dispatch, Inner, Multiplexer, ShellCall, dispatch, env_wrapper, has_own_language,
    is_dispatch_wrapper, multiplexer, names, opaque_reason, reads_only_stdin, shell_call,
};

use super::carried::{self, FdExec};
use super::git_carried::{self, GitCarried};
use super::{Analysis, Root, Shape, Source};
use crate::Argv;
use crate::describe::{Budget, describe_within};
use crate::lex;

/// The limits of the search. If one of them is reached, the search stops and reports that not
/// everything was seen, so that no request can keep the judge busy.
const MAX_SEEN: usize = 512;
const MAX_DEPTH: usize = 16;
/// The most words of commands within commands. A long argv counts once for each layer.
const MAX_NESTED_WORDS: usize = 64 * 1024;
/// The most texts that are parsed in full.
const MAX_DESCRIBED: usize = 8;

/// One command that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenCommand {
    /// The words. [`DYNAMIC`] stands for a word that only the shell will know.
    pub argv: Argv,
    /// `None` if the text may have changed the directory before.
    pub cwd: Option<String>,
    /// Whether this is a file that a shell reads, and not a command by itself.
    pub is_operand: bool,
    /// Whether this is a `cd` before everything else of its text. [`Sight::leads_to`] is its
    /// target.
    pub is_leading_cd: bool,
    /// Whether more words are appended when the command runs.
    pub takes_more: bool,
    /// The text of a here-document on standard input, if every word of the text is known.
    pub stdin: Option<String>,
}

/// The commands that were seen, and whether these are all.
#[derive(Debug, Clone, Default)]
pub struct Sight {
    pub commands: Vec<SeenCommand>,
    /// Why not every command was seen.
    pub unseen: Option<&'static str>,
    /// Like `unseen`, but ignoring commands in named files, which can be bound by their content.
    pub unbindable: Option<&'static str>,
    /// The directory to which a `cd` before everything else leads, as written.
    pub leads_to: Option<String>,
}

impl Analysis {
    /// Looks through every layer. Odd text is parsed in full, which is expensive, so callers use
    /// this only if they need it.
    pub fn sight(&self) -> Sight {
        let mut looker = Looker::default();
        match (&self.shape, &self.source) {
            (Shape::Odd(odd), Source::Text(text)) if !odd.reason.is_of_expansion() => {
                let text = looker.leading_cd(text, &self.cwd);
                looker.odd_text(text, 0);
            }
            (Shape::Odd(_), Source::Text(text)) => looker.text(text, Some(&self.cwd), 0),
            _ => {
                for Root { argv, cwd } in &self.roots {
                    looker.argv(argv.clone(), cwd.as_deref(), 0);
                }
            }
        }
        looker.sight
    }
}

/// Returns what one command would start, as `find -exec` does, without the command itself.
pub fn started_by(argv: &Argv, cwd: &str) -> Sight {
    let mut looker = Looker::default();
    looker.argv(argv.clone(), Some(cwd), 0);
    looker.sight.commands.pop();
    looker.sight
}

/// Returns a command that another program starts, and what that command would start in turn.
pub fn seen_behind(argv: Argv, cwd: &str) -> Sight {
    let mut looker = Looker::default();
    looker.argv(argv, Some(cwd), 0);
    looker.sight
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
        self.sight.unbindable.get_or_insert(reason);
    }

    /// Removes `cd DIRECTORY &&` from the front of a text. What follows runs in that directory or
    /// not at all.
    fn leading_cd<'t>(&mut self, text: &'t str, cwd: &str) -> &'t str {
        let mut rest = text;
        let mut place = cwd.to_owned();
        while let Some((front, behind)) = rest.split_once("&&") {
            let Ok(line) = lex(front) else { break };
            let mut segments = line.segments();
            let (Some(segment), None) = (segments.next(), segments.next()) else {
                break;
            };
            let is_literal = segment.words.iter().all(|word| word.glob.is_none());
            let target = match segment.words.as_slice() {
                [name, target] if name.text == "cd" && is_literal => &target.text,
                _ => break,
            };
            // Only a shell knows the target of `cd -` or `cd ~`, and a variable (CDPATH) may lead
            // elsewhere.
            let is_path = !target.is_empty() && !target.starts_with(['-', '~']);
            if !is_path || !segment.assignments.is_empty() || !segment.redirections.is_empty() {
                break;
            }
            place = if target.starts_with('/') {
                target.clone()
            } else {
                format!("{}/{target}", place.trim_end_matches('/'))
            };
            self.sight.commands.push(SeenCommand {
                argv: vec!["cd".to_owned(), target.clone()].into(),
                cwd: None,
                is_operand: false,
                is_leading_cd: true,
                takes_more: false,
                stdin: None,
            });
            self.sight.leads_to = Some(place.clone());
            rest = behind;
        }
        rest
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
            // A `cd` inside the text changes the directory, so relative names are not resolved
            // after it.
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

    /// Looks into a text that the strict lexer refuses.
    fn odd_text(&mut self, text: &str, depth: usize) {
        self.described += 1;
        if self.described > MAX_DESCRIBED {
            return self.give_up();
        }
        let description = describe_within(text, &mut self.budget);
        if let Some(reason) = description.unseen {
            self.sight.unseen.get_or_insert(reason);
        }
        if let Some(reason) = description.unbindable {
            self.unseen(reason);
        }
        let commands = description.commands.into_iter().zip(description.stdin);
        for (command, stdin) in commands {
            self.command(command.into(), None, depth + 1, stdin);
        }
    }

    /// Records the command, then what it would start.
    fn argv(&mut self, argv: Argv, cwd: Option<&str>, depth: usize) {
        self.command(argv, cwd, depth, None);
    }

    fn command(&mut self, argv: Argv, cwd: Option<&str>, depth: usize, stdin: Option<String>) {
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
        match &stdin {
            // The commands of a shell's here-document are recorded separately.
            Some(text) if reads_stdin_as_shell(&argv) => self.shell_text(text, None, depth),
            _ => self.follow(&argv, cwd, depth),
        }
        self.sight.commands.push(SeenCommand {
            argv,
            cwd: cwd.map(str::to_owned),
            is_operand: false,
            is_leading_cd: false,
            takes_more: false,
            stdin,
        });
    }

    /// Records a file that a shell reads, for rules that name the file.
    fn operand(&mut self, argv: Argv, cwd: Option<&str>, depth: usize) {
        let first = self.sight.commands.len();
        self.argv(argv, cwd, depth);
        for seen in &mut self.sight.commands[first..] {
            seen.is_operand = true;
        }
    }

    fn follow(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        // `find -exec {}` and `xargs -I{} {}` insert the names that they find or read.
        if argv[0] == DYNAMIC || argv[0].contains("{}") {
            return self.unseen("a command name is only known when it runs");
        }
        match shell_call(argv) {
            ShellCall::Text { index, .. } => return self.shell_text(&argv[index], cwd, depth),
            ShellCall::Closed {
                text: Some(text), ..
            } => {
                if has_own_language(&argv[0]) {
                    self.unseen("a text in the language of another shell");
                }
                return self.shell_text(&text, cwd, depth);
            }
            ShellCall::Closed { reason, .. } => return self.unseen(reason),
            ShellCall::File { index } => return self.shell_file(argv.tail(index), cwd, depth),
            ShellCall::NotShell => {}
        }
        if multiplexer(argv) == Multiplexer::Shell {
            return self.argv(argv.tail(1), cwd, depth + 1);
        }
        if let Dispatch::Unwrapped { inner, .. } = dispatch(argv) {
            let inner = match inner {
                Inner::At(index) => argv.tail(index),
                Inner::Split(words) => {
                    let hidden = words.iter().any(|word| word.contains("${"));
                    if hidden {
                        self.unseen("`env -S` puts in a variable");
                    }
                    // The split words may still be options and assignments of `env`.
                    [vec!["env".to_owned()], words].concat().into()
                }
            };
            return self.argv(inner, cwd, depth + 1);
        }
        match &*names::program_name(&argv[0]) {
            // `command -v` runs nothing; it only reports where a command is.
            "command" if matches!(argv.get(1).map(String::as_str), Some("-v" | "-V")) => {}
            "command" | "builtin" | "exec" | "busybox" | "toybox" | "noglob" | "nocorrect"
            | "-" | "coproc" => {
                self.carried_builtin(argv, depth);
                self.candidates(argv, cwd, depth);
            }
            "find" => self.find(argv, cwd, depth),
            "fd" | "fdfind" => self.fd(argv, cwd, depth),
            "alias" => self.aliases(argv, depth),
            "hash" if argv.iter().any(|word| word.starts_with("-p")) => {
                self.unseen("a name is given to another program");
            }
            "mapfile" | "readarray" if argv.iter().any(|word| word.starts_with("-C")) => {
                self.unseen("a text is only known when it runs");
            }
            "enable" if argv.iter().any(|word| word.starts_with("-f")) => {
                self.unseen("a builtin is loaded from a file");
            }
            "env" if argv.len() > 1 && !env_wrapper::is_understood(argv) => {
                self.unseen("an option of `env` that is not understood");
                self.candidates(argv, cwd, depth);
            }
            "xargs" => self.xargs(argv, cwd, depth),
            name if name == "git" || name.starts_with("git-") => self.git(argv, name, depth),
            "gdb" | "lldb" => self.candidates(argv, cwd, depth),
            _ if opaque_reason(&argv[0]).is_some() || is_dispatch_wrapper(&argv[0]) => {
                self.candidates(argv, cwd, depth);
            }
            _ => self.by_runners_and_helpers(argv, cwd, depth),
        }
    }

    /// Records what a runner (`uv run`, `npx`) or an option that names a program (`tar
    /// --checkpoint-action`) starts, for rules that name it. No binding covers these, because the
    /// program itself chooses the file.
    fn by_runners_and_helpers(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        let first = self.sight.commands.len();
        let unbindable = self.sight.unbindable;
        if let Some((index, operands)) = carried::runner(argv) {
            self.candidates_behind(&argv.tail(index), operands, cwd, depth);
        } else if let Some(hit) = detect(argv).filter(|hit| hit.kind == HitKind::ProgramOption) {
            let word = argv[hit.arg_index].clone();
            let next = argv.get(hit.arg_index + 1).cloned();
            let parts = word.match_indices('=').map(|(at, _)| &word[at + 1..]);
            for text in parts.chain(next.as_deref()) {
                self.guess(text, depth);
            }
        }
        self.sight.unbindable = unbindable;
        for seen in &mut self.sight.commands[first..] {
            seen.is_operand = true;
        }
    }

    fn shell_text(&mut self, text: &str, cwd: Option<&str>, depth: usize) {
        if text.contains(DYNAMIC) {
            return self.unseen("a text is only known when it runs");
        }
        self.text(text, cwd, depth + 1);
    }

    /// Looks into `command eval TEXT`, which runs the text. What `command source FILE` runs cannot
    /// be seen.
    fn carried_builtin(&mut self, argv: &[String], depth: usize) {
        match carried_builtin(argv) {
            Some(CarriedBuiltin::Eval(text)) => self.shell_text(&text, None, depth),
            Some(CarriedBuiltin::Source(_)) => self.unseen("commands are read from a file"),
            None => {}
        }
    }

    /// Records `SHELL FILE`. A bare name means the file in the directory first, then a file in
    /// PATH.
    fn shell_file(&mut self, argv: Argv, cwd: Option<&str>, depth: usize) {
        if !argv[0].contains('/') && argv[0] != DYNAMIC {
            let mut here = argv.to_vec();
            here[0].insert_str(0, "./");
            self.operand(here.into(), cwd, depth + 1);
        }
        self.operand(argv, cwd, depth + 1);
    }

    /// Looks into the text of an alias, because a later line may use its name.
    fn aliases(&mut self, argv: &[String], depth: usize) {
        for word in &argv[1..] {
            match word.split_once('=') {
                Some((_, text)) => self.shell_text(text, None, depth),
                None if word.contains(DYNAMIC) => {
                    self.unseen("a text is only known when it runs");
                }
                None => {}
            }
        }
    }

    /// Records a word that may be a command or a whole text of commands (`watch 'rm x'`).
    fn guess(&mut self, word: &str, depth: usize) {
        if word.contains(char::is_whitespace) {
            self.text(word, None, depth + 1);
        } else {
            self.argv(vec![word.to_owned()].into(), None, depth + 1);
        }
    }

    /// Records every place where a program with unknown options may begin its command: the first
    /// word after its own operands that is not an option, and the next such word if the first may
    /// be the value of an option.
    fn candidates(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        if carried::reads_commands(argv) {
            return self.unseen("commands are read from elsewhere");
        }
        self.candidates_behind(argv, carried::leading_operands(&argv[0]), cwd, depth);
    }

    /// Like [`Self::candidates`], after the first word and this many operands.
    fn candidates_behind(
        &mut self,
        argv: &Argv,
        mut operands: usize,
        cwd: Option<&str>,
        depth: usize,
    ) {
        let mut tried = false;
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
                for value in carried::attached(word) {
                    self.guess(value, depth);
                }
                continue;
            }
            // After a command, a placeholder is an argument of the command (`parallel --bar gzip
            // {}`).
            if tried && word.contains("{}") {
                return;
            }
            tried |= !word.bytes().all(|byte| byte.is_ascii_digit());
            if word.contains('=') {
                // `sudo A=1 cmd`
                continue;
            }
            // Some programs take a whole command in one word (`watch 'rm x'`, `tmux new 'rm x'`).
            if word.contains(char::is_whitespace) {
                self.text(word, None, depth + 1);
            }
            self.argv(argv.tail(index), cwd, depth + 1);
            if !behind_option {
                if operands == 0 {
                    return;
                }
                operands -= 1;
            }
            behind_option = false;
        }
    }

    fn xargs(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        let Some(index) = carried::xargs_command(argv) else {
            return self.candidates(argv, cwd, depth);
        };
        let replaced = carried::replaced_word(&argv[..index]);
        if replaced.is_some_and(|replaced| argv[index].contains(replaced)) {
            return self.unseen("a command name is only known when it runs");
        }
        // A word that receives what is read is known only when it runs.
        let word = |word: &String| match replaced {
            Some(replaced) if word.contains(replaced) => DYNAMIC.to_owned(),
            _ => word.clone(),
        };
        let command: Vec<String> = argv[index..].iter().map(word).collect();
        let before = self.sight.commands.len();
        self.argv(command.into(), cwd, depth + 1);
        // Behind a wrapper, the inner command gets the additional words.
        for own in &mut self.sight.commands[before..] {
            own.takes_more = replaced.is_none();
        }
    }

    /// Records the commands that git carries. They run at the top of the work tree, wherever that
    /// is.
    fn git(&mut self, argv: &Argv, name: &str, depth: usize) {
        for carried in git_carried::commands(argv, name) {
            if self.over {
                return;
            }
            match carried {
                GitCarried::Words(words) => self.argv(words.into(), None, depth + 1),
                GitCarried::Text(text) => self.shell_text(&text, None, depth),
                GitCarried::Unseen => self.unseen("an alias of git is only known when it runs"),
            }
        }
    }

    fn find(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        for (index, word) in argv.iter().enumerate() {
            let starts = matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
            if starts && !self.over {
                // `-execdir` runs in the directory of each file.
                let cwd = if word.ends_with("dir") { None } else { cwd };
                let command = up_to_end(&argv.tail(index + 1));
                self.with_names(&command);
                self.argv(command, cwd, depth + 1);
            }
        }
    }

    fn fd(&mut self, argv: &Argv, cwd: Option<&str>, depth: usize) {
        for (index, word) in argv.iter().enumerate().skip(1) {
            if self.over {
                return;
            }
            let mut command = up_to_end(&argv.tail(index + 1)).to_vec();
            match carried::fd_exec(word) {
                FdExec::No => continue,
                FdExec::Next => {}
                FdExec::Attached(first) => command.insert(0, first.to_owned()),
            }
            let command = Argv::from(command);
            self.with_names(&command);
            self.argv(command, cwd, depth + 1);
        }
    }

    /// Handles `find -exec sh -c 'rm {}'`, where the names of files become part of the text.
    fn with_names(&mut self, command: &Argv) {
        if let ShellCall::Text { index, .. } = shell_call(command)
            && command[index].contains("{}")
        {
            self.unseen("a text is only known when it runs");
        }
    }
}

/// Whether a shell reads its commands from standard input only.
fn reads_stdin_as_shell(argv: &[String]) -> bool {
    let is_closed = matches!(shell_call(argv), ShellCall::Closed { text: None, .. });
    is_closed && !has_own_language(&argv[0]) && reads_only_stdin(argv)
}

/// Returns the command of an `-exec` without its terminator.
fn up_to_end(rest: &Argv) -> Argv {
    match rest.iter().position(|word| word == ";" || word == "+") {
        Some(end) => rest[..end].to_vec().into(),
        None => rest.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Source, analyse};
    use interlock_programs::VirtualHost;

    fn sight(text: &str) -> super::Sight {
        let resolver = VirtualHost::new();
        let host = Host {
            resolver: &resolver,
            trusted_dirs: &[],
        };
        let source = Source::Text(text.to_owned());
        analyse(source, "/w", host).unwrap().sight()
    }

    #[test]
    fn a_builtin_behind_command_hides_nothing() {
        let seen = sight("command eval 'rm x'").commands;
        assert!(seen.iter().any(|seen| seen.argv[..] == ["rm", "x"]));
        assert!(sight("command source ./env.sh").unseen.is_some());
        assert!(sight("builtin eval \"$x\"").unseen.is_some());
    }

    #[test]
    fn what_git_carries_is_seen() {
        for line in [
            "git bisect run rm x",
            "git submodule --quiet foreach rm x",
            "git rebase -x 'rm x' HEAD",
            "git -c alias.y='!rm x' y",
        ] {
            let seen = sight(line).commands;
            assert!(
                seen.iter().any(|seen| seen.argv[..] == ["rm", "x"]),
                "{line}"
            );
        }
        assert!(sight("git --config-env=alias.y=V y").unseen.is_some());
        assert!(sight("git -c alias.y=push status").unseen.is_none());
    }

    #[test]
    fn what_is_written_in_another_language_is_not_seen_in_full() {
        let nu = sight("nu --execute='rm x'");
        assert!(nu.commands.iter().any(|seen| seen.argv[..] == ["rm", "x"]));
        assert!(nu.unseen.is_some());
        assert!(sight("pwsh -EncodedCommand ZQBjAGgAbwA=").unseen.is_some());
        assert!(sight("bash -ic 'rm x'").unseen.is_none());
    }
}
