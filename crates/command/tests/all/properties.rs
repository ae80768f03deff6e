//! What holds for the strict lexer whatever the text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_command::{Line, MAX_PLAIN_BYTES, Odd, Segment, Span, lex};
use interlock_programs::builtins::{ShellWord, shell_word};
use proptest::prelude::*;

/// Text in which something that matters to a shell stands every few bytes.
fn shell_like() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "a",
        "b",
        "é",
        "\u{1f600}",
        " ",
        " ",
        " ",
        "\t",
        "\n",
        "\\",
        "\\\n",
        "'",
        "'",
        "\"",
        "\"",
        "$'",
        "$",
        "`",
        "&&",
        "||",
        ";",
        "|",
        "&",
        ">",
        "<",
        "2>&1",
        ">/dev/null",
        "&>/dev/null",
        "#",
        "*",
        "?",
        "[",
        "]",
        "[a-c]",
        "[!",
        "~",
        "~/",
        "=",
        "A=",
        "+=",
        "(",
        ")",
        "{",
        "}",
        "!",
        "time ",
        "time -p ",
        "if",
        "cd",
        "1",
        "\u{a0}",
        "\u{200b}",
        "\r",
        "\0",
        "-",
        "/",
        ".",
        ":",
    ];
    let piece = proptest::sample::select(PIECES);
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// A line that is plain by construction and does not end in an operator or a comment.
fn plain_line() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-zA-Z0-9_./:@%+,-]{1,8}",
        "'[^'\\p{Cc}]{0,8}'",
        "\"[^\"\\\\$`!\\p{Cc}]{0,8}\"",
        r"\\[ -~]",
        "[a-z]{0,3}[*?][a-z.]{0,3}",
        Just("~/x".to_owned()),
        Just("2>&1".to_owned()),
        Just(">/dev/null".to_owned()),
        Just("$'a\\tb'".to_owned()),
    ];
    let prefix = prop_oneof![
        4 => Just(String::new()),
        1 => Just("A=1 ".to_owned()),
        1 => Just("time ".to_owned()),
        1 => Just("2>/dev/null ".to_owned()),
    ];
    let command = (
        prefix,
        "x[a-z0-9]{0,5}",
        proptest::collection::vec(word, 0..5),
    )
        .prop_map(|(prefix, name, words)| {
            let mut text = format!("{prefix}{name}");
            for word in words {
                text.push(' ');
                text.push_str(&word);
            }
            text
        });
    let connector = proptest::sample::select(vec![" && ", " || ", "; ", " & ", "\n", " # c\n"]);
    let rest = proptest::collection::vec((connector, command.clone()), 0..4);
    (command, rest).prop_map(|(first, rest)| {
        rest.iter().fold(first, |text, (connector, command)| {
            format!("{text}{connector}{command}")
        })
    })
}

fn quoted(argv: &[String]) -> String {
    let quote = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    argv.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn words(line: &Line) -> Vec<Vec<&str>> {
    line.segments()
        .map(|segment| {
            segment
                .words
                .iter()
                .map(|word| word.text.as_str())
                .collect()
        })
        .collect()
}

/// Every span of a segment, in the order of the text.
fn parts(segment: &Segment) -> Vec<Span> {
    let mut spans: Vec<Span> = segment.words.iter().map(|word| word.span).collect();
    spans.extend(segment.assignments.iter().map(|assignment| assignment.span));
    spans.extend(
        segment
            .redirections
            .iter()
            .map(|redirection| redirection.span),
    );
    spans.sort();
    spans
}

fn assert_fits(span: Span, text: &str) {
    assert!(span.start <= span.end, "{span:?} of {text:?}");
    assert!(
        text.get(span.start..span.end).is_some(),
        "{span:?} of {text:?}"
    );
}

fn assert_ordered(spans: &[Span], text: &str) {
    for pair in spans.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:?} of {text:?}");
    }
}

fn assert_spans(text: &str) {
    let line = match lex(text) {
        Ok(line) => line,
        Err(odd) => return assert_fits(odd.span, text),
    };
    let mut spans = Vec::new();
    for pipeline in &line.pipelines {
        spans.extend(pipeline.timed.map(|timed| timed.span));
        spans.extend(pipeline.segments.iter().map(|segment| segment.span));
    }
    for span in &spans {
        assert_fits(*span, text);
        assert!(span.start < span.end, "{span:?} of {text:?} is empty");
    }
    assert_ordered(&spans, text);
    for segment in line.segments() {
        let parts = parts(segment);
        assert_ordered(&parts, text);
        for part in &parts {
            assert_fits(*part, text);
        }
        assert_eq!(parts.first().unwrap().start, segment.span.start, "{text:?}");
        assert_eq!(parts.last().unwrap().end, segment.span.end, "{text:?}");
        for word in segment.words.iter().filter(|word| word.is_literal()) {
            let again = format!("x {}", word.span.of(text));
            let again = lex(&again).unwrap();
            assert_eq!(words(&again), [["x", word.text.as_str()]], "{text:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn spans_of_any_text_fit_and_are_in_order(text in any::<String>()) {
        assert_spans(&text);
    }

    #[test]
    fn spans_of_text_like_a_command_fit_and_are_in_order(text in shell_like()) {
        assert_spans(&text);
    }

    #[test]
    fn spans_of_plain_lines_fit_and_are_in_order(text in plain_line()) {
        prop_assert!(lex(&text).is_ok(), "{:?} is not plain", text);
        assert_spans(&text);
    }

    #[test]
    fn any_bytes_can_be_lexed(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        assert_spans(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_quoted_argv_lexes_back_to_itself(
        argv in proptest::collection::vec(prop_oneof![any::<String>(), shell_like()], 1..6)
    ) {
        let text = quoted(&argv);
        let is_control = |c: char| c.is_control() && c != '\t' && c != '\n';
        match lex(&text) {
            Ok(line) => {
                prop_assert_eq!(words(&line), vec![argv.iter().map(String::as_str).collect::<Vec<_>>()]);
                prop_assert!(line.segments().all(|s| s.words.iter().all(interlock_command::Word::is_literal)));
            }
            Err(odd) => match odd.reason {
                Odd::ControlCharacter => prop_assert!(text.contains(is_control)),
                Odd::NulByte => prop_assert!(text.contains('\0')),
                Odd::Builtin => prop_assert_eq!(shell_word(&argv[0]), ShellWord::Builtin),
                other => prop_assert!(false, "{:?} is not plain: {:?}", text, other),
            },
        }
    }

    #[test]
    fn two_plain_lines_joined_are_one_plain_line(left in plain_line(), right in plain_line()) {
        let joined = format!("{left} && {right}");
        let (left, right) = (lex(&left).unwrap(), lex(&right).unwrap());
        let joined = lex(&joined).unwrap();
        prop_assert_eq!(words(&joined), [words(&left), words(&right)].concat());
        prop_assert_eq!(joined.pipelines.len(), left.pipelines.len() + right.pipelines.len());
        prop_assert_eq!(joined.beyond_posix, left.beyond_posix || right.beyond_posix);
    }
}

/// Patterns that make a parser with look-ahead, recursion or backtracking slow. There is no
/// clock here: a reader that is not linear would keep this test from ever ending.
#[test]
fn the_longest_hostile_texts_return() {
    const PATTERNS: &[&str] = &[
        "'((((",
        "(",
        "\\",
        "[",
        "*",
        "?",
        "$'",
        "$'$'",
        "'\"",
        "\"'",
        "\"\\",
        "[a-",
        "[!",
        "[a]",
        "~",
        "~/",
        "a=",
        "A=1 ",
        "#",
        "# ",
        "\\\n",
        " \\\n",
        "\n",
        "&&",
        "a&&",
        "a|",
        "a;",
        "a&",
        "2>&1 ",
        "1",
        "1>",
        "1 ",
        ">/dev/null ",
        "&>",
        "<",
        "{",
        "${",
        "$(",
        "`",
        "!",
        "time ",
        "a ",
        "é",
        "\u{a0}",
        "''",
        "\"\"",
        "$''",
        "\\'",
        "*/",
        "**/",
        "a\n#c\n",
        "=",
        "+=",
        "a:~",
    ];
    let mut plain = 0;
    for pattern in PATTERNS {
        for opening in ["", "a ", "a '", "a \"", "a $'", "[", "a [", "A="] {
            let room = MAX_PLAIN_BYTES - opening.len();
            let text = format!("{opening}{}", pattern.repeat(room / pattern.len()));
            assert!(text.len() <= MAX_PLAIN_BYTES);
            assert_fits_if_odd(&text);
            plain += usize::from(lex(&text).is_ok());
            let too_long = text + &pattern.repeat(MAX_PLAIN_BYTES);
            assert_eq!(lex(&too_long).unwrap_err().reason, Odd::TooLong);
        }
    }
    assert!(plain > 20, "only {plain} texts were read to their end");
}

fn assert_fits_if_odd(text: &str) {
    if let Err(odd) = lex(text) {
        assert_fits(odd.span, text);
    }
}
