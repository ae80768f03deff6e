use super::lex;
use crate::line::{Connector, Stream, Target};
use crate::odd::Odd;

fn argvs(text: &str) -> Vec<Vec<String>> {
    let line = lex(text).unwrap_or_else(|odd| panic!("{text:?} is not plain: {odd}"));
    line.segments()
        .map(|segment| segment.words.iter().map(|word| word.text.clone()).collect())
        .collect()
}

fn reason(text: &str) -> Odd {
    match lex(text) {
        Ok(line) => panic!("{text:?} is plain: {line:?}"),
        Err(odd) => odd.reason,
    }
}

#[test]
fn words_lose_their_quotes() {
    assert_eq!(
        argvs(r#"a 'b c' "d \"e\" \x" f\ g 'h'"i"j ''"#),
        [["a", "b c", r#"d "e" \x"#, "f g", "hij", ""]]
    );
    assert_eq!(argvs(r"a $'x\ty\'z'"), [["a", "x\ty'z"]]);
    assert_eq!(
        argvs(r#"echo "output: \$(whoami)""#),
        [["echo", "output: $(whoami)"]]
    );
}

#[test]
fn operators_part_pipelines() {
    let line = lex("a | b && c || d ; e & f\ng").unwrap();
    let connectors: Vec<_> = line
        .pipelines
        .iter()
        .map(|pipeline| pipeline.next)
        .collect();
    assert_eq!(
        connectors,
        [
            Connector::And,
            Connector::Or,
            Connector::Sequence,
            Connector::Background,
            Connector::Sequence,
            Connector::End
        ]
    );
    assert_eq!(line.pipelines[0].segments.len(), 2);
}

#[test]
fn comments_newlines_and_continuations_between_words_are_space() {
    assert_eq!(
        argvs("\n# one\na b # two\n\nc |\n # three\n d"),
        [vec!["a", "b"], vec!["c"], vec!["d"]]
    );
    assert_eq!(
        argvs("cargo build \\\n  --release"),
        [["cargo", "build", "--release"]]
    );
    assert_eq!(argvs("a b#c"), [["a", "b#c"]]);
}

#[test]
fn a_continuation_that_touches_a_word_or_operator_is_odd() {
    for text in [
        "a b\\\nc",
        "a &\\\n& b",
        "a \"b\\\nc\"",
        "a \\\n\\\n b",
        "a;\\\nb",
    ] {
        assert_eq!(reason(text), Odd::LineContinuation, "{text:?}");
    }
}

#[test]
fn streams_may_be_joined_or_dropped() {
    let line = lex("a 2>&1 >/dev/null </dev/null &>/dev/null 2>> /dev/null >&2").unwrap();
    let found: Vec<_> = line.pipelines[0].segments[0]
        .redirections
        .iter()
        .map(|redirection| (redirection.stream, redirection.target))
        .collect();
    assert_eq!(
        found,
        [
            (Stream::Stderr, Target::Stdout),
            (Stream::Stdout, Target::Null),
            (Stream::Stdin, Target::Null),
            (Stream::Both, Target::Null),
            (Stream::Stderr, Target::Null),
            (Stream::Stdout, Target::Stderr),
        ]
    );
}

#[test]
fn redirections_that_name_files_are_odd() {
    for text in [
        "a > b",
        "a >> b",
        "a < b",
        "a 2> b",
        "a >/dev/nullx",
        "a >/dev/null/x",
        "a >| /dev/null",
        "a >&-",
        "a 3>&1",
        "a <&0",
        "a <> /dev/null",
        "a >/dev/'null'",
        "a 2>&1>/dev/null",
        "a >&3",
        "a 12>&1",
        "a >$x",
        "a >/dev/null\\\n/x",
    ] {
        assert_eq!(reason(text), Odd::Redirect, "{text:?}");
    }
    assert_eq!(reason("a <<EOF\nx\nEOF"), Odd::Heredoc);
    assert_eq!(reason("a <(b)"), Odd::ProcessSubstitution);
}

#[test]
fn what_a_shell_would_expand_is_odd() {
    for (text, expected) in [
        ("a $b", Odd::Expansion),
        ("a \"$b\"", Odd::Expansion),
        ("a $(b)", Odd::CommandSubstitution),
        ("a `b`", Odd::CommandSubstitution),
        ("a \"`b`\"", Odd::CommandSubstitution),
        ("a {b,c}", Odd::Brace),
        ("(a)", Odd::Parenthesis),
        ("a() { b; }", Odd::Parenthesis),
        ("a \"b!\"", Odd::HistoryMark),
        ("a ~user/x", Odd::Tilde),
        ("a b=~/x", Odd::Tilde),
        ("a [[:alpha:]]", Odd::GlobForm),
        ("a *//x", Odd::GlobForm),
        ("* a", Odd::DynamicExecutable),
        ("a $'\\x41'", Odd::Escape),
        ("a $\"b\"", Odd::Expansion),
    ] {
        assert_eq!(reason(text), expected, "{text:?}");
    }
}

#[test]
fn an_empty_pair_of_braces_stands_for_itself() {
    assert_eq!(
        argvs("find . -exec wc {} +"),
        [["find", ".", "-exec", "wc", "{}", "+"]]
    );
    assert_eq!(
        argvs("git diff HEAD@{1} @{u}.. stash@{0}"),
        [["git", "diff", "HEAD@{1}", "@{u}..", "stash@{0}"]]
    );
    for text in [
        "a @{1,2}",
        "a @{1..2}",
        "a @{",
        "a @{a b}",
        "a @{-1}",
        "a x{1}",
        "a @{{1}}",
    ] {
        assert!(lex(text).is_err(), "{text}");
    }
    for text in ["a {}{b,c}", "a {{}}", "a {b}", "a }{", "{} b"] {
        let outcome = lex(text);
        assert!(outcome.is_err() || text == "{} b", "{text}");
    }
}

#[test]
fn grammar_and_builtins_are_odd() {
    for text in [
        "if a; then b; fi",
        "while a; do b; done",
        "! a",
        "[[ a ]]",
        "{ a; }",
        "a | for b",
        "time -v a",
    ] {
        assert!(
            matches!(reason(text), Odd::ReservedWord | Odd::Brace | Odd::GlobForm),
            "{text:?}"
        );
    }
    for text in [
        "eval a",
        "source b",
        ". b",
        "export A=1",
        "'exec' a",
        "\\command a",
        "a && unset b",
        "%1",
        "a; % b",
        "'%'x",
    ] {
        assert_eq!(reason(text), Odd::Builtin, "{text:?}");
    }
    assert_eq!(argvs("'if' a"), [["if", "a"]]);
    assert_eq!(argvs("echo if then"), [["echo", "if", "then"]]);
}

#[test]
fn dangling_operators_are_odd() {
    for text in [
        "a &&",
        "&& a",
        "a | | b",
        "a ; ; b",
        "; a",
        "a & ; b",
        "a || && b",
        "a |",
    ] {
        assert_eq!(reason(text), Odd::DanglingOperator, "{text:?}");
    }
    assert_eq!(reason("a ;; b"), Odd::UnknownOperator);
    assert_eq!(reason("a |& b"), Odd::UnknownOperator);
    assert_eq!(argvs("a ;"), [["a"]]);
    assert_eq!(argvs("a &"), [["a"]]);
}

#[test]
fn assignments_stand_only_in_front_of_a_program() {
    let line = lex("A=1 B='x y' prog C=2").unwrap();
    let segment = &line.pipelines[0].segments[0];
    let assignments: Vec<_> = segment
        .assignments
        .iter()
        .map(|a| (a.name.as_str(), a.value.as_str()))
        .collect();
    assert_eq!(assignments, [("A", "1"), ("B", "x y")]);
    assert_eq!(segment.words.len(), 2);
    assert_eq!(reason("A=1"), Odd::AssignmentOnly);
    assert_eq!(reason("A=1; b"), Odd::AssignmentOnly);
    assert_eq!(reason("A+=1 b"), Odd::Append);
    assert_eq!(reason("A=1 cd x"), Odd::BuiltinAssignment);
    assert_eq!(argvs("'A=1' b"), [["A=1", "b"]]);
    assert_eq!(argvs("1A=1 b"), [["1A=1", "b"]]);
}

#[test]
fn globs_and_tildes_wait_for_the_host() {
    let line = lex("ls src/*.rs ~/x 'a*' a~ HEAD~1 file[0-9]").unwrap();
    let words = &line.pipelines[0].segments[0].words;
    let literal: Vec<_> = words.iter().map(crate::Word::is_literal).collect();
    assert_eq!(literal, [true, false, false, true, true, true, false]);
    assert_eq!(
        argvs("curl http://host/?q=1"),
        [["curl", "http://host/?q=1"]]
    );
}

#[test]
fn the_keyword_time_is_understood_in_front_of_a_pipeline() {
    let line = lex("time -p cargo test | tail -5").unwrap();
    assert!(line.pipelines[0].timed.unwrap().posix_format);
    assert_eq!(argvs("time ls")[0], ["ls"]);
    assert_eq!(reason("time"), Odd::DanglingOperator);
    assert_eq!(reason("a | time b"), Odd::ReservedWord);
    assert_eq!(argvs("'time' ls")[0], ["time", "ls"]);
}

#[test]
fn odd_characters_are_seen_everywhere() {
    assert_eq!(reason("a\rb"), Odd::ControlCharacter);
    assert_eq!(reason("a 'b\u{1b}c'"), Odd::ControlCharacter);
    assert_eq!(reason("a\0b"), Odd::NulByte);
    assert_eq!(reason("a\u{a0}b"), Odd::UnusualBlank);
    assert_eq!(reason("a \u{200b}b"), Odd::UnusualBlank);
    assert_eq!(reason(&"a".repeat(64 * 1024 + 1)), Odd::TooLong);
    assert_eq!(reason("   \n # x\n"), Odd::Empty);
    assert_eq!(reason("a 'b"), Odd::UnterminatedQuote);
    assert_eq!(reason("a \\"), Odd::TrailingBackslash);
}

#[test]
fn the_span_of_an_odd_escape_ends_on_a_character() {
    let text = "a $'\\é'";
    assert_eq!(lex(text).unwrap_err().span.of(text), "\\é");
}

#[test]
fn the_leading_cd_chain_is_counted() {
    assert_eq!(lex("cd a && cd b && ls").unwrap().leading_cd(), 2);
    assert_eq!(lex("cd a ; ls").unwrap().leading_cd(), 0);
    assert_eq!(lex("ls && cd a && ls").unwrap().leading_cd(), 0);
}
