//! No request keeps the reader busy: what is too much is said to be, and looked at no further.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_command::{
    Analysis, Closed, Host, MAX_PLAIN_BYTES, MAX_PLAIN_COMMANDS, MAX_PLAIN_WORDS, Odd, Program,
    Source, analyse, describe, lex,
};
use interlock_programs::{VirtualHost, trusted_dirs};

fn analysis(text: &str) -> Analysis {
    let resolver = VirtualHost::new();
    let trusted_dirs = trusted_dirs(&[]);
    let host = Host {
        resolver: &resolver,
        trusted_dirs: &trusted_dirs,
    };
    analyse(Source::Text(text.to_owned()), "/w", host).unwrap()
}

/// As long as a plain text may be.
fn longest(start: &str, unit: &str) -> String {
    format!(
        "{start}{}",
        unit.repeat((MAX_PLAIN_BYTES - start.len()) / unit.len())
    )
}

#[test]
fn a_text_of_too_many_words_or_commands_is_not_plain() {
    let words = |count: usize| format!("x{}", " a".repeat(count - 1));
    assert!(lex(&words(MAX_PLAIN_WORDS)).is_ok());
    assert_eq!(
        lex(&words(MAX_PLAIN_WORDS + 1)).unwrap_err().reason,
        Odd::TooManyWords
    );
    let commands = |count: usize| format!("x{}", ";a".repeat(count - 1));
    assert!(lex(&commands(MAX_PLAIN_COMMANDS)).is_ok());
    assert_eq!(
        lex(&commands(MAX_PLAIN_COMMANDS + 1)).unwrap_err().reason,
        Odd::TooManyWords
    );
}

#[test]
fn the_message_names_the_limits() {
    let message = Odd::TooManyWords.message();
    assert!(message.contains(&MAX_PLAIN_COMMANDS.to_string()));
    assert!(message.contains(&MAX_PLAIN_WORDS.to_string()));
}

#[test]
fn commands_of_texts_within_texts_count_together() {
    let inner = format!("sh -c 'a{}'", ";a".repeat(99));
    let analysis = analysis(&[inner.as_str(); 5].join(" && "));
    assert_eq!(analysis.commands.len(), 203);
    let closed = |program: &Program| matches!(program, Program::Closed { reason: Closed::ShellOptions(reason), .. } if reason.contains("too many"));
    let closed = analysis
        .commands
        .iter()
        .filter(|command| closed(&command.program));
    assert_eq!(closed.count(), 3);
}

#[test]
fn a_look_through_hostile_layers_ends_and_says_so() {
    for (start, unit) in [
        ("sudo ", "-a longer-name "),
        ("", "sudo -a longer-name "),
        ("", "find . -exec nice "),
        ("", "env nice nohup sudo "),
        (
            "x",
            "&& sh -c 'rm $x; sudo sh -c \"rm $y\"' || sudo tmux -a 'rm $z' -b 'rm $((a))' &&\n nice nice nice nice nice sudo -a nice -b nice -c nice -d nice -e nice -f nice -g nice -h nice -i nice -j nice -k nice rm -rf some-longer-name",
        ),
    ] {
        let text = longest(start, unit);
        let sight = analysis(&text).sight();
        assert!(sight.unseen.is_some(), "{unit}");
        assert!(
            sight.commands.len() <= 512,
            "{unit}: {}",
            sight.commands.len()
        );
    }
}

/// The parser's tokenizer panics on such a text.
#[test]
fn a_text_without_an_end_is_not_described() {
    for text in [
        "echo \"a $(b o \"a $(b \"$(c\"$(c `d`<<  o \"a $(b \"$(((1+(2)))\"\n",
        "a 'b",
        "a $(b",
        "a <<E\nb\n",
        "a \"${b\"",
    ] {
        let reason = describe(text).unseen;
        assert_eq!(reason, Some("the text is not valid shell syntax"), "{text}");
    }
    assert_eq!(describe("((x = 1 << 2))\n((a <<= 1)) && b\n").unseen, None);
}

/// Texts on which the parser would take very long, each for a reason of its own.
#[test]
fn texts_that_would_take_long_are_not_described() {
    let nested = |open: &str, middle: &str, close: &str, levels: usize| {
        format!("{}{middle}{}", open.repeat(levels), close.repeat(levels))
    };
    let long = |unit: &str| unit.repeat(16_000 / unit.len());
    for text in [
        nested("( ", "a;", " )", 13),
        nested("((", &long("a; "), "))", 4),
        nested("case x in a) ", &"b ".repeat(2000), "", 6),
        nested("case x in esac) ", &"b ".repeat(2000), "", 6),
        nested("(case x in a) echo esac; b) ", &"c ".repeat(2000), "", 6),
        nested("[[ a =~ (", &long("b "), "", 6),
        nested("function f case x in a) ", "b", "", 13),
        format!("a[{}=b", "a[".repeat(4000)),
        format!("a <<E {}\nE\n", long(";a")),
        format!("a \"${{x <<E {}\nE\n}}\"", long(";a")),
        format!("a $(b <<E {}\nE\n)", long(";a")),
        nested("$(", "a", ")", 300),
        nested("{ ", "a;", " }", 65),
        nested("! ", "a", "", 65),
        nested("\"$(a ", "b", ")\"", 300),
        long("eval "),
    ] {
        let description = describe(&text);
        let start: String = text.chars().take(60).collect();
        assert!(description.unseen.is_some(), "{start}");
    }
}
