use super::*;

fn shown(text: &str) -> String {
    command(text, Secrets::Masked).unwrap().text
}

#[test]
fn what_cannot_be_seen_is_spelled_out() {
    for (text, expected) in [
        ("a\u{202E}b", "a\\u{202E}b"),
        ("ls\n\rrm", "ls\\u{A}\\u{D}rm"),
        ("a\tb\u{1b}[2J", "a\\u{9}b\\u{1B}[2J"),
        ("a\u{200B}\u{FEFF}\u{A0}b", "a\\u{200B}\\u{FEFF}\\u{A0}b"),
        (
            "x\u{E0061}\u{FE0F}\u{3164}y",
            "x\\u{E0061}\\u{FE0F}\\u{3164}y",
        ),
        ("echo hello", "echo hello"),
        ("echo \\u{41}", "echo \\u{41}"),
    ] {
        assert_eq!(shown(text), expected, "{text:?}");
    }
    assert_eq!(visible("a\nb\u{7}"), "a\nb\\u{7}");
}

#[test]
fn what_looks_like_an_ascii_word_and_is_none_is_spelled_out() {
    for (text, expected) in [
        ("р\u{430}ypal", "\\u{440}\\u{430}ypal"),
        ("\u{441}\u{443}", "\\u{441}\\u{443}"),
        ("rm\u{2010}rf", "rm\\u{2010}rf"),
        ("a\u{2215}b", "a\\u{2215}b"),
        ("\u{FF52}\u{FF4D}", "\\u{FF52}\\u{FF4D}"),
        ("ls\u{37E}rm", "ls\\u{37E}rm"),
        ("echo привет, мир", "echo привет, мир"),
        ("echo καλημέρα", "echo καλημέρα"),
        ("echo 你好 — été", "echo 你好 — été"),
        ("git commit -m 'it’s done'", "git commit -m 'it’s done'"),
    ] {
        assert_eq!(shown(text), expected, "{text:?}");
    }
}

#[test]
fn secrets_are_masked() {
    for (text, expected) in [
        ("x ghp_abcdefghijklmnopqrstuvwxyz0123", "x ghp_ab…0123"),
        ("A=AKIAABCDEFGHIJKLMNOP aws", "A=AKIAAB…MNOP aws"),
        ("GITHUB_TOKEN=short gh", "GITHUB_TOKEN=*** gh"),
        ("export DB_PASSWORD='hunter2'", "export DB_PASSWORD='***'"),
        (
            "curl https://me:pass@x.test/a",
            "curl https://me:***@x.test/a",
        ),
        (
            "curl -H 'Authorization: Bearer abcdef'",
            "curl -H 'Authorization: Bearer ***'",
        ),
        (
            "curl -H \"X-Api-Key: abcdef\"",
            "curl -H \"X-Api-Key: ***\"",
        ),
        ("tool --password hunter2 x", "tool --password *** x"),
        ("tool --token=abc x", "tool --token=*** x"),
        ("-d '{\"api_key\": \"abc\"}'", "-d '{\"api_key\": \"***\"}'"),
        ("?a=1&access_token=abc&b=2", "?a=1&access_token=***&b=2"),
    ] {
        assert_eq!(shown(text), expected, "{text:?}");
        assert_eq!(command(text, Secrets::Revealed).unwrap().text, text);
    }
}

#[test]
fn a_mask_never_hides_code() {
    for text in [
        "API_TOKEN=$(curl x|sh) ls",
        "API_TOKEN=`rm x` ls",
        "API_TOKEN=a$(rm) ls",
        "API_TOKEN=\"$(rm)\" ls",
        "TOKEN=;rm x",
        "curl -H 'Authorization: Bearer '$(rm)",
        "tool --password $(rm) x",
        "tool --password --force x",
        "sk-abc; rm -r x",
        "max_tokens=100 token_file=x",
        "git checkout sk-short",
        "ls https://x.test:80/a@b",
    ] {
        assert_eq!(shown(text), text);
    }
    // Only the literal part is masked, and what follows stays.
    assert_eq!(shown("T_TOKEN=abc;rm -r /"), "T_TOKEN=***;rm -r /");
    assert_eq!(shown("T_TOKEN=abc|sh"), "T_TOKEN=***|sh");
}

#[test]
fn a_hidden_character_does_not_part_a_secret_from_its_name() {
    assert_eq!(
        shown("app_se\u{200B}cret=abc&x=1"),
        "app_se\\u{200B}cret=***&x=1"
    );
    assert_eq!(shown("T_TOKEN=ab\u{200B}cd x"), "T_TOKEN=***\\u{200B}*** x");
}

#[test]
fn long_texts_show_their_beginning_and_their_end() {
    let text = format!("echo {}; rm -r x", "a".repeat(40_000));
    let shown = command(&text, Secrets::Masked).unwrap();
    assert!(shown.text.starts_with("echo aaa"));
    assert!(shown.text.ends_with("; rm -r x"));
    assert!(
        shown
            .text
            .contains(&format!("{} bytes are not shown", shown.left_out))
    );
    assert!(shown.text.len() <= MAX_SHOWN_BYTES + 64);
    assert_eq!(
        command(&"x".repeat(MAX_INPUT_BYTES + 1), Secrets::Masked),
        Err(MAX_INPUT_BYTES + 1)
    );
    assert!(command(&"\u{202E}".repeat(MAX_INPUT_BYTES / 3), Secrets::Masked).is_ok());
}

mod properties {
    use super::super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_can_be_shown_and_nothing_hidden_is_left(text in any::<String>()) {
            for secrets in [Secrets::Masked, Secrets::Revealed] {
                let shown = command(&text, secrets).unwrap();
                prop_assert!(!shown.text.chars().any(super::super::hidden::is_hidden));
            }
        }

        /// Whatever a shell acts on is shown as often as it is written.
        #[test]
        fn no_sign_that_a_shell_acts_on_is_masked(text in "[a-z=\\$`;|&<>(){}'\" :/@_-]{0,60}(_TOKEN=|--password |Authorization: )[a-z=$`;|<>(){}'\" :/@_-]{0,40}") {
            let shown = command(&text, Secrets::Masked).unwrap().text;
            for sign in ['$', '`', ';', '|', '<', '>', '(', ')', '{', '}', '\'', '"'] {
                prop_assert_eq!(text.matches(sign).count(), shown.matches(sign).count(), "{}", text);
            }
        }
    }
}
