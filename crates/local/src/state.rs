//! The opened state of this host: its directory, its config, its store and its approvals document.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use interlock_approvals::{ApprovalSettings, Approvals};
use interlock_config::{
    Config, ConfigError, ConfigFile, StateDir, StateDirError, StateEnvironment,
};
use interlock_plan::{AccountError, RunAccount};
use interlock_policy::{AgentId, Ask, Document, Levels, Policy, PolicyError, Scope};
use interlock_rules::{PolicyRules, RulesError, levels};
use interlock_store::{ApprovalsStore, Store, StoreError, StoredDocument};

use crate::config_cache::ConfigCache;
use crate::login_path::{self, LoginPathError, LoginShell, PathSource};
use crate::policy_cache::PolicyCache;
use crate::shield::host_identity;

pub use interlock_rules::now_ms;

/// Where the state is, and the environment of the process's user.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    pub state_dir: Option<PathBuf>,
    pub config: Option<PathBuf>,
    pub environment: StateEnvironment,
    /// The PATH of this process.
    pub path: Option<String>,
    pub path_source: PathSource,
    pub home: Option<String>,
    /// The value of `$XDG_DATA_HOME`.
    pub data_home: Option<String>,
    /// What a first start writes.
    pub starter: Starter,
}

/// The document that a first start writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Starter {
    /// Only the cautious levels.
    #[default]
    Bare,
    /// The cautious levels and the base `read-only`.
    ReadOnly,
}

/// The state of this host: its files, and what follows from them. It starts no run.
#[derive(Debug)]
pub struct LocalState {
    state_dir: PathBuf,
    config_path: PathBuf,
    config: ConfigCache,
    policies: PolicyCache,
    skills: Mutex<Arc<Vec<String>>>,
    store: Arc<Store>,
    path: String,
    path_source: PathSource,
    /// The login shell's PATH, read when a command needs it for the first time.
    login_path: OnceLock<Result<Vec<String>, LoginPathError>>,
    /// The login shell's PATH that a service has stored, for a process that asks no shell.
    remembered_login: OnceLock<Vec<String>>,
    /// The login shell's PATH of each account that commands run as, by name. It is empty if the
    /// shell gave no answer.
    account_paths: Mutex<BTreeMap<String, Vec<String>>>,
    home: Option<String>,
    data_home: Option<String>,
}

/// Whether this is the first start, which has just written the cautious document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct FirstStart(pub bool);

/// Why this host cannot carry out a request. Each error has a stable code and a remedy.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    State(#[from] StateDirError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("the config asks for a sandbox, and nothing runs on the host instead: {0}")]
    SandboxUnavailable(String),
    #[error(transparent)]
    Rules(Box<RulesError>),
    #[error("{message}")]
    Setup {
        code: &'static str,
        message: String,
        remedy: String,
    },
}

impl From<RulesError> for HostError {
    fn from(error: RulesError) -> Self {
        match error {
            RulesError::Config(error) => Self::Config(error),
            RulesError::Store(error) => Self::Store(error),
            error => Self::Rules(Box::new(error)),
        }
    }
}

impl From<PolicyError> for HostError {
    fn from(error: PolicyError) -> Self {
        RulesError::from(error).into()
    }
}

impl HostError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::State(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Account(error) => error.code(),
            Self::SandboxUnavailable(_) => interlock_config::schema::SANDBOX_UNAVAILABLE,
            Self::Rules(error) => error.code(),
            Self::Setup { code, .. } => code,
        }
    }

    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::State(error) => Some(error.remedy()),
            Self::Config(error) => error.remedy(),
            Self::Store(error) => Some(error.remedy()),
            Self::Account(error) => Some(error.remedy()),
            Self::SandboxUnavailable(_) => Some("interlock config validate".to_owned()),
            Self::Rules(error) => error.remedy(),
            Self::Setup { remedy, .. } => Some(remedy.clone()),
        }
    }
}

impl ApprovalSettings for LocalState {
    fn config(&self) -> Result<Arc<ConfigFile>, ConfigError> {
        self.config.load(&self.config_path)
    }
}

impl LocalState {
    /// Opens the state, and writes the cautious document if there is none yet, so that no agent has
    /// open access by accident.
    pub fn open(options: OpenOptions) -> Result<(Self, FirstStart), HostError> {
        let starter = options.starter;
        let host = Self::open_for_repair(options)?;
        let first = host.write_first_document(starter)?;
        Ok((host, first))
    }

    /// Opens the state and leaves the approvals document unchanged, recorded or not, for commands
    /// that inspect it, repair it or read the audit. Nothing may run by a document that is not
    /// recorded.
    pub fn open_for_repair(options: OpenOptions) -> Result<Self, HostError> {
        let state = StateDir::open(options.state_dir.as_deref(), &options.environment)?;
        let state_dir = state.path().to_owned();
        let store = Arc::new(Store::open(&state_dir)?);
        let host = Self {
            config_path: options.config.unwrap_or_else(|| state.config_path()),
            config: ConfigCache::default(),
            policies: PolicyCache::default(),
            skills: Mutex::default(),
            store,
            path: options.path.unwrap_or_default(),
            path_source: options.path_source,
            login_path: OnceLock::new(),
            remembered_login: OnceLock::new(),
            account_paths: Mutex::default(),
            home: options.home,
            data_home: options.data_home,
            state_dir,
        };
        Ok(host)
    }

    fn write_first_document(&self, starter: Starter) -> Result<FirstStart, HostError> {
        if self.store.document()?.is_some() {
            return Ok(FirstStart(false));
        }
        let document = match starter {
            Starter::Bare => Document::cautious(),
            Starter::ReadOnly => Document::starter(),
        };
        match self.store.replace_document(None, &document.to_json()) {
            Ok(_) => Ok(FirstStart(true)),
            // Another process has written the document first.
            Err(StoreError::DocumentChanged { .. }) => Ok(FirstStart(false)),
            Err(error) => Err(error.into()),
        }
    }

    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub fn config_path(&self) -> &Path {
        &self.config_path
    }

    /// The directory for the journals of patches and of committed runs.
    pub fn patch_journal(&self) -> PathBuf {
        self.state_dir.join("patches")
    }

    /// The approvals of this host.
    pub fn approvals(&self) -> Approvals<'_> {
        Approvals::new(&self.store, self)
    }

    /// The current config. If the file is invalid, the last valid config stays in force; without
    /// one, this is an error.
    pub fn config(&self) -> Result<Arc<ConfigFile>, HostError> {
        Ok(self.config.load(&self.config_path)?)
    }

    /// Like [`Self::config`], for calls that run commands or change files. These must be refused
    /// while an invalid file asks for a sandbox: the last valid config must not run outside what
    /// belongs inside.
    pub fn run_config(&self) -> Result<Arc<ConfigFile>, HostError> {
        let config = self.config()?;
        self.check_sandbox()?;
        Ok(config)
    }

    /// Fails while an invalid config file asks for a sandbox, as [`Self::run_config`] does.
    pub fn check_sandbox(&self) -> Result<(), HostError> {
        match self.config.unmet_sandbox() {
            None => Ok(()),
            Some(problem) => Err(HostError::SandboxUnavailable(problem)),
        }
    }

    /// The store, also for the servers, which keep other data in it. A server must flush it before
    /// it ends.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The store, for users that may outlive this value.
    pub fn shared_store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// The approvals document and the levels of the config, to read and to change.
    pub fn rules(&self) -> PolicyRules<'_> {
        PolicyRules::new(&self.store, &self.config_path)
    }

    /// The document in force, with the hash that a change must name.
    pub fn document(&self) -> Result<(Document, StoredDocument), HostError> {
        Ok(self.rules().document()?)
    }

    /// The PATH of this process, if commands are looked up there.
    pub(crate) fn process_path(&self) -> Option<&str> {
        match self.path_source {
            PathSource::Process => Some(&self.path),
            PathSource::LoginShell { .. } => None,
        }
    }

    pub(crate) fn service_path(&self) -> &str {
        &self.path
    }

    /// The directories of the login shell's PATH, if they are known. A service asks the shell and
    /// stores the answer in the state directory. A command that a person starts does not start a
    /// shell, and reads the stored answer.
    pub(crate) fn login_directories(&self) -> &[String] {
        match self.login_path() {
            Some(Ok(login)) => login,
            Some(Err(_)) => &[],
            None => self
                .remembered_login
                .get_or_init(|| login_path::remembered(&self.state_dir)),
        }
    }

    /// The directories of the login shell's PATH, or why they are unknown. `None` if this process
    /// does not ask the shell.
    pub fn login_path(&self) -> Option<&Result<Vec<String>, LoginPathError>> {
        let PathSource::LoginShell { shell } = &self.path_source else {
            return None;
        };
        Some(self.login_path.get_or_init(|| {
            let read = LoginShell::of_user(shell.as_deref(), self.home.as_deref())?.read()?;
            login_path::remember(&self.state_dir, &read);
            Ok(read)
        }))
    }

    /// The directories of the login shell's PATH of a run's account.
    pub(crate) fn account_path(&self, account: &RunAccount) -> Vec<String> {
        let mut known = self
            .account_paths
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let user = account.identity.user.clone();
        let read = || LoginShell::of_account(account).read().unwrap_or_default();
        known.entry(user).or_insert_with(read).clone()
    }

    pub fn home(&self) -> Option<&str> {
        self.home.as_deref()
    }

    pub(crate) fn data_home(&self) -> Option<&str> {
        self.data_home.as_deref()
    }

    /// The joined levels of all policy layers for an agent and a call.
    pub fn levels(&self, agent: &AgentId, call_ask: Option<Ask>) -> Result<Levels, HostError> {
        let config = self.config()?;
        let (document, _) = self.document()?;
        Ok(levels(config.config(), &document, agent, call_ask))
    }

    pub(crate) fn policies(&self) -> &PolicyCache {
        &self.policies
    }

    /// Whether the document allows the programs of skills to at least one agent.
    pub fn allows_skills(&self) -> Result<bool, HostError> {
        let (document, _) = self.document()?;
        let allows = |scope: &Scope| scope.auto_allow_skills == Some(true);
        Ok(allows(&document.defaults) || document.agents.values().any(allows))
    }

    /// Sets the programs of skills that the gateway of this node names, besides those of the
    /// config.
    pub fn set_skills(&self, names: Vec<String>) {
        let mut skills = self.skills.lock().unwrap_or_else(PoisonError::into_inner);
        if **skills != names {
            *skills = Arc::new(names);
        }
    }

    pub(crate) fn skills(&self) -> Arc<Vec<String>> {
        let skills = self.skills.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&skills)
    }
}

/// The policy of an agent on this system, from the config, the document and the call.
pub fn policy(
    config: &Config,
    document: &Document,
    agent: &AgentId,
    call_ask: Option<Ask>,
    home: Option<&str>,
) -> Result<Policy, PolicyError> {
    let identity = host_identity(&config.exec_for(agent.as_str()));
    interlock_rules::policy(config, document, agent, call_ask, identity, home)
}
