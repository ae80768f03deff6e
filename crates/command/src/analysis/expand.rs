//! Expansion: tildes, globs, the leading `cd X &&` chain, and Interlock's builtins.

use interlock_programs::builtins::Builtin;
use interlock_programs::{Glob, GlobBudget, GlobError, GlobToken};

use super::{AnalysisStep, CommandParts, Host};
use crate::line::{Line, Segment, Word};
use crate::odd::{NotPlain, Odd};

/// Expands tildes and globs, follows the leading `cd X &&` chain, and finds Interlock's builtins.
/// Returns one list of steps for each pipeline.
pub(super) fn expand_line(
    line: &Line,
    cwd: &str,
    host: Host<'_>,
    globs: &mut GlobBudget,
) -> Result<Vec<Vec<AnalysisStep>>, NotPlain> {
    let mut cwd = cwd.to_owned();
    let leading = line.leading_cd();
    let mut lists = Vec::with_capacity(line.pipelines.len());
    for (index, pipeline) in line.pipelines.iter().enumerate() {
        let mut steps = Vec::with_capacity(pipeline.segments.len());
        for segment in &pipeline.segments {
            let parts = expand_segment(segment, &cwd, host, globs)?;
            let Some(builtin) = Builtin::named(segment.name()) else {
                steps.push(AnalysisStep::Program(parts));
                continue;
            };
            let texts: Vec<&str> = parts.argv[1..].iter().map(String::as_str).collect();
            let mut accepted = builtin.accepts(&texts);
            if builtin == Builtin::Cd && accepted.is_ok() {
                accepted = if index >= leading {
                    Err("`cd` counts only in a leading `cd X &&` chain")
                } else if segment.words.iter().any(|word| word.glob.is_some()) {
                    Err("`cd` takes one literal directory")
                } else {
                    let target = texts.last().copied().unwrap_or_default();
                    match host.resolver.directory(target, &cwd) {
                        Some(directory) => {
                            cwd = directory;
                            Ok(())
                        }
                        None => Err("there is no such directory"),
                    }
                };
            }
            steps.push(AnalysisStep::Builtin(parts, builtin, accepted));
        }
        lists.push(steps);
    }
    Ok(lists)
}

fn expand_segment(
    segment: &Segment,
    cwd: &str,
    host: Host<'_>,
    globs: &mut GlobBudget,
) -> Result<CommandParts, NotPlain> {
    let mut words = ExpandedWords::with_capacity(segment.words.len());
    for word in &segment.words {
        words.expand(word, cwd, host, globs)?;
    }
    let assignments = segment.assignments.iter();
    Ok(CommandParts {
        argv: words.texts.into(),
        literal: words.literal,
        assignments: assignments
            .map(|assignment| (assignment.name.clone(), assignment.value.clone()))
            .collect(),
        redirections: segment.redirections.clone(),
        cwd: cwd.to_owned(),
        span: Some(segment.span),
    })
}

/// The words of a segment during expansion.
struct ExpandedWords {
    texts: Vec<String>,
    literal: Vec<bool>,
}

impl ExpandedWords {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            texts: Vec::with_capacity(capacity),
            literal: Vec::with_capacity(capacity),
        }
    }

    fn push(&mut self, text: String, literal: bool) {
        self.texts.push(text);
        self.literal.push(literal);
    }

    fn expand(
        &mut self,
        word: &Word,
        cwd: &str,
        host: Host<'_>,
        globs: &mut GlobBudget,
    ) -> Result<(), NotPlain> {
        if word.is_literal() {
            self.push(word.text.clone(), true);
            return Ok(());
        }
        let odd = |reason| NotPlain {
            reason,
            span: word.span,
        };
        let home = if word.tilde {
            let home = host.resolver.home().ok_or(odd(Odd::HomeUnknown))?;
            if !home.starts_with('/') {
                return Err(odd(Odd::HomeUnknown));
            }
            Some(home)
        } else {
            None
        };
        let text = match &home {
            Some(home) => format!("{home}{}", &word.text[1..]),
            None => word.text.clone(),
        };
        let Some(glob) = &word.glob else {
            self.push(text, false);
            return Ok(());
        };
        let prefix = home.iter().flat_map(|home| home.chars());
        let tokens = prefix
            .map(GlobToken::Literal)
            .chain(glob.tokens.iter().cloned())
            .collect();
        let paths = host.resolver.glob(&Glob { tokens }, cwd, globs);
        let paths = paths.map_err(|error| {
            odd(match error {
                GlobError::TooMany => Odd::GlobTooMany,
                GlobError::NotUtf8 | GlobError::Unreadable { .. } => Odd::GlobFailed,
            })
        })?;
        if paths.iter().any(|path| path.starts_with('-')) {
            return Err(odd(Odd::GlobOption));
        }
        if paths.is_empty() {
            self.push(text, false);
        }
        for path in paths {
            self.push(path, false);
        }
        Ok(())
    }
}
