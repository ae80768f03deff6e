//! The three levels, and the only way in which sources of policy are combined: the stricter wins.

use serde::{Deserialize, Serialize};

/// Values that are ordered by strictness. `join` keeps the stricter value. It is associative,
/// commutative, idempotent and monotone, so the order of the sources never matters.
pub trait Strictness: Copy + Ord {
    /// Returns the stricter value. The derived order of each level runs from loose to strict.
    #[must_use]
    fn join(self, other: Self) -> Self {
        self.max(other)
    }
}

macro_rules! level {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// All values, from loose to strict.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Parses a value exactly as documents write it: in this case and without blanks.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Strictness for $name {}
    };
}

level! {
    /// What may run at all.
    Security { Full = "full", Allowlist = "allowlist", Deny = "deny" }
}

level! {
    /// When a human is asked.
    Ask { Off = "off", OnMiss = "on-miss", Always = "always" }
}

level! {
    /// What happens when a prompt is needed and no surface can show it.
    Fallback { Full = "full", Allowlist = "allowlist", Deny = "deny" }
}
