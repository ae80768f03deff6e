//! Spans for showing a command to people. Highlighting never changes what is judged.

use serde::Serialize;

use crate::Span;
use crate::lexer::{TokenKind, scan};

/// The role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HighlightStyle {
    Program,
    Option,
    Argument,
    Assignment,
    Operator,
    Redirection,
    /// The place where the text stops being plain.
    Odd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Highlight {
    #[serde(flatten)]
    pub span: Span,
    pub style: HighlightStyle,
}

/// Returns spans in order, without overlaps, on character boundaries. Nothing after an odd place is
/// styled, because its meaning is unknown.
pub fn highlight(text: &str) -> Vec<Highlight> {
    let (tokens, odd) = scan(text);
    let mut spans = Vec::with_capacity(tokens.len());
    let mut awaits_program = true;
    for (span, kind) in tokens {
        let style = match kind {
            TokenKind::Operator => {
                awaits_program = true;
                HighlightStyle::Operator
            }
            TokenKind::Redirection => HighlightStyle::Redirection,
            TokenKind::Assignment if awaits_program => HighlightStyle::Assignment,
            TokenKind::Word | TokenKind::Assignment if awaits_program => {
                awaits_program = false;
                HighlightStyle::Program
            }
            TokenKind::Word | TokenKind::Assignment => {
                if span.of(text).starts_with('-') {
                    HighlightStyle::Option
                } else {
                    HighlightStyle::Argument
                }
            }
        };
        if style != HighlightStyle::Operator || span.of(text) != "\n" {
            spans.push(Highlight { span, style });
        }
    }
    if let Some(odd) = odd {
        let from = spans.last().map_or(0, |last| last.span.end);
        let start = odd.span.start.max(from);
        if start < odd.span.end {
            spans.push(Highlight {
                span: Span::new(start, odd.span.end),
                style: HighlightStyle::Odd,
            });
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_styled_by_their_place() {
        let text = "A=1 rg -n TODO | head 2>&1 $x";
        let shown: Vec<_> = highlight(text)
            .into_iter()
            .map(|highlight| (highlight.span.of(text), highlight.style))
            .collect();
        assert_eq!(
            shown,
            [
                ("A=1", HighlightStyle::Assignment),
                ("rg", HighlightStyle::Program),
                ("-n", HighlightStyle::Option),
                ("TODO", HighlightStyle::Argument),
                ("|", HighlightStyle::Operator),
                ("head", HighlightStyle::Program),
                ("2>&1", HighlightStyle::Redirection),
                ("$", HighlightStyle::Odd),
            ]
        );
    }
}
