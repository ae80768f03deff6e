//! Signals by name or number.

use rustix::process::Signal;

use super::ProcessError;

/// The names of `kill -l`.
const SIGNALS: &[(&str, Signal)] = &[
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ILL", Signal::ILL),
    ("TRAP", Signal::TRAP),
    ("ABRT", Signal::ABORT),
    ("BUS", Signal::BUS),
    ("FPE", Signal::FPE),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("SEGV", Signal::SEGV),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("CHLD", Signal::CHILD),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
    ("TSTP", Signal::TSTP),
    ("TTIN", Signal::TTIN),
    ("TTOU", Signal::TTOU),
    ("URG", Signal::URG),
    ("XCPU", Signal::XCPU),
    ("XFSZ", Signal::XFSZ),
    ("VTALRM", Signal::VTALARM),
    ("PROF", Signal::PROF),
    ("WINCH", Signal::WINCH),
    ("IO", Signal::IO),
    ("SYS", Signal::SYS),
];

/// Finds a signal by `INT`, `SIGINT`, `int` or `2`.
pub fn signal_named(text: &str) -> Result<Signal, ProcessError> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let is =
        |(known, signal): &&(&str, Signal)| *known == name || signal.as_raw().to_string() == text;
    let found = SIGNALS.iter().find(is).map(|(_, signal)| *signal);
    found.ok_or_else(|| ProcessError::SignalUnknown(text.to_owned()))
}

/// The name of a signal, without `SIG`.
pub fn name_of(number: i32) -> Option<&'static str> {
    let is = |(_, signal): &&(&'static str, Signal)| signal.as_raw() == number;
    SIGNALS.iter().find(is).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_prefix_and_numbers_mean_the_same() {
        for text in ["INT", "SIGINT", "int", "sigint", "2"] {
            assert_eq!(signal_named(text).ok(), Some(Signal::INT), "{text}");
        }
        for text in [
            "",
            "SIG",
            "0",
            "-9",
            "64",
            "1000",
            "TERM ",
            "02",
            "SIGSIGINT",
        ] {
            assert!(signal_named(text).is_err(), "{text}");
        }
    }
}
