//! The full-screen inbox. Keys are handled one at a time, and the screen is drawn before each: a
//! key acts on what the approver saw.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use interlock_approvals::{ApprovalDecision, Lease, PendingApproval};
use interlock_command::display::Secrets;
use interlock_console::output::line;
use interlock_console::{Failure, milliseconds};
use interlock_policy::AlwaysForm;
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::Print;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::draw::draw;
use super::filter::Filter;
use super::inbox::{Chosen, Inbox, Mode, Selection, Wish, always_forms, is_broad};
use super::keys::{WatchKey, WatchKeys};
use super::{Outage, POLL_INTERVAL, Window};

/// How many lines a key scrolls.
const SCROLL: isize = 5;

/// The duration of a lease that is offered first.
const USUAL_LEASE: &str = "1h";

/// The longest duration that can be typed.
const MAX_LEASE_TEXT: usize = 8;

/// The longest filter that can be typed.
const MAX_FILTER_TEXT: usize = 80;

/// The longest reason that can be typed.
const MAX_REASON_TEXT: usize = 300;

const BELL: &str = "\x07";

const NOT_DECIDED: &str = "not decided";

/// The terminal in full-screen mode; dropping this restores it.
///
/// The `Drop` of `ratatui` must not run: it prints an error to a terminal that may be closed, and
/// fails.
struct WatchScreen(ManuallyDrop<DefaultTerminal>);

impl WatchScreen {
    fn enter() -> io::Result<Self> {
        let screen = Self(ManuallyDrop::new(ratatui::try_init()?));
        // With bracketed paste, pasted text can be told from keys and decides nothing.
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(screen)
    }
}

impl Drop for WatchScreen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), DisableBracketedPaste, Show);
        let _ = ratatui::try_restore();
    }
}

pub(super) fn run(window: &mut Window<'_>, filter: Filter, rings: bool) -> Result<(), Failure> {
    let broken = |error: io::Error| Failure::refused("TERMINAL_UNUSABLE", error.to_string());
    let mut screen = WatchScreen::enter().map_err(broken)?;
    let mut inbox = Inbox::new(filter);
    let mut keyboard = Keyboard::default();
    let mut looked: Option<Instant> = None;
    while !window.is_over() {
        if looked.is_none_or(|at| at.elapsed() >= POLL_INTERVAL) {
            if refresh(window, &mut inbox)? && rings {
                // A closed terminal is noticed below.
                let _ = execute!(io::stdout(), Print(BELL));
            }
            looked = Some(Instant::now());
        }
        let about = window.about();
        let drawn = screen.0.draw(|frame| draw(frame, &mut inbox, &about));
        match drawn {
            Ok(_) => {}
            // A signal ends the command, so its exit code matters more than the error.
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

/// Reads keys one at a time. `ratatui` and its backend must not read them: their read never returns
/// from a terminal that was closed.
#[derive(Default)]
struct Keyboard {
    keys: WatchKeys,
    typed: VecDeque<WatchKey>,
}

enum Typed {
    Key(WatchKey),
    Nothing,
    /// The terminal was closed.
    Gone,
}

impl Keyboard {
    /// Waits at most [`POLL_INTERVAL`] for a key.
    fn next(&mut self) -> Typed {
        if let Some(key) = self.typed.pop_front() {
            return Typed::Key(key);
        }
        let stdin = rustix::stdio::stdin();
        let time = Timespec::try_from(POLL_INTERVAL).unwrap_or_default();
        let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&time)) {
            Ok(0) => self.typed.extend(self.keys.silence()),
            // A signal arrived. The loop in `run` handles it.
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

/// Updates the inbox. Returns whether the filter shows a new approval.
fn refresh(window: &mut Window<'_>, inbox: &mut Inbox) -> Result<bool, Failure> {
    let look = window.look(inbox.filter())?;
    if let Some(gone) = inbox.update(look.waiting) {
        inbox.ended(window.ended(&gone));
    }
    if let Some(why) = look.not_notified {
        inbox.message = line(&why);
    }
    match look.outage {
        Some(Outage::Begun(failure)) => inbox.message = line(&failure.to_string()),
        Some(Outage::Over) => "the gateway answers again".clone_into(&mut inbox.message),
        None => {}
    }
    if let Some(first) = inbox.first() {
        open(window, inbox, &first, Chosen::ByItself);
    }
    Ok(look.has_new)
}

fn open(window: &Window<'_>, inbox: &mut Inbox, id: &str, chosen: Chosen) {
    match window.source.approval(id, Secrets::Masked) {
        Ok(approval) => inbox.open(approval, chosen, Instant::now()),
        Err(error) => inbox.message = line(&error.to_string()),
    }
}

#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Leave,
}

fn press(window: &Window<'_>, inbox: &mut Inbox, key: WatchKey) -> Then {
    if key == WatchKey::Interrupt {
        return Then::Leave;
    }
    inbox.message.clear();
    match inbox.mode.clone() {
        Mode::Confirming { wish, ids } => {
            inbox.mode = Mode::Looking;
            if key == WatchKey::Character('y') {
                decide(window, inbox, &wish, &ids);
            } else {
                NOT_DECIDED.clone_into(&mut inbox.message);
            }
            Then::GoOn
        }
        Mode::Leasing(text) => {
            lease(window, inbox, text, key);
            Then::GoOn
        }
        Mode::Denying(reason) => {
            deny(window, inbox, reason, key);
            Then::GoOn
        }
        Mode::Choosing(forms) => {
            choose_form(window, inbox, &forms, key);
            Then::GoOn
        }
        Mode::Filtering(text) => {
            filter(inbox, text, key);
            Then::GoOn
        }
        Mode::Looking => look(window, inbox, key),
    }
}

fn look(window: &Window<'_>, inbox: &mut Inbox, key: WatchKey) -> Then {
    let decision = match key {
        WatchKey::Character('q') => return Then::Leave,
        WatchKey::Character('j') | WatchKey::Down | WatchKey::Enter => {
            return move_by(window, inbox, 1);
        }
        WatchKey::Character('k') | WatchKey::Up => return move_by(window, inbox, -1),
        WatchKey::PageDown | WatchKey::Character(' ') => {
            inbox.scroll(SCROLL);
            return Then::GoOn;
        }
        WatchKey::PageUp => {
            inbox.scroll(-SCROLL);
            return Then::GoOn;
        }
        WatchKey::Character('r') => {
            reveal(window, inbox);
            return Then::GoOn;
        }
        WatchKey::Character('e') => {
            include_equal(inbox);
            return Then::GoOn;
        }
        WatchKey::Character('/') => {
            inbox.mode = Mode::Filtering(inbox.filter().text().to_owned());
            return Then::GoOn;
        }
        WatchKey::Character('l') => {
            let mode = Mode::Leasing(USUAL_LEASE.to_owned());
            ask_details(inbox, ApprovalDecision::Lease(Lease::LONGEST), |_| mode);
            return Then::GoOn;
        }
        WatchKey::Character('D') => {
            ask_details(inbox, ApprovalDecision::Deny, |_| {
                Mode::Denying(String::new())
            });
            return Then::GoOn;
        }
        WatchKey::Character('A') => {
            ask_details(inbox, ApprovalDecision::AllowAlways, |approval| {
                Mode::Choosing(always_forms(approval))
            });
            return Then::GoOn;
        }
        WatchKey::Character('o') => ApprovalDecision::AllowOnce,
        WatchKey::Character('s') => ApprovalDecision::AllowSession,
        WatchKey::Character('a') => ApprovalDecision::AllowAlways,
        WatchKey::Character('d') => ApprovalDecision::Deny,
        _ => return Then::GoOn,
    };
    decide_or_confirm(window, inbox, Wish::plain(decision));
    Then::GoOn
}

fn move_by(window: &Window<'_>, inbox: &mut Inbox, step: isize) -> Then {
    if let Some(id) = inbox.neighbour(step) {
        open(window, inbox, &id, Chosen::ByPerson);
    }
    Then::GoOn
}

/// Switches to a mode that asks for details of a decision, if the selected approval may be decided
/// so.
fn ask_details(
    inbox: &mut Inbox,
    decision: ApprovalDecision,
    mode: impl FnOnce(&PendingApproval) -> Mode,
) {
    match inbox.decidable(decision, Instant::now()) {
        Ok(approval) => inbox.mode = mode(approval),
        Err(why) => inbox.message = line(&why),
    }
}

/// Switches whether the next decision is for all approvals that ask for the same, or for one.
fn include_equal(inbox: &mut Inbox) {
    let count = inbox.equal_ids().len();
    let Selection::Open(open) = &mut inbox.selection else {
        return;
    };
    open.is_for_equal = !open.is_for_equal && count > 1;
    inbox.message = match (count, open.is_for_equal) {
        (0 | 1, _) => "no other one asks the same".to_owned(),
        (count, true) => format!("the next decision is for all {count} that ask the same"),
        (_, false) => "the next decision is for this one".to_owned(),
    };
}

/// Decides at once, or asks for confirmation if the decision is broad or for several approvals.
fn decide_or_confirm(window: &Window<'_>, inbox: &mut Inbox, wish: Wish) {
    let is_for_equal = inbox.is_for_equal();
    let approval = match inbox.decidable(wish.decision, Instant::now()) {
        Ok(approval) => approval,
        Err(why) => {
            inbox.message = line(&why);
            return;
        }
    };
    let is_broad = is_broad(approval, wish.decision);
    let ids = if is_for_equal {
        inbox.equal_ids()
    } else {
        vec![approval.id.clone()]
    };
    if ids.len() > 1 && !wish.is_for_several() {
        "once, session and deny are decided for all; others one by one (e)"
            .clone_into(&mut inbox.message);
    } else if is_broad || ids.len() > 1 {
        inbox.mode = Mode::Confirming { wish, ids };
    } else {
        decide(window, inbox, &wish, &ids);
    }
}

/// Decides the plan that is on the screen, and the other approvals that were found to ask for the
/// same.
fn decide(window: &Window<'_>, inbox: &mut Inbox, wish: &Wish, ids: &[String]) {
    let outcome = match inbox.decidable(wish.decision, Instant::now()) {
        Ok(selected) => decide_each(window, selected, wish, ids),
        Err(why) => why,
    };
    inbox.message = line(&outcome);
}

fn decide_each(
    window: &Window<'_>,
    selected: &PendingApproval,
    wish: &Wish,
    ids: &[String],
) -> String {
    let mut decided = 0_usize;
    let mut outcomes = Vec::new();
    for id in ids {
        let outcome = if *id == selected.id {
            window.decide(selected, wish)
        } else {
            let other = window.source.approval(id, Secrets::Masked);
            other.and_then(|other| window.decide(&other, wish))
        };
        match outcome {
            Ok(text) => {
                decided += 1;
                outcomes.push(text.trim_end().replace('\n', "; "));
            }
            Err(failure) => outcomes.push(failure.to_string()),
        }
    }
    match ids {
        [_] => outcomes.join("; "),
        several => format!(
            "{}: {decided} of {} decided; {}",
            wish.decision.as_str(),
            several.len(),
            outcomes.join("; ")
        ),
    }
}

/// Chooses a form of `allow-always` by the number that is shown beside it.
fn choose_form(window: &Window<'_>, inbox: &mut Inbox, forms: &[AlwaysForm], key: WatchKey) {
    inbox.mode = Mode::Looking;
    let number = match key {
        WatchKey::Character(typed) => typed.to_digit(10),
        _ => None,
    };
    let index = number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
    match index.and_then(|index| forms.get(index)) {
        Some(form) => decide_or_confirm(window, inbox, Wish::always(*form)),
        None => NOT_DECIDED.clone_into(&mut inbox.message),
    }
}

/// Reads the reason of a denial key by key, then denies. If the selected approval ends meanwhile,
/// the mode is left and nothing is denied.
fn deny(window: &Window<'_>, inbox: &mut Inbox, mut reason: String, key: WatchKey) {
    match key {
        WatchKey::Character(typed) if reason.len() < MAX_REASON_TEXT => reason.push(typed),
        WatchKey::Backspace => drop(reason.pop()),
        WatchKey::Escape => {
            inbox.mode = Mode::Looking;
            NOT_DECIDED.clone_into(&mut inbox.message);
            return;
        }
        WatchKey::Enter => {
            inbox.mode = Mode::Looking;
            decide_or_confirm(window, inbox, Wish::deny(&reason));
            return;
        }
        _ => {}
    }
    inbox.mode = Mode::Denying(reason);
}

fn filter(inbox: &mut Inbox, mut text: String, key: WatchKey) {
    match key {
        WatchKey::Character(typed) if text.len() < MAX_FILTER_TEXT => text.push(typed),
        WatchKey::Backspace => drop(text.pop()),
        WatchKey::Escape => {
            inbox.mode = Mode::Looking;
            return;
        }
        WatchKey::Enter => {
            inbox.mode = Mode::Looking;
            inbox.set_filter(Filter::parse(&text));
            return;
        }
        _ => {}
    }
    inbox.mode = Mode::Filtering(text);
}

fn lease(window: &Window<'_>, inbox: &mut Inbox, mut text: String, key: WatchKey) {
    match key {
        WatchKey::Character(typed)
            if text.len() < MAX_LEASE_TEXT && typed.is_ascii_alphanumeric() =>
        {
            text.push(typed);
        }
        WatchKey::Backspace => drop(text.pop()),
        WatchKey::Escape => {
            inbox.mode = Mode::Looking;
            NOT_DECIDED.clone_into(&mut inbox.message);
            return;
        }
        WatchKey::Enter => {
            match milliseconds(&text) {
                Ok(time) => {
                    inbox.mode = Mode::Looking;
                    let lease = Lease {
                        expires_in: Duration::from_millis(time),
                        max_uses: None,
                    };
                    decide_lease(window, inbox, lease);
                }
                Err(failure) => inbox.message = line(&failure.to_string()),
            }
            return;
        }
        _ => {}
    }
    inbox.mode = Mode::Leasing(text);
}

/// Grants a lease. The typed duration confirms it, unless it would be for several approvals.
fn decide_lease(window: &Window<'_>, inbox: &mut Inbox, lease: Lease) {
    let wish = Wish::plain(ApprovalDecision::Lease(lease));
    if inbox.is_for_equal() {
        decide_or_confirm(window, inbox, wish);
        return;
    }
    let ids: Vec<String> = inbox.equal_ids().into_iter().take(1).collect();
    decide(window, inbox, &wish, &ids);
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
    match window.source.approval(&open.approval.id, secrets) {
        Ok(shown) => inbox.reveal(shown, is_revealed),
        Err(error) => inbox.message = line(&error.to_string()),
    }
}
