//! The answers that a prompt can be given.

use serde::Serialize;

use crate::level::Ask;
use crate::remember::Remember;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    AllowOnce,
    /// Also stores entries, so that the same command is not asked about again.
    AllowAlways,
    Deny,
}

impl Decision {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowAlways => "allow-always",
            Self::Deny => "deny",
        }
    }

    /// What a prompt offers. "Always" only where something would be stored and where that would
    /// save the next prompt: with `ask=always` it would not.
    pub fn offered(ask: Ask, remember: &Remember) -> Vec<Self> {
        if ask == Ask::Always || remember.entries.is_empty() {
            vec![Self::AllowOnce, Self::Deny]
        } else {
            vec![Self::AllowOnce, Self::AllowAlways, Self::Deny]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;

    #[test]
    fn always_is_offered_only_where_it_helps() {
        let nothing = Remember {
            nothing_because: Some("inline code".to_owned()),
            ..Remember::default()
        };
        let something = Remember {
            entries: vec![Entry::for_pattern("/usr/bin/rg")],
            ..Remember::default()
        };
        assert_eq!(Decision::offered(Ask::OnMiss, &something).len(), 3);
        for (ask, remember) in [(Ask::OnMiss, &nothing), (Ask::Always, &something)] {
            let offered = Decision::offered(ask, remember);
            assert_eq!(offered, [Decision::AllowOnce, Decision::Deny]);
        }
    }
}
