//! Reading the approvals document: every problem is reported with its line and column.

use interlock_config::{Diagnostic, Diagnostics, Json5Text, KeyPath};
use interlock_policy::{Document, Problem};
use interlock_store::{ApprovalsStore as _, Store, StoredDocument};

use crate::error::ApprovalStateError;

/// The name of the document of the store in error texts.
const STORED: &str = "stored approvals document";

/// The document in force as it is stored, with the hash that a change has to name.
pub fn stored_document(store: &Store) -> Result<StoredDocument, ApprovalStateError> {
    store.document()?.ok_or_else(document_missing)
}

pub(crate) fn document_missing() -> ApprovalStateError {
    ApprovalStateError::Edit {
        code: "DOCUMENT_MISSING",
        message: "the approvals document is gone".to_owned(),
        remedy: "run the command again: a cautious one is written".to_owned(),
    }
}

/// Reads a document of the store.
pub fn parse_stored_document(stored: &StoredDocument) -> Result<Document, Diagnostics> {
    parse_document(STORED, stored.text.as_bytes())
}

/// Reads a document in JSON5.
pub fn parse_document(name: &str, text: &[u8]) -> Result<Document, Diagnostics> {
    let json5 = parse_json5(name, text)?;
    Document::from_json(&json5.value()).map_err(|problems| located(&json5, &problems))
}

/// Reads a document of another program; every part that had to be left out is reported with its
/// place.
pub fn import_document(name: &str, text: &[u8]) -> Result<(Document, Diagnostics), Diagnostics> {
    let json5 = parse_json5(name, text)?;
    let imported = Document::import(&json5.value());
    let (document, left_out) = imported.map_err(|problems| located(&json5, &problems))?;
    let left_out = left_out.iter().map(|problem| locate(&json5, problem));
    Ok((document, Diagnostics(left_out.collect())))
}

/// Reads what a client sent.
pub fn client_document(name: &str, file: &serde_json::Value) -> Result<Document, Diagnostics> {
    let json5 = parse_json5(name, file.to_string().as_bytes())?;
    let (document, left_out) =
        Document::from_client(&json5.value()).map_err(|problems| located(&json5, &problems))?;
    for problem in left_out {
        tracing::warn!(%problem, "left out of an approvals document that a client sent");
    }
    Ok(document)
}

fn located(text: &Json5Text, problems: &[Problem]) -> Diagnostics {
    let diagnostics = problems.iter().map(|problem| locate(text, problem));
    Diagnostics(diagnostics.collect())
}

fn parse_json5(name: &str, text: &[u8]) -> Result<Json5Text, Diagnostics> {
    Json5Text::parse_bytes(name, text).map_err(|problem| {
        let problem = if text.trim_ascii().is_empty() {
            problem.with_hint("the smallest document is written `{ version: 1 }`")
        } else {
            problem
        };
        Diagnostics(vec![problem])
    })
}

fn locate(text: &Json5Text, problem: &Problem) -> Diagnostic {
    let position = KeyPath::parse(&problem.path).ok().and_then(|path| {
        if problem.at_key {
            text.locate_key(&path)
        } else {
            // A short form has no value of its own at this path; what stands for it is further up.
            let segments = path.segments();
            (1..=segments.len())
                .rev()
                .find_map(|length| text.locate(&KeyPath::from(&segments[..length])))
        }
    });
    let mut span = position.map_or(0..0, |position| position.span);
    if let Some(column) = problem.column {
        // Inside the quotes; right for every pattern without escapes in front of the place.
        let start = (span.start + column).min(span.end);
        span = start..(start + 1).min(span.end).max(start);
    }
    let field = problem.path.rsplit('.').next().unwrap_or_default();
    let said = format!("{field}: ");
    let message = match problem.message.strip_prefix(&said) {
        _ if problem.path.is_empty() => problem.message.clone(),
        rest => format!("{}: {}", problem.path, rest.unwrap_or(&problem.message)),
    };
    let diagnostic = text.diagnose(span, "DOCUMENT_INVALID", message);
    match &problem.hint {
        Some(hint) => diagnostic.with_hint(hint.clone()),
        None => diagnostic,
    }
}
