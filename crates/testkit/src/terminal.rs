//! A person's terminal: it passes what is typed to the program, and shows what the program draws.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock_transcript::screen::{Picture, Screen, Size};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize};

use super::Machine;

pub struct Terminal {
    own: Arc<OwnedFd>,
    /// Held open so that the terminal outlives the program.
    _other: OwnedFd,
    screen: Arc<Mutex<Screen>>,
    bells: Arc<AtomicUsize>,
    child: Child,
}

impl Terminal {
    /// Runs `interlock` with these arguments as the only program of a new terminal.
    pub fn run(machine: &Machine, arguments: &[&str], columns: u16, rows: u16) -> Self {
        Self::of(&machine.command(arguments), columns, rows)
    }

    fn of(program: &Command, columns: u16, rows: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let own = Arc::new(rustix::pty::openpt(flags).unwrap());
        rustix::pty::grantpt(&own).unwrap();
        rustix::pty::unlockpt(&own).unwrap();
        let other = rustix::pty::ioctl_tiocgptpeer(&own, flags).unwrap();
        set_size(&own, columns, rows);
        // Makes this the controlling terminal, through which Ctrl-C and a new size reach the
        // program.
        let mut command = Command::new("/usr/bin/setsid");
        command
            .arg("--ctty")
            .arg(program.get_program())
            .args(program.get_args())
            .env_clear()
            .envs(
                program
                    .get_envs()
                    .filter_map(|(key, value)| Some((key, value?))),
            )
            .current_dir(program.get_current_dir().unwrap_or(Path::new("/")))
            .stdin(Stdio::from(other.try_clone().unwrap()))
            .stdout(Stdio::from(other.try_clone().unwrap()))
            .stderr(Stdio::from(other.try_clone().unwrap()));
        let child = command.spawn().unwrap();
        let screen = Arc::new(Mutex::new(Screen::new(Size { columns, rows })));
        let (reader, drawn) = (Arc::clone(&own), Arc::clone(&screen));
        let bells = Arc::new(AtomicUsize::new(0));
        let rung = Arc::clone(&bells);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = rustix::io::read(&*reader, &mut buffer) {
                let bells = buffer[..length].iter().filter(|byte| **byte == 0x07);
                rung.fetch_add(bells.count(), Ordering::Relaxed);
                let answers = drawn.lock().unwrap().feed(&buffer[..length]);
                let _ = rustix::io::write(&*reader, &answers);
            }
        });
        Self {
            own,
            _other: other,
            screen,
            bells,
            child,
        }
    }

    /// Returns how often the bell has rung.
    pub fn bells(&self) -> usize {
        self.bells.load(Ordering::Relaxed)
    }

    pub fn press(&self, keys: &str) {
        let mut bytes = keys.as_bytes();
        while !bytes.is_empty() {
            let written = rustix::io::write(&*self.own, bytes).unwrap();
            bytes = &bytes[written..];
        }
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.screen.lock().unwrap().resize(Size { columns, rows });
        set_size(&self.own, columns, rows);
    }

    pub fn picture(&self) -> Picture {
        self.screen.lock().unwrap().picture()
    }

    /// Whether some of this text is drawn in a color.
    pub fn is_colored(&self, text: &str) -> bool {
        let rows = self.screen.lock().unwrap().styled_rows();
        let mut runs = rows.iter().flat_map(|row| &row.runs);
        runs.any(|run| run.foreground.is_some() && run.text.contains(text))
    }

    pub fn text(&self) -> String {
        self.picture().rows.join("\n")
    }

    /// Waits until the picture is as expected. Only a failure reaches the deadline.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl Fn(&Picture) -> bool) {
        let end = Instant::now() + Duration::from_mins(1);
        while !holds(&self.picture()) {
            assert!(
                Instant::now() < end,
                "never came true: {what}\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.until(text, |picture| picture.rows.join("\n").contains(text));
    }

    /// Whether keys are passed on unchanged and nothing is echoed.
    pub fn is_raw(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&*self.own).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Ends the program without letting it clean up.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the program to end.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Returns the exit code, and checks that the terminal was restored.
    #[track_caller]
    pub fn exit_code(&mut self) -> Option<i32> {
        let code = self.ended().code();
        assert!(!self.is_raw(), "the terminal was left in raw mode");
        code
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(terminal, size).unwrap();
}
