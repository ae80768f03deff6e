//! The form of the tables: how a program reads its arguments, and which of them matter for which
//! reason.

use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

/// How one program reads its arguments, and which of them matter.
pub(super) struct Grammar {
    pub rules: &'static [Rule],
    pub style: OptionStyle,
    pub order: OptionOrder,
    /// Letters of short options that take the rest of their token or the next argument.
    pub short_values: &'static str,
    /// Letters of short options whose value can only be the rest of their token.
    pub short_attached: &'static str,
    /// Long options (with dashes) that take the next argument when written without `=`.
    pub long_values: &'static [&'static str],
    /// Whether a long option may be abbreviated as far as it stays unambiguous.
    pub abbreviates: bool,
    /// How many characters after a short option's letter belong to it.
    pub swallows: Option<fn(letter: char, rest: &str) -> usize>,
    /// Tokens besides `--` that end the options.
    pub terminators: &'static [&'static str],
    /// Whether `--` ends the options.
    pub double_dash_ends: bool,
    /// Whether an unknown long option may take a value, so that the next argument may not yet be
    /// the operand where reading stops. Not set for grammars that know all options.
    pub unknown_may_take_value: bool,
    /// Whether every option with a value takes the next argument, whatever it looks like. Otherwise
    /// an argument that looks like an option also counts as one.
    pub values_are_sure: bool,
    /// Whether `--long_name` means `--long-name`.
    pub underscores: bool,
}

impl Grammar {
    /// The most common kind: GNU options anywhere before `--`.
    pub const GNU: Self = Self {
        rules: &[],
        style: OptionStyle::Gnu,
        order: OptionOrder::Anywhere,
        short_values: "",
        short_attached: "",
        long_values: &[],
        abbreviates: true,
        swallows: None,
        terminators: &[],
        double_dash_ends: true,
        unknown_may_take_value: true,
        values_are_sure: false,
        underscores: false,
    };

    /// Options of the form `-word` and `--word`, without clusters (Go, Java, gcc, gdb, find).
    pub const WORDS: Self = Self {
        style: OptionStyle::Words,
        abbreviates: false,
        ..Self::GNU
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionStyle {
    /// `-abc` is a cluster of letters, `--word` a long option.
    Gnu,
    /// `-word` and `--word` are the same option.
    Words,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionOrder {
    /// Options count wherever they are.
    Anywhere,
    /// Options stop counting after this many operands (a script, a host and its command).
    Until(usize),
}

/// One option or operand that matters, with the reason.
pub(super) struct Rule {
    /// The option: `-c`, `--eval`, `--ev|al` (may be abbreviated to `--ev`, no further), `-word`,
    /// `-B*` (anything may be attached), or an operand such as `@*`.
    pub option: &'static str,
    pub kind: HitKind,
    pub reason: &'static str,
    pub takes: OptionTakes,
    pub when: Option<fn(&str) -> bool>,
    pub label: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
/// What follows an option.
pub(super) enum OptionTakes {
    Nothing,
    Value,
    Attached,
}

impl Rule {
    const fn new(option: &'static str, kind: HitKind, reason: &'static str) -> Self {
        Self {
            option,
            kind,
            reason,
            takes: OptionTakes::Value,
            when: None,
            label: None,
        }
    }

    /// Says that the option takes no value.
    pub const fn flag(mut self) -> Self {
        self.takes = OptionTakes::Nothing;
        self
    }

    /// Says that the value, if any, is attached, and that the next argument is never the value.
    pub const fn attached(mut self) -> Self {
        self.takes = OptionTakes::Attached;
        self
    }

    /// Limits hits to values for which `dangerous` holds.
    pub const fn when(mut self, dangerous: fn(&str) -> bool) -> Self {
        self.when = Some(dangerous);
        self
    }

    /// Sets the name of the hit, if it is not named after its option.
    pub const fn called(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }

    pub fn is_operand(&self) -> bool {
        !self.option.starts_with('-')
    }

    pub fn prefix(&self) -> Option<&'static str> {
        self.option.strip_suffix('*')
    }

    pub fn letter(&self) -> Option<char> {
        let mut letters = self.option.strip_prefix('-')?.chars();
        let letter = letters.next()?;
        (letter != '-' && letters.next().is_none()).then_some(letter)
    }
}

pub(super) const fn code(option: &'static str, reason: &'static str) -> Rule {
    Rule::new(option, HitKind::Code, reason)
}

pub(super) const fn program(option: &'static str, reason: &'static str) -> Rule {
    Rule::new(option, HitKind::ProgramOption, reason)
}

pub(super) const fn loads(option: &'static str, reason: &'static str) -> Rule {
    Rule::new(option, HitKind::LoadsCode, reason)
}

pub(super) const fn config(option: &'static str, reason: &'static str) -> Rule {
    Rule::new(option, HitKind::OtherConfig, reason)
}

pub(super) const fn writes(option: &'static str, reason: &'static str) -> Rule {
    Rule::new(option, HitKind::WritesFile, reason)
}

/// A row of the program table.
pub(super) struct ProgramGrammar {
    pub names: &'static [&'static str],
    pub grammar: &'static Grammar,
    /// Finds what the table cannot express: operands that are programs, subcommands, texts to be
    /// parsed.
    pub inspect: Option<fn(&Invocation<'_>, &ParsedLine<'_>) -> Vec<InlineHit>>,
}

impl ProgramGrammar {
    pub const fn table(names: &'static [&'static str], grammar: &'static Grammar) -> Self {
        Self {
            names,
            grammar,
            inspect: None,
        }
    }

    pub const fn inspected(
        names: &'static [&'static str],
        grammar: &'static Grammar,
        inspect: fn(&Invocation<'_>, &ParsedLine<'_>) -> Vec<InlineHit>,
    ) -> Self {
        Self {
            names,
            grammar,
            inspect: Some(inspect),
        }
    }
}
