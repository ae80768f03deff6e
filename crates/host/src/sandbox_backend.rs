//! Chooses the backend of a sandbox where the config names none: `native`, or `bwrap` where only
//! that works.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use interlock_engine::sandbox::try_backend;
use interlock_plan::SandboxBackend;

/// Records for short processes that the native backend was tried and works. Stored beside
/// the directories of the scopes.
const RECORD: &str = "sandboxes/native-works";

/// How long a native backend counts as broken. Its owner may have repaired it since.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// The last choice of this process, and its time.
static CHOSEN: Mutex<Option<(SandboxBackend, Instant)>> = Mutex::new(None);

/// The backend to use. If neither works, the native one is returned; its error says what is
/// missing.
pub(crate) fn usual_backend(state_dir: &Path) -> SandboxBackend {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((backend, since)) = *chosen
        && (backend == SandboxBackend::Native || since.elapsed() < TRY_AGAIN)
    {
        return backend;
    }
    let record = state_dir.join(RECORD);
    let system = describe_system();
    let is_known = std::fs::read_to_string(&record).is_ok_and(|known| Some(known) == system);
    if is_known {
        *chosen = Some((SandboxBackend::Native, Instant::now()));
        return SandboxBackend::Native;
    }
    if try_backend(SandboxBackend::Native).is_ok() {
        // Without the record, the next process tries again.
        let _ = system.map(|system| std::fs::write(&record, system));
        *chosen = Some((SandboxBackend::Native, Instant::now()));
        return SandboxBackend::Native;
    }
    if try_backend(SandboxBackend::Bwrap).is_ok() {
        *chosen = Some((SandboxBackend::Bwrap, Instant::now()));
        return SandboxBackend::Bwrap;
    }
    SandboxBackend::Native
}

/// What the result of a trial depends on: this boot of the system, the user namespace and account
/// of this process, and the program.
fn describe_system() -> Option<String> {
    let start = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/user").ok()?;
    let program = std::fs::metadata("/proc/self/exe").ok()?;
    Some(format!(
        "{} {} {} {}:{} {}\n",
        start.trim(),
        namespace.display(),
        rustix::process::geteuid().as_raw(),
        program.dev(),
        program.ino(),
        program.ctime(),
    ))
}
