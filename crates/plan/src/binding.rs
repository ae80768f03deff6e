//! The pinned binding of an approval: the files that the binder named, and the places that must
//! stay empty. Only [`interlock_binding`] decides which files those are, for the judge, the prompt
//! and the plan alike.

use std::io;

use interlock_binding::{Binding, BindingKind, BoundRole};
use interlock_programs::{Lookup, Resolver};
use serde::{Deserialize, Serialize};

use crate::FsResolver;
use crate::identity::{Drift, PinnedFile};

/// The binding of a plan. Part of its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanBinding {
    pub kind: BindingKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PlanBoundFile>,
    /// Places that must be empty when the run starts. A file there would be used before a bound
    /// file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
}

/// A file with the content that was approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanBoundFile {
    pub role: BoundRole,
    pub file: PinnedFile,
    /// The position of the file among the words of its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operand: Option<usize>,
    /// The name by which the run looks the file up in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_up: Option<String>,
}

impl PlanBinding {
    /// The kind alone, for a run that the policy allows regardless of its files.
    pub fn of_kind(kind: BindingKind) -> Self {
        Self {
            kind,
            files: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// Pins everything that the binding names in its present state.
    pub fn pin(binding: &Binding) -> Result<Self, Drift> {
        let pin = |bound: &interlock_binding::BoundFile| {
            let file = match bound.role {
                BoundRole::Script | BoundRole::Settings => PinnedFile::with_content(&bound.file)?,
                BoundRole::Interpreter | BoundRole::Program => PinnedFile::of(&bound.file)?,
            };
            Ok(PlanBoundFile {
                role: bound.role,
                file,
                operand: bound.operand,
                looked_up: bound.looked_up.clone(),
            })
        };
        Ok(Self {
            kind: binding.kind,
            files: binding
                .files
                .iter()
                .map(pin)
                .collect::<Result<_, Drift>>()?,
            absent: binding.absent.clone(),
        })
    }

    /// Checks that everything is still as pinned. `path` is the PATH of the run.
    pub fn check(&self, path: &str) -> Result<(), Drift> {
        for bound in &self.files {
            bound.file.check()?;
        }
        self.check_places(path)
    }

    /// Like [`Self::check`], but cheap enough for a check before each command of a line, since an
    /// earlier command may have written to the files. A file is only read if its times might not
    /// reveal a write.
    pub fn check_again(&self, path: &str) -> Result<(), Drift> {
        for bound in &self.files {
            bound.file.check_again()?;
        }
        self.check_places(path)
    }

    /// Like [`Self::check`], by the marks of the files instead of their content.
    pub fn check_marks(&self, path: &str) -> Result<(), Drift> {
        for bound in &self.files {
            bound.file.check_marks()?;
        }
        self.check_places(path)
    }

    /// Checks that nothing appeared in front of a bound file.
    fn check_places(&self, path: &str) -> Result<(), Drift> {
        for place in &self.absent {
            match std::fs::symlink_metadata(place) {
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(Drift::of(place, &error)),
                Ok(_) => return Err(Drift::Appeared(place.clone())),
            }
        }
        let resolver = FsResolver::from_path_value(path, None);
        for bound in &self.files {
            let Some(name) = &bound.looked_up else {
                continue;
            };
            match resolver.executable(name, "/") {
                Lookup::Found(now) if now.found == bound.file.found => {}
                Lookup::Found(now) => return Err(Drift::Appeared(now.found)),
                Lookup::Missing(_) => return Err(Drift::Gone(bound.file.found.clone())),
            }
        }
        Ok(())
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
