//! The data that the audit checks, read once, and the order of the checks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use interlock_config::{Config, StateDir};
use interlock_engine::shield::{ShieldKind, probe_shield};
use interlock_host::{DocumentStanding, HostError, LocalHost, OpenOptions, now_ms};
use interlock_policy::{AgentId, Document};

use super::table::checks;
use super::{
    FindingSeverity, SecurityCheck, SecurityFinding, channels, entries, exec, files, gateway,
    safe_bins, shield, sort_findings,
};

/// The config, the document and the system, as the checks see them. Tests make one without the
/// system.
#[derive(Debug, Clone)]
pub struct AuditSubject {
    pub config: Config,
    /// The document, with the last use of each entry.
    pub document: Document,
    /// The user of this process.
    pub user: u32,
    /// The home directory of commands, for `~`.
    pub home: Option<String>,
    /// The directories in which commands of the agent `main` are looked up.
    pub search_path: Vec<String>,
    /// The shield that the system offers, or why it offers none.
    pub shield: Result<ShieldKind, String>,
    pub now_ms: u64,
}

impl AuditSubject {
    /// `main` and every agent that config or document names.
    pub(crate) fn agents(&self) -> BTreeSet<AgentId> {
        let listed = self
            .config
            .agents
            .list
            .iter()
            .map(|agent| agent.id.as_str());
        let named = self.document.agents.keys().map(String::as_str);
        let ids = listed.chain(named).chain([AgentId::MAIN]);
        ids.filter_map(|id| AgentId::new(id).ok()).collect()
    }

    /// Runs every check that needs no file of the state directory.
    pub fn findings(&self) -> Vec<SecurityFinding> {
        let mut findings = Vec::new();
        exec::check(self, &mut findings);
        safe_bins::check(self, &mut findings);
        shield::check(self, &mut findings);
        gateway::check(self, &mut findings);
        channels::check(self, &mut findings);
        entries::check(self, &mut findings);
        sort_findings(&mut findings);
        findings
    }
}

/// Runs every check on a state directory. A state that cannot be opened is a finding, not an error.
pub fn audit(options: OpenOptions) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    let located = StateDir::locate(options.state_dir.as_deref(), &options.environment);
    if let Ok(state_dir) = &located {
        files::check_state_directory(state_dir, &mut findings);
        let usual = state_dir.join("interlock.json");
        let config_path = options.config.clone().unwrap_or(usual);
        files::check_config_file(&config_path, &mut findings);
    }
    match LocalHost::open_for_repair(options) {
        // The check of the directory has already reported this, with the same remedy.
        Err(HostError::State(_)) if !findings.is_empty() => {}
        Err(error) => findings.push(from_error(&checks::STATE_UNUSABLE, "state", &error)),
        Ok(host) => check_host(&host, &mut findings),
    }
    sort_findings(&mut findings);
    findings
}

/// Like [`audit`], for a host that is already open, such as that of a server.
pub fn audit_host(host: &LocalHost) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    files::check_state_directory(host.state_dir(), &mut findings);
    files::check_config_file(host.config_path(), &mut findings);
    check_host(host, &mut findings);
    sort_findings(&mut findings);
    findings
}

fn check_host(host: &LocalHost, findings: &mut Vec<SecurityFinding>) {
    let config = match host.config() {
        Ok(config) => config,
        Err(error) => {
            let subject = host.config_path().display().to_string();
            findings.push(from_error(&checks::CONFIG_INVALID, &subject, &error));
            return;
        }
    };
    let config = config.config().clone();
    files::check_secrets(&config, host.state_dir(), host.home(), findings);
    channels::check_files(&config, host.state_dir(), host.home(), findings);
    let document = match read_document(host) {
        Ok(document) => document,
        Err(finding) => {
            findings.push(*finding);
            // Check the rest of the config anyway.
            Document::cautious()
        }
    };
    let main = AgentId::default();
    let scope = host.scope(&main).ok();
    let resolver = scope
        .as_ref()
        .map(|scope| scope.resolver(&interlock_host::NO_CALLER_CONTEXT));
    let subject = AuditSubject {
        document,
        user: rustix::process::geteuid().as_raw(),
        home: scope
            .as_ref()
            .and_then(|scope| scope.home())
            .map(str::to_owned),
        search_path: resolver.map_or_else(Vec::new, |resolver| resolver.path().to_vec()),
        shield: probe_shield().map_err(|reason| reason.to_string()),
        now_ms: now_ms(),
        config,
    };
    findings.extend(subject.findings());
}

/// The document in force, or the one that the first start would write.
fn read_document(host: &LocalHost) -> Result<Document, Box<SecurityFinding>> {
    let subject = "the approvals document";
    let invalid =
        |error: &HostError| Box::new(from_error(&checks::DOCUMENT_INVALID, subject, error));
    let standing = host.rules().document_standing();
    match standing.map_err(|error| invalid(&error.into()))? {
        DocumentStanding::First => Ok(Document::cautious()),
        DocumentStanding::Unrecorded { problem, .. } => {
            Err(Box::new(checks::DOCUMENT_UNRECORDED.finding(
                FindingSeverity::Critical,
                subject,
                format!("no audit record wrote the approvals document: {problem}"),
                "interlock doctor",
            )))
        }
        DocumentStanding::Recorded(_) => match host.rules().document_with_uses() {
            Ok((document, _)) => Ok(document),
            Err(error) => Err(invalid(&error.into())),
        },
    }
}

fn from_error(check: &SecurityCheck, subject: &str, error: &HostError) -> SecurityFinding {
    let fix = match check.id {
        id if id == checks::CONFIG_INVALID.id => "interlock config validate".to_owned(),
        id if id == checks::DOCUMENT_INVALID.id => "interlock doctor".to_owned(),
        _ => error
            .remedy()
            .unwrap_or_else(|| "interlock doctor".to_owned()),
    };
    let what = format!("{} ({})", error, error.code());
    check.finding(FindingSeverity::Critical, subject, what, fix)
}

/// A path of the config with `~` expanded.
pub(super) fn expanded(path: &str, home: Option<&str>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(rest) => home.map(|home| Path::new(home).join(rest)),
        None => Some(PathBuf::from(path)),
    }
}
