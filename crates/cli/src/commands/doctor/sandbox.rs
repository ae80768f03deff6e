//! Whether a sandbox works on this machine, with which backend, and how to fix it.

use interlock_console::Failure;
use interlock_console::output::line;
use interlock_host::LocalHost;
use interlock_plan::SandboxBackend;
use serde::Serialize;

use crate::commands::sandbox::{BackendHealth, try_backends};

/// The result of the trials.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxHealth {
    works: bool,
    /// The backend that is used if the config names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<SandboxBackend>,
    /// Why the native backend does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    backends: Vec<BackendHealth>,
}

impl SandboxHealth {
    pub(super) fn look(host: &LocalHost) -> Result<Self, Failure> {
        let backends = try_backends(host)?;
        let usual = backends.iter().find(|one| one.works && one.is_usual());
        let native = backends.first();
        Ok(Self {
            works: usual.is_some(),
            backend: usual.map(|one| one.backend),
            why: native.and_then(|one| one.why.clone()),
            fix: native.and_then(|one| one.fix.clone()),
            backends,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut named = String::new();
        for other in self.backends.iter().filter(|one| !one.is_usual()) {
            let backend = other.backend;
            named += &match (&other.why, &other.fix) {
                (None, _) => format!("  {backend}, which the config names, works here\n"),
                (Some(why), fix) => {
                    let fix = fix
                        .as_ref()
                        .map(|fix| format!("; to fix it: {}", line(fix)));
                    let (why, fix) = (line(why), fix.unwrap_or_default());
                    format!("  {backend}, which the config names, does not work: {why}{fix}\n")
                }
            };
        }
        let Some(why) = &self.why else {
            return format!("sandbox: the native sandbox works here\n{named}");
        };
        let mut text = format!(
            "sandbox: the native sandbox does not work here: {}\n",
            line(why)
        );
        if let Some(fix) = &self.fix {
            text += &format!("  to fix it: {}\n", line(fix));
        }
        for other in self.backends.iter().skip(1).filter(|one| one.is_usual()) {
            text += &match &other.why {
                None => format!(
                    "  {} works here, and is used where no backend is set\n",
                    other.backend
                ),
                Some(why) => format!("  {} does not work either: {}\n", other.backend, line(why)),
            };
        }
        text + &named
    }
}
