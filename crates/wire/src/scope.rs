//! The role and rights of a connection.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person or a program that controls the gateway.
    Operator,
    /// A machine that runs commands.
    Node,
}

impl Role {
    /// The role that a client asks for. The default is operator.
    pub fn parse(role: Option<&str>) -> Option<Self> {
        match role {
            None | Some("operator") => Some(Self::Operator),
            Some("node") => Some(Self::Node),
            Some(_) => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Node => "node",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One right of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperatorScope {
    Admin,
    Approvals,
    Pairing,
    Read,
    TalkSecrets,
    Write,
}

impl OperatorScope {
    /// In the order of their names, which is their order on the wire.
    pub const ALL: [Self; 6] = [
        Self::Admin,
        Self::Approvals,
        Self::Pairing,
        Self::Read,
        Self::TalkSecrets,
        Self::Write,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "operator.admin",
            Self::Approvals => "operator.approvals",
            Self::Pairing => "operator.pairing",
            Self::Read => "operator.read",
            Self::TalkSecrets => "operator.talk.secrets",
            Self::Write => "operator.write",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }

    /// Whether this scope includes the other one.
    pub fn implies(self, other: Self) -> bool {
        self == other || self == Self::Admin || (self, other) == (Self::Write, Self::Read)
    }
}

impl fmt::Display for OperatorScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The rights of a connection. An unknown name gives none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes(BTreeSet<OperatorScope>);

impl Scopes {
    /// The scopes with these names; unknown names are ignored.
    pub fn from_names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        let known = names.into_iter();
        Self(
            known
                .filter_map(|name| OperatorScope::parse(name.as_ref()))
                .collect(),
        )
    }

    pub fn all() -> Self {
        Self(OperatorScope::ALL.into())
    }

    pub fn allow(&self, scope: OperatorScope) -> bool {
        self.0.iter().any(|held| held.implies(scope))
    }

    /// Whether these scopes allow everything that the others allow, so that no upgrade is needed.
    pub fn cover(&self, others: &Self) -> bool {
        others.0.iter().all(|scope| self.allow(*scope))
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|scope| scope.as_str().to_owned())
            .collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = OperatorScope> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<OperatorScope> for Scopes {
    fn from_iter<I: IntoIterator<Item = OperatorScope>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}
