//! The full-screen inbox: keys, one at a time, each for what was drawn before it.

use std::io;
use std::time::{Duration, Instant};

use interlock_command::display::Secrets;
use interlock_host::{Choice, Decision, Lease};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEvent, KeyEventKind,
    KeyModifiers,
};
use ratatui::crossterm::execute;

use super::super::milliseconds;
use super::draw::draw;
use super::inbox::{Chosen, Inbox, Mode, Selection, is_broad};
use super::{LOOK, Window};
use crate::failure::Failure;
use crate::output::visible;

/// So many lines at once.
const SCROLL: isize = 5;

/// What a lease is given when nothing else is typed.
const USUAL_LEASE: &str = "1h";

/// The longest duration that is typed.
const MAX_LEASE_TEXT: usize = 8;

/// The terminal as it is drawn on; as it was before when this is gone.
struct Screen(DefaultTerminal);

impl Screen {
    fn enter() -> io::Result<Self> {
        let screen = Self(ratatui::try_init()?);
        // What is pasted is no key: it decides nothing.
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), DisableBracketedPaste);
        let _ = ratatui::try_restore();
    }
}

pub(super) fn run(window: &mut Window<'_>) -> Result<(), Failure> {
    let broken = |error: io::Error| Failure::refused("TERMINAL_UNUSABLE", error.to_string());
    let mut screen = Screen::enter().map_err(broken)?;
    let mut inbox = Inbox::new();
    let mut looked: Option<Instant> = None;
    while !window.is_over() {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            refresh(window, &mut inbox)?;
            looked = Some(Instant::now());
        }
        let listens = window.listener.is_some();
        let drawn = screen.0.draw(|frame| draw(frame, &mut inbox, listens));
        drawn.map_err(broken)?;
        for row in &inbox.rows {
            window.shown(&row.id);
        }
        if !event::poll(LOOK).map_err(broken)? {
            continue;
        }
        if let Event::Key(key) = event::read().map_err(broken)?
            && key.kind == KeyEventKind::Press
            && press(window, &mut inbox, key) == Then::Leave
        {
            return Ok(());
        }
    }
    Ok(())
}

fn refresh(window: &mut Window<'_>, inbox: &mut Inbox) -> Result<(), Failure> {
    if let Some(gone) = inbox.update(window.waiting()?) {
        inbox.ended(window.ended(&gone));
    }
    if let Some(first) = inbox.first() {
        open(window, inbox, &first, Chosen::ByItself);
    }
    Ok(())
}

fn open(window: &Window<'_>, inbox: &mut Inbox, id: &str, chosen: Chosen) {
    match window.host.desk().approval(id, Secrets::Masked) {
        Ok(approval) => inbox.open(approval, chosen, Instant::now()),
        Err(error) => inbox.message = visible(&error.to_string()),
    }
}

#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Leave,
}

fn press(window: &Window<'_>, inbox: &mut Inbox, key: KeyEvent) -> Then {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Then::Leave,
            _ => Then::GoOn,
        };
    }
    inbox.message.clear();
    match inbox.mode.clone() {
        Mode::Confirming(decision) => {
            inbox.mode = Mode::Looking;
            if key.code == KeyCode::Char('y') {
                decide(window, inbox, decision);
            } else {
                "not decided".clone_into(&mut inbox.message);
            }
            Then::GoOn
        }
        Mode::Leasing(text) => {
            lease(window, inbox, text, key.code);
            Then::GoOn
        }
        Mode::Looking => look(window, inbox, key.code),
    }
}

fn look(window: &Window<'_>, inbox: &mut Inbox, key: KeyCode) -> Then {
    let step = match key {
        KeyCode::Char('q') => return Then::Leave,
        KeyCode::Char('j') | KeyCode::Down | KeyCode::Enter => Some(1),
        KeyCode::Char('k') | KeyCode::Up => Some(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => {
            inbox.scroll(SCROLL);
            None
        }
        KeyCode::PageUp => {
            inbox.scroll(-SCROLL);
            None
        }
        KeyCode::Char('r') => {
            reveal(window, inbox);
            None
        }
        KeyCode::Char('o') => want(window, inbox, Decision::AllowOnce),
        KeyCode::Char('s') => want(window, inbox, Decision::AllowSession),
        KeyCode::Char('a') => want(window, inbox, Decision::AllowAlways),
        KeyCode::Char('d') => want(window, inbox, Decision::Deny),
        KeyCode::Char('l') => {
            match inbox.decidable(Choice::Lease, Instant::now()) {
                Ok(_) => inbox.mode = Mode::Leasing(USUAL_LEASE.to_owned()),
                Err(why) => inbox.message = visible(&why),
            }
            None
        }
        _ => None,
    };
    if let Some(id) = step.and_then(|step| inbox.neighbour(step)) {
        open(window, inbox, &id, Chosen::ByPerson);
    }
    Then::GoOn
}

/// Decides at once, or asks once more where the decision is broad.
fn want(window: &Window<'_>, inbox: &mut Inbox, decision: Decision) -> Option<isize> {
    match inbox.decidable(choice(decision), Instant::now()) {
        Ok(approval) if is_broad(approval, decision) => inbox.mode = Mode::Confirming(decision),
        Ok(_) => decide(window, inbox, decision),
        Err(why) => inbox.message = visible(&why),
    }
    None
}

/// For the plan whose digest is on the screen.
fn decide(window: &Window<'_>, inbox: &mut Inbox, decision: Decision) {
    let said = match inbox.decidable(choice(decision), Instant::now()) {
        Ok(approval) => match window.decide(approval, decision) {
            Ok(told) => told.trim_end().replace('\n', "; "),
            Err(failure) => failure.to_string(),
        },
        Err(why) => why,
    };
    inbox.message = visible(&said);
}

fn choice(decision: Decision) -> Choice {
    match decision {
        Decision::AllowOnce => Choice::AllowOnce,
        Decision::AllowSession => Choice::AllowSession,
        Decision::AllowAlways => Choice::AllowAlways,
        Decision::Lease(_) => Choice::Lease,
        Decision::Deny => Choice::Deny,
    }
}

fn lease(window: &Window<'_>, inbox: &mut Inbox, mut text: String, key: KeyCode) {
    match key {
        KeyCode::Char(typed) if text.len() < MAX_LEASE_TEXT && typed.is_ascii_alphanumeric() => {
            text.push(typed);
        }
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Esc => {
            inbox.mode = Mode::Looking;
            "not decided".clone_into(&mut inbox.message);
            return;
        }
        KeyCode::Enter => {
            match milliseconds(&text) {
                Ok(time) => {
                    inbox.mode = Mode::Looking;
                    let lease = Lease {
                        expires_in: Duration::from_millis(time),
                        max_uses: None,
                    };
                    decide(window, inbox, Decision::Lease(lease));
                }
                Err(failure) => inbox.message = visible(&failure.to_string()),
            }
            return;
        }
        _ => {}
    }
    inbox.mode = Mode::Leasing(text);
}

fn reveal(window: &Window<'_>, inbox: &mut Inbox) {
    let Selection::Open(open) = &inbox.selection else {
        return;
    };
    let is_revealed = !open.is_revealed;
    let secrets = if is_revealed {
        Secrets::Revealed
    } else {
        Secrets::Masked
    };
    match window.host.desk().approval(&open.approval.id, secrets) {
        Ok(shown) => inbox.reveal(shown, is_revealed),
        Err(error) => inbox.message = visible(&error.to_string()),
    }
}
