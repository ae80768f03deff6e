//! QR codes, as a drawing for pages and as text for terminals.

use std::fmt::Write as _;

use maud::{Markup, html};
use qrcode::{Color, EcLevel, QrCode};

/// The light modules around the code, without which cameras do not find it.
const QUIET: usize = 4;

/// Returns the modules of a code row by row, with the quiet zone around them. True means dark.
/// Returns `None` if the text is too long.
fn modules(text: &str) -> Option<Vec<Vec<bool>>> {
    let code = QrCode::with_error_correction_level(text, EcLevel::M).ok()?;
    let width = code.width();
    let colors = code.to_colors();
    let side = width + 2 * QUIET;
    let is_dark = |x: usize, y: usize| {
        let inside = QUIET..QUIET + width;
        inside.contains(&x)
            && inside.contains(&y)
            && colors.get((y - QUIET) * width + x - QUIET) == Some(&Color::Dark)
    };
    let row = |y: usize| (0..side).map(|x| is_dark(x, y)).collect();
    Some((0..side).map(row).collect())
}

/// Returns the code as one drawing of squares.
pub fn qr_drawing(text: &str) -> Option<Markup> {
    let rows = modules(text)?;
    let side = rows.len();
    let mut path = String::new();
    for (y, row) in rows.iter().enumerate() {
        for (x, _) in row.iter().enumerate().filter(|(_, is_dark)| **is_dark) {
            let _ = write!(path, "M{x} {y}h1v1h-1z");
        }
    }
    Some(html! {
        svg class="qr" viewBox=(format!("0 0 {side} {side}")) role="img" aria-label="QR code" shape-rendering="crispEdges" {
            rect width=(side) height=(side) fill="#fff" {}
            path d=(path) fill="#000" {}
        }
    })
}

/// Returns the code as lines of text, each of two rows. Light modules are drawn, because most
/// terminals are dark.
pub fn qr_lines(text: &str) -> Option<Vec<String>> {
    let rows = modules(text)?;
    let lines = rows.chunks(2).map(|pair| {
        let upper = pair.first().map(Vec::as_slice).unwrap_or_default();
        let lower = pair.get(1).map(Vec::as_slice).unwrap_or_default();
        let cells = upper.iter().enumerate();
        let cells = cells.map(|(x, is_dark)| {
            let is_dark_below = lower.get(x).copied().unwrap_or(false);
            match (is_dark, is_dark_below) {
                (false, false) => '█',
                (false, true) => '▀',
                (true, false) => '▄',
                (true, true) => ' ',
            }
        });
        cells.collect()
    });
    Some(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_same_on_a_page_and_on_a_terminal() {
        let text = "https://192.168.1.20:18789/#pair=0123456789abcdef";
        let rows = modules(text).unwrap();
        let dark: usize = rows.iter().flatten().filter(|is_dark| **is_dark).count();
        let drawing = qr_drawing(text).unwrap().into_string();
        assert_eq!(drawing.matches("h1v1h-1z").count(), dark);
        let lines = qr_lines(text).unwrap();
        assert!(lines.iter().all(|line| line.chars().count() == rows.len()));
        assert!(rows[..QUIET].iter().flatten().all(|is_dark| !is_dark));
    }

    #[test]
    fn what_is_too_long_is_none() {
        assert!(qr_drawing(&"x".repeat(5000)).is_none());
        assert!(qr_lines(&"x".repeat(5000)).is_none());
    }
}
