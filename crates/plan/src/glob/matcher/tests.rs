use super::ComponentMatcher;
use interlock_programs::GlobToken::{self, Any, Literal, Set, Star};
use proptest::prelude::*;

fn matches(tokens: &[GlobToken], name: &[u8]) -> bool {
    ComponentMatcher::new(tokens).matches(name, &mut Vec::new())
}

fn literals(text: &str) -> Vec<GlobToken> {
    text.chars().map(Literal).collect()
}

/// A reference for the matcher, directly from the meaning of the tokens, in exponential time.
fn matches_by_definition(tokens: &[GlobToken], name: &str) -> bool {
    if name.starts_with('.') && tokens.first() != Some(&Literal('.')) {
        return false;
    }
    rest_matches(tokens, &name.chars().collect::<Vec<_>>())
}

fn rest_matches(tokens: &[GlobToken], name: &[char]) -> bool {
    let Some((token, tokens)) = tokens.split_first() else {
        return name.is_empty();
    };
    if *token == Star {
        return (0..=name.len()).any(|length| rest_matches(tokens, &name[length..]));
    }
    let Some((character, name)) = name.split_first() else {
        return false;
    };
    let accepted = match token {
        Star | Any => true,
        Literal(wanted) => wanted == character,
        Set { negated, ranges } => {
            let inside = ranges
                .iter()
                .any(|(first, last)| first <= character && character <= last);
            inside != *negated
        }
    };
    accepted && rest_matches(tokens, name)
}

/// Few characters, so that matches are common; one of them has two bytes, another four.
fn character() -> impl Strategy<Value = char> {
    prop::sample::select(vec!['a', 'b', 'c', '.', 'é', '🦀'])
}

fn token() -> impl Strategy<Value = GlobToken> {
    let range = (character(), character());
    prop_oneof![
        4 => character().prop_map(Literal),
        3 => Just(Star),
        2 => Just(Any),
        2 => (any::<bool>(), prop::collection::vec(range, 0..4))
            .prop_map(|(negated, ranges)| Set { negated, ranges }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_matcher_agrees_with_the_meaning_of_the_tokens(
        tokens in prop::collection::vec(token(), 0..8),
        name in prop::collection::vec(character(), 1..9),
    ) {
        let name: String = name.into_iter().collect();
        prop_assert_eq!(
            matches(&tokens, name.as_bytes()),
            matches_by_definition(&tokens, &name)
        );
    }

    #[test]
    fn any_bytes_are_a_name_that_a_lone_star_matches(
        name in prop::collection::vec(1_u8.., 1..64),
    ) {
        prop_assert_eq!(matches(&[Star], &name), name[0] != b'.');
    }
}

#[test]
fn many_stars_do_not_multiply_the_work() {
    // With backtracking for each star, this would practically never end.
    let mut tokens = Vec::new();
    for _ in 0..100 {
        tokens.extend([Star, Literal('a')]);
    }
    tokens.extend([Star, Literal('b')]);
    assert!(!matches(&tokens, &[b'a'; 255]));
    let mut name = vec![b'a'; 254];
    name.push(b'b');
    assert!(matches(&tokens, &name));
}

#[test]
fn a_byte_that_is_no_utf8_is_one_character_and_equal_to_none() {
    let name = b"a\xffb";
    let around = |token: GlobToken| [Literal('a'), token, Literal('b')];
    let set = |negated| Set {
        negated,
        ranges: vec![('\0', char::MAX)],
    };
    assert!(matches(&around(Star), name));
    assert!(matches(&around(Any), name));
    assert!(matches(&around(set(true)), name));
    assert!(!matches(&around(set(false)), name));
    assert!(!matches(&around(Literal('\u{ff}')), name));
    assert!(!matches(
        &around(Literal(char::REPLACEMENT_CHARACTER)),
        name
    ));
    assert!(!matches(&around(Any), b"a\xff\xfeb"));
}

#[test]
fn only_a_literal_dot_shows_hidden_names() {
    let dot_set = Set {
        negated: false,
        ranges: vec![('.', '.')],
    };
    assert!(!matches(&[Star], b".a"));
    assert!(!matches(&[Any, Literal('a')], b".a"));
    assert!(!matches(&[dot_set, Literal('a')], b".a"));
    assert!(!matches(&[Star, Literal('.'), Literal('a')], b".a"));
    assert!(matches(&[Literal('.'), Star], b".a"));
    assert!(matches(&literals(".a"), b".a"));
}
