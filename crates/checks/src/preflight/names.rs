//! Which names a JavaScript text gives a meaning to. `$NAME` is a good name there: it is a mistake
//! only if nothing in the whole text defines it.

use std::collections::HashSet;

use super::javascript::{ScriptToken, ScriptTokenKind};
use super::{FoundLanguage, PreflightFinding};

/// Behind these words a name is defined, or asked for without harm.
const DEFINING: &[&str] = &[
    "const", "let", "var", "function", "class", "import", "as", "get", "set", "static", "async",
    "typeof", "delete",
];

const DECLARING: &[&str] = &["const", "let", "var"];

/// In front of parentheses and a block that is not the body of a function.
const STATEMENTS: &[&str] = &["if", "while", "for", "switch", "with"];

/// Behind a name or a pattern: it is given a value.
const ASSIGNING: &[&str] = &[
    "=", "+=", "-=", "*=", "/=", "%=", "**=", "<<=", ">>=", ">>>=", "&=", "|=", "^=", "&&=", "||=",
    "??=", "++", "--",
];

/// How many tokens of a list of declarations are looked back over, and how many brackets outwards.
const MAX_LOOK: usize = 256;

pub(super) struct ScriptNames<'a> {
    text: &'a str,
    tokens: &'a [ScriptToken<'a>],
    /// The other bracket of each bracket.
    partners: Vec<Option<usize>>,
    /// The bracket around each token.
    around: Vec<Option<usize>>,
    known: HashSet<&'a str>,
}

impl<'a> ScriptNames<'a> {
    /// `None` where brackets do not match.
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

    /// The name that a token gives a meaning to.
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

    /// The first `$NAME` that has no meaning here, in capitals as shell variables are, or the
    /// first `${NAME}` outside of a template.
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

    /// `${NAME}`, written without any space. Only a class could have that: `extends ${NAME}`.
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
        // `$NAME(…)` is a call or a method: no shell writes that.
        if ASSIGNING.contains(&after) || matches!(after, "=>" | "(") || after.starts_with('`') {
            return true;
        }
        if after == ":" && !matches!(before, "?" | "case") {
            return true;
        }
        (before == "," && self.is_declared_in_list(index)) || self.is_in_pattern(index)
    }

    /// `let a, $NAME`
    fn is_declared_in_list(&self, index: usize) -> bool {
        let mut at = index;
        for _ in 0..MAX_LOOK {
            let Some(before) = at.checked_sub(1) else {
                return false;
            };
            at = before;
            let token = &self.tokens[at];
            match self.partners[at] {
                // Over a whole group.
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

    /// In the parameters of a function, or in a pattern that is given a value.
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
        // Too deep to know.
        true
    }
}

/// As variables of the environment are written.
fn is_shell_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() >= 2
        && name.bytes().all(is_part)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().any(|byte| byte.is_ascii_uppercase())
}
