//! Reads a command line as its program would: clusters, attached and separate values, abbreviated
//! long options, single-dash words, the end of options.
//!
//! If a grammar does not know an option, the option counts as a flag without a value. Its value may
//! then be read as another option or operand, which finds too much rather than too little.

use super::grammar::{Grammar, OptionOrder, OptionStyle, OptionTakes, Rule};
use super::hit::{HitKind, InlineHit};

/// One call of a program.
pub(super) struct Invocation<'a> {
    pub program: &'a str,
    pub argv: &'a [&'a str],
}

impl Invocation<'_> {
    pub fn hit(
        &self,
        flag: &str,
        kind: HitKind,
        arg_index: usize,
        reason: &'static str,
    ) -> InlineHit {
        InlineHit {
            program: self.program.to_owned(),
            flag: flag.to_owned(),
            kind,
            arg_index,
            reason,
        }
    }

    /// Returns the hits of a grammar's rules in a parsed line.
    pub fn apply(&self, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
        let of_rule = |rule: &'static Rule, name: &str, value: Option<&str>, index| {
            let dangerous = rule.when.is_none_or(|when| when(value.unwrap_or_default()));
            dangerous.then(|| self.hit(rule.label.unwrap_or(name), rule.kind, index, rule.reason))
        };
        let options = parsed.options.iter().chain(&parsed.doubtful);
        let options = options
            .filter_map(|option| of_rule(option.rule?, &option.name, option.value, option.index));
        let own_operands = parsed.operands.iter().take(parsed.own_operands);
        let operands = own_operands.flat_map(|&index| {
            let operand = self.argv[index];
            parsed.grammar.rules.iter().filter_map(move |rule| {
                if !rule.is_operand() {
                    return None;
                }
                let value = match rule.prefix() {
                    Some(prefix) => operand.strip_prefix(prefix)?,
                    None => (operand == rule.option).then_some("")?,
                };
                of_rule(rule, rule.option.trim_end_matches('*'), Some(value), index)
            })
        });
        options.chain(operands).collect()
    }
}

/// A parsed command line.
pub(super) struct ParsedLine<'a> {
    pub grammar: &'static Grammar,
    pub options: Vec<ParsedOption<'a>>,
    /// Options among the words that were read as values. A program that takes a value only if it is
    /// attached reads them as options. They can make a call more suspicious, never less.
    doubtful: Vec<ParsedOption<'a>>,
    /// The indices of the operands in argv. After the end of options, everything is an operand.
    pub operands: Vec<usize>,
    /// How many operands are the program's own. The others belong to the program that it starts.
    own_operands: usize,
}

impl ParsedOption<'_> {
    /// Returns the rule if this option matters with this value.
    pub fn hit(&self) -> Option<&'static Rule> {
        let value = self.value.unwrap_or_default();
        self.rule
            .filter(|rule| rule.when.is_none_or(|when| when(value)))
    }
}

pub(super) struct ParsedOption<'a> {
    /// The full name if the grammar knows the option, else the name as written.
    pub name: String,
    pub value: Option<&'a str>,
    /// The index of the option's own token.
    pub index: usize,
    /// The index after the option and its value.
    pub end: usize,
    pub rule: Option<&'static Rule>,
}

impl ParsedLine<'_> {
    pub fn has(&self, names: &[&str]) -> bool {
        self.options
            .iter()
            .any(|option| names.contains(&option.name.as_str()))
    }
}

/// Reads `argv` from index `start` on.
pub(super) fn parse<'a>(
    argv: &[&'a str],
    start: usize,
    grammar: &'static Grammar,
) -> ParsedLine<'a> {
    let mut reader = ArgumentReader {
        argv,
        next: start,
        parsed: ParsedLine {
            grammar,
            options: Vec::new(),
            doubtful: Vec::new(),
            operands: Vec::new(),
            own_operands: 0,
        },
        unknown_before: false,
        taken: Vec::new(),
    };
    reader.run();
    reader.read_taken_words();
    reader.parsed
}

struct ArgumentReader<'a, 'b> {
    argv: &'b [&'a str],
    next: usize,
    parsed: ParsedLine<'a>,
    /// Whether the previous token may have been an option whose value is the next token.
    unknown_before: bool,
    /// The positions of words that were read as values and look like options.
    taken: Vec<usize>,
}

impl<'a> ArgumentReader<'a, '_> {
    fn run(&mut self) {
        let grammar = self.parsed.grammar;
        let mut stopping_operands = 0;
        let mut all_are_own = false;
        while let Some(&token) = self.argv.get(self.next) {
            let index = self.next;
            self.next += 1;
            let perhaps_a_value = std::mem::take(&mut self.unknown_before);
            if token == "--" && grammar.double_dash_ends {
                all_are_own = grammar.order == OptionOrder::Anywhere;
                break;
            }
            if grammar.terminators.contains(&token) {
                break;
            }
            if token.len() > 1 && token.starts_with('-') {
                self.option(token, index);
                continue;
            }
            self.parsed.operands.push(index);
            if !perhaps_a_value {
                stopping_operands += 1;
            }
            if matches!(grammar.order, OptionOrder::Until(limit) if stopping_operands >= limit) {
                break;
            }
        }
        let read = self.parsed.operands.len();
        self.parsed.operands.extend(self.next..self.argv.len());
        self.parsed.own_operands = if all_are_own {
            self.parsed.operands.len()
        } else {
            read
        };
    }

    /// Reads the words that were taken as values again, as the options that they may be.
    fn read_taken_words(&mut self) {
        let read = self.parsed.options.len();
        let mut done = 0;
        while let Some(&index) = self.taken.get(done) {
            done += 1;
            self.next = index + 1;
            self.option(self.argv[index], index);
        }
        self.parsed.doubtful = self.parsed.options.split_off(read);
    }

    fn option(&mut self, token: &'a str, index: usize) {
        let style = self.parsed.grammar.style;
        if style == OptionStyle::Words || token.starts_with("--") {
            self.word(token, index);
        } else {
            self.cluster(token, index);
        }
    }

    fn take_next(&mut self) -> Option<&'a str> {
        let value = self.argv.get(self.next).copied();
        let looks_like_option =
            value.is_some_and(|value| value.len() > 1 && value.starts_with('-') && value != "--");
        let is_doubtful = looks_like_option && !self.parsed.grammar.values_are_sure;
        if is_doubtful && !self.taken.contains(&self.next) {
            self.taken.push(self.next);
        }
        self.next += usize::from(value.is_some());
        value
    }

    /// Reads `--long` and `--long=value`, and in the word style `-word` and `-word=value`.
    fn word(&mut self, token: &'a str, index: usize) {
        let grammar = self.parsed.grammar;
        let (typed, attached) = match token.split_once('=') {
            Some((typed, value)) => (typed, Some(value)),
            None => (token, None),
        };
        let dashed;
        let typed = if grammar.underscores {
            dashed = typed.replace('_', "-");
            dashed.as_str()
        } else {
            typed
        };
        let words = grammar.style == OptionStyle::Words;
        let exact = grammar
            .rules
            .iter()
            .find(|rule| is_name(rule.option, typed, words));
        let known_value = grammar
            .long_values
            .iter()
            .any(|name| is_name(name, typed, words));
        let rule = exact.or_else(|| {
            if known_value {
                return None;
            }
            let rules = grammar.rules.iter();
            rules
                .filter(|rule| rule.prefix().is_none())
                .find(|rule| is_abbreviation(rule.option, typed, grammar))
        });
        if let Some(rule) = rule {
            let value = match (rule.takes, attached) {
                (OptionTakes::Value, None) => self.take_next(),
                _ => attached,
            };
            let name = full_name(rule.option, typed);
            self.push(name, value, index, Some(rule));
            return;
        }
        if let Some((rule, rest)) = grammar
            .rules
            .iter()
            .find_map(|rule| Some((rule, strip_word(token, rule.prefix()?, words)?)))
        {
            let value = match rest {
                "" if rule.takes == OptionTakes::Value => self.take_next(),
                rest => Some(rest),
            };
            let name = rule.option.trim_end_matches(['*', '=', ':']).to_owned();
            self.push(name, value, index, Some(rule));
            return;
        }
        let value_option = grammar.long_values.iter().find(|name| {
            is_name(name, typed, words)
                || (grammar.abbreviates && typed.len() > 2 && name.starts_with(typed))
        });
        let name = value_option.map_or(typed, |name| *name).to_owned();
        let value = match attached {
            None if value_option.is_some() => self.take_next(),
            attached => attached,
        };
        self.unknown_before =
            grammar.unknown_may_take_value && value_option.is_none() && attached.is_none();
        self.push(name, value, index, None);
    }

    /// Reads `-abc`: letters in a row until one takes the rest as its value.
    fn cluster(&mut self, token: &'a str, index: usize) {
        let grammar = self.parsed.grammar;
        let mut rest = &token[1..];
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            let rule = grammar
                .rules
                .iter()
                .find(|rule| rule.letter() == Some(letter));
            let takes = match rule {
                Some(rule) => rule.takes,
                None if grammar.short_values.contains(letter) => OptionTakes::Value,
                None if grammar.short_attached.contains(letter) => OptionTakes::Attached,
                None => OptionTakes::Nothing,
            };
            let value = match takes {
                OptionTakes::Nothing => None,
                OptionTakes::Value if rest.is_empty() => self.take_next(),
                OptionTakes::Value | OptionTakes::Attached => Some(rest),
            };
            self.push(format!("-{letter}"), value, index, rule);
            if takes != OptionTakes::Nothing {
                return;
            }
            let swallowed = grammar
                .swallows
                .map_or(0, |swallows| swallows(letter, rest));
            rest = rest.get(swallowed..).unwrap_or_default();
        }
    }

    fn push(
        &mut self,
        name: String,
        value: Option<&'a str>,
        index: usize,
        rule: Option<&'static Rule>,
    ) {
        self.parsed.options.push(ParsedOption {
            name,
            value,
            index,
            end: self.next,
            rule,
        });
    }
}

/// Normalizes the dashes, because one and two dashes mean the same in the word style.
fn same_dashes(token: &str, words: bool) -> &str {
    match token.strip_prefix("--") {
        Some(_) if words => &token[1..],
        _ => token,
    }
}

fn is_name(option: &str, typed: &str, words: bool) -> bool {
    let typed = same_dashes(typed, words);
    let option = same_dashes(option, words);
    // This runs for every option and every argument, and most of them differ in length.
    if option.len() != typed.len() && option.len() != typed.len() + 1 {
        return false;
    }
    match option.split_once('|') {
        Some((short, rest)) => typed.strip_prefix(short) == Some(rest),
        None => typed == option,
    }
}

/// Whether `typed` abbreviates the option. Only the program knows how short is too short. It fails
/// on an abbreviation that is too short, so accepting one here does no harm.
fn is_abbreviation(option: &str, typed: &str, grammar: &Grammar) -> bool {
    let words = grammar.style == OptionStyle::Words;
    let (option, typed) = (same_dashes(option, words), same_dashes(typed, words));
    match option.split_once('|') {
        Some((short, rest)) => {
            let more = typed.strip_prefix(short);
            more.is_some_and(|more| rest.starts_with(more))
        }
        None => grammar.abbreviates && typed.len() > 2 && option.starts_with(typed),
    }
}

/// Returns the option's full name, with as many dashes as were typed.
fn full_name(option: &str, typed: &str) -> String {
    let dashes = if typed.starts_with("--") { "--" } else { "-" };
    let name = option.trim_start_matches('-').replace('|', "");
    format!("{dashes}{name}")
}

fn strip_word<'a>(token: &'a str, prefix: &str, words: bool) -> Option<&'a str> {
    same_dashes(token, words).strip_prefix(same_dashes(prefix, words))
}
