//! The paths of the supervisors and sessions of one state directory.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The paths of one state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorPaths {
    state_dir: PathBuf,
}

/// Returns the name of the socket of a supervisor that stepped aside.
pub(super) fn aside(version: &str, pid: i32) -> String {
    format!("{version}~{pid}")
}

pub(super) fn is_aside(version: &str) -> bool {
    version.contains('~')
}

const SOCKET_SUFFIX: &str = ".sock";

/// Longest address of a socket, without its final zero.
const MAX_ADDRESS: usize = 107;

impl SupervisorPaths {
    pub fn new(state_dir: &Path) -> Self {
        Self {
            state_dir: state_dir.to_path_buf(),
        }
    }

    /// Whether a path leads to this state directory.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        path == self.state_dir || real(path).is_some_and(|path| Some(path) == real(&self.state_dir))
    }

    pub(super) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// The directory of the transcripts, which has one directory per session.
    pub fn sessions(&self) -> PathBuf {
        self.state_dir.join("sessions")
    }

    /// Returns the directory of a session. The name must have the form of a session name.
    pub fn session(&self, name: &str) -> PathBuf {
        self.sessions().join(name)
    }

    pub fn run_key(&self) -> PathBuf {
        self.state_dir.join("run.key")
    }

    pub(super) fn supervisors(&self) -> PathBuf {
        self.state_dir.join("supervisor")
    }

    pub(super) fn socket_name(version: &str) -> String {
        format!("{version}{SOCKET_SUFFIX}")
    }

    /// The lock that is held as long as a guard or a supervisor of this version lives.
    pub(super) fn lock(&self, version: &str) -> PathBuf {
        self.supervisors().join(format!("{version}.lock"))
    }

    /// The log of supervisor messages that belong to no client.
    pub(super) fn log(&self) -> PathBuf {
        self.supervisors().join("log")
    }

    /// Returns the versions that have, or had, a supervisor here.
    pub(super) fn versions(&self) -> Vec<String> {
        let Ok(directory) = std::fs::read_dir(self.supervisors()) else {
            return Vec::new();
        };
        directory
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some(name.strip_suffix(SOCKET_SUFFIX)?.to_owned())
            })
            .collect()
    }

    pub(super) fn create(&self) -> io::Result<()> {
        for directory in [self.supervisors(), self.sessions()] {
            DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(directory)?;
        }
        Ok(())
    }

    pub(super) fn connect(&self, version: &str) -> io::Result<UnixStream> {
        self.with_address(&Self::socket_name(version), |path| {
            UnixStream::connect(path)
        })
    }

    /// Replaces a socket that no supervisor serves anymore. The caller holds the lock.
    pub(super) fn listen(&self, version: &str) -> io::Result<UnixListener> {
        let name = Self::socket_name(version);
        let new = format!(".{name}.new");
        let directory = self.supervisors();
        let _ = std::fs::remove_file(directory.join(&new));
        let listener = self.with_address(&new, |path| UnixListener::bind(path))?;
        // Only this user may enter the directory. The mode protects the socket if an owner loosens
        // the directory's.
        let path = directory.join(&new);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        std::fs::rename(path, directory.join(name))?;
        Ok(listener)
    }

    /// Moves the socket of a supervisor that takes no further runs out of the way of the next one.
    /// Clients with a session there can still reach it.
    pub(super) fn step_aside(&self, version: &str, pid: i32) -> io::Result<()> {
        let directory = self.supervisors();
        let aside = Self::socket_name(&aside(version, pid));
        std::fs::rename(
            directory.join(Self::socket_name(version)),
            directory.join(aside),
        )
    }

    pub(super) fn has_socket(&self, version: &str) -> bool {
        self.supervisors().join(Self::socket_name(version)).exists()
    }

    pub(super) fn remove_socket(&self, version: &str) {
        let _ = std::fs::remove_file(self.supervisors().join(Self::socket_name(version)));
    }

    /// Calls with a usable address. Socket addresses are short, so a long path is reached through a
    /// descriptor of its directory.
    fn with_address<T>(
        &self,
        name: &str,
        use_it: impl FnOnce(&Path) -> io::Result<T>,
    ) -> io::Result<T> {
        let path = self.supervisors().join(name);
        if path.as_os_str().len() <= MAX_ADDRESS {
            return use_it(&path);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(self.supervisors(), flags, Mode::empty())?;
        use_it(Path::new(&format!(
            "/proc/self/fd/{}/{name}",
            directory.as_raw_fd()
        )))
    }
}
