//! The account of a run that is not the account of this process: `tools.exec.runAs`.
//!
//! A service that runs as root starts commands as another user. Everything that it inspects for a
//! caller (directories, programs, globs, scripts) it must inspect with that user's rights.
//! Otherwise a caller could learn names and contents that its runs cannot read.
//! [`RunAccount::assume`] gives the calling thread those rights for as long as its result lives.

use std::io;
use std::marker::PhantomData;

use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// A user of this machine, with everything that a run needs to be that user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAccount {
    /// The part that the plan contains.
    pub identity: PlanAccount,
    pub home: String,
    pub shell: String,
}

/// The user of a run. Part of the plan's digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanAccount {
    pub user: String,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Why commands cannot run as the configured user. They never run as another user instead.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("tools.exec.runAs names the user `{0}`, which {PASSWD} does not list")]
    Unknown(String),
    #[error("tools.exec.runAs names `{0}`, which is root: name an ordinary user, or unset the key")]
    Root(String),
    #[error(
        "tools.exec.runAs names `{user}`, but this process runs as user {current} and only root can start commands as another user"
    )]
    NotRoot { user: String, current: u32 },
    #[error("the rights of the user `{user}` cannot be taken on: {source}")]
    Refused { user: String, source: io::Error },
    #[error("{path} cannot be read: {source}")]
    Table {
        path: &'static str,
        source: io::Error,
    },
}

impl AccountError {
    pub fn code(&self) -> &'static str {
        "RUN_AS_UNAVAILABLE"
    }

    pub fn remedy(&self) -> String {
        match self {
            Self::Unknown(_) | Self::Root(_) | Self::Table { .. } => {
                "interlock config set tools.exec.runAs USER, with an ordinary user of this machine"
            }
            Self::NotRoot { .. } | Self::Refused { .. } => {
                "run Interlock as root (sudo), or: interlock config unset tools.exec.runAs"
            }
        }
        .to_owned()
    }
}

impl RunAccount {
    /// The user with this name. Users of a directory service are not known here.
    pub fn named(name: &str) -> Result<Self, AccountError> {
        let read = |path: &'static str| {
            let text = std::fs::read(path);
            text.map(|text| String::from_utf8_lossy(&text).into_owned())
                .map_err(|source| AccountError::Table { path, source })
        };
        let (passwd, group) = (read(PASSWD)?, read(GROUP)?);
        let account = Self::find(name, &passwd, &group)
            .ok_or_else(|| AccountError::Unknown(name.to_owned()))?;
        if account.identity.uid == 0 {
            return Err(AccountError::Root(name.to_owned()));
        }
        let current = rustix::process::geteuid().as_raw();
        if current != 0 && current != account.identity.uid {
            return Err(AccountError::NotRoot {
                user: name.to_owned(),
                current,
            });
        }
        Ok(account)
    }

    /// The system's name for a user. Users of a directory service are not known here.
    pub fn user_name(uid: u32) -> Option<String> {
        let passwd = std::fs::read(PASSWD).ok()?;
        let passwd = String::from_utf8_lossy(&passwd).into_owned();
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, number) = (fields.next()?, fields.nth(1)?);
            (number.parse() == Ok(uid)).then(|| name.to_owned())
        })
    }

    fn find(name: &str, passwd: &str, group: &str) -> Option<Self> {
        let (uid, gid, home, shell) = passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [user, _, uid, gid, _, home, shell] = fields[..] else {
                return None;
            };
            let numbers = (uid.parse().ok()?, gid.parse().ok()?);
            (user == name).then_some((numbers.0, numbers.1, home, shell))
        })?;
        let groups = group.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [_, _, number, members] = fields[..] else {
                return None;
            };
            let is_member = members.split(',').any(|member| member == name);
            is_member.then(|| number.parse().ok())?
        });
        let mut groups: Vec<u32> = groups.chain([gid]).collect();
        groups.sort_unstable();
        groups.dedup();
        Some(Self {
            identity: PlanAccount {
                user: name.to_owned(),
                uid,
                gid,
                groups,
            },
            home: home.to_owned(),
            shell: shell.to_owned(),
        })
    }
}

impl PlanAccount {
    /// Gives the calling thread the file access rights of this user until the result is dropped.
    /// Other threads keep their rights; threads that are started meanwhile inherit the new ones.
    pub fn assume(&self) -> Result<AssumedAccount, AccountError> {
        let refused = |source: rustix::io::Errno| AccountError::Refused {
            user: self.user.clone(),
            source: source.into(),
        };
        let before = AssumedAccount {
            user: rustix::process::geteuid(),
            group: rustix::process::getegid(),
            groups: rustix::process::getgroups().map_err(refused)?,
            stays_on_its_thread: PhantomData,
        };
        if before.user.as_raw() == self.uid {
            return Ok(before);
        }
        let groups: Vec<Gid> = self.groups.iter().map(|id| Gid::from_raw(*id)).collect();
        // From here on, dropping `before` reverts the changes, even after an error.
        rustix::thread::set_thread_groups(&groups).map_err(refused)?;
        let group = Gid::from_raw(self.gid);
        rustix::thread::set_thread_res_gid(None::<Gid>, Some(group), None::<Gid>)
            .map_err(refused)?;
        let user = Uid::from_raw(self.uid);
        rustix::thread::set_thread_res_uid(None::<Uid>, Some(user), None::<Uid>)
            .map_err(refused)?;
        Ok(before)
    }
}

/// While this value lives, its thread has the file access rights of a run's account.
#[derive(Debug)]
#[must_use]
pub struct AssumedAccount {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
    /// The rights belong to one thread, so this value must not move to another thread.
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for AssumedAccount {
    fn drop(&mut self) {
        let back = || {
            // The user comes first: it restores the right to change the others.
            rustix::thread::set_thread_res_uid(None::<Uid>, Some(self.user), None::<Uid>)?;
            if rustix::process::getegid() != self.group {
                rustix::thread::set_thread_res_gid(None::<Gid>, Some(self.group), None::<Gid>)?;
            }
            if self.user.is_root() {
                rustix::thread::set_thread_groups(&self.groups)?;
            }
            Ok::<_, rustix::io::Errno>(())
        };
        if back().is_err() {
            // A thread with unknown rights must not continue.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const PASSWD_TEXT: &str = "root:x:0:0:root:/root:/bin/bash\n\
        broken line\n\
        ada:x:1001:1001:Ada,,,:/home/ada:/bin/zsh\n\
        ada2:x:1002:1002::/home/ada2:/bin/sh\n";
    const GROUP_TEXT: &str =
        "root:x:0:\nadm:x:4:ada,ada2\ndocker:x:999:ada2\nada:x:1001:\nbroken\n";

    #[test]
    fn an_account_has_its_own_group_and_those_that_list_it() {
        let found = RunAccount::find("ada", PASSWD_TEXT, GROUP_TEXT).unwrap();
        let expected = PlanAccount {
            user: "ada".to_owned(),
            uid: 1001,
            gid: 1001,
            groups: vec![4, 1001],
        };
        assert_eq!(found.identity, expected);
        assert_eq!(
            (found.home.as_str(), found.shell.as_str()),
            ("/home/ada", "/bin/zsh")
        );
        assert_eq!(RunAccount::find("ad", PASSWD_TEXT, GROUP_TEXT), None);
    }

    #[test]
    fn root_and_unknown_users_are_refused() {
        assert!(matches!(
            RunAccount::named("root"),
            Err(AccountError::Root(_))
        ));
        assert!(matches!(
            RunAccount::named("no such user"),
            Err(AccountError::Unknown(_))
        ));
    }

    #[test]
    fn a_thread_that_assumes_an_account_reads_what_that_may_read_and_no_more() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let other = PlanAccount {
            user: "nobody".to_owned(),
            uid: 65534,
            gid: 65534,
            groups: vec![65534],
        };
        {
            let _assumed = other.assume().unwrap();
            assert_eq!(rustix::process::geteuid().as_raw(), 65534);
            let denied = std::fs::read(&secret).unwrap_err();
            assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
            let elsewhere = std::thread::scope(|scope| {
                scope.spawn(|| rustix::process::geteuid().as_raw()).join()
            });
            assert_eq!(
                elsewhere.unwrap(),
                65534,
                "a new thread inherits the rights"
            );
        }
        assert!(rustix::process::geteuid().is_root());
        assert_eq!(std::fs::read(&secret).unwrap(), b"x");
    }
}
