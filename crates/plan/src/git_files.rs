//! The configuration files that git reads in a directory, for [`crate::FsResolver`].

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use interlock_programs::{GitRemotes, GitWorktree};
use rustix::fs::{FileType, Mode, OFlags};

/// No person writes a larger configuration.
const MAX_BYTES: u64 = 1 << 20;

/// At most this many parent directories are searched.
const MAX_PARENTS: usize = 64;

/// The remotes that git knows in `cwd`. `None` if a relevant file exists but cannot be read.
pub(crate) fn remotes(cwd: &Path, home: Option<&Path>) -> Option<GitRemotes> {
    let mut files = vec![PathBuf::from("/etc/gitconfig")];
    if let Some(home) = home {
        files.push(home.join(".config/git/config"));
        files.push(home.join(".gitconfig"));
    }
    let top = cwd
        .ancestors()
        .take(MAX_PARENTS)
        .find(|parent| parent.join(".git").symlink_metadata().is_ok());
    if let Some(top) = top {
        files.push(common_directory(top)?.join("config"));
        files.push(top.join(".gitmodules"));
    }
    let mut texts = Vec::new();
    for file in files {
        match read(&file) {
            Ok(text) => texts.push(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    Some(GitRemotes::read(texts.iter().map(String::as_str)))
}

/// The directory with the configuration of the repository. In a worktree or a submodule, `.git` is
/// a file that names its directory, and a worktree's directory names the common one.
fn common_directory(top: &Path) -> Option<PathBuf> {
    let own = top.join(".git");
    if own.is_dir() {
        return Some(own);
    }
    let text = read(&own).ok()?;
    let directory = top.join(text.trim().strip_prefix("gitdir:")?.trim());
    match read(&directory.join("commondir")) {
        Ok(common) => Some(directory.join(common.trim())),
        Err(_) => Some(directory),
    }
}

/// The linked worktree of a `.git` file. The file must name a directory of the repository, and that
/// directory must name the file. `None` for a copy of the file elsewhere, or a file that names the
/// repository of another worktree.
pub(crate) fn worktree(git_file: &Path) -> Option<GitWorktree> {
    let own = fs::canonicalize(git_file).ok()?;
    let named = sole_line(&own)?;
    let named = named.strip_prefix("gitdir:")?.trim();
    let directory = fs::canonicalize(own.parent()?.join(named)).ok()?;
    let worktrees = directory.parent()?;
    let repository = worktrees.parent()?;
    // Everything beneath this name is protected: no agent can have written it without an approval.
    let is_in_repository = worktrees.file_name()? == "worktrees"
        && repository.file_name()? == ".git"
        && repository.join("HEAD").is_file()
        && repository.join("objects").is_dir()
        && repository.join("refs").is_dir();
    let leads_to = |name: &str, wanted: &Path| {
        let text = sole_line(&directory.join(name))?;
        let end = fs::canonicalize(directory.join(text.trim())).ok()?;
        (end == wanted).then_some(())
    };
    leads_to("gitdir", &own)?;
    leads_to("commondir", repository)?;
    let text = |path: &Path| path.to_str().map(str::to_owned);
    let found = GitWorktree {
        directory: text(&directory)?,
        repository: text(repository)?,
    };
    (is_in_repository && directory.join("HEAD").is_file()).then_some(found)
}

/// The text of a file with a single line.
fn sole_line(path: &Path) -> Option<String> {
    let text = read(path).ok()?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    (!line.contains(['\n', '\r', '\0'])).then(|| line.to_owned())
}

/// Reads a regular file of limited size. A pipe in its place must not block.
fn read(path: &Path) -> std::io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    let read = File::from(file)
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if read as u64 > MAX_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
