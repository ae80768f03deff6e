//! Decides which commands an approver could allow.

use interlock_binding::{Binding, BindingKind, Unbound};

/// Whether an approver could allow the command: its files are bound, or the owner lets approvers
/// decide about unbound commands. A program that does not exist cannot be approved either way.
pub fn can_be_approved(binding: &Binding, asks_about_unbound: bool) -> bool {
    let exists = |unbound: &Unbound| !unbound.remedies.is_empty();
    let is_asked = asks_about_unbound && binding.unbound.as_ref().is_none_or(exists);
    binding.kind != BindingKind::Unbound || is_asked
}
