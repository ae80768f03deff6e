//! The times in these tests are invented; only their differences matter.

use super::*;

const SERVER: &str = ":1.5";

fn waiting(ids: &[&str]) -> Vec<ApprovalSummary> {
    let summary = |id: &&str| ApprovalSummary {
        id: (*id).to_owned(),
        short_id: (*id).to_owned(),
        plan_digest: String::new(),
        content_digest: String::new(),
        binding: "native".to_owned(),
        preview: String::new(),
        agent: "main".to_owned(),
        session_key: String::new(),
        host: String::new(),
        node: None,
        requester: String::new(),
        created_at_ms: 0,
        expires_at_ms: 0,
    };
    ids.iter().map(summary).collect()
}

fn placed(number: u32, appeared: Instant) -> PlacedNotification {
    PlacedNotification {
        number,
        server: SERVER.to_owned(),
        appeared,
    }
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// A board that shows one approval since `now`.
fn with_one(now: Instant) -> DesktopBoard {
    let mut board = DesktopBoard::default();
    let steps = board.look(&waiting(&["a"]), now);
    assert_eq!(steps, [BoardStep::Show("a".to_owned())]);
    board.placed("a", placed(7, now));
    assert!(board.look(&waiting(&["a"]), now).is_empty());
    board
}

#[test]
fn a_button_counts_after_a_moment_and_once() {
    let now = Instant::now();
    let mut board = with_one(now);
    let later = now + UNEXPECTED;
    let pressed = board.press(7, SERVER, "deny", later);
    let meant = BoardPress::Approval("a".to_owned(), DesktopButton::Deny);
    assert_eq!(pressed, meant);
    assert_eq!(board.press(7, SERVER, "deny", later), BoardPress::Unknown);
    // A pressed notification does not come back by itself.
    assert!(board.look(&waiting(&["a"]), later).is_empty());
}

#[test]
fn a_press_that_comes_too_soon_shows_it_again() {
    let now = Instant::now();
    let mut board = with_one(now);
    let soon = now + Duration::from_millis(699);
    let pressed = board.press(7, SERVER, "allow-once", soon);
    assert_eq!(pressed, BoardPress::TooSoon(7));
    // The server closes a notification after a press.
    board.closed(7, SERVER);
    let steps = board.look(&waiting(&["a"]), soon);
    assert_eq!(steps, [BoardStep::Show("a".to_owned())]);
}

#[test]
fn only_the_server_that_shows_it_presses_its_buttons() {
    let now = Instant::now();
    let mut board = with_one(now);
    let later = now + UNEXPECTED;
    for (number, server, key) in [
        (7, ":1.6", "deny"),
        (8, SERVER, "deny"),
        (7, SERVER, "default"),
        (7, SERVER, ""),
    ] {
        let pressed = board.press(number, server, key, later);
        assert_eq!(pressed, BoardPress::Unknown, "{number} {server} {key}");
    }
    board.closed(7, ":1.6");
    assert_eq!(board.numbers(), [7]);
}

#[test]
fn what_ends_is_closed_and_what_is_dismissed_stays_away() {
    let now = Instant::now();
    let mut board = with_one(now);
    assert_eq!(board.look(&[], now), [BoardStep::Close(7)]);
    let mut board = with_one(now);
    board.closed(7, SERVER);
    assert!(board.look(&waiting(&["a"]), now).is_empty());
    assert!(board.look(&[], now).is_empty());
}

#[test]
fn a_flood_is_one_notification_with_a_number() {
    let now = Instant::now();
    let mut board = with_one(now);
    let four = ["a", "b", "c", "d"];
    let steps = board.look(&waiting(&four), now);
    let count = BoardStep::ShowCount {
        ids: set(&four),
        replaces: 0,
    };
    assert_eq!(steps, [BoardStep::Close(7), count]);
    board.placed_count(set(&four), placed(9, now));
    // The count is updated, but not at once.
    let five = ["a", "b", "c", "d", "e"];
    assert!(board.look(&waiting(&five), now).is_empty());
    let later = now + COUNT_PAUSE;
    let count = BoardStep::ShowCount {
        ids: set(&five),
        replaces: 9,
    };
    assert_eq!(board.look(&waiting(&five), later), [count]);
    board.placed_count(set(&five), placed(9, later));
    // The count has no button that decides.
    let later = later + UNEXPECTED;
    assert_eq!(board.press(9, SERVER, "deny", later), BoardPress::Count);
    assert!(board.look(&waiting(&five), later).is_empty());
    // Only new approvals bring the count back, and not at once.
    let six = ["a", "b", "c", "d", "e", "f"];
    assert!(board.look(&waiting(&six), later).is_empty());
    assert_eq!(board.look(&waiting(&six), later + FLOOD_PAUSE).len(), 1);
    board.placed_count(set(&six), placed(10, later));
    assert_eq!(board.look(&[], later), [BoardStep::Close(10)]);
    assert!(board.numbers().is_empty());
}

#[test]
fn another_server_is_shown_everything_again() {
    let now = Instant::now();
    let mut board = with_one(now);
    board.server_changed();
    let steps = board.look(&waiting(&["a"]), now);
    assert_eq!(steps, [BoardStep::Show("a".to_owned())]);
}
