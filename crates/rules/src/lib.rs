//! The rules in force, and their only writer.
//!
//! The config and the approvals document together give the policy of an agent. Every change of the
//! document, and of the levels in the config, goes through [`PolicyRules`]. Read `layers` (the
//! levels of each source), `assemble` (the policy of an agent), `document` (reads a document and
//! locates every problem), `edit` (the writer), `loosening` (whether a document allows more than
//! another), `uses` (the last use of each entry), then `template` (entries for a kind of work).

#![forbid(unsafe_code)]

mod assemble;
mod clock;
mod config_record;
mod document;
mod edit;
mod error;
mod gateway_layer;
mod layers;
mod loosening;
mod template;
mod uses;

pub use assemble::{policy, policy_parts};
pub use clock::now_ms;
pub use config_record::record_config_write;
pub use document::{document_in_force, parse_document, parse_stored, read_stored, stored_document};
pub use edit::{
    DenyRuleEdit, DenyRuleSelection, EntryEdit, PolicyRules, RemovedEntries, edit_document,
    take_named_entries,
};
pub use error::RulesError;
pub use gateway_layer::GatewayLayer;
pub use layers::{
    SessionLevels, layers_in, layers_without_config_prompts, levels, levels_in, sandbox_layers_in,
};
pub use loosening::loosenings;
pub use template::{
    Template, TemplateCaseResult, TemplateRemoval, TemplateRemovalMode, TemplateSummary,
    check_template_directory, templates,
};
