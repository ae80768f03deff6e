//! A command as the approver reads it.

use interlock_command::display::{Secrets, command};

use crate::comparison::{Answer, Comparison, Direction, Row, unreadable};

pub fn ask(row: Row<'_>) -> Answer {
    match row.kind() {
        "command-text" => shown(row).unwrap_or_else(unreadable),
        _ => Answer::NotOurs,
    }
}

fn shown(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().text("shown")?.to_owned();
    let got = command(row.text("text")?, Secrets::Masked).ok()?.text;
    Some(Comparison::values(&expected, &got, Direction::Different))
}
