//! Reads approvals documents: from the store, from a file, from another program, or from a client.

use interlock_config::{Diagnostic, Diagnostics, Json5Text, KeyPath};
use interlock_policy::{Document, Problem};
use interlock_store::{ApprovalsStore as _, Store, StoredDocument};

use crate::error::RulesError;

/// The document in force, with the hash that a change must name.
pub fn document_in_force(store: &Store) -> Result<(Document, StoredDocument), RulesError> {
    let stored = stored_document(store)?;
    Ok((read_stored(store, &stored)?, stored))
}

/// The text of the document in force.
pub fn stored_document(store: &Store) -> Result<StoredDocument, RulesError> {
    store.document()?.ok_or_else(|| RulesError::Edit {
        code: "DOCUMENT_MISSING",
        message: "the approvals document is gone".to_owned(),
        remedy: "run the command again: a cautious one is written".to_owned(),
    })
}

/// The version of the checks that a document must pass. It must change with every change of the
/// checks.
const CHECKS: &str = concat!("1-", env!("CARGO_PKG_VERSION"));

/// Shorter documents are checked every time, which is faster than looking up whether they were
/// checked.
const SHORT_BYTES: usize = 16 * 1024;

/// Reads a stored document. A long document is checked completely only once, not by every process
/// that reads it.
pub fn read_stored(store: &Store, stored: &StoredDocument) -> Result<Document, RulesError> {
    if stored.text.len() < SHORT_BYTES {
        return parse_stored(stored);
    }
    if store.is_accepted(CHECKS, &stored.hash)
        && let Some(document) = Document::from_accepted_text(&stored.text)
    {
        return Ok(document);
    }
    let document = parse_stored(stored)?;
    store.accept(CHECKS, &stored.hash);
    Ok(document)
}

/// Reads a stored document and checks all of it.
pub fn parse_stored(stored: &StoredDocument) -> Result<Document, RulesError> {
    parse_document("stored approvals document", stored.text.as_bytes())
}

/// Reads a JSON5 document. Every problem is reported with its line and column.
pub fn parse_document(name: &str, text: &[u8]) -> Result<Document, RulesError> {
    let json5 = parse_json5(name, text)?;
    Document::from_json(&json5.value()).map_err(|problems| located(&json5, &problems))
}

/// Reads a document of another program. Every part that is left out is reported with its place.
pub(crate) fn import_document(
    name: &str,
    text: &[u8],
) -> Result<(Document, Diagnostics), RulesError> {
    let json5 = parse_json5(name, text)?;
    let imported = Document::import(&json5.value());
    let (document, left_out) = imported.map_err(|problems| located(&json5, &problems))?;
    let left_out = left_out.iter().map(|problem| locate(&json5, problem));
    Ok((document, Diagnostics(left_out.collect())))
}

/// Reads a document that a client sent.
pub(crate) fn client_document(
    name: &str,
    file: &serde_json::Value,
) -> Result<Document, RulesError> {
    let json5 = parse_json5(name, file.to_string().as_bytes())?;
    let (document, left_out) =
        Document::from_client(&json5.value()).map_err(|problems| located(&json5, &problems))?;
    for problem in left_out {
        tracing::warn!(%problem, "left out of an approvals document that a client sent");
    }
    Ok(document)
}

fn located(text: &Json5Text, problems: &[Problem]) -> RulesError {
    let diagnostics = problems.iter().map(|problem| locate(text, problem));
    RulesError::Document(Diagnostics(diagnostics.collect()))
}

fn parse_json5(name: &str, text: &[u8]) -> Result<Json5Text, RulesError> {
    Json5Text::parse_bytes(name, text).map_err(|problem| {
        let problem = if text.trim_ascii().is_empty() {
            problem.with_hint("the smallest document is written `{ version: 1 }`")
        } else {
            problem
        };
        RulesError::Document(Diagnostics(vec![problem]))
    })
}

fn locate(text: &Json5Text, problem: &Problem) -> Diagnostic {
    let position = KeyPath::parse(&problem.path).ok().and_then(|path| {
        if problem.at_key {
            text.locate_key(&path)
        } else {
            // A short form has no value at this path. Use the position of its nearest parent.
            let segments = path.segments();
            (1..=segments.len())
                .rev()
                .find_map(|length| text.locate(&KeyPath::from(&segments[..length])))
        }
    });
    let mut span = position.map_or(0..0, |position| position.span);
    if let Some(column) = problem.column {
        // The column is inside the quotes. It is exact unless there are escapes before it.
        let start = (span.start + column).min(span.end);
        span = start..(start + 1).min(span.end).max(start);
    }
    let field = problem.path.rsplit('.').next().unwrap_or_default();
    let prefix = format!("{field}: ");
    let message = match problem.message.strip_prefix(&prefix) {
        _ if problem.path.is_empty() => problem.message.clone(),
        rest => format!("{}: {}", problem.path, rest.unwrap_or(&problem.message)),
    };
    let diagnostic = text.diagnose(span, "DOCUMENT_INVALID", message);
    match &problem.hint {
        Some(hint) => diagnostic.with_hint(hint.clone()),
        None => diagnostic,
    }
}
