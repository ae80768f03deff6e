//! A way between two machines that a test can cut, or make slow.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// What each piece takes on a slow way, and what a piece that was lost takes longer.
const DELAY: Duration = Duration::from_millis(500);
const LOSS: Duration = Duration::from_millis(400);
/// One of so many is lost.
const LOST: usize = 20;

/// A namespace with one way out of it; taken down when dropped.
pub struct Network {
    ip: &'static str,
    name: String,
    third: u8,
    fourth: u8,
}

impl Network {
    /// None, with the reason printed, where it cannot be made.
    pub fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let places = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"];
        let Some(ip) = places.into_iter().find(|path| Path::new(path).exists()) else {
            println!("skipped: `ip` is not installed");
            return None;
        };
        if !testkit::is_root() {
            println!("skipped: only root makes network namespaces");
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let [_, _, third, low] = std::process::id().to_be_bytes();
        let network = Self {
            ip,
            name: format!("il{}x{count}", std::process::id()),
            third,
            fourth: (low & 0x3f) << 2,
        };
        let here = format!("{}/30", network.address(1, count));
        let there = format!("{}/30", network.address(2, count));
        let (name, near, far) = (&network.name, network.near(), network.far());
        let steps: &[&[&str]] = &[
            &["netns", "add", name],
            &["link", "add", &near, "type", "veth", "peer", "name", &far],
            &["link", "set", &far, "netns", name],
            &["addr", "add", &here, "dev", &near],
            &["link", "set", &near, "up"],
            &["-n", name, "addr", "add", &there, "dev", &far],
            &["-n", name, "link", "set", &far, "up"],
            &["-n", name, "link", "set", "lo", "up"],
        ];
        for step in steps {
            let made = Command::new(ip).args(*step).output().unwrap();
            if !made.status.success() {
                let why = String::from_utf8_lossy(&made.stderr).into_owned();
                println!("skipped: ip {}: {}", step.join(" "), why.trim());
                return None;
            }
        }
        Some(network)
    }

    fn near(&self) -> String {
        format!("{}a", self.name)
    }

    fn far(&self) -> String {
        format!("{}b", self.name)
    }

    fn address(&self, end: u8, count: u32) -> Ipv4Addr {
        let second = 200 + u8::try_from(count % 50).unwrap();
        Ipv4Addr::new(10, second, self.third, self.fourth + end)
    }

    fn count(&self) -> u32 {
        let (_, count) = self.name.split_once('x').unwrap();
        count.parse().unwrap()
    }

    /// The address of this side.
    pub fn here(&self) -> Ipv4Addr {
        self.address(1, self.count())
    }

    pub fn range(&self) -> String {
        format!("{}/30", self.address(0, self.count()))
    }

    /// The same command, on the other side.
    pub fn there(&self, command: &Command) -> Command {
        let mut inside = Command::new(self.ip);
        inside
            .args(["netns", "exec", &self.name])
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear();
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                inside.env(name, value);
            }
        }
        if let Some(directory) = command.get_current_dir() {
            inside.current_dir(directory);
        }
        inside
    }

    /// Nothing goes through, and no side gets an error.
    pub fn cut(&self) {
        self.link("down");
    }

    pub fn mend(&self) {
        self.link("up");
    }

    fn link(&self, state: &str) {
        let set = Command::new(self.ip)
            .args(["link", "set", &self.near(), state])
            .status();
        assert!(set.unwrap().success());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let ends: [&[&str]; 2] = [
            &["link", "del", &self.near()],
            &["netns", "del", &self.name],
        ];
        for end in ends {
            let _ = Command::new(self.ip).args(end).output();
        }
    }
}

/// A way to the gateway on which every piece is late, and some are lost and sent again: those behind
/// them wait. The port at which it begins.
pub fn slow_way(address: Ipv4Addr, gateway: u16) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (Ok(near), Ok(far)) = (near, TcpStream::connect((address, gateway))) else {
                continue;
            };
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            carry(near, far);
            carry(far_too, near_too);
        }
    });
    port
}

fn carry(mut from: TcpStream, to: TcpStream) {
    let (sender, receiver) = channel();
    std::thread::spawn(move || deliver(to, &receiver));
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        let mut count = 0;
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            count += 1;
            let late = if count % LOST == 0 {
                DELAY + LOSS
            } else {
                DELAY
            };
            if send(&sender, &bytes[..read], late).is_none() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Read);
    });
}

fn send(sender: &Sender<(Instant, Vec<u8>)>, bytes: &[u8], late: Duration) -> Option<()> {
    sender.send((Instant::now() + late, bytes.to_vec())).ok()
}

fn deliver(mut to: TcpStream, pieces: &Receiver<(Instant, Vec<u8>)>) {
    for (due, bytes) in pieces {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
