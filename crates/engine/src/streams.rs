//! The descriptors of a run: pipes, `/dev/null`, terminals, and the selection that a stage reads
//! and writes.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use interlock_plan::{PlanRedirection, PlanStream, PlanTarget, PtySize};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions, Winsize};

/// Standard input, output and error of a stage. All descriptors are above 2 and close on exec.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    pub stdin: Arc<OwnedFd>,
    pub stdout: Arc<OwnedFd>,
    pub stderr: Arc<OwnedFd>,
}

/// `/dev/null` in both directions.
#[derive(Debug, Clone)]
pub(super) struct Null {
    pub read: Arc<OwnedFd>,
    pub write: Arc<OwnedFd>,
}

impl Null {
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            read: Self::for_reading()?,
            write: Self::with(OFlags::WRONLY)?,
        })
    }

    pub fn for_reading() -> io::Result<Arc<OwnedFd>> {
        Self::with(OFlags::RDONLY)
    }

    fn with(flags: OFlags) -> io::Result<Arc<OwnedFd>> {
        let file = rustix::fs::open("/dev/null", flags | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Arc::new(above_standard(file)?))
    }
}

impl Streams {
    /// Applies the redirections from left to right. Each sees the effect of the previous ones.
    pub fn redirected(&self, redirections: &[PlanRedirection], null: &Null) -> Self {
        let mut streams = self.clone();
        for PlanRedirection { stream, target } in redirections {
            let target = match (stream, target) {
                (PlanStream::Stdin, PlanTarget::Null) => &null.read,
                (_, PlanTarget::Null) => &null.write,
                (_, PlanTarget::Stdout) => &streams.stdout,
                (_, PlanTarget::Stderr) => &streams.stderr,
            };
            let target = Arc::clone(target);
            match stream {
                PlanStream::Stdin => streams.stdin = target,
                PlanStream::Stdout => streams.stdout = target,
                PlanStream::Stderr => streams.stderr = target,
                PlanStream::Both => {
                    streams.stdout = Arc::clone(&target);
                    streams.stderr = target;
                }
            }
        }
        streams
    }
}

/// Makes a pipe, and returns the end to read from and the end to write to.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_standard(read)?, above_standard(write)?))
}

/// Makes reads and writes return at once. This must be used only for the end that stays with the
/// engine, because all holders of the same end share the setting.
pub(super) fn set_nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?;
    Ok(())
}

/// Opens a terminal: the engine's side, which is new if none is given, and the run's side.
pub(super) fn terminal(made: Option<OwnedFd>, size: PtySize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let engine = match made {
        Some(engine) => engine,
        None => above_standard(rustix::pty::openpt(flags)?)?,
    };
    rustix::pty::grantpt(&engine)?;
    rustix::pty::unlockpt(&engine)?;
    // The run's side is opened by descriptor, so that no path can lead elsewhere.
    let run = above_standard(rustix::pty::ioctl_tiocgptpeer(&engine, flags)?)?;
    let mut modes = rustix::termios::tcgetattr(&run)?;
    // With this mode, erasing in line mode removes a whole character.
    modes.input_modes |= InputModes::IUTF8;
    rustix::termios::tcsetattr(&run, OptionalActions::Now, &modes)?;
    set_size(&engine, size)?;
    set_nonblocking(&engine)?;
    Ok((engine, run))
}

pub(super) fn set_size(terminal: &OwnedFd, size: PtySize) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(terminal, size)?;
    Ok(())
}

/// Moves a descriptor above 2. Descriptors 0 to 2 may be free in this process, and a descriptor
/// with such a number would be overwritten in the child while it is still needed.
pub(super) fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() > 2 {
        return Ok(descriptor);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, 3)?)
}
