//! Inline code: what is found in an argv.

use interlock_programs::inline::{detect, detect_through_carriers, is_inline_capable_pattern};

use crate::comparison::{Answer, Comparison, Direction, Row, unreadable};

pub fn ask(row: Row<'_>) -> Answer {
    let answer = match row.kind() {
        "" => argv(row),
        "allowlist-pattern" => pattern(row),
        _ => Some(Answer::NotOurs),
    };
    answer.unwrap_or_else(unreadable)
}

fn argv(row: Row<'_>) -> Option<Answer> {
    let argv = row.argv("argv")?;
    let hit = if row.get("throughCarriers").as_bool() == Some(true) {
        detect_through_carriers(&argv)
    } else {
        detect(&argv)
    };
    let expect = row.expect();
    let detected = expect.get("detected").as_bool();
    let label = expect.text("label").map(str::to_owned);
    let expected = detected.unwrap_or(label.is_some());
    let got = hit
        .as_ref()
        .map(interlock_programs::inline::InlineHit::label);
    if expected != got.is_some() {
        return Some(Comparison::suspicion(expected, got.is_some()));
    }
    // The label is what a person reads.
    Some(match label {
        Some(_) => Comparison::values(&label, &got, Direction::Different),
        None => Comparison::suspicion(expected, got.is_some()),
    })
}

fn pattern(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().get("interpreterLike").as_bool()?;
    let got = is_inline_capable_pattern(row.text("pattern")?);
    Some(Comparison::suspicion(expected, got))
}
