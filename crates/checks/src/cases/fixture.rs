//! Creates the files of a case in a fresh temporary directory.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

/// One file of a case. `${TMP}` in its path is the directory.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileSpec {
    path: String,
    kind: FixtureKind,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    target: Option<String>,
    #[serde(default)]
    copy_of: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FixtureKind {
    Dir,
    Symlink,
    Native,
    Script,
    Data,
}

/// The directory of one case. It is removed on drop.
#[derive(Debug)]
pub struct Fixture {
    _directory: tempfile::TempDir,
    root: String,
}

impl Fixture {
    /// Creates the files in the given order.
    pub fn make(files: &[FileSpec]) -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("interlock-case-")
            .tempdir()?;
        let root = fs::canonicalize(directory.path())?;
        let root = root
            .to_str()
            .ok_or_else(|| io::Error::other("not UTF-8"))?
            .to_owned();
        for file in files {
            file.make(&root)?;
        }
        Ok(Self {
            _directory: directory,
            root,
        })
    }

    /// The real path of the directory.
    pub fn root(&self) -> &str {
        &self.root
    }
}

impl FileSpec {
    fn make(&self, root: &str) -> io::Result<()> {
        let path = inside(&self.path.replace("${TMP}", root), root)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match self.kind {
            FixtureKind::Dir => fs::create_dir_all(&path)?,
            FixtureKind::Symlink => {
                let target = self.target.as_deref().unwrap_or_default();
                return symlink(target.replace("${TMP}", root), &path);
            }
            FixtureKind::Native | FixtureKind::Script | FixtureKind::Data => {
                fs::write(&path, self.bytes(root)?)?;
            }
        }
        let default = match self.kind {
            FixtureKind::Data => 0o644,
            _ => 0o755,
        };
        let mode = match &self.mode {
            Some(text) => u32::from_str_radix(text, 8).map_err(io::Error::other)?,
            None => default,
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
    }

    fn bytes(&self, root: &str) -> io::Result<Vec<u8>> {
        if let Some(original) = &self.copy_of {
            return fs::read(original);
        }
        let content = self
            .content
            .clone()
            .unwrap_or_default()
            .replace("${TMP}", root);
        // The header alone makes a file count as a native executable.
        if self.kind == FixtureKind::Native && content.is_empty() {
            return Ok(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
        }
        Ok(content.into_bytes())
    }
}

/// Checks that a path is inside the directory. A fixture must not touch anything outside.
fn inside(path: &str, root: &str) -> io::Result<PathBuf> {
    let path = PathBuf::from(path);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if climbs || !path.starts_with(Path::new(root)) || path == Path::new(root) {
        return Err(io::Error::other(format!(
            "{} is not inside ${{TMP}}",
            path.display()
        )));
    }
    Ok(path)
}
