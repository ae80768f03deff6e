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

/// Every row of the table of vendors, by a token of the least length.
#[test]
fn tokens_of_every_vendor_are_masked() {
    for shape in shapes::TOKENS {
        let body = "a1B2c3D4e5".repeat(8);
        let token = format!("{}{}", shape.prefix, &body[..shape.least.max(18)]);
        for text in [
            format!("tool {token} x"),
            format!("tool 'a {token}'"),
            format!("tool --with={token}"),
            format!("curl https://x.test/{token}/y?z"),
            format!("git clone https://{token}@host.test/a/b"),
        ] {
            let shown = shown(&text.replace("?z", ""));
            assert!(!shown.contains(&token), "{shown}");
        }
    }
}

#[test]
fn shapes_of_secrets_are_masked() {
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/=\nabc\n-----END RSA PRIVATE KEY-----";
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk";
    for (text, expected) in [
        (
            format!("printf '%s' '{pem}' | ssh-add -"),
            "printf '%s' '-----BEGIN RSA PRIVATE KEY-----\\u{A}…redacted…\\u{A}-----END RSA PRIVATE KEY-----' | ssh-add -",
        ),
        (
            "x '-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----'".to_owned(),
            "x '***'",
        ),
        (format!("tool {jwt}"), "tool eyJhbG…hijk"),
        (
            format!("curl 'https://x.test/?id_token={jwt}&a=1'"),
            "curl 'https://x.test/?id_token=eyJhbG…hijk&a=1'",
        ),
        (
            "git clone https://ghp_1234567890abcdefghij1234567890abcdef@github.com/user/repo"
                .to_owned(),
            "git clone https://ghp_12…cdef@github.com/user/repo",
        ),
        (
            "curl https://x.test/a?access_token=abc&x=1".to_owned(),
            "curl https://x.test/a?access_token=***&x=1",
        ),
        (
            "psql postgres://me:hunter2@db/x".to_owned(),
            "psql postgres://me:***@db/x",
        ),
        (
            "curl 'https://x.test/a?key=abc&x=1'".to_owned(),
            "curl 'https://x.test/a?key=***&x=1'",
        ),
        (
            "curl 'https://x.test/a?x=1&access_token=abc#f'".to_owned(),
            "curl 'https://x.test/a?x=1&access_token=***#f'",
        ),
        (
            "curl -d 'client_secret=abc&grant_type=x' u".to_owned(),
            "curl -d 'client_secret=***&grant_type=x' u",
        ),
        (
            "curl -d password=abc u".to_owned(),
            "curl -d password=*** u",
        ),
        (
            "curl --data-urlencode 'user[password]=abc' u".to_owned(),
            "curl --data-urlencode 'user[password]=***' u",
        ),
        (
            "curl -d '{\"password\":\"abc\",\"a\":1}' u".to_owned(),
            "curl -d '{\"password\":\"***\",\"a\":1}' u",
        ),
        (
            "curl -H 'Authorization: Basic dXNlcjpwYXNz' u".to_owned(),
            "curl -H 'Authorization: Basic ***' u",
        ),
        (
            "curl -H 'authorization:  token abc' u".to_owned(),
            "curl -H 'authorization:  token ***' u",
        ),
        (
            "curl -H 'Cookie: a=b; sid=abc' u".to_owned(),
            "curl -H 'Cookie: a=***; sid=***' u",
        ),
        ("curl -u me:hunter2 u".to_owned(), "curl -u me:*** u"),
        ("mysql -phunter2 db".to_owned(), "mysql -p*** db"),
        (
            "sshpass -p hunter2 ssh h".to_owned(),
            "sshpass -p *** ssh h",
        ),
        (
            "docker login -u me -p hunter2".to_owned(),
            "docker login -u me -p ***",
        ),
        (
            "redis-cli -a hunter2 ping".to_owned(),
            "redis-cli -a *** ping",
        ),
        (
            "openssl rsa -passin pass:hunter2".to_owned(),
            "openssl rsa -passin pass:***",
        ),
        ("tool --api-key 'abc'".to_owned(), "tool --api-key '***'"),
        (
            "OPENAI_KEY=abcdefgh12345678 tool".to_owned(),
            "OPENAI_KEY=*** tool",
        ),
        (
            "curl https://hooks.slack.com/services/T000/B000/abcdefghijklmnop".to_owned(),
            "curl https://hooks.slack.com/services/T000/B000/***",
        ),
        (
            format!(
                "curl https://api.telegram.org/bot123456789:{}/getMe",
                "aB3".repeat(11)
            ),
            "curl https://api.telegram.org/bot123456…3aB3/getMe",
        ),
        (
            "sh -c 'tool --token abc; ls'".to_owned(),
            "sh -c 'tool --token ***; ls'",
        ),
        (
            "bash -c \"curl -H 'X-Api-Key: abc' u\"".to_owned(),
            "bash -c \"curl -H 'X-Api-Key: ***' u\"",
        ),
        (
            "sudo env A_TOKEN=abc ls".to_owned(),
            "sudo env A_TOKEN=*** ls",
        ),
        (
            "tool --token 'ab'\"cd\"".to_owned(),
            "tool --token '***'\"***\"",
        ),
    ] {
        assert_eq!(shown(&text), expected, "{text:?}");
        let revealed = command(&text, Secrets::Revealed).unwrap().text;
        assert_eq!(revealed, text.replace('\n', "\\u{A}"));
    }
}

#[test]
fn a_mask_stays_inside_a_word_that_is_proven_literal() {
    for (text, visible) in [
        ("tool --token x&./evil", "./evil"),
        ("tool --token x&&./evil", "./evil"),
        ("tool --token=x&./evil", "./evil"),
        ("tool --token x;./evil", "./evil"),
        ("tool --password x|./evil", "./evil"),
        ("tool --password\n./evil", "./evil"),
        ("tool --token ./evil", "./evil"),
        ("env --token ./evil", "./evil"),
        ("nohup --token evil", "evil"),
        ("sudo --password evil", "evil"),
        ("xargs token=./evil", "./evil"),
        ("bash token=./evil", "./evil"),
        ("psql --password evil", "evil"),
        ("ansible-playbook --ask-become-password evil", "evil"),
        ("docker run -p evil", "evil"),
        ("T_TOKEN=x ./evil", "./evil"),
        ("sh -c 'tool --token x&./evil'", "./evil"),
        ("ssh host 'tool --password=x;./evil'", "./evil"),
        ("ssh host tool --password 'x;./evil'", "./evil"),
        ("python3 -c 'password=x;evil()'", "evil()"),
        ("curl -H 'Authorization: Bearer x;./evil'", "./evil"),
        ("curl -H 'Cookie: a=x;./evil'", "./evil"),
        ("curl https://me:x;./evil@host", "./evil"),
        (
            "x '-----BEGIN PRIVATE KEY-----\n$(./evil)\n-----END PRIVATE KEY-----'",
            "./evil",
        ),
        (
            "./ghp_abcdefghijklmnopqrstuvwxyz0123",
            "ghp_abcdefghijklmnopqrstuvwxyz0123",
        ),
        (
            "bash ./ghp_abcdefghijklmnopqrstuvwxyz0123",
            "ghp_abcdefghijklmnopqrstuvwxyz0123",
        ),
    ] {
        assert!(shown(text).contains(visible), "{text:?}: {}", shown(text));
    }
}

#[test]
fn text_that_is_not_plain_is_shown_unmasked() {
    for text in [
        "tool --token abc $(x)",
        "tool --token abc `x`",
        "API_TOKEN=abc; echo \"$API_TOKEN\"",
        "cat <<E --token abc",
        "tool --token abc > file",
        "f() { tool --token abc; }",
        "curl -H \"Authorization: Bearer abcdef\" $URL",
        "tool --token abc*",
        "curl https://x.test/?token=a*b",
        "tool --token abc\u{1b}[2J",
    ] {
        let masked = command(text, Secrets::Masked).unwrap();
        let revealed = command(text, Secrets::Revealed).unwrap();
        assert_eq!(masked, revealed, "{text:?}");
    }
}

#[test]
fn values_are_masked_by_their_name_and_stay_on_one_line() {
    for (name, value, expected) in [
        ("GITHUB_TOKEN", "abc", "GITHUB_TOKEN=***"),
        ("DB_PASS", "abc", "DB_PASS=***"),
        (
            "DATABASE_URL",
            "postgres://a:b@c/d",
            "DATABASE_URL=postgres://a:***@c/d",
        ),
        ("GIT_ASKPASS", "/tmp/evil", "GIT_ASKPASS=/tmp/evil"),
        ("API_TOKEN", "$(evil)", "API_TOKEN=$(evil)"),
        ("A", "1\nin        /safe", "A=1\\u{A}in        /safe"),
        ("A\nB", "\u{1b}[2J\u{202e}", "A\\u{A}B=\\u{1B}[2J\\u{202E}"),
    ] {
        let (shown, masked) = named_value(name, value, Secrets::Masked);
        assert_eq!(shown.as_str(), expected);
        assert_eq!(masked, expected.matches("***").count());
        let (revealed, masked) = named_value(name, value, Secrets::Revealed);
        assert_eq!(revealed, ShownLine::new(&format!("{name}={value}")));
        assert_eq!(masked, 0);
    }
}

#[test]
fn a_line_has_no_break_and_rows_keep_all_of_it() {
    let line = ShownLine::new("a\nb\r\u{2028}\u{85}c");
    assert_eq!(line.as_str(), "a\\u{A}b\\u{D}\\u{2028}\\u{85}c");
    assert_eq!(ShownLine::new(line.as_str()), line);
    let read: ShownLine = serde_json::from_str("\"x\\ny\"").unwrap();
    assert_eq!(read.as_str(), "x\\u{A}y");
    assert_eq!(line.rows(7).concat(), line.as_str());
    assert!(line.rows(7).iter().all(|row| row.len() <= 7));
}

#[test]
fn marks_that_pile_up_are_spelled_out() {
    assert_eq!(shown("e\u{301}"), "e\u{301}");
    let flood = format!("x{}", "\u{335}".repeat(9));
    assert_eq!(shown(&flood).matches("\\u{335}").count(), 7);
    assert_eq!(shown("\u{301}x"), "\\u{301}x");
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

#[test]
fn hidden_ranges_are_in_order_so_that_they_can_be_searched() {
    for rows in super::hidden::HIDDEN.windows(2) {
        assert!(rows[0].0 <= rows[0].1 && rows[0].1 < rows[1].0);
    }
    for hidden in [
        '\u{AD}',
        '\u{200B}',
        '\u{202E}',
        '\u{10FFFF}',
        '\u{85}',
        '\u{2003}',
        '\t',
    ] {
        assert!(super::is_hidden(hidden), "{hidden:?}");
    }
    for shown in [' ', 'a', 'é', '\u{AE}', '\u{2010}', '漢'] {
        assert!(!super::is_hidden(shown), "{shown:?}");
    }
}
