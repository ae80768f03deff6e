//! Limits what the parser is given. The parser backtracks: on some texts its time doubles with
//! every level of nesting, so its work is estimated first. The estimate uses the parser's own
//! tokens, and a token with two meanings counts as the more expensive one.

use brush_parser::Token;

use super::scan::Scan;

pub(super) const TOO_DEEP: &str = "the text is nested too deeply to be described";
pub(super) const NOT_VALID: &str = "the text is not valid shell syntax";

/// The budget for one request, all texts within texts together.
#[derive(Debug)]
pub(crate) struct Budget {
    texts: usize,
    bytes: usize,
    work: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            texts: 64,
            bytes: 3 * super::MAX_BYTES,
            // One unit is about a microsecond.
            work: 40_000,
        }
    }
}

/// The most substitutions and expansions in a text. Recursion cuts out the words, and each level
/// copies the text inside.
const MAX_EXPANSIONS: usize = 256;
/// The most bytes after the mark of a here-document on its line, because the tokens there wait in a
/// queue that is slow when it is long.
const MAX_HEREDOC_LINE: usize = 1024;
/// The most words that make the parser recurse.
const MAX_KEYWORDS: usize = 64;
/// The most levels that may double the work.
const MAX_DOUBLINGS: usize = 12;
/// The most special characters in a word of the form `NAME[…`, whose index is parsed as an
/// expression.
const MAX_INDEX_MARKS: usize = 8;

impl Budget {
    pub(super) fn exhaust(&mut self) {
        self.texts = 0;
    }

    /// Checks whether the text may be tokenized. Text without a proper end is not: the parser would
    /// learn nothing more from it, and the tokenizer does not handle all such texts well.
    pub(super) fn admit_text(&mut self, text: &str) -> Result<(), &'static str> {
        if !spend(&mut self.texts, 1) || !spend(&mut self.bytes, text.len()) {
            return Err(TOO_DEEP);
        }
        let openings = text.as_bytes().windows(2);
        let expansions = openings.filter(|pair| matches!(*pair, b"$(" | b"${" | b"$["));
        if expansions.count() > MAX_EXPANSIONS {
            return Err(TOO_DEEP);
        }
        match Scan::new(text).heredoc_line() {
            None => Err(NOT_VALID),
            Some(line) if line > MAX_HEREDOC_LINE => Err(TOO_DEEP),
            Some(_) => Ok(()),
        }
    }

    /// Checks whether the tokens may be given to the parser.
    pub(super) fn admit_tokens(&mut self, tokens: &[Token]) -> Result<(), &'static str> {
        let admitted = estimate(tokens).is_some_and(|work| spend(&mut self.work, work));
        if admitted { Ok(()) } else { Err(TOO_DEEP) }
    }
}

fn spend(budget: &mut usize, amount: usize) -> bool {
    let left = budget.checked_sub(amount);
    *budget = left.unwrap_or(0);
    left.is_some()
}

/// A level whose tokens are read twice if it does not end as expected: `((` is tried as arithmetic
/// first, and the last item of a `case` as one that ends in `;;`.
#[derive(PartialEq)]
enum Level {
    Parenthesis,
    Case,
}

/// Estimates the work: every token counts once, doubled for each level around it. Returns `None` if
/// there is too much.
fn estimate(tokens: &[Token]) -> Option<usize> {
    let mut levels: Vec<Level> = Vec::new();
    let mut keywords = 0;
    let mut total = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::Operator(operator, _) if operator == "(" => levels.push(Level::Parenthesis),
            // After the pattern of a `case`, a parenthesis closes nothing.
            Token::Operator(operator, _) if operator == ")" => {
                levels.pop_if(|level| *level == Level::Parenthesis);
            }
            Token::Operator(..) => {}
            Token::Word(word, _) => match word.as_str() {
                "case" if begins_command(tokens, index) => levels.push(Level::Case),
                "esac" if ends_case(tokens, index) => {
                    levels.pop_if(|level| *level == Level::Case);
                }
                "if" | "while" | "until" | "for" | "select" | "function" | "coproc" | "{"
                | "[[" | "!" => keywords += 1,
                _ if !is_index_simple(word) => return None,
                _ => {}
            },
        }
        if levels.len() > MAX_DOUBLINGS || keywords > MAX_KEYWORDS {
            return None;
        }
        total += 1 << levels.len();
    }
    Some(total)
}

fn begins_command(tokens: &[Token], index: usize) -> bool {
    let before = |distance: usize| index.checked_sub(distance).map(|index| &tokens[index]);
    match before(1) {
        None | Some(Token::Operator(..)) => true,
        Some(Token::Word(word, _)) => {
            matches!(
                word.as_str(),
                "if" | "then"
                    | "elif"
                    | "else"
                    | "while"
                    | "until"
                    | "do"
                    | "{"
                    | "!"
                    | "time"
                    | "-p"
                    | "coproc"
            ) || matches!(before(2), Some(Token::Word(word, _)) if word == "function")
        }
    }
}

/// Whether the word ends a `case`. Before `)` or `|` it is a pattern.
fn ends_case(tokens: &[Token], index: usize) -> bool {
    let is_pattern = matches!(
        tokens.get(index + 1),
        Some(Token::Operator(operator, _)) if operator == ")" || operator == "|"
    );
    let is_argument = index
        .checked_sub(1)
        .is_some_and(|before| matches!(&tokens[before], Token::Word(word, _) if word != "in"));
    !is_pattern && !is_argument
}

/// Whether the word is cheap to parse. The parser tries every word as an assignment, but only an
/// assignment to an array element takes time.
fn is_index_simple(word: &str) -> bool {
    let name = word
        .bytes()
        .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        .count();
    if name == 0 || word.as_bytes().get(name) != Some(&b'[') {
        return true;
    }
    let marks = word
        .bytes()
        .filter(|byte| matches!(byte, b'[' | b'(' | b'{' | b'$' | b'`' | b'"' | b'\''));
    marks.count() <= MAX_INDEX_MARKS
}
