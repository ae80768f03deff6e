//! The repairs of `interlock doctor --fix` and `interlock security audit --fix`, which need no
//! judgment of the owner. A repair must not weaken the policy, and a second run must find nothing
//! to repair.

use std::fs::{self, Metadata, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use interlock_approvals::OutsideRuns;
use interlock_config::{Config, ConfigFile, Json5Text, KeyPath};
use interlock_host::{Author, DocumentStanding, HostError, LocalHost};
use interlock_policy::Document;
use interlock_policy::safe_bin::{Profiles, always_refused, is_interpreter_like};
use interlock_rules::record_config_write;
use serde::Serialize;
use serde_json::json;

use crate::audit::secret_files;
use crate::merge::{EntryMerge, merge_document};

/// The approvals document of earlier programs, in the state directory.
const LEGACY_DOCUMENT: &str = "exec-approvals.json";

/// The largest legacy document that is read.
const MAX_LEGACY_BYTES: u64 = 4 * 1024 * 1024;

/// The state directory (`""`) and its subdirectories whose files must be closed to other users.
const CLOSED_DIRECTORIES: &[&str] = &["", "identity", "tls"];

/// Whether repairs are made or only reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoctorMode {
    Look,
    Fix,
}

/// A repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorRepair {
    /// The stable id for programs.
    pub id: &'static str,
    pub what: String,
    /// Whether the repair was made; otherwise `--fix` would make it.
    pub done: bool,
}

/// The repairs, and notes about what only the owner can decide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    pub repairs: Vec<DoctorRepair>,
    /// Notes, each with a command to paste.
    pub notes: Vec<String>,
}

impl DoctorReport {
    fn add(&mut self, id: &'static str, mode: DoctorMode, what: impl Into<String>) {
        self.repairs.push(DoctorRepair {
            id,
            what: what.into(),
            done: mode == DoctorMode::Fix,
        });
    }
}

/// Closes the state directory and its files to other users. This works without an open state,
/// because a state directory that other users can write cannot be opened. Files of other users stay
/// unchanged, for the owner to inspect.
pub fn close_state_files(state_dir: &Path, mode: DoctorMode, report: &mut DoctorReport) {
    let own_user = rustix::process::geteuid().as_raw();
    let mut paths = vec![state_dir.to_owned()];
    for name in CLOSED_DIRECTORIES {
        let Ok(entries) = fs::read_dir(state_dir.join(name)) else {
            continue;
        };
        paths.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    paths.sort();
    paths.dedup();
    for path in paths {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        // Sockets are skipped: accounts that cannot reach the directory cannot reach them, and the
        // server sets their mode.
        let is_closable = metadata.is_dir() || metadata.is_file();
        if metadata.uid() == own_user && is_closable {
            close(&path, &metadata, 0o077, ("state.permissions", mode), report);
        }
    }
}

/// Removes these bits from the mode of a file or directory.
fn close(
    path: &Path,
    metadata: &Metadata,
    open_bits: u32,
    (id, mode): (&'static str, DoctorMode),
    report: &mut DoctorReport,
) {
    let bits = metadata.mode() & 0o7777;
    let closed = bits & !open_bits;
    if closed == bits {
        return;
    }
    let what = format!("{}: mode {bits:04o} becomes {closed:04o}", path.display());
    if mode == DoctorMode::Fix
        && let Err(error) = fs::set_permissions(path, Permissions::from_mode(closed))
    {
        report.notes.push(format!("{}: {error}", path.display()));
        return;
    }
    report.add(id, mode, what);
}

/// Closes the config to other writers, and the files with secrets that it names to other readers as
/// well. Only regular files of this user that are not links are closed: other files may be shared
/// on purpose.
fn close_named_files(
    host: &LocalHost,
    mode: DoctorMode,
    report: &mut DoctorReport,
) -> Result<(), HostError> {
    let own_user = rustix::process::geteuid().as_raw();
    let state_dir = host.state_dir();
    let is_of_state = |path: &Path| {
        let mut closed = CLOSED_DIRECTORIES.iter();
        closed.any(|name| path.parent() == Some(&state_dir.join(name)))
    };
    let mut close_own = |path: &Path, bits: u32, id: &'static str| {
        // Files of the state directory were already closed.
        if is_of_state(path) {
            return;
        }
        let Ok(metadata) = fs::symlink_metadata(path) else {
            return;
        };
        if metadata.uid() == own_user && metadata.is_file() {
            close(path, &metadata, bits, (id, mode), report);
        }
    };
    close_own(host.config_path(), 0o022, "config.permissions");
    let file = ConfigFile::load(host.config_path())?;
    for (_, path) in secret_files(file.config(), host.home()) {
        close_own(&path, 0o077, "secret.permissions");
    }
    Ok(())
}

/// Repairs the config and the document. A run must not repair them; `_outside` proves that the
/// caller is none.
pub fn repair(
    host: &LocalHost,
    mode: DoctorMode,
    _outside: OutsideRuns,
    report: &mut DoctorReport,
) -> Result<(), HostError> {
    close_named_files(host, mode, report)?;
    repair_config(host, mode, report)?;
    import_legacy_document(host, mode, report)
}

/// Reports the same repairs and changes nothing.
pub fn look(host: &LocalHost, report: &mut DoctorReport) -> Result<(), HostError> {
    close_named_files(host, DoctorMode::Look, report)?;
    repair_config(host, DoctorMode::Look, report)?;
    import_legacy_document(host, DoctorMode::Look, report)
}

/// An edit of the config.
struct ConfigRepair {
    id: &'static str,
    key: KeyPath,
    shown: String,
    value: serde_json::Value,
    what: String,
}

fn repair_config(
    host: &LocalHost,
    mode: DoctorMode,
    report: &mut DoctorReport,
) -> Result<(), HostError> {
    let file = ConfigFile::load(host.config_path())?;
    let mut repairs = missing_profiles(file.config(), report);
    repairs.extend(old_agent_ids(file.config(), report));
    if repairs.is_empty() {
        return Ok(());
    }
    if mode == DoctorMode::Fix {
        ConfigFile::edit(host.config_path(), |text| {
            repairs
                .iter()
                .try_for_each(|repair| text.set(&repair.key, &repair.value))
        })?;
        let keys: Vec<&str> = repairs.iter().map(|repair| repair.shown.as_str()).collect();
        record_config_write(
            host.state_dir(),
            host.config_path(),
            &keys,
            &Author::default(),
        )?;
    }
    for repair in repairs {
        report.add(repair.id, mode, repair.what);
    }
    Ok(())
}

/// Gives safe bins without a profile an empty one. Without a profile a safe bin is never allowed;
/// with an empty one it may run without arguments, which is the least that the owner can have
/// meant. Programs that run other code by design must not get one.
fn missing_profiles(config: &Config, report: &mut DoctorReport) -> Vec<ConfigRepair> {
    let global = &config.tools.exec;
    let built_in = Profiles::built_in();
    let mut repairs = Vec::new();
    let mut levels = vec![(
        "tools.exec".to_owned(),
        KeyPath::root().key("tools").key("exec"),
        global,
    )];
    for (index, agent) in config.agents.list.iter().enumerate() {
        let key = KeyPath::root().key("agents").key("list").index(index);
        levels.push((
            format!("agents.list[{index}].tools.exec"),
            key.key("tools").key("exec"),
            &agent.tools.exec,
        ));
    }
    for (shown, key, exec) in levels {
        for name in exec.safe_bins.iter().flatten().map(|name| name.trim()) {
            let is_profiled = built_in.get(name).is_some()
                || global.safe_bin_profiles.contains_key(name)
                || exec.safe_bin_profiles.contains_key(name);
            if is_profiled {
                continue;
            }
            let shown = format!("{shown}.safeBinProfiles.{name}");
            let runs_other_code = is_interpreter_like(name)
                || always_refused(name).is_some()
                || interlock_programs::opaque_reason(name).is_some();
            if runs_other_code {
                report.notes.push(format!(
                    "{shown}: no profile is made for `{name}`, because it runs other code; see: interlock security audit"
                ));
                continue;
            }
            repairs.push(ConfigRepair {
                id: "config.safe_bin_profile",
                key: key.key("safeBinProfiles").key(name),
                what: format!("{shown}: an empty profile, which allows `{name}` without arguments"),
                shown,
                value: json!({}),
            });
        }
    }
    repairs
}

/// Renames the agent `default`, which is the old name of `main`.
fn old_agent_ids(config: &Config, report: &mut DoctorReport) -> Vec<ConfigRepair> {
    let list = &config.agents.list;
    let has_main = list
        .iter()
        .any(|agent| agent.id.eq_ignore_ascii_case("main"));
    let mut repairs = Vec::new();
    for (index, agent) in list.iter().enumerate() {
        if !agent.id.eq_ignore_ascii_case("default") {
            continue;
        }
        let shown = format!("agents.list[{index}].id");
        if has_main {
            report.notes.push(format!(
                "{shown} is `default`, the old name of `main`, which is listed too; keep one of the two: interlock config get agents.list"
            ));
            continue;
        }
        let list = KeyPath::root().key("agents").key("list");
        repairs.push(ConfigRepair {
            id: "config.agent_default",
            key: list.index(index).key("id"),
            what: format!("{shown}: `default` becomes `main`"),
            shown,
            value: json!("main"),
        });
    }
    repairs
}

/// Imports a legacy document in the state directory. Only its stricter levels and its deny rules
/// are imported. Nothing that loosens the policy may be, because a run without a shield could have
/// put the file there.
fn import_legacy_document(
    host: &LocalHost,
    mode: DoctorMode,
    report: &mut DoctorReport,
) -> Result<(), HostError> {
    let path = host.state_dir().join(LEGACY_DOCUMENT);
    let legacy = match read_legacy(&path) {
        Ok(None) => return Ok(()),
        Ok(Some(legacy)) => legacy,
        Err(reason) => {
            report.notes.push(format!(
                "{} is not taken over: {reason}; look at it: ls -l {}",
                path.display(),
                interlock_policy::quote(&path.display().to_string()),
            ));
            return Ok(());
        }
    };
    // Before the first start, compare with the cautious document, which the first start writes.
    let current = match host.rules().document_standing()? {
        DocumentStanding::First => Document::cautious(),
        _ => host.document()?.0,
    };
    let merged = merge_document(&current, &legacy, EntryMerge::Leave);
    if mode == DoctorMode::Fix && !merged.tightened.is_empty() {
        host.rules().edit_document(|document| {
            *document = merge_document(document, &legacy, EntryMerge::Leave).document;
            Ok(())
        })?;
    }
    for value in merged.tightened {
        report.add(
            "approvals.legacy_document",
            mode,
            format!("{LEGACY_DOCUMENT}: {value}"),
        );
    }
    if !merged.left.is_empty() {
        let directory = interlock_policy::quote(&host.state_dir().display().to_string());
        report.notes.push(format!(
            "{LEGACY_DOCUMENT}: {} values would loosen the policy and are not taken over; see them, and take the entries: interlock import openclaw --dry-run --from {directory}",
            merged.left.len(),
        ));
    }
    Ok(())
}

fn read_legacy(path: &PathBuf) -> Result<Option<Document>, String> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(None);
    };
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_LEGACY_BYTES).read_to_end(&mut text))
        .map_err(|error| error.to_string())?;
    let json5 =
        Json5Text::parse_bytes(LEGACY_DOCUMENT, &text).map_err(|error| error.to_string())?;
    let imported = Document::import(&json5.value());
    let (document, _) = imported.map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("; ")
    })?;
    Ok(Some(document))
}
