//! The named keys and their sequences.

/// The sequence of a key, and the effect of modifiers on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySequence {
    /// One byte, like a character. Alt adds an escape in front.
    Byte(u8),
    /// `CSI c`, with modifiers `CSI 1 ; m c`, in application mode `SS3 c`.
    Cursor(u8),
    /// `CSI n ~`, with modifiers `CSI n ; m ~`. In the application cursor mode, the key sends `SS3`
    /// and the letter in `application`, if there is one.
    Tilde { number: u8, application: Option<u8> },
    /// `SS3 c`, with modifiers `CSI 1 ; m c`: F1 to F4.
    Function(u8),
    /// `SS3 c`: the keypad in application mode.
    Keypad(u8),
    /// Shift and Tab: `CSI Z`, with further modifiers `CSI 1 ; m Z`.
    BackTab,
}

const fn tilde(number: u8) -> KeySequence {
    KeySequence::Tilde {
        number,
        application: None,
    }
}

/// Key names in lower case; lookups ignore case. tmux's names come first, then other common ones.
const KEYS: &[(&str, KeySequence)] = &[
    ("enter", KeySequence::Byte(b'\r')),
    ("return", KeySequence::Byte(b'\r')),
    ("cr", KeySequence::Byte(b'\r')),
    ("tab", KeySequence::Byte(b'\t')),
    ("btab", KeySequence::BackTab),
    ("backtab", KeySequence::BackTab),
    ("escape", KeySequence::Byte(0x1b)),
    ("esc", KeySequence::Byte(0x1b)),
    ("space", KeySequence::Byte(b' ')),
    // Terminals send this for the backspace key; 0x08 is C-h.
    ("bspace", KeySequence::Byte(0x7f)),
    ("backspace", KeySequence::Byte(0x7f)),
    ("up", KeySequence::Cursor(b'A')),
    ("down", KeySequence::Cursor(b'B')),
    ("right", KeySequence::Cursor(b'C')),
    ("left", KeySequence::Cursor(b'D')),
    // tmux sends `CSI 1 ~` and `CSI 4 ~`. Programs that request the application mode know `SS3 H`
    // and `SS3 F` from the terminfo entry of xterm-256color.
    (
        "home",
        KeySequence::Tilde {
            number: 1,
            application: Some(b'H'),
        },
    ),
    (
        "end",
        KeySequence::Tilde {
            number: 4,
            application: Some(b'F'),
        },
    ),
    ("ic", tilde(2)),
    ("insert", tilde(2)),
    ("dc", tilde(3)),
    ("delete", tilde(3)),
    ("del", tilde(3)),
    ("ppage", tilde(5)),
    ("pageup", tilde(5)),
    ("pgup", tilde(5)),
    ("npage", tilde(6)),
    ("pagedown", tilde(6)),
    ("pgdn", tilde(6)),
    ("pgdown", tilde(6)),
    ("f1", KeySequence::Function(b'P')),
    ("f2", KeySequence::Function(b'Q')),
    ("f3", KeySequence::Function(b'R')),
    ("f4", KeySequence::Function(b'S')),
    // The numbers skip 16 and 22, as on the VT220.
    ("f5", tilde(15)),
    ("f6", tilde(17)),
    ("f7", tilde(18)),
    ("f8", tilde(19)),
    ("f9", tilde(20)),
    ("f10", tilde(21)),
    ("f11", tilde(23)),
    ("f12", tilde(24)),
    ("kp0", KeySequence::Keypad(b'p')),
    ("kp1", KeySequence::Keypad(b'q')),
    ("kp2", KeySequence::Keypad(b'r')),
    ("kp3", KeySequence::Keypad(b's')),
    ("kp4", KeySequence::Keypad(b't')),
    ("kp5", KeySequence::Keypad(b'u')),
    ("kp6", KeySequence::Keypad(b'v')),
    ("kp7", KeySequence::Keypad(b'w')),
    ("kp8", KeySequence::Keypad(b'x')),
    ("kp9", KeySequence::Keypad(b'y')),
    ("kp*", KeySequence::Keypad(b'j')),
    ("kp+", KeySequence::Keypad(b'k')),
    ("kp-", KeySequence::Keypad(b'm')),
    ("kp.", KeySequence::Keypad(b'n')),
    ("kp/", KeySequence::Keypad(b'o')),
    ("kpenter", KeySequence::Keypad(b'M')),
];

pub(super) fn named(name: &str) -> Option<KeySequence> {
    KEYS.iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, key)| *key)
}

/// The code of a character with Control; `None` if terminals have no such code.
pub(super) fn control(character: char) -> Option<u8> {
    Some(match character {
        'a'..='z' | 'A'..='Z' => character as u8 & 0x1f,
        '@' | ' ' | '2' => 0x00,
        '[' | '3' => 0x1b,
        '\\' | '4' => 0x1c,
        ']' | '5' => 0x1d,
        '^' | '6' => 0x1e,
        '_' | '/' | '7' => 0x1f,
        '?' | '8' => 0x7f,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice_and_all_are_lower_case() {
        for (index, (name, _)) in KEYS.iter().enumerate() {
            assert_eq!(*name, name.to_ascii_lowercase());
            assert!(
                KEYS[..index].iter().all(|(other, _)| other != name),
                "{name}"
            );
        }
    }
}
