//! Checks whether the arguments of a command fit its profile.
//!
//! Arguments are parsed like the programs' own option parser does. If two parsers could disagree,
//! the command is refused: abbreviations, flags after operands, values that look like flags.

use super::operand::SafeBinOperandKind;
use super::profile::{Arity, Profile, Profiles, ValueFlag};
use super::refusal::{SafeBinRefusal, shown};
use super::view::always_refused;

/// Judges one command by its arguments alone. The file system is never read, so a file that appears
/// or vanishes cannot change the result.
///
/// `name` is the program's bare name, and `argv` includes the program. `literal` says which words
/// were written literally, without glob or tilde expansion; a missing entry counts as not literal.
/// The caller must also check where the program lies ([`interlock_programs::in_trusted_dir`]),
/// because this function does not know which file will run.
pub fn check(
    name: &str,
    argv: &[String],
    literal: &[bool],
    profiles: &Profiles,
) -> Result<(), SafeBinRefusal> {
    if let Some(why) = always_refused(name) {
        let name = shown(name);
        return Err(SafeBinRefusal::AlwaysRefused { name, why });
    }
    let Some(profile) = profiles.get(name) else {
        return Err(SafeBinRefusal::NoProfile { name: shown(name) });
    };
    let Some((_, arguments)) = argv.split_first() else {
        return Err(SafeBinRefusal::NoCommand);
    };
    for (position, token) in argv.iter().enumerate() {
        if literal.get(position) != Some(&true) {
            let token = shown(token);
            return Err(SafeBinRefusal::NotLiteral { token });
        }
    }
    SafeBinReader {
        name,
        profile,
        rest: arguments.iter(),
        operands: 0,
        standard_input_named: false,
    }
    .read()
}

struct SafeBinReader<'a> {
    name: &'a str,
    profile: &'a Profile,
    rest: std::slice::Iter<'a, String>,
    operands: usize,
    standard_input_named: bool,
}

impl<'a> SafeBinReader<'a> {
    fn read(mut self) -> Result<(), SafeBinRefusal> {
        let mut flags_ended = false;
        while let Some(token) = self.rest.next() {
            if flags_ended || token == "-" || !token.starts_with('-') {
                self.operand(token)?;
                // `tr` itself stops looking for flags at its first set.
                flags_ended |= self.profile.positional == SafeBinOperandKind::Set;
            } else if self.operands > 0 || self.standard_input_named {
                // For some programs even `--` is a file here: `uniq - --` can overwrite a file of
                // that name.
                return Err(SafeBinRefusal::FlagAfterOperand {
                    token: shown(token),
                });
            } else if token == "--" {
                flags_ended = true;
            } else if token.starts_with("--") {
                self.long_flag(token)?;
            } else {
                self.short_flags(token)?;
            }
        }
        if self.operands < self.profile.min_positional {
            return Err(SafeBinRefusal::TooFewOperands {
                name: shown(self.name),
                fewest: self.profile.min_positional,
                given: self.operands,
            });
        }
        Ok(())
    }

    fn operand(&mut self, token: &str) -> Result<(), SafeBinRefusal> {
        let kind = self.profile.positional;
        if token == "-" && kind != SafeBinOperandKind::Set {
            if self.standard_input_named {
                return Err(SafeBinRefusal::StandardInputTwice);
            }
            self.standard_input_named = true;
            return Ok(());
        }
        refuse_special_characters(token, kind)?;
        if self.profile.max_positional == 0 || !kind.accepts(token) {
            return Err(SafeBinRefusal::FileOperand {
                name: shown(self.name),
                token: shown(token),
            });
        }
        self.operands += 1;
        if self.operands > self.profile.max_positional {
            return Err(SafeBinRefusal::TooManyOperands {
                name: shown(self.name),
                token: shown(token),
                most: self.profile.max_positional,
            });
        }
        Ok(())
    }

    /// Handles `--name` and `--name=value`.
    fn long_flag(&mut self, token: &'a str) -> Result<(), SafeBinRefusal> {
        let (flag, attached) = split_value(token);
        if self.word_flag(token, flag, attached)? {
            return Ok(());
        }
        let begins = |name: &&String| flag.len() > 2 && name.starts_with(flag);
        let profile = self.profile;
        if let Some(full) = profile.denied.keys().find(begins) {
            return Err(self.denied(token, full));
        }
        match profile
            .flags
            .iter()
            .chain(profile.value_flags.keys())
            .find(begins)
        {
            Some(full) => Err(SafeBinRefusal::AbbreviatedFlag {
                token: shown(token),
                flag: shown(full),
            }),
            None => Err(self.unknown(token, flag)),
        }
    }

    /// Handles `-x`, several flags as `-xyz`, a value as `-n5`, a count as `-20`, and a word such
    /// as `-name`.
    fn short_flags(&mut self, token: &'a str) -> Result<(), SafeBinRefusal> {
        let letters = token.strip_prefix('-').unwrap_or(token);
        if self.profile.number_flag && letters.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(());
        }
        if letters.chars().nth(1).is_some() {
            let mut denied = self.profile.denied.keys();
            let word = denied.find(|flag| is_word_flag(flag) && token.starts_with(*flag));
            if let Some(flag) = word {
                return Err(self.denied(token, flag));
            }
            let (flag, attached) = split_value(token);
            if is_word_flag(flag) && self.word_flag(token, flag, attached)? {
                return Ok(());
            }
        }
        for (position, letter) in letters.char_indices() {
            let flag = format!("-{letter}");
            if self.profile.denied.contains_key(&flag) {
                return Err(self.denied(token, &flag));
            }
            if let Some(value_flag) = self.profile.value_flags.get(&flag) {
                let attached = letters.get(position + letter.len_utf8()..);
                return self.value(&flag, *value_flag, attached.filter(|rest| !rest.is_empty()));
            }
            if !self.profile.flags.contains(&flag) {
                return Err(self.unknown(token, &flag));
            }
        }
        Ok(())
    }

    /// Handles a flag that is one whole word. Returns `false` if the profile does not know the
    /// flag.
    fn word_flag(
        &mut self,
        token: &str,
        flag: &str,
        attached: Option<&'a str>,
    ) -> Result<bool, SafeBinRefusal> {
        if self.profile.denied.contains_key(flag) {
            return Err(self.denied(token, flag));
        }
        if let Some(value_flag) = self.profile.value_flags.get(flag) {
            self.value(flag, *value_flag, attached)?;
            return Ok(true);
        }
        if !self.profile.flags.contains(flag) {
            return Ok(false);
        }
        if attached.is_some() {
            return Err(SafeBinRefusal::UnexpectedValue {
                token: shown(token),
                flag: shown(flag),
            });
        }
        Ok(true)
    }

    fn value(
        &mut self,
        flag: &str,
        value_flag: ValueFlag,
        attached: Option<&'a str>,
    ) -> Result<(), SafeBinRefusal> {
        let kind = value_flag.kind;
        let value = match (attached, value_flag.arity) {
            (Some(value), _) => value,
            (None, Arity::AttachedOnly) => return Ok(()),
            (None, Arity::Required) => {
                let Some(value) = self.rest.next() else {
                    return Err(SafeBinRefusal::MissingValue { flag: shown(flag) });
                };
                if value.starts_with('-') && value != "-" && !kind.may_begin_with_dash() {
                    return Err(SafeBinRefusal::ValueLooksLikeFlag {
                        flag: shown(flag),
                        value: shown(value),
                    });
                }
                value
            }
        };
        refuse_special_characters(value, kind)?;
        if kind.accepts(value) {
            return Ok(());
        }
        Err(SafeBinRefusal::BadValue {
            flag: shown(flag),
            value: shown(value),
            expected: kind.expected(),
        })
    }

    fn denied(&self, token: &str, flag: &str) -> SafeBinRefusal {
        SafeBinRefusal::DeniedFlag {
            name: shown(self.name),
            token: shown(token),
            flag: shown(flag),
            why: self.profile.denied.get(flag).cloned().unwrap_or_default(),
        }
    }

    fn unknown(&self, token: &str, flag: &str) -> SafeBinRefusal {
        SafeBinRefusal::UnknownFlag {
            name: shown(self.name),
            token: shown(token),
            flag: shown(flag),
        }
    }
}

fn split_value(token: &str) -> (&str, Option<&str>) {
    match token.split_once('=') {
        Some((flag, value)) => (flag, Some(value)),
        None => (token, None),
    }
}

/// Whether the flag is a long name after one dash, as in `find -name`.
fn is_word_flag(flag: &str) -> bool {
    !flag.starts_with("--") && flag.chars().nth(2).is_some()
}

/// Refuses expansion characters even if they would be harmless text, because the author meant an
/// expansion. A TAB is accepted where any text is, as in `cut -d$'\t'`.
fn refuse_special_characters(text: &str, kind: SafeBinOperandKind) -> Result<(), SafeBinRefusal> {
    if text.contains(['$', '`']) {
        return Err(SafeBinRefusal::Expansion { token: shown(text) });
    }
    let harmless = |c: char| c == '\t' && kind.is_any_text();
    if text.chars().any(|c| c.is_control() && !harmless(c)) {
        return Err(SafeBinRefusal::ControlCharacter { token: shown(text) });
    }
    Ok(())
}
