//! What holds for every policy and every command.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{ALL_SOURCES, Knobs, Spec, any_source, deny_rule, knobs, source, spec};
use interlock_command::{Shape, Source};
use interlock_policy::{
    Ask, CallerInput, Fallback, Joined, Layer, Levels, PolicySource as LayerSource, Security,
    Sourced, Strictness, Verdict,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn assert_join_laws<T: Strictness + std::fmt::Debug>(all: &[T]) {
    for &a in all {
        assert_eq!(a.join(a), a);
        for &b in all {
            let joined = a.join(b);
            assert_eq!(joined, b.join(a));
            assert!(joined >= a && joined >= b && (joined == a || joined == b));
            for &c in all {
                assert_eq!(a.join(b).join(c), a.join(b.join(c)));
                if a <= b {
                    assert!(a.join(c) <= b.join(c), "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}

#[test]
fn joining_levels_is_associative_commutative_idempotent_and_monotone() {
    assert_join_laws(Security::ALL);
    assert_join_laws(Ask::ALL);
    assert_join_laws(Fallback::ALL);
}

fn values(levels: &Levels) -> (Security, Ask, Fallback) {
    (
        levels.security.value(),
        levels.ask.value(),
        levels.ask_fallback.value(),
    )
}

fn join(knobs: &[Knobs]) -> Levels {
    let layers: Vec<Layer> = knobs.iter().map(|knobs| knobs.layer()).collect();
    Levels::join(&layers)
}

/// A layer that says what `levels` came to, where any source said anything.
fn as_layer(levels: &Levels) -> Layer {
    fn said<T: Strictness>(joined: &Joined<T>) -> Option<Sourced<T>> {
        (!joined.layers.is_empty()).then(|| joined.effective.clone())
    }
    Layer {
        security: said(&levels.security),
        ask: said(&levels.ask),
        ask_fallback: said(&levels.ask_fallback),
    }
}

fn layers() -> impl Strategy<Value = Vec<Knobs>> {
    proptest::collection::vec(knobs(ALL_SOURCES), 0..6)
}

fn outcome(spec: &Spec, source: &Source) -> Option<(u8, Verdict)> {
    let (_, verdict) = spec.judge(source)?;
    Some((verdict.outcome.strictness(), verdict))
}

/// Changes `spec` and demands that what was not allowed before is not allowed afterwards.
fn never_allows(spec: &Spec, source: &Source, change: impl FnOnce(&mut Spec)) {
    let mut changed = spec.clone();
    change(&mut changed);
    let (Some((before, first)), Some((after, second))) =
        (outcome(spec, source), outcome(&changed, source))
    else {
        return;
    };
    assert!(
        before == 0 || after > 0,
        "{:?} became {:?} by {changed:?}",
        first.reason,
        second.reason
    );
}

/// As above, and no denial becomes a question.
fn never_loosens(spec: &Spec, source: &Source, change: impl FnOnce(&mut Spec)) {
    let mut changed = spec.clone();
    change(&mut changed);
    let (Some((before, first)), Some((after, second))) =
        (outcome(spec, source), outcome(&changed, source))
    else {
        return;
    };
    assert!(
        after >= before,
        "{:?} became {:?} by {changed:?}",
        first.reason,
        second.reason
    );
}

/// One step stricter; what says nothing may say anything, since a source can only tighten.
fn tighten<T: Strictness>(value: &mut Option<T>, all: &[T], index: Index) {
    *value = Some(match *value {
        None => all[index.index(all.len())],
        Some(value) => all
            .iter()
            .copied()
            .find(|next| *next > value)
            .unwrap_or(value),
    });
}

fn may_run_without_an_approver(verdict: &Verdict) -> bool {
    verdict.outcome.is_allow()
        || verdict
            .fallback
            .as_ref()
            .is_some_and(|fallback| fallback.allow)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_order_of_the_sources_never_matters(layers in layers(), rotation in any::<Index>()) {
        let expected = values(&join(&layers));
        let mut moved = layers.clone();
        moved.reverse();
        prop_assert_eq!(values(&join(&moved)), expected);
        if !moved.is_empty() {
            let middle = rotation.index(moved.len());
            moved.rotate_left(middle);
        }
        prop_assert_eq!(values(&join(&moved)), expected);
        prop_assert_eq!(values(&join(&[layers.clone(), layers].concat())), expected);
    }

    #[test]
    fn joining_part_by_part_is_joining_all_at_once(left in layers(), right in layers()) {
        let parts = [as_layer(&join(&left)), as_layer(&join(&right))];
        prop_assert_eq!(values(&Levels::join(&parts)), values(&join(&[left, right].concat())));
    }

    /// The fallback starts out strict: only where a source has set one is there something to keep.
    #[test]
    fn one_more_source_never_loosens_a_level(layers in layers(), added in knobs(ALL_SOURCES)) {
        let before = join(&layers);
        let after = join(&[layers, vec![added]].concat());
        prop_assert!(after.security.value() >= before.security.value());
        prop_assert!(after.ask.value() >= before.ask.value());
        prop_assert!(
            after.ask_fallback.value() >= before.ask_fallback.value()
                || before.ask_fallback.layers.is_empty()
        );
    }

    #[test]
    fn a_stricter_layer_never_allows(
        spec in spec(),
        source in source(),
        layer in any::<Index>(),
        field in 0..3_u8,
        value in any::<Index>(),
    ) {
        never_allows(&spec, &source, |spec| {
            if spec.layers.is_empty() {
                return;
            }
            let index = layer.index(spec.layers.len());
            let knobs = &mut spec.layers[index];
            match field {
                0 => tighten(&mut knobs.security, Security::ALL, value),
                1 => tighten(&mut knobs.ask, Ask::ALL, value),
                _ => tighten(&mut knobs.ask_fallback, Fallback::ALL, value),
            }
        });
    }

    #[test]
    fn one_more_layer_never_allows(spec in spec(), source in source(), added in knobs(ALL_SOURCES)) {
        never_allows(&spec, &source, |spec| spec.layers.push(added));
    }

    #[test]
    fn a_stricter_security_never_gives_a_looser_verdict(
        spec in spec(),
        source in source(),
        security in select(Security::ALL),
    ) {
        never_loosens(&spec, &source, |spec| {
            spec.layers.push(Knobs {
                source: LayerSource::Session,
                security: Some(security),
                ask: None,
                ask_fallback: None,
            });
        });
    }

    #[test]
    fn one_more_deny_rule_never_loosens(spec in spec(), source in source(), rule in deny_rule()) {
        never_loosens(&spec, &source, |spec| spec.deny.push(rule));
    }

    #[test]
    fn one_entry_less_never_loosens(spec in spec(), source in source(), which in any::<Index>()) {
        never_loosens(&spec, &source, |spec| {
            if !spec.entries.is_empty() {
                let index = which.index(spec.entries.len());
                spec.entries.remove(index);
            }
        });
    }

    #[test]
    fn fewer_safe_bins_and_skills_and_strict_inline_evaluation_never_allow(spec in spec(), source in source()) {
        never_loosens(&spec, &source, |spec| spec.safe_bins = Some(Vec::new()));
        never_loosens(&spec, &source, |spec| spec.auto_allow_skills = false);
        never_allows(&spec, &source, |spec| spec.strict_inline_eval = true);
    }

    #[test]
    fn a_call_with_more_variables_or_with_input_is_never_allowed_more(
        spec in spec(),
        source in source(),
        name in select(&["A", "LANG", "TZ", "LD_PRELOAD", "ZZZ"][..]),
        input in select(&[CallerInput::Pipe, CallerInput::Terminal][..]),
    ) {
        if spec.input == CallerInput::None {
            never_allows(&spec, &source, |spec| spec.input = input);
        }
        if !spec.env.contains_key(name) {
            never_allows(&spec, &source, |spec| {
                spec.env.insert(name.to_owned(), "x".to_owned());
            });
        }
    }

    #[test]
    fn the_ask_of_a_call_never_lets_more_run_without_an_approver(
        spec in spec(),
        source in source(),
        ask in select(Ask::ALL),
    ) {
        let mut asking = spec.clone();
        asking.layers.push(Knobs {
            source: LayerSource::Call,
            security: None,
            ask: Some(ask),
            ask_fallback: None,
        });
        if let (Some((_, without)), Some((_, with))) = (outcome(&spec, &source), outcome(&asking, &source)) {
            prop_assert!(
                may_run_without_an_approver(&without) || !may_run_without_an_approver(&with),
                "{:?} became {:?}", without.reason, with.fallback
            );
        }
    }

    #[test]
    fn by_asking_for_prompts_no_caller_gets_what_would_be_refused_otherwise(
        spec in spec(),
        source in source(),
        ask in select(Ask::ALL),
        layer in select(&[LayerSource::Session, LayerSource::Call][..]),
    ) {
        let mut changed = spec.clone();
        changed.layers.push(Knobs {
            source: layer,
            security: None,
            ask: Some(ask),
            ask_fallback: None,
        });
        if let (Some((_, before)), Some((_, after))) = (outcome(&spec, &source), outcome(&changed, &source)) {
            prop_assert!(
                may_run_without_an_approver(&before) || !may_run_without_an_approver(&after),
                "{:?} became {:?}",
                before.reason,
                after.reason
            );
        }
    }

    #[test]
    fn what_the_allowlist_allows_is_satisfied_in_every_segment(spec in spec(), source in source()) {
        let security = join(&spec.layers).security.value();
        if let Some((analysis, verdict)) = spec.judge(&source)
            && verdict.outcome.is_allow()
        {
            prop_assert!(security != Security::Deny);
            if security == Security::Allowlist && verdict.reason.code != "exact-command" {
                prop_assert!(!matches!(analysis.shape, Shape::Odd(_)));
                prop_assert!(!verdict.segments.is_empty());
                prop_assert_eq!(verdict.segments.len(), analysis.commands.len());
                prop_assert!(verdict.segments.iter().all(|judged| judged.satisfied_by.is_some()));
            }
        }
    }

    #[test]
    fn the_same_question_has_the_same_answer(spec in spec(), source in any_source()) {
        let answer = |spec: &Spec| spec.judge(&source).map(|(_, verdict)| format!("{verdict:?}"));
        prop_assert_eq!(answer(&spec), answer(&spec));
    }

    #[test]
    fn nothing_makes_the_judge_panic(
        mut spec in spec(),
        source in any_source(),
        pattern in any::<String>(),
        arguments in proptest::option::of(any::<String>()),
    ) {
        let entry = interlock_policy::Entry {
            arg_pattern: arguments,
            ..interlock_policy::Entry::for_pattern(pattern)
        };
        spec.entries.push(crate::support::EntrySpec::Entry(Box::new(entry)));
        let _ = spec.judge(&source);
    }
}
