//! Files that the policy names: changing one of them changes what an entry or a grant allows.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use interlock_approvals::clock::now;
use interlock_patch::FileChange;
use interlock_policy::safe_bin::is_interpreter_like;
use interlock_policy::{ArgumentRule, Entry, path_matches};

use interlock_local::{HostError, LocalState};

/// Not a path: a rule that matches this names no file.
const NO_PATH: &str = "\u{1}";

#[derive(Debug, Default)]
pub(crate) struct NamedFiles {
    files: Vec<NamedFile>,
    /// Path patterns of entries, each with the place where the entry is written.
    patterns: Vec<(String, String)>,
    /// Arguments of entries that may be paths.
    arguments: Vec<(PathBuf, String)>,
    /// The argument rules of entries for interpreters.
    scripts: Vec<(ArgumentRule, String)>,
}

#[derive(Debug)]
struct NamedFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    origin: String,
}

impl NamedFiles {
    /// Loads the names of all agents: a file that one agent may not run by itself, it may not write
    /// for another agent either.
    pub(crate) fn load(local: &LocalState) -> Result<Self, HostError> {
        let (document, _) = local.document()?;
        let mut named = Self::default();
        let home = local.home();
        for (agent, scope) in &document.agents {
            for (index, entry) in scope.allowlist.iter().enumerate() {
                let origin =
                    format!("an allowlist entry names it (agents.{agent}.allowlist[{index}])");
                named.add_entry(entry, &origin, home);
            }
        }
        for path in local.approvals().granted_files()? {
            named.add_file(&path, "a grant holds it");
        }
        Ok(named)
    }

    fn add_entry(&mut self, entry: &Entry, origin: &str, home: Option<&str>) {
        let now = u64::try_from(now()).unwrap_or_default();
        if entry.expires_at.is_some_and(|end| end <= now) {
            return;
        }
        let pattern = entry.pattern.as_str();
        let is_path = pattern.contains('/') || pattern.starts_with('~');
        match (
            is_path,
            pattern.contains(['*', '?']),
            pattern.strip_prefix("~/"),
        ) {
            (false, ..) => {}
            (true, true, _) => self.patterns.push((pattern.to_owned(), origin.to_owned())),
            (true, false, None) => self.add_file(pattern, origin),
            (true, false, Some(rest)) => {
                if let Some(home) = home {
                    self.add_file(&format!("{}/{rest}", home.trim_end_matches('/')), origin);
                }
            }
        }
        if let Some(bound) = &entry.bound_file {
            self.add_file(&bound.path, origin);
        }
        if let Some(path) = &entry.last_resolved_path {
            self.add_file(path, origin);
        }
        for argument in entry.args.iter().flatten() {
            let is_path = argument.contains(['/', '.']) && !argument.starts_with('-');
            if is_path && !argument.contains(['*', '?']) {
                let path = argument.trim_start_matches("./");
                let is_named = Path::new(path).file_name().is_some();
                if is_named {
                    self.arguments
                        .push((PathBuf::from(path), origin.to_owned()));
                }
            }
        }
        let program = Path::new(pattern).file_name();
        let program = program.and_then(|name| name.to_str()).unwrap_or(pattern);
        let rule = ArgumentRule::parse(entry.arg_pattern.as_deref(), entry.args.as_deref());
        // An entry with `paths` names a directory, and trusts the files there as they are.
        if let (true, Ok(rule)) = (is_interpreter_like(program), rule)
            && entry.paths.is_none()
            && !rule.matches(&[NO_PATH.to_owned()], "/")
        {
            self.scripts.push((rule, origin.to_owned()));
        }
    }

    fn add_file(&mut self, path: &str, origin: &str) {
        let written = PathBuf::from(path);
        let real = fs::canonicalize(&written).ok();
        // The link itself may be changed too, wherever its directory really is.
        let parent = written
            .parent()
            .and_then(|parent| fs::canonicalize(parent).ok());
        let link = parent
            .zip(written.file_name())
            .map(|(parent, name)| parent.join(name));
        let identity = fs::metadata(&written).ok();
        let identity = identity.map(|metadata| (metadata.dev(), metadata.ino()));
        for path in [Some(written), link, real].into_iter().flatten() {
            self.files.push(NamedFile {
                path,
                identity,
                origin: origin.to_owned(),
            });
        }
    }

    pub(crate) fn reason(
        &self,
        change: &FileChange,
        root: &Path,
        home: Option<&str>,
    ) -> Option<String> {
        let path = &change.path;
        let before = change.before.as_ref().filter(|before| !before.is_link);
        let identity = before.map(|before| (before.device, before.inode));
        let names_it = |file: &&NamedFile| {
            file.path == *path || (identity.is_some() && file.identity == identity)
        };
        if let Some(file) = self.files.iter().find(names_it) {
            return Some(file.origin.clone());
        }
        let names_it = |(argument, _): &&(PathBuf, String)| path.ends_with(argument);
        if let Some((_, origin)) = self.arguments.iter().find(names_it) {
            return Some(origin.clone());
        }
        let shown = path.to_str()?;
        // A pattern names many files, of which only programs are run because of it.
        if is_executable(change) {
            let names_it = |(pattern, _): &&(String, String)| {
                !is_for_all(pattern) && path_matches(pattern, shown, home)
            };
            if let Some((_, origin)) = self.patterns.iter().find(names_it) {
                return Some(origin.clone());
            }
        }
        let below = path.strip_prefix(root).ok().and_then(Path::to_str);
        let mut calls = vec![shown.to_owned()];
        calls.extend(below.map(str::to_owned));
        calls.extend(below.map(|below| format!("./{below}")));
        let root = root.to_str().unwrap_or("/");
        let names_it = |(rule, _): &&(ArgumentRule, String)| {
            let mut calls = calls.iter();
            calls.any(|call| rule.matches(std::slice::from_ref(call), root))
        };
        let found = self.scripts.iter().find(names_it);
        found.map(|(_, origin)| origin.clone())
    }
}

/// Whether the pattern matches everything. Such an entry lets everything run, and names no file.
fn is_for_all(pattern: &str) -> bool {
    matches!(pattern, "/**" | "**/*" | "/**/*" | "**/**")
}

/// Whether the file is, was or becomes a program.
pub(crate) fn is_executable(change: &FileChange) -> bool {
    let before = change.before.as_ref().map(|before| before.mode);
    let after = change.after.as_ref().and_then(|after| after.mode);
    [before, after]
        .into_iter()
        .flatten()
        .any(|mode| mode & 0o111 != 0)
}
