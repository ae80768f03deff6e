//! A desktop session of its own: a private message bus, and on it a stand-in for the notification server, the
//! locker of the screen and the login manager, with the documented interfaces. `companion_dunst` uses a real
//! server instead.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use testkit::{Machine, eventually};
use zbus::message::Type;
use zbus::zvariant::{ObjectPath, OwnedValue, Value};
use zbus::{Connection, MessageStream};

pub const NOTIFICATIONS: &str = "org.freedesktop.Notifications";
const PATH: &str = "/org/freedesktop/Notifications";
const SCREEN_SAVER: &str = "org.freedesktop.ScreenSaver";
const LOGIN: &str = "org.freedesktop.login1";

/// The message bus of a desktop session. It starts no services.
pub struct Bus {
    daemon: Child,
    pub address: String,
    pub runtime: tokio::runtime::Runtime,
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Bus {
    /// None, with the reason printed, where no message bus is installed.
    pub fn start(machine: &Machine) -> Option<Self> {
        const DAEMON: &str = "/usr/bin/dbus-daemon";
        if !Path::new(DAEMON).exists() {
            println!("skipped: {DAEMON} is not installed");
            return None;
        }
        let socket = machine.root().join("bus");
        let config = machine.root().join("bus.conf");
        let text = format!(
            "<busconfig><type>session</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/>\
             <allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>",
            socket.display()
        );
        fs::write(&config, text).unwrap();
        let mut daemon = Command::new(DAEMON)
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--print-address=1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut output = BufReader::new(daemon.stdout.take().unwrap());
        output.read_line(&mut address).unwrap();
        Some(Self {
            daemon,
            address: address.trim().to_owned(),
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap(),
        })
    }

    pub fn connect(&self, names: &[&str]) -> Connection {
        self.runtime.block_on(async {
            let mut builder = zbus::connection::Builder::address(self.address.as_str()).unwrap();
            for name in names {
                builder = builder.name(*name).unwrap();
            }
            builder.build().await.unwrap()
        })
    }

    /// The environment of programs in this session. Both buses are this one.
    pub fn environment(&self) -> [(&'static str, &str); 3] {
        [
            ("DBUS_SESSION_BUS_ADDRESS", &self.address),
            ("DBUS_SYSTEM_BUS_ADDRESS", &self.address),
            ("DISPLAY", ":none"),
        ]
    }

    /// `interlock companion`, when it listens.
    pub fn companion(&self, machine: &Machine, arguments: &[&str]) -> CompanionProcess {
        let mut all = vec!["companion"];
        all.extend(arguments);
        let child = machine
            .command(&all)
            .envs(self.environment())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let companion = CompanionProcess(child);
        let socket = machine.state().join("exec-approvals.sock");
        eventually("the companion listens", || socket.exists());
        companion
    }
}

/// Killed when dropped.
pub struct CompanionProcess(pub Child);

impl Drop for CompanionProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A notification as the server got it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub number: u32,
    pub replaces: u32,
    pub summary: String,
    pub body: String,
    pub actions: Vec<String>,
    pub urgency: u8,
    pub expires: i32,
    pub at: Instant,
    pub is_open: bool,
}

impl Seen {
    pub fn has(&self, label: &str) -> bool {
        self.actions
            .iter()
            .skip(1)
            .step_by(2)
            .any(|one| one == label)
    }

    /// Returns when a button of it counts.
    pub fn ripen(&self) {
        let age = Duration::from_millis(800);
        std::thread::sleep(age.saturating_sub(self.at.elapsed()));
    }
}

/// What the desktop says of its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    Unknown,
    Locked,
    Open,
}

#[derive(Default)]
struct Screen {
    seen: Vec<Seen>,
    lock: Option<(Lock, Lock)>,
}

pub struct Desktop {
    pub connection: Connection,
    screen: Arc<Mutex<Screen>>,
    pub bus: Bus,
}

impl Desktop {
    pub fn start(machine: &Machine) -> Option<Self> {
        Some(Self::on(
            Bus::start(machine)?,
            &[NOTIFICATIONS, SCREEN_SAVER, LOGIN],
        ))
    }

    /// Only the locker of the screen, beside a real notification server.
    pub fn with_real_server(bus: Bus) -> Self {
        Self::on(bus, &[SCREEN_SAVER])
    }

    fn on(bus: Bus, names: &[&str]) -> Self {
        let connection = bus.connect(names);
        let screen = Arc::new(Mutex::new(Screen::default()));
        let (shown, calls) = (Arc::clone(&screen), connection.clone());
        bus.runtime.spawn(async move {
            let mut messages = MessageStream::from(&calls);
            while let Some(Ok(message)) = messages.next().await {
                if message.message_type() == Type::MethodCall {
                    answer(&calls, &shown, &message).await;
                }
            }
        });
        Self {
            connection,
            screen,
            bus,
        }
    }

    /// What the login manager says, and what the locker of the screen says.
    pub fn lock(&self, login: Lock, locker: Lock) {
        self.screen.lock().unwrap().lock = Some((login, locker));
    }

    pub fn open_notifications(&self) -> Vec<Seen> {
        let screen = self.screen.lock().unwrap();
        screen
            .seen
            .iter()
            .filter(|one| one.is_open)
            .cloned()
            .collect()
    }

    pub fn all(&self) -> Vec<Seen> {
        self.screen.lock().unwrap().seen.clone()
    }

    /// Waits for an open notification of which this holds.
    #[track_caller]
    pub fn shows(&self, what: &str, holds: impl Fn(&Seen) -> bool) -> Seen {
        let find = || self.open_notifications().into_iter().rev().find(&holds);
        let began = Instant::now();
        loop {
            if let Some(seen) = find() {
                return seen;
            }
            assert!(
                began.elapsed() < Duration::from_mins(1),
                "no notification: {what}; {:#?}",
                self.all()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The server says that a button was pressed, and closes the notification.
    pub fn press(&self, number: u32, key: &str) {
        self.press_by(&self.connection, number, key);
        self.dismiss(number);
    }

    /// Another program says that a button was pressed.
    pub fn press_by(&self, connection: &Connection, number: u32, key: &str) {
        let said = async {
            let body = (number, key);
            connection
                .emit_signal(None::<&str>, PATH, NOTIFICATIONS, "ActionInvoked", &body)
                .await
                .unwrap();
        };
        self.bus.runtime.block_on(said);
    }

    pub fn dismiss(&self, number: u32) {
        close(&self.screen, number);
        let said = async {
            let body = (number, 2_u32);
            self.connection
                .emit_signal(
                    None::<&str>,
                    PATH,
                    NOTIFICATIONS,
                    "NotificationClosed",
                    &body,
                )
                .await
                .unwrap();
        };
        self.bus.runtime.block_on(said);
    }
}

fn close(screen: &Mutex<Screen>, number: u32) {
    for one in &mut screen.lock().unwrap().seen {
        if one.number == number {
            one.is_open = false;
        }
    }
}

async fn answer(connection: &Connection, screen: &Mutex<Screen>, call: &zbus::Message) {
    let header = call.header();
    let lock = screen.lock().unwrap().lock;
    let (login, locker) = lock.unwrap_or((Lock::Unknown, Lock::Unknown));
    let answered = match header.member().unwrap().as_str() {
        "GetCapabilities" => {
            let can = vec!["actions", "body", "body-markup"];
            connection.reply(&header, &can).await
        }
        "Notify" => {
            let number = take_notification(screen, call);
            connection.reply(&header, &number).await
        }
        "CloseNotification" => {
            close(screen, call.body().deserialize().unwrap());
            connection.reply(&header, &()).await
        }
        "GetActive" if locker != Lock::Unknown => {
            connection.reply(&header, &(locker == Lock::Locked)).await
        }
        "GetUser" if login != Lock::Unknown => {
            let path = ObjectPath::try_from("/org/freedesktop/login1/user/_0").unwrap();
            connection.reply(&header, &path).await
        }
        "Get" => {
            let (_, name): (String, String) = call.body().deserialize().unwrap();
            let value = match name.as_str() {
                "Display" => {
                    let path = ObjectPath::try_from("/org/freedesktop/login1/session/c1");
                    Value::from(("c1", path.unwrap()))
                }
                _ => Value::from(login == Lock::Locked),
            };
            connection.reply(&header, &value).await
        }
        _ => {
            let error = "org.freedesktop.DBus.Error.UnknownMethod";
            connection.reply_error(&header, error, &"not here").await
        }
    };
    let _ = answered;
}

type Notify = (
    String,
    u32,
    String,
    String,
    String,
    Vec<String>,
    HashMap<String, OwnedValue>,
    i32,
);

fn take_notification(screen: &Mutex<Screen>, call: &zbus::Message) -> u32 {
    let body = call.body();
    let (_, replaces, _, summary, body, actions, hints, expires): Notify =
        body.deserialize().unwrap();
    let urgency = hints
        .get("urgency")
        .and_then(|hint| u8::try_from(hint).ok());
    let mut screen = screen.lock().unwrap();
    let number = match replaces {
        0 => u32::try_from(screen.seen.len()).unwrap() + 1,
        replaces => replaces,
    };
    for one in &mut screen.seen {
        if one.number == number {
            one.is_open = false;
        }
    }
    screen.seen.push(Seen {
        number,
        replaces,
        summary,
        body,
        actions,
        urgency: urgency.unwrap_or(u8::MAX),
        expires,
        at: Instant::now(),
        is_open: true,
    });
    number
}
