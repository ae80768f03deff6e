//! Walks the parser's tree.

use brush_parser::ParserOptions;
use brush_parser::ast::{
    AndOrList, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem,
    CompoundCommand, CompoundList, ExtendedTestExpr, IoFileRedirectKind, IoFileRedirectTarget,
    IoRedirect, Pipeline, Program, SimpleCommand, Word,
};
use interlock_programs::DYNAMIC;

use super::guard::NOT_VALID;
use super::word::{self, WordPlace};
use super::{Budget, Description};

pub(super) fn describe(text: &str, budget: &mut Budget) -> Description {
    let mut walk = DescriptionWalk {
        description: Description::default(),
        texts: vec![text.to_owned()],
        stdin: None,
    };
    let mut done = 0;
    while let Some(text) = walk.texts.get(done).cloned() {
        done += 1;
        match parse(&text, budget) {
            Ok(program) => {
                for list in &program.complete_commands {
                    walk.list(list);
                }
            }
            Err(reason) => walk.unseen(reason),
        }
    }
    walk.description
}

fn parse(text: &str, budget: &mut Budget) -> Result<Program, &'static str> {
    budget.admit_text(text)?;
    let options = ParserOptions::default();
    let tokens = brush_parser::uncached_tokenize_str(text, &options.tokenizer_options());
    let tokens = tokens.map_err(|_| NOT_VALID)?;
    budget.admit_tokens(&tokens)?;
    brush_parser::parse_tokens(&tokens, &options).map_err(|_| NOT_VALID)
}

struct DescriptionWalk {
    description: Description,
    /// Texts that remain to be parsed, in order, so that the outer command comes first.
    texts: Vec<String>,
    /// The here-document on standard input of the present command.
    stdin: Option<String>,
}

impl DescriptionWalk {
    fn unseen(&mut self, reason: &'static str) {
        self.description.note_unseen(reason);
    }

    fn list(&mut self, list: &CompoundList) {
        for item in &list.0 {
            self.and_or(&item.0);
        }
    }

    fn and_or(&mut self, list: &AndOrList) {
        for (_, pipeline) in list {
            self.pipeline(pipeline);
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline) {
        for command in &pipeline.seq {
            self.command(command);
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                self.compound(compound);
                self.redirects(redirects.iter().flat_map(|list| &list.0));
            }
            Command::Function(function) => {
                self.compound(&function.body.0);
                self.redirects(function.body.1.iter().flat_map(|list| &list.0));
            }
            Command::ExtendedTest(test, redirects) => {
                self.test(&test.expr);
                self.redirects(redirects.iter().flat_map(|list| &list.0));
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::Arithmetic(arithmetic) => self.arithmetic(&arithmetic.expr.value),
            CompoundCommand::ArithmeticForClause(clause) => {
                let parts = [&clause.initializer, &clause.condition, &clause.updater];
                for part in parts.into_iter().flatten() {
                    self.arithmetic(&part.value);
                }
                self.list(&clause.body.list);
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.list(&subshell.list),
            CompoundCommand::ForClause(clause) => {
                for value in clause.values.iter().flatten() {
                    self.word(value);
                }
                self.list(&clause.body.list);
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value);
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.word(pattern);
                    }
                    if let Some(list) = &case.cmd {
                        self.list(list);
                    }
                }
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for part in clause.elses.iter().flatten() {
                    if let Some(condition) = &part.condition {
                        self.list(condition);
                    }
                    self.list(&part.body);
                }
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0);
                self.list(&clause.1.list);
            }
            CompoundCommand::Coprocess(coprocess) => self.command(&coprocess.body),
        }
    }

    fn test(&mut self, expression: &ExtendedTestExpr) {
        match expression {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.test(left);
                self.test(right);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => {
                self.test(inner);
            }
            ExtendedTestExpr::UnaryTest(_, word) => {
                self.word(word);
            }
            ExtendedTestExpr::BinaryTest(_, left, right) => {
                self.word(left);
                self.text_of(&right.value, WordPlace::Pattern);
            }
        }
    }

    fn simple(&mut self, command: &SimpleCommand) {
        // The outer command goes first, whatever its words contain.
        let place = self.description.commands.len();
        let mut words = Vec::new();
        let outer_stdin = self.stdin.take();
        let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in prefix {
            self.item(item, &mut words);
        }
        if let Some(name) = &command.word_or_name {
            words.push(self.word(name));
        }
        let suffix = command.suffix.iter().flat_map(|suffix| &suffix.0);
        for item in suffix {
            self.item(item, &mut words);
        }
        let stdin = std::mem::replace(&mut self.stdin, outer_stdin);
        if words.is_empty() {
            return;
        }
        if words[0] == DYNAMIC {
            self.unseen("a command name is only known when it runs");
        }
        self.text_arguments(&words);
        self.description.commands.insert(place, words);
        self.description.stdin.insert(place, stdin);
    }

    fn item(&mut self, item: &CommandPrefixOrSuffixItem, words: &mut Vec<String>) {
        match item {
            CommandPrefixOrSuffixItem::Word(word) => words.push(self.word(word)),
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect),
            CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                // After the command's name, this is an argument that looks like an assignment.
                let is_argument = !words.is_empty();
                match &assignment.value {
                    AssignmentValue::Scalar(_) if is_argument => words.push(self.word(word)),
                    AssignmentValue::Scalar(value) => {
                        self.index(&assignment.name);
                        self.word(value);
                    }
                    AssignmentValue::Array(items) => {
                        self.index(&assignment.name);
                        for (index, value) in items {
                            if let Some(index) = index {
                                self.text_of(&index.value, WordPlace::Pattern);
                            }
                            self.word(value);
                        }
                        if is_argument {
                            words.push(DYNAMIC.to_owned());
                        }
                    }
                }
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                self.list(&subshell.list);
                words.push(DYNAMIC.to_owned());
            }
        }
    }

    /// Reads arguments that are shell text themselves, and notes code from elsewhere.
    fn text_arguments(&mut self, words: &[String]) {
        let text = match words[0].as_str() {
            "eval" => words[1..].join(" "),
            "trap" if words.len() > 2 => words[1].clone(),
            "source" | "." => {
                match words.get(1) {
                    Some(path) if !path.contains(DYNAMIC) => self.description.note_file(),
                    _ => self.unseen("commands are read from a file"),
                }
                return;
            }
            _ => return,
        };
        if text.contains(DYNAMIC) {
            self.unseen("a text is only known when it runs");
        } else {
            self.texts.push(text);
        }
    }

    fn redirects<'a>(&mut self, redirects: impl Iterator<Item = &'a IoRedirect>) {
        for redirect in redirects {
            self.redirect(redirect);
        }
    }

    fn redirect(&mut self, redirect: &IoRedirect) {
        match redirect {
            IoRedirect::File(fd, kind, target) => {
                // The last redirection of standard input wins.
                if fd.map_or_else(|| reads(kind), |fd| fd == 0) {
                    self.stdin = None;
                }
                match target {
                    IoFileRedirectTarget::Filename(word)
                    | IoFileRedirectTarget::Duplicate(word) => {
                        self.word(word);
                    }
                    IoFileRedirectTarget::ProcessSubstitution(_, subshell) => {
                        self.list(&subshell.list);
                    }
                    IoFileRedirectTarget::Fd(_) => {}
                }
            }
            IoRedirect::HereDocument(fd, document) => {
                let text = if document.requires_expansion {
                    self.text_of(&document.doc.value, WordPlace::Heredoc)
                } else {
                    document.doc.value.clone()
                };
                self.here_text(*fd, text);
            }
            IoRedirect::HereString(fd, word) => {
                let text = self.word(word);
                self.here_text(*fd, text);
            }
            IoRedirect::OutputAndError(word, _) => {
                self.word(word);
            }
        }
    }

    /// Notes the text that a here-document or here-string passes to a stream.
    fn here_text(&mut self, fd: Option<i32>, text: String) {
        if fd.is_none_or(|fd| fd == 0) {
            self.stdin = Some(text).filter(|text| !text.contains(DYNAMIC));
        }
    }

    fn arithmetic(&mut self, text: &str) {
        if text.contains("$(") || text.contains('`') {
            self.unseen("a command inside an arithmetic expression");
        }
    }

    /// Reads the index of an array assignment, because `a[$(b)]=c` runs `b`.
    fn index(&mut self, name: &AssignmentName) {
        if let AssignmentName::ArrayElementName(_, index) = name {
            self.text_of(index, WordPlace::Pattern);
        }
    }

    /// Returns the word's text if it is known beforehand, else [`DYNAMIC`].
    fn word(&mut self, word: &Word) -> String {
        self.text_of(&word.value, WordPlace::Word)
    }

    fn text_of(&mut self, raw: &str, place: WordPlace) -> String {
        let Some(reading) = word::read(raw, place) else {
            self.unseen("a word could not be read");
            return DYNAMIC.to_owned();
        };
        if let Some(reason) = reading.unseen {
            self.unseen(reason);
        }
        self.texts.extend(reading.commands);
        reading.text
    }
}

/// Whether a redirection without a number is of standard input.
fn reads(kind: &IoFileRedirectKind) -> bool {
    matches!(
        kind,
        IoFileRedirectKind::Read
            | IoFileRedirectKind::ReadAndWrite
            | IoFileRedirectKind::DuplicateInput
    )
}
