//! The shell builtins `eval` and `source` behind `command`, `builtin` and `exec`.

use super::carriers::{Carried, CarrierWord, join_words, unwrap_carrier};
use crate::names::program_name;

/// A shell builtin behind `command` and the like that runs commands from outside its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CarriedBuiltin {
    /// `eval`, with the text that it would run.
    Eval(String),
    /// `source` or `.`, with the name as written. The commands come from that file.
    Source(String),
}

/// Returns the builtin behind `command`, `builtin` or `exec`, if it runs further commands.
pub fn carried_builtin(argv: &[impl AsRef<str>]) -> Option<CarriedBuiltin> {
    let mut words = CarrierWord::all(argv);
    loop {
        let carrier = program_name(&words.first()?.text);
        if !matches!(&*carrier, "command" | "builtin" | "exec") {
            return None;
        }
        let Carried::Words(next) = unwrap_carrier(words) else {
            return None;
        };
        match next.first()?.text.as_str() {
            "eval" => return Some(CarriedBuiltin::Eval(join_words(&next[1..]))),
            name @ ("source" | ".") => return Some(CarriedBuiltin::Source(name.to_owned())),
            _ => words = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtins_are_found_behind_command() {
        let source = CarriedBuiltin::Source("source".to_owned());
        assert_eq!(
            carried_builtin(&["command", "source", "./env.sh"]),
            Some(source)
        );
        let eval = CarriedBuiltin::Eval("rm x".to_owned());
        assert_eq!(
            carried_builtin(&["builtin", "command", "eval", "rm", "x"]),
            Some(eval)
        );
        assert_eq!(carried_builtin(&["command", "echo", "eval"]), None);
        assert_eq!(carried_builtin(&["eval", "x"]), None);
    }
}
