//! Turns the config into the plan's list of hosts that the runs of a sandbox reach, and provides
//! the two files by which programs inside resolve names.

use std::io;
use std::path::{Path, PathBuf};

use interlock_config::types::Sandbox;
use interlock_plan::{HostEntry, HostEntryList, SandboxNetworkRules};

use crate::error::SandboxError;

/// Most ports, because each port of `allow` is a listener inside.
const MOST_PORTS: usize = 20;

/// Most bytes of all entries together, because they are part of the plan and shown to approvers.
const MOST_BYTES: usize = 32 * 1024;

/// Files that programs inside read before they resolve a name. The name server is that of the
/// scope.
const FILES: [(&str, &str, &str); 2] = [
    (
        "resolv.conf",
        "/etc/resolv.conf",
        "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n",
    ),
    (
        "hosts",
        "/etc/hosts",
        "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n",
    ),
];

/// Returns the rules of the settings, or `None` if there is only a loopback.
pub(crate) fn rules_of(settings: &Sandbox) -> Result<Option<SandboxNetworkRules>, SandboxError> {
    let read = |key, list: Option<&Vec<String>>, kind| -> Result<Vec<HostEntry>, SandboxError> {
        let entries = list.into_iter().flatten().map(|text| {
            HostEntry::read(text, kind).map_err(|rule| SandboxError::Setting {
                key,
                value: text.clone(),
                rule,
            })
        });
        entries.collect()
    };
    let network = &settings.network;
    let allow = read(
        "network.allow",
        network.allow.as_ref(),
        HostEntryList::Allow,
    )?;
    let deny = read("network.deny", network.deny.as_ref(), HostEntryList::Deny)?;
    let ask = network.ask.unwrap_or(!allow.is_empty());
    if allow.is_empty() && !ask {
        return Ok(None);
    }
    let rules = SandboxNetworkRules { allow, deny, ask };
    let refused = |rule: String| SandboxError::Setting {
        key: "network.allow",
        value: format!("{} entries", rules.allow.len()),
        rule,
    };
    if rules.ports().len() > MOST_PORTS {
        return Err(refused(format!("they name more than {MOST_PORTS} ports")));
    }
    if rules.to_string().len() > MOST_BYTES {
        return Err(refused(format!("they are longer than {MOST_BYTES} bytes")));
    }
    Ok(Some(rules))
}

/// A file of the scope that replaces one of the host's.
pub(crate) struct NameFile {
    pub source: PathBuf,
    pub target: &'static str,
}

/// Writes the files into the directory of the scope. If the host has no such file, or a link to a
/// directory that the sandbox does not show, programs use the name server of the scope by default.
pub(crate) fn name_files(directory: &Path) -> Result<Vec<NameFile>, SandboxError> {
    let mut files = Vec::new();
    for (name, target, content) in FILES {
        if !std::fs::symlink_metadata(target).is_ok_and(|found| found.is_file()) {
            continue;
        }
        let source = directory.join(name);
        let failed = |error: io::Error| SandboxError::File {
            what: "cannot write",
            path: source.clone(),
            source: error,
        };
        write_once(&source, content).map_err(failed)?;
        files.push(NameFile { source, target });
    }
    Ok(files)
}

/// Writes a file only once, because runs that begin at the same time mount the same file.
fn write_once(path: &Path, content: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if std::fs::read_to_string(path).is_ok_and(|own| own == content) {
        return Ok(());
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    std::fs::write(&new, content)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o644))?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(allow: &[&str]) -> Sandbox {
        let mut settings = Sandbox::default();
        settings.network.allow = Some(allow.iter().map(|&text| text.to_owned()).collect());
        settings
    }

    #[test]
    fn rules_are_what_the_config_lists() {
        assert_eq!(rules_of(&Sandbox::default()).unwrap(), None);
        assert_eq!(rules_of(&settings(&[])).unwrap(), None);
        let mut both = settings(&["ok.test:443", "*.ok.test:443"]);
        both.network.deny = Some(vec!["bad.ok.test:*".to_owned()]);
        let shown = |settings: &Sandbox| rules_of(settings).unwrap().unwrap().to_string();
        assert_eq!(
            shown(&both),
            "ok.test:443, *.ok.test:443, other names ask, never bad.ok.test:*"
        );
        both.network.ask = Some(false);
        assert_eq!(
            shown(&both),
            "ok.test:443, *.ok.test:443, never bad.ok.test:*"
        );
        // Without an entry there is a network where the owner says so, and never by itself.
        let mut every = settings(&[]);
        assert_eq!(rules_of(&every).unwrap(), None);
        every.network.ask = Some(true);
        assert_eq!(shown(&every), "every name asks");
        assert_eq!(rules_of(&every).unwrap().unwrap().ports(), [80, 443]);
        let error = rules_of(&settings(&["ok.test"])).unwrap_err().to_string();
        assert!(
            error.contains("network.allow: `ok.test` is refused"),
            "{error}"
        );
        let many: Vec<String> = (1..=21).map(|port| format!("ok.test:{port}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(rules_of(&settings(&many)).is_err());
    }
}
