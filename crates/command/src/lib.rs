//! What does this text say?
//!
//! Everything here is pure: no clock, no files, no async. Questions about the host
//! ("which file is `rg`?") go through the [`Resolver`] trait.

pub mod builtins;
mod lexer;
mod line;
mod odd;
mod resolver;
mod span;

pub use lexer::{MAX_PLAIN_BYTES, lex};
pub use line::{
    Assignment, Connector, Line, Pipeline, Redirection, Segment, Stream, Target, Timed, Word,
};
pub use odd::{NotPlain, Odd};
pub use resolver::{Executable, FileKind, Glob, GlobError, GlobToken, Lookup, Missing, Resolver};
pub use span::Span;
