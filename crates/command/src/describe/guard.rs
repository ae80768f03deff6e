//! What the parser is given. It backtracks: on some texts its time doubles with every level of
//! nesting, so those are turned away before. The counts are made over the parser's own tokens, and
//! where a token may mean two things it is counted as the worse one.

use brush_parser::Token;

/// Substitutions and expansions in a text: the parser cuts words out by recursion, and copies what
/// is inside once for each level.
const MAX_EXPANSIONS: usize = 256;
/// Parentheses inside parentheses. `((` is tried as arithmetic first, and again for each level.
const MAX_PARENTHESES: usize = 5;
/// Each is read twice when its last item has no `;;`. Their `)` has no opening partner, so they
/// are counted and not nested.
const MAX_CASES: usize = 6;
/// Words that make the parser recurse.
const MAX_KEYWORDS: usize = 64;
/// Marks in a word that looks like `NAME[…`: the index is read as an expression.
const MAX_INDEX_MARKS: usize = 8;

/// Whether cutting the text into tokens is safe.
pub(super) fn admits_text(text: &str) -> bool {
    let openings = text.as_bytes().windows(2);
    let count = openings.filter(|pair| matches!(*pair, b"$(" | b"${" | b"$["));
    count.count() <= MAX_EXPANSIONS
}

/// Whether the tokens may be given to the parser.
pub(super) fn admits_tokens(tokens: &[Token]) -> bool {
    let mut open = 0_usize;
    let mut cases = 0;
    let mut keywords = 0;
    for token in tokens {
        match token {
            Token::Operator(operator, _) if operator == "(" => {
                open += 1;
                if open > MAX_PARENTHESES {
                    return false;
                }
            }
            Token::Operator(operator, _) if operator == ")" => open = open.saturating_sub(1),
            Token::Operator(..) => {}
            Token::Word(word, _) => match word.as_str() {
                "case" => cases += 1,
                "if" | "while" | "until" | "for" | "select" | "function" | "coproc" | "{"
                | "[[" | "!" => keywords += 1,
                _ if !is_index_simple(word) => return false,
                _ => {}
            },
        }
    }
    cases <= MAX_CASES && keywords <= MAX_KEYWORDS
}

/// Every word is tried as an assignment; only one to an element of an array takes time.
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
