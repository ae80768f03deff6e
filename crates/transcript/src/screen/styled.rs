//! A screen as runs of text with colors. It contains nothing of the program's output except what
//! the program drew.

/// One row of a screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScreenRow {
    /// From left to right, without blanks at the end.
    pub runs: Vec<ScreenRun>,
}

/// Adjacent characters of one row that look the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScreenRun {
    pub text: String,
    /// A color number of the terminal's palette; 255 for other colors.
    pub foreground: Option<u8>,
    pub background: Option<u8>,
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underline: bool,
    pub is_cursor: bool,
}

impl ScreenRun {
    fn looks_like(&self, other: &Self) -> bool {
        Self {
            text: String::new(),
            ..self.clone()
        } == Self {
            text: String::new(),
            ..other.clone()
        }
    }
}

pub(super) fn styled_row(
    screen: &vt100::Screen,
    row: u16,
    columns: u16,
    cursor: Option<u16>,
) -> ScreenRow {
    let mut runs: Vec<ScreenRun> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column) else {
            break;
        };
        if cell.is_wide_continuation() {
            continue;
        }
        let (mut foreground, mut background) = (palette(cell.fgcolor()), palette(cell.bgcolor()));
        if cell.inverse() {
            (foreground, background) = (background.or(Some(0)), foreground.or(Some(7)));
        }
        let run = ScreenRun {
            text: if cell.has_contents() {
                cell.contents().to_owned()
            } else {
                " ".to_owned()
            },
            foreground,
            background,
            bold: cell.bold(),
            dim: cell.dim(),
            italic: cell.italic(),
            underline: cell.underline(),
            is_cursor: cursor == Some(column),
        };
        match runs.last_mut() {
            Some(last) if last.looks_like(&run) => last.text.push_str(&run.text),
            _ => runs.push(run),
        }
    }
    while let Some(last) = runs.last_mut() {
        if last.background.is_some() || last.is_cursor || last.underline {
            break;
        }
        last.text.truncate(last.text.trim_end().len());
        if !last.text.is_empty() {
            break;
        }
        runs.pop();
    }
    ScreenRow { runs }
}

fn palette(color: vt100::Color) -> Option<u8> {
    match color {
        vt100::Color::Default => None,
        vt100::Color::Idx(number) => Some(number),
        vt100::Color::Rgb(..) => Some(255),
    }
}
