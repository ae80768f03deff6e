//! What a screen takes, whatever it is fed. Alone in its process, so that the memory measured is its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_transcript::screen::{Screen, Size};

#[test]
fn endless_strings_and_sequences_do_not_grow() {
    for start in [
        "\x1b]2;", "\x1bP", "\x1b_", "\x1b[", "\x1b[?", "\x1b ", "\x1b(0",
    ] {
        let before = resident_kib();
        let mut screen = Screen::new(Size::default());
        let _ = screen.feed(start.as_bytes());
        for _ in 0..64 {
            let _ = screen.feed(&b"1".repeat(64 * 1024));
            let _ = screen.feed(&b" ".repeat(64 * 1024));
        }
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 4 * 1024, "{start:?}: {grown} KiB for 8 MiB");
        let _ = screen.feed(b"\x18\x1b(B\x1b[2J\x1b[Hstill here");
        assert_eq!(screen.picture().rows[0], "still here", "{start:?}");
        assert_eq!(screen.resets(), 0);
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
