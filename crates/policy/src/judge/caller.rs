//! The facts of the call that apply to one command besides its words: environment values, and
//! whether the caller can type into the program. An entry must admit both.

use std::collections::BTreeSet;

use interlock_command::Command;

use super::{CallerInput, JudgedCall};
use crate::allowlist::Objection;
use crate::entry::Entry;
use crate::env::CallerEnv;
use crate::verdict::EntryNeeds;

/// The facts of the call for one command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandCaller<'a> {
    pub(crate) env: CallerEnv<'a>,
    pub(crate) input: CallerInput,
    /// The directories that `${workspace}` stands for.
    pub(crate) workspace: &'a [String],
}

impl<'a> CommandCaller<'a> {
    /// For a command of the line: the overrides of the call, and the command's own assignments.
    pub(crate) fn of_command(call: JudgedCall<'a>, command: &'a Command) -> Self {
        Self {
            env: CallerEnv::new(call.env, &command.assignments),
            input: call.input,
            workspace: call.workspace,
        }
    }

    /// For the whole text. An exact-command entry names its assignments as part of the text.
    pub(crate) fn of_text(call: JudgedCall<'a>) -> Self {
        Self {
            env: CallerEnv::new(call.env, &[]),
            input: call.input,
            workspace: call.workspace,
        }
    }

    /// Returns what an entry for the command must admit. `near` is the entry that matches
    /// otherwise.
    pub(super) fn needs(self, near: Option<Box<Entry>>) -> EntryNeeds {
        let unlisted = self.env.unlisted().into_iter();
        EntryNeeds {
            env: unlisted
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            interactive: self.input.is_interactive(),
            near,
            by_path: false,
        }
    }

    /// Returns why the entry does not satisfy a run with these facts. An entry that *always* stored
    /// holds the facts of the approved call, so a call with another environment does not match.
    pub(crate) fn objection(self, entry: &Entry) -> Option<Objection> {
        let on_terminal = self.input == CallerInput::Terminal;
        if entry.terminal.is_some_and(|wanted| wanted != on_terminal) {
            return Some(Objection::OtherInput);
        }
        if self.input.is_interactive() && !entry.interactive {
            return Some(Objection::Interactive);
        }
        if !entry.is_remembered() {
            return self.env.unadmitted(Some(entry)).map(Objection::Env);
        }
        if entry.interactive != self.input.is_interactive() {
            return Some(Objection::OtherInput);
        }
        let stored: BTreeSet<&str> = entry.env.iter().map(String::as_str).collect();
        let held = self.env.held();
        let held: BTreeSet<&str> = held.iter().map(String::as_str).collect();
        (stored != held).then_some(Objection::OtherEnv)
    }
}
