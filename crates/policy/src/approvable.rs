//! What an approver could allow.

use interlock_binding::{Binding, BindingKind, Unbound};

/// Whether an approver could allow it: it is bound, or the owner lets approvers decide about what is not.
/// What is not there cannot be approved either way.
pub fn can_be_approved(binding: &Binding, asks_about_unbound: bool) -> bool {
    let exists = |unbound: &Unbound| !unbound.remedies.is_empty();
    let is_asked = asks_about_unbound && binding.unbound.as_ref().is_none_or(exists);
    binding.kind != BindingKind::Unbound || is_asked
}
