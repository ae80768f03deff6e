//! Command analysis: determines what the text of a command means.
//!
//! Everything in this crate is pure: no clock, no files, no async. Questions about the host go
//! through the `Resolver` trait of `interlock-programs`, the crate below, which also knows what
//! each program does with its arguments. Read the modules in this order: `line` (the words of a
//! plain line), `lexer`, `analysis` (looks through wrappers and shells), `describe` (text that is
//! not plain), [`display`] (makes text safe to show).

#![forbid(unsafe_code)]

mod analysis;
mod argv;
mod describe;
pub mod display;
mod highlight;
mod lexer;
mod line;
mod odd;
mod payloads;
mod span;

pub use analysis::{
    Analysis, Closed, Command, CommandNode, Host, InputError, MAX_TEXT_BYTES, NodePipeline,
    NodeStage, Program, SeenCommand, Shape, Sight, Source, WrapperLayer, analyse, seen_behind,
    started_by, xargs_command,
};
pub use argv::Argv;
pub use describe::{Description, describe};
pub use highlight::{Highlight, HighlightStyle, highlight};
pub use lexer::{MAX_PLAIN_BYTES, MAX_PLAIN_COMMANDS, MAX_PLAIN_WORDS, lex};
pub use line::{
    Assignment, Connector, Line, Pipeline, Redirection, Segment, Stream, Target, Timed, Word,
};
pub use odd::{NotPlain, Odd};
pub use payloads::payloads;
pub use span::Span;
