//! Finds the names that a JavaScript text defines. `$NAME` is a valid name in JavaScript, so it is
//! a mistake only if nothing in the whole text defines it.

use std::collections::HashSet;

use super::javascript::{ScriptToken, ScriptTokenKind};
use super::{FoundLanguage, PreflightFinding};

/// A name after these words is defined, or used in a way that is harmless if it is undefined.
const DEFINING: &[&str] = &[
    "const", "let", "var", "function", "class", "import", "as", "get", "set", "static", "async",
    "typeof", "delete",
];

const DECLARING: &[&str] = &["const", "let", "var"];

/// Words before parentheses and a block that is not the body of a function.
const STATEMENTS: &[&str] = &["if", "while", "for", "switch", "with"];

/// Operators after a name or a pattern that assign a value to it.
const ASSIGNING: &[&str] = &[
    "=", "+=", "-=", "*=", "/=", "%=", "**=", "<<=", ">>=", ">>>=", "&=", "|=", "^=", "&&=", "||=",
    "??=", "++", "--",
];

/// How many tokens the search goes back in a list of declarations, and how many brackets it goes
/// outwards.
const MAX_LOOK: usize = 256;

pub(super) struct ScriptNames<'a> {
    text: &'a str,
    tokens: &'a [ScriptToken<'a>],
    /// The matching bracket of each bracket.
    partners: Vec<Option<usize>>,
    /// The innermost open bracket around each token.
    around: Vec<Option<usize>>,
    known: HashSet<&'a str>,
}

impl<'a> ScriptNames<'a> {
    /// Returns `None` if brackets do not match.
    pub fn new(text: &'a str, tokens: &'a [ScriptToken<'a>]) -> Option<Self> {
        let mut partners = vec![None; tokens.len()];
        let mut around = vec![None; tokens.len()];
        let mut open: Vec<usize> = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            let closes = match (token.kind, token.text) {
                (ScriptTokenKind::Punctuation, ")") => Some("("),
                (ScriptTokenKind::Punctuation, "]") => Some("["),
                (ScriptTokenKind::Punctuation, "}") => Some("{"),
                (ScriptTokenKind::Literal, text) if text.starts_with('}') => Some("${"),
                _ => None,
            };
            if let Some(opening) = closes {
                let start = open.pop().filter(|start| tokens[*start].text == opening)?;
                partners[start] = Some(index);
                partners[index] = Some(start);
            }
            around[index] = open.last().copied();
            if token.kind == ScriptTokenKind::Punctuation
                && matches!(token.text, "(" | "[" | "{" | "${")
            {
                open.push(index);
            }
        }
        let mut names = Self {
            text,
            tokens,
            partners,
            around,
            known: HashSet::new(),
        };
        names.known = (0..tokens.len())
            .filter_map(|index| names.defined_at(index))
            .collect();
        Some(names)
    }

    pub fn is_known(&self, name: &str) -> bool {
        self.known.contains(name)
    }

    /// The name that a token defines.
    fn defined_at(&self, index: usize) -> Option<&'a str> {
        let token = &self.tokens[index];
        match token.kind {
            ScriptTokenKind::Word => self.is_defined_at(index).then_some(token.text),
            // `global["$NAME"]`
            ScriptTokenKind::Literal
                if self.text_at(index, -1) == "[" && self.text_at(index, 1) == "]" =>
            {
                token.text.get(1..token.text.len() - 1)
            }
            _ => None,
        }
    }

    /// The first undefined `$NAME` in capitals, as shell variables are written, or the first
    /// `${NAME}` outside a template.
    pub fn first_shell_variable(&self) -> Option<PreflightFinding> {
        let tokens = self.tokens.iter().enumerate();
        tokens
            .filter(|(_, token)| token.kind == ScriptTokenKind::Word)
            .find_map(|(index, token)| {
                let name = match token.text {
                    "$" => self.braced(index)?,
                    text => text.strip_prefix('$').filter(|name| is_shell_name(name))?,
                };
                if token.text != "$" && self.is_known(token.text) {
                    return None;
                }
                Some(PreflightFinding {
                    offset: token.start,
                    found: FoundLanguage::Variable(name.to_owned()),
                })
            })
    }

    /// The name in `${NAME}` without any space. It is valid only after `extends`: a class named `$`
    /// with its body.
    fn braced(&self, index: usize) -> Option<&'a str> {
        let rest = self.text[self.tokens[index].start..].strip_prefix("${")?;
        let (name, _) = rest.split_once('}')?;
        (is_shell_name(name) && self.text_at(index, -1) != "extends").then_some(name)
    }

    fn text_at(&self, index: usize, step: isize) -> &'a str {
        let at = index.checked_add_signed(step);
        at.and_then(|at| self.tokens.get(at))
            .map_or("", |token| token.text)
    }

    fn is_defined_at(&self, index: usize) -> bool {
        let (before, after) = (self.text_at(index, -1), self.text_at(index, 1));
        if matches!(before, "." | "?." | "++" | "--") || DEFINING.contains(&before) {
            return true;
        }
        if before == "*" && self.text_at(index, -2) == "function" {
            return true;
        }
        // `$NAME(…)` is a call or a method, which is no shell syntax.
        if ASSIGNING.contains(&after) || matches!(after, "=>" | "(") || after.starts_with('`') {
            return true;
        }
        if after == ":" && !matches!(before, "?" | "case") {
            return true;
        }
        (before == "," && self.is_declared_in_list(index)) || self.is_in_pattern(index)
    }

    /// Whether the name is declared in a list such as `let a, $NAME`.
    fn is_declared_in_list(&self, index: usize) -> bool {
        let mut at = index;
        for _ in 0..MAX_LOOK {
            let Some(before) = at.checked_sub(1) else {
                return false;
            };
            at = before;
            let token = &self.tokens[at];
            match self.partners[at] {
                // Skip a whole group.
                Some(start) if start < at => at = start,
                Some(_) => return false,
                None if token.text == ";" => return false,
                None => {}
            }
            if token.kind == ScriptTokenKind::Word && DECLARING.contains(&token.text) {
                return true;
            }
        }
        false
    }

    /// Whether the name is in the parameters of a function, or in a pattern that gets a value.
    fn is_in_pattern(&self, index: usize) -> bool {
        let mut around = self.around[index];
        for _ in 0..MAX_LOOK {
            let Some(start) = around else {
                return false;
            };
            let Some(end) = self.partners[start] else {
                return false;
            };
            let (before, after) = (self.text_at(start, -1), self.text_at(end, 1));
            let defines = match self.tokens[start].text {
                "(" => after == "=>" || (after == "{" && !STATEMENTS.contains(&before)),
                "{" | "[" => {
                    DECLARING.contains(&before)
                        || before == "import"
                        || ASSIGNING.contains(&after)
                        || matches!(after, "of" | "in" | "from")
                }
                _ => false,
            };
            if defines {
                return true;
            }
            around = self.around[start];
        }
        // The nesting is too deep to tell, so assume that the name is defined.
        true
    }
}

/// Whether a name is written like an environment variable.
fn is_shell_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() >= 2
        && name.bytes().all(is_part)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().any(|byte| byte.is_ascii_uppercase())
}
