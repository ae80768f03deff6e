//! The full-screen inbox: keys, one at a time, each for what was drawn before it.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use interlock_command::display::Secrets;
use interlock_host::{Choice, Decision, Lease};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::execute;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::super::milliseconds;
use super::draw::draw;
use super::inbox::{Chosen, Inbox, Mode, Selection, is_broad};
use super::keys::{Key, Keys};
use super::{LOOK, Window};
use crate::failure::Failure;
use crate::output::line;

/// So many lines at once.
const SCROLL: isize = 5;

/// What a lease is given when nothing else is typed.
const USUAL_LEASE: &str = "1h";

/// The longest duration that is typed.
const MAX_LEASE_TEXT: usize = 8;

/// The terminal as it is drawn on; as it was before when this is gone.
///
/// The library's own end of it would complain to a terminal that was closed, and fail at that.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    fn enter() -> io::Result<Self> {
        let screen = Self(ManuallyDrop::new(ratatui::try_init()?));
        // What is pasted is no key: it decides nothing.
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), DisableBracketedPaste, Show);
        let _ = ratatui::try_restore();
    }
}

pub(super) fn run(window: &mut Window<'_>) -> Result<(), Failure> {
    let broken = |error: io::Error| Failure::refused("TERMINAL_UNUSABLE", error.to_string());
    let mut screen = Screen::enter().map_err(broken)?;
    let mut inbox = Inbox::new();
    let mut keyboard = Keyboard::default();
    let mut looked: Option<Instant> = None;
    while !window.is_over() {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            refresh(window, &mut inbox)?;
            looked = Some(Instant::now());
        }
        let listens = window.listener.is_some();
        let drawn = screen.0.draw(|frame| draw(frame, &mut inbox, listens));
        match drawn {
            Ok(_) => {}
            // The signal says more.
            Err(_) if window.is_over() => return Ok(()),
            Err(error) => return Err(broken(error)),
        }
        for row in &inbox.rows {
            window.shown(&row.id);
        }
        match keyboard.next() {
            Typed::Key(key) if press(window, &mut inbox, key) == Then::Leave => return Ok(()),
            Typed::Key(_) | Typed::Nothing => {}
            Typed::Gone => return Ok(()),
        }
    }
    Ok(())
}

/// What was typed, a key at a time. Read here and not by the library that draws, which never comes
/// back from a terminal that was closed.
#[derive(Default)]
struct Keyboard {
    keys: Keys,
    typed: VecDeque<Key>,
}

enum Typed {
    Key(Key),
    Nothing,
    /// The terminal was closed.
    Gone,
}

impl Keyboard {
    /// Waits for a moment at most.
    fn next(&mut self) -> Typed {
        if let Some(key) = self.typed.pop_front() {
            return Typed::Key(key);
        }
        let stdin = rustix::stdio::stdin();
        let time = Timespec::try_from(LOOK).unwrap_or_default();
        let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&time)) {
            Ok(0) => self.typed.extend(self.keys.silence()),
            // A signal, which is looked at elsewhere.
            Err(_) => {}
            Ok(_) => {
                let mut bytes = [0; 1024];
                match rustix::io::read(stdin, &mut bytes) {
                    Ok(count @ 1..) => self.typed.extend(self.keys.take(&bytes[..count])),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Ok(_) | Err(_) => return Typed::Gone,
                }
            }
        }
        self.typed.pop_front().map_or(Typed::Nothing, Typed::Key)
    }
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
        Err(error) => inbox.message = line(&error.to_string()),
    }
}

#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Leave,
}

fn press(window: &Window<'_>, inbox: &mut Inbox, key: Key) -> Then {
    if key == Key::Interrupt {
        return Then::Leave;
    }
    inbox.message.clear();
    match inbox.mode.clone() {
        Mode::Confirming(decision) => {
            inbox.mode = Mode::Looking;
            if key == Key::Character('y') {
                decide(window, inbox, decision);
            } else {
                "not decided".clone_into(&mut inbox.message);
            }
            Then::GoOn
        }
        Mode::Leasing(text) => {
            lease(window, inbox, text, key);
            Then::GoOn
        }
        Mode::Looking => look(window, inbox, key),
    }
}

fn look(window: &Window<'_>, inbox: &mut Inbox, key: Key) -> Then {
    let step = match key {
        Key::Character('q') => return Then::Leave,
        Key::Character('j') | Key::Down | Key::Enter => Some(1),
        Key::Character('k') | Key::Up => Some(-1),
        Key::PageDown | Key::Character(' ') => {
            inbox.scroll(SCROLL);
            None
        }
        Key::PageUp => {
            inbox.scroll(-SCROLL);
            None
        }
        Key::Character('r') => {
            reveal(window, inbox);
            None
        }
        Key::Character('o') => want(window, inbox, Decision::AllowOnce),
        Key::Character('s') => want(window, inbox, Decision::AllowSession),
        Key::Character('a') => want(window, inbox, Decision::AllowAlways),
        Key::Character('d') => want(window, inbox, Decision::Deny),
        Key::Character('l') => {
            match inbox.decidable(Choice::Lease, Instant::now()) {
                Ok(_) => inbox.mode = Mode::Leasing(USUAL_LEASE.to_owned()),
                Err(why) => inbox.message = line(&why),
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
        Err(why) => inbox.message = line(&why),
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
    inbox.message = line(&said);
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

fn lease(window: &Window<'_>, inbox: &mut Inbox, mut text: String, key: Key) {
    match key {
        Key::Character(typed) if text.len() < MAX_LEASE_TEXT && typed.is_ascii_alphanumeric() => {
            text.push(typed);
        }
        Key::Backspace => drop(text.pop()),
        Key::Escape => {
            inbox.mode = Mode::Looking;
            "not decided".clone_into(&mut inbox.message);
            return;
        }
        Key::Enter => {
            match milliseconds(&text) {
                Ok(time) => {
                    inbox.mode = Mode::Looking;
                    let lease = Lease {
                        expires_in: Duration::from_millis(time),
                        max_uses: None,
                    };
                    decide(window, inbox, Decision::Lease(lease));
                }
                Err(failure) => inbox.message = line(&failure.to_string()),
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
        Err(error) => inbox.message = line(&error.to_string()),
    }
}
