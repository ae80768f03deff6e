//! The notification server of the desktop, over the session bus.
//!
//! Any process of the user can own the name of the server, or send signals that look like the
//! server's. So the process behind the server is checked before the server gets anything, the
//! server is called by its unique name, which no other process can have, and only signals from that
//! name count ([`super::board`]).

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use interlock_console::Failure;
use interlock_supervisor::{PeerOrigin, SupervisorPaths, process_origin};
use zbus::message::Type;
use zbus::zvariant::Value;
use zbus::{Connection, MatchRule, MessageStream, connection};

use super::card::DesktopText;

const NOTIFICATIONS: &str = "org.freedesktop.Notifications";
const NOTIFICATIONS_PATH: &str = "/org/freedesktop/Notifications";
const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";

/// How long a program on the bus may take to answer before it counts as gone.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How many signals are buffered.
const MOST_SIGNALS: usize = 64;

const CRITICAL: u8 = 2;
const NORMAL: u8 = 1;

/// A notification to send.
#[derive(Debug)]
pub(super) struct SentNotification<'a> {
    pub text: &'a DesktopText,
    /// Keys and labels, alternating.
    pub buttons: Vec<&'static str>,
    /// The number of the notification to replace, or 0.
    pub replaces: u32,
    pub asks: bool,
}

/// A signal of the server.
#[derive(Debug)]
pub(super) enum DesktopEvent {
    Pressed {
        number: u32,
        server: String,
        key: String,
    },
    Closed {
        number: u32,
        server: String,
    },
    ServerChanged,
}

/// The session bus with its notification server.
#[derive(Debug)]
pub(super) struct DesktopBus {
    pub session: Connection,
    signals: MessageStream,
    owners: MessageStream,
    place: SupervisorPaths,
    server: Option<NotificationServer>,
}

/// A server whose process was checked not to belong to a run.
#[derive(Debug, Clone)]
struct NotificationServer {
    /// The unique name of the server.
    name: String,
    draws_markup: bool,
    has_buttons: bool,
}

impl DesktopBus {
    /// Connects to the session bus and finds the notification server.
    pub async fn open(place: SupervisorPaths) -> Result<Self, Failure> {
        let session = connection::Builder::session().map_err(unavailable)?;
        let session = session.method_timeout(CALL_TIMEOUT).build().await;
        let session = session.map_err(unavailable)?;
        let signals = MatchRule::builder()
            .msg_type(Type::Signal)
            .interface(NOTIFICATIONS)
            .and_then(|rule| rule.path(NOTIFICATIONS_PATH))
            .map_err(unavailable)?
            .build();
        let owners = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(BUS)
            .and_then(|rule| rule.member("NameOwnerChanged"))
            .and_then(|rule| rule.arg(0, NOTIFICATIONS))
            .map_err(unavailable)?
            .build();
        let most = Some(MOST_SIGNALS);
        let signals = MessageStream::for_match_rule(signals, &session, most).await;
        let owners = MessageStream::for_match_rule(owners, &session, most).await;
        let mut bus = Self {
            signals: signals.map_err(unavailable)?,
            owners: owners.map_err(unavailable)?,
            session,
            place,
            server: None,
        };
        bus.find_server().await?;
        Ok(bus)
    }

    /// Whether the server declares that it draws markup, so that text must be escaped for it.
    pub fn draws_markup(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.draws_markup)
    }

    /// Shows a notification. Returns its number and the unique name of the server.
    pub async fn notify(&mut self, sent: &SentNotification<'_>) -> Result<(u32, String), Failure> {
        let server = self.find_server().await?;
        match self.notify_by(&server, sent).await {
            // The server may have ended, and another one may have taken over.
            Err(_) => {
                self.server = None;
                let server = self.find_server().await?;
                self.notify_by(&server, sent).await.map_err(unavailable)
            }
            number => number.map_err(unavailable),
        }
    }

    async fn notify_by(
        &self,
        server: &NotificationServer,
        sent: &SentNotification<'_>,
    ) -> zbus::Result<(u32, String)> {
        let buttons = if server.has_buttons {
            sent.buttons.clone()
        } else {
            Vec::new()
        };
        let urgency = if sent.asks { CRITICAL } else { NORMAL };
        let hints = HashMap::from([
            ("urgency", Value::U8(urgency)),
            ("desktop-entry", Value::from("interlock")),
        ]);
        // A notification with a decision stays until it is decided. For others, the server chooses
        // the time.
        let expires = if sent.asks { 0_i32 } else { -1 };
        let body = sent.text.body_for(server.draws_markup);
        let summary = sent.text.shown_summary();
        let replaces = sent.replaces;
        let arguments = (
            "Interlock",
            replaces,
            "",
            summary,
            body,
            buttons,
            hints,
            expires,
        );
        let answer = self.call_server(server, "Notify", &arguments).await?;
        Ok((answer.body().deserialize()?, server.name.clone()))
    }

    /// Closes a notification. A notification that is already closed is no error.
    pub async fn close(&self, number: u32) {
        if let Some(server) = &self.server {
            let _ = self.call_server(server, "CloseNotification", &number).await;
        }
    }

    /// Waits for the next event. Returns `None` if the bus is gone.
    pub async fn next(&mut self) -> Option<DesktopEvent> {
        loop {
            tokio::select! {
                changed = self.owners.next() => {
                    changed?.ok()?;
                    self.server = None;
                    return Some(DesktopEvent::ServerChanged);
                }
                signal = self.signals.next() => {
                    if let Some(event) = read_signal(&signal?.ok()?) {
                        return Some(event);
                    }
                }
            }
        }
    }

    async fn call_server<B>(
        &self,
        server: &NotificationServer,
        method: &str,
        body: &B,
    ) -> zbus::Result<zbus::Message>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        let name = Some(server.name.as_str());
        let interface = Some(NOTIFICATIONS);
        self.session
            .call_method(name, NOTIFICATIONS_PATH, interface, method, body)
            .await
    }

    /// The current server. The bus starts one if none runs and it can.
    async fn find_server(&mut self) -> Result<NotificationServer, Failure> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        let (name, interface) = (Some(NOTIFICATIONS), Some(NOTIFICATIONS));
        let answer = self
            .session
            .call_method(name, NOTIFICATIONS_PATH, interface, "GetCapabilities", &())
            .await
            .map_err(unavailable)?;
        let name = answer.header().sender().map(ToString::to_string);
        let name = name.ok_or_else(|| unavailable("the server has no name"))?;
        check_owner(&self.session, &name, &self.place).await?;
        let can: Vec<String> = answer.body().deserialize().map_err(unavailable)?;
        let has = |word: &str| can.iter().any(|one| one == word);
        let server = NotificationServer {
            name,
            draws_markup: has("body-markup"),
            has_buttons: has("actions"),
        };
        self.server = Some(server.clone());
        Ok(server)
    }
}

/// Refuses a program on the bus that belongs to a run or to another user, or that cannot be
/// inspected. Such a program could press the buttons of its own notifications.
pub(super) async fn check_owner(
    session: &Connection,
    name: &str,
    place: &SupervisorPaths,
) -> Result<(), Failure> {
    let refused = |why: String| {
        let message = format!("the program {name} on the session bus is not trusted: {why}");
        Failure::refused("DESKTOP_OWNER_REFUSED", message)
            .with_hint("end it; the notification server of the desktop is to have that name")
    };
    let mut numbers = [0_u32; 2];
    for (number, method) in numbers
        .iter_mut()
        .zip(["GetConnectionUnixProcessID", "GetConnectionUnixUser"])
    {
        let answer = session
            .call_method(Some(BUS), BUS_PATH, Some(BUS), method, &name)
            .await
            .map_err(|error| refused(error.to_string()))?;
        *number = answer
            .body()
            .deserialize()
            .map_err(|error| refused(error.to_string()))?;
    }
    let [pid, user] = numbers;
    if user != rustix::process::getuid().as_raw() {
        return Err(refused("it belongs to another user".to_owned()));
    }
    match process_origin(pid, place) {
        Ok(PeerOrigin::Outside) => Ok(()),
        Ok(PeerOrigin::Run(_)) => Err(refused("it descends from a run".to_owned())),
        Err(refusal) => Err(refused(refusal.message)),
    }
}

/// The unique name of the program that owns a name on the bus now. Starts no program.
pub(super) async fn owner_of(bus: &Connection, name: &str) -> Option<String> {
    let owner = bus
        .call_method(Some(BUS), BUS_PATH, Some(BUS), "GetNameOwner", &name)
        .await;
    owner.ok()?.body().deserialize().ok()
}

fn read_signal(message: &zbus::Message) -> Option<DesktopEvent> {
    let header = message.header();
    let server = header.sender()?.to_string();
    match header.member()?.as_str() {
        "ActionInvoked" => {
            let (number, key) = message.body().deserialize::<(u32, String)>().ok()?;
            Some(DesktopEvent::Pressed {
                number,
                server,
                key,
            })
        }
        "NotificationClosed" => {
            let (number, _why) = message.body().deserialize::<(u32, u32)>().ok()?;
            Some(DesktopEvent::Closed { number, server })
        }
        _ => None,
    }
}

pub(super) fn unavailable(error: impl std::fmt::Display) -> Failure {
    Failure::refused(
        "NOTIFICATIONS_UNAVAILABLE",
        format!("no notification can be shown on this desktop: {error}"),
    )
    .with_hint("call it in a desktop session with a notification server; without one: interlock approvals watch")
}
