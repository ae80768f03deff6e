//! Tells whether the desktop session is locked. An unknown state must count as locked.

use interlock_supervisor::SupervisorPaths;
use zbus::zvariant::{ObjectPath, OwnedObjectPath, OwnedValue};
use zbus::{Connection, connection};

use super::bus::{check_owner, owner_of};

const LOGIN: &str = "org.freedesktop.login1";
const LOGIN_PATH: &str = "/org/freedesktop/login1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Screen lockers: the name on the session bus, which is also the interface, and the object path.
const LOCKERS: &[(&str, &str)] = &[
    (
        "org.freedesktop.ScreenSaver",
        "/org/freedesktop/ScreenSaver",
    ),
    ("org.gnome.ScreenSaver", "/org/gnome/ScreenSaver"),
    ("org.cinnamon.ScreenSaver", "/org/cinnamon/ScreenSaver"),
    ("org.mate.ScreenSaver", "/org/mate/ScreenSaver"),
    ("org.xfce.ScreenSaver", "/org/xfce/ScreenSaver"),
];

/// Asks the login manager of the system and the screen lockers of the desktop.
#[derive(Debug)]
pub(super) struct ScreenLock {
    session: Connection,
    system: Option<Connection>,
    place: SupervisorPaths,
}

impl ScreenLock {
    pub async fn open(session: Connection, place: SupervisorPaths) -> Self {
        let system = match connection::Builder::system() {
            Ok(builder) => builder
                .method_timeout(std::time::Duration::from_secs(2))
                .build()
                .await
                .ok(),
            Err(_) => None,
        };
        Self {
            session,
            system,
            place,
        }
    }

    /// Whether at least one of them says that the session is open, and none says that it is locked.
    pub async fn is_open(&self) -> bool {
        let mut is_open = false;
        let login = self.login_says_locked().await;
        for is_locked in [login, self.locker_says_locked().await] {
            match is_locked {
                Some(true) => return false,
                Some(false) => is_open = true,
                None => {}
            }
        }
        is_open
    }

    /// What the login manager says about this user's graphical session.
    async fn login_says_locked(&self) -> Option<bool> {
        let system = self.system.as_ref()?;
        let user = rustix::process::getuid().as_raw();
        let manager = Some("org.freedesktop.login1.Manager");
        let answer = system
            .call_method(Some(LOGIN), LOGIN_PATH, manager, "GetUser", &user)
            .await
            .ok()?;
        let path: OwnedObjectPath = answer.body().deserialize().ok()?;
        let display = property(system, &path, "org.freedesktop.login1.User", "Display").await?;
        let (_, session): (String, OwnedObjectPath) = display.try_into().ok()?;
        let hint = "LockedHint";
        let locked = property(system, &session, "org.freedesktop.login1.Session", hint).await?;
        locked.try_into().ok()
    }

    /// What the screen lockers say: locked if one of them is, open if all that answer are open.
    async fn locker_says_locked(&self) -> Option<bool> {
        let mut is_locked_there = None;
        for (name, path) in LOCKERS {
            let Some(owner) = owner_of(&self.session, name).await else {
                continue;
            };
            // A run could pose as a locker, so an unchecked answer counts as locked.
            if check_owner(&self.session, &owner, &self.place)
                .await
                .is_err()
            {
                return Some(true);
            }
            let answer = self
                .session
                .call_method(Some(owner.as_str()), *path, Some(*name), "GetActive", &())
                .await;
            match answer.ok().and_then(|one| one.body().deserialize().ok()) {
                Some(true) => return Some(true),
                Some(false) => is_locked_there = Some(false),
                None => {}
            }
        }
        is_locked_there
    }
}

async fn property(
    bus: &Connection,
    path: &ObjectPath<'_>,
    interface: &str,
    name: &str,
) -> Option<OwnedValue> {
    let asked = (interface, name);
    let answer = bus
        .call_method(Some(LOGIN), path, Some(PROPERTIES), "Get", &asked)
        .await;
    answer.ok()?.body().deserialize().ok()
}
