//! The log of the programs that a run starts (`tree: log`). The kernel stops every process of the
//! run at its `execve`, and this thread of the run's own process inspects it and lets it continue,
//! or refuses it.
//!
//! The memory that is read belongs to the run: another thread of the run can change its arguments
//! between the inspection and the start. The log is no wall, and never the only protection. When
//! this process is gone, the kernel refuses every further program, so that no program starts
//! unseen, and none waits forever.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use interlock_plan::{ProgramLogRules, StartedProgram, StartedPrograms};
use interlock_policy::{DenyRule, DenyRules};
use interlock_programs::opaque::is_loader;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::link;
use super::unsafe_notify::{
    ExecNotification, NotificationAnswer, answer, is_waiting, receive_notification, wake_at_once,
};

/// Most programs that are kept.
const MOST_PROGRAMS: usize = 100;

/// Most refused programs that are kept in addition.
const MOST_REFUSED: usize = 50;

/// Most arguments that are kept of each program, and most bytes of each argument.
const MOST_ARGUMENTS: usize = 16;
const MOST_ARGUMENT_BYTES: usize = 160;

/// Most arguments and bytes that are read of a program: all that the kernel accepts.
const MOST_WORDS: usize = 65_536;
const MOST_BYTES: usize = 2 << 20;

const MOST_PATH: usize = 4_096;

/// Number of pointers that are read at once.
const POINTERS: usize = 16;

/// Most processes that are remembered with their programs.
const MOST_PROCESSES: usize = 4_096;

/// Most forks without a program in between that are followed upwards.
const MOST_FORKS: usize = 16;

/// Most scripts whose interpreter is itself a script.
const MOST_SCRIPTS: usize = 5;

/// The log of one run.
#[derive(Debug)]
pub(super) struct ProgramLog {
    /// Over this socket, the children of the process hand over their listeners.
    to_thread: OwnedFd,
    shared: Arc<Mutex<StartedPrograms>>,
}

impl ProgramLog {
    /// Starts the thread. It ends when this value is dropped and no process of the run is left.
    pub fn start(rules: &ProgramLogRules) -> io::Result<Self> {
        let deny = rules.deny.iter().map(|rule| {
            let rule = DenyRule {
                pattern: rule.pattern.clone(),
                arg_pattern: rule.arg_pattern.clone(),
                args: rule.args.clone(),
                ..DenyRule::default()
            };
            (rule, String::new())
        });
        let deny = DenyRules::new(deny.collect(), rules.home.as_deref())
            .map_err(|(_, error)| io::Error::other(error.to_string()))?;
        let (to_thread, incoming) = link::pair()?;
        let shared = Arc::new(Mutex::new(StartedPrograms::default()));
        let thread = LogThread {
            deny,
            incoming,
            listeners: Vec::new(),
            programs: HashMap::new(),
            shared: Arc::clone(&shared),
        };
        std::thread::Builder::new()
            .name("programs".to_owned())
            .spawn(move || thread.run())?;
        Ok(Self { to_thread, shared })
    }

    /// Returns the socket to the thread, for children of the calling process.
    pub fn to_thread(&self) -> BorrowedFd<'_> {
        self.to_thread.as_fd()
    }

    pub fn programs(&self) -> StartedPrograms {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.clone()
    }
}

struct LogThread {
    deny: DenyRules,
    incoming: OwnedFd,
    listeners: Vec<ExecListener>,
    /// The program that each process runs.
    programs: HashMap<u32, String>,
    shared: Arc<Mutex<StartedPrograms>>,
}

/// The listener by which the kernel stops one process of the plan, and all that it starts.
struct ExecListener {
    descriptor: OwnedFd,
    /// The arguments of the program that the plan names, until it has started. The engine starts
    /// this program, so nothing of the run can have influenced it.
    first: Option<Vec<String>>,
}

/// The program that one process asks to start.
struct AskedProgram {
    /// The path as written.
    path: String,
    /// The file that the path leads to, as the run sees it.
    real: Option<String>,
    argv: Vec<String>,
    cwd: String,
    /// The arguments of the interpreters, if the file is a script.
    interpreters: Vec<Vec<String>>,
}

impl LogThread {
    fn run(mut self) {
        let mut is_open = true;
        while is_open || !self.listeners.is_empty() {
            let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(self.listeners.len() + 1);
            if is_open {
                polled.push(PollFd::new(&self.incoming, PollFlags::IN));
            }
            for listener in &self.listeners {
                polled.push(PollFd::new(&listener.descriptor, PollFlags::IN));
            }
            match rustix::event::poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                // The kernel then refuses every program that waits.
                Err(_) => return,
                Ok(_) => {}
            }
            let mut events: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
            drop(polled);
            if is_open && !events.remove(0).is_empty() {
                is_open = self.take_listener();
            }
            let mut index = 0;
            for event in events {
                if event.contains(PollFlags::IN) {
                    self.hear(index);
                } else if !event.is_empty() {
                    // The listener has no process left that it could stop.
                    self.listeners.remove(index);
                    continue;
                }
                index += 1;
            }
        }
    }

    /// Receives a listener. Returns `false` once no more can come.
    fn take_listener(&mut self) -> bool {
        let Ok((words, descriptors)) = link::receive(&self.incoming, std::time::Duration::ZERO)
        else {
            return false;
        };
        let words = words.split(|byte| *byte == 0);
        let words: Vec<String> = words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        for descriptor in descriptors {
            wake_at_once(descriptor.as_fd());
            self.listeners.push(ExecListener {
                descriptor,
                first: Some(words.clone()),
            });
        }
        true
    }

    fn hear(&mut self, index: usize) {
        let Some(listener) = self.listeners.get_mut(index) else {
            return;
        };
        let Ok(asked) = receive_notification(listener.descriptor.as_fd()) else {
            return;
        };
        if let Some(words) = listener.first.take() {
            let argv = words.get(1..).unwrap_or_default().to_vec();
            let path = words.first().filter(|path| !path.is_empty());
            let path = path.or(argv.first()).cloned().unwrap_or_default();
            let _ = answer(
                listener.descriptor.as_fd(),
                asked.id,
                NotificationAnswer::GoOn,
            );
            self.keep(asked.pid, &path, &argv, None);
            return;
        }
        let read = AskedProgram::read(&asked, !self.deny.is_empty());
        if let Ok(None) = read {
            // This is common, because programs are looked up in several directories.
            let absent = NotificationAnswer::Refuse(libc::ENOENT);
            let _ = answer(listener.descriptor.as_fd(), asked.id, absent);
            return;
        }
        // If the process no longer waits, another process's memory may have been read.
        if !is_waiting(listener.descriptor.as_fd(), asked.id) {
            return;
        }
        let (path, argv, refused) = match &read {
            Ok(Some(program)) => (
                program.real.clone().unwrap_or_else(|| program.path.clone()),
                program.argv.clone(),
                self.refused(program),
            ),
            Ok(None) => return,
            Err(error) => (
                String::new(),
                Vec::new(),
                Some(format!("its words cannot be read: {error}")),
            ),
        };
        let verdict = match &refused {
            Some(_) => NotificationAnswer::Refuse(libc::EACCES),
            None => NotificationAnswer::GoOn,
        };
        // The record comes before the answer: the run may end because of the answer, and its result
        // holds what was recorded by then.
        self.keep(asked.pid, &path, &argv, refused);
        if let Some(listener) = self.listeners.get(index) {
            let _ = answer(listener.descriptor.as_fd(), asked.id, verdict);
        }
    }

    fn refused(&self, program: &AskedProgram) -> Option<String> {
        let real = program.real.iter();
        let paths: Vec<String> = real.chain([&program.path]).cloned().collect();
        if paths.iter().any(|path| is_loader(base(path))) {
            return Some("the bare loader starts what no rule sees".to_owned());
        }
        if self.deny.is_empty() {
            return None;
        }
        if program.real.is_none() && is_by_descriptor(&program.path) {
            return Some("where its path leads cannot be seen".to_owned());
        }
        let denied = self
            .deny
            .denies_program(&paths, &program.argv, &program.cwd)
            .or_else(|| {
                program.interpreters.iter().find_map(|words| {
                    let paths = words.get(..1).unwrap_or_default();
                    self.deny.denies_program(paths, words, &program.cwd)
                })
            });
        denied.map(|denied| format!("the deny rule `{}`", denied.pattern))
    }

    fn keep(&mut self, pid: u32, path: &str, argv: &[String], refused: Option<String>) {
        // A forked process runs the program of its parent.
        let above = std::iter::successors(Some(pid), |pid| parent_of(*pid));
        let mut above = above.take(MOST_FORKS);
        let parent = above.find_map(|pid| self.programs.get(&pid).cloned());
        if refused.is_none() {
            if self.programs.len() >= MOST_PROCESSES {
                self.programs.clear();
            }
            self.programs.insert(pid, path.to_owned());
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let room = if refused.is_some() {
            shared.refused += 1;
            MOST_PROGRAMS + MOST_REFUSED
        } else {
            MOST_PROGRAMS
        };
        if shared.list.len() >= room {
            shared.left_out += 1;
            return;
        }
        shared.list.push(StartedProgram {
            path: shortened(path, MOST_PATH),
            argv: argv
                .iter()
                .take(MOST_ARGUMENTS)
                .map(|word| shortened(word, MOST_ARGUMENT_BYTES))
                .collect(),
            parent,
            refused,
        });
    }
}

impl AskedProgram {
    /// Reads the requested program. `is_whole` makes an argument list that is too long to read an
    /// error, because a rule may be about the last argument. Returns `None` if there is no such
    /// file.
    fn read(asked: &ExecNotification, is_whole: bool) -> io::Result<Option<Self>> {
        let pid = asked.pid;
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let written = OsString::from_vec(read_bytes(&memory, asked.path, MOST_PATH)?);
        let path = written.to_string_lossy().into_owned();
        let (most, bytes) = if is_whole {
            (MOST_WORDS, MOST_BYTES)
        } else {
            (MOST_ARGUMENTS, MOST_ARGUMENTS * MOST_PATH)
        };
        let argv = read_words(&memory, asked.argv, (most, bytes), is_whole)?;
        let cwd = if is_whole || !path.starts_with('/') {
            std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
        } else {
            None
        };
        let cwd = cwd.unwrap_or_else(|| PathBuf::from("/"));
        let opened = match open_program(asked, &written, &cwd) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.starts_with('/') => {
                return Ok(None);
            }
            opened => opened.ok(),
        };
        let real = opened.as_ref().and_then(|file| {
            let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
            Some(real.ok()?.display().to_string())
        });
        let interpreters = match (&opened, is_whole) {
            (Some(file), true) => interpreters_of(pid, file, real.as_deref().unwrap_or(&path)),
            _ => Vec::new(),
        };
        let shown = if path.is_empty() {
            real.clone().unwrap_or_default()
        } else {
            path
        };
        Ok(Some(Self {
            path: shown,
            real,
            argv,
            cwd: cwd.display().to_string(),
            interpreters,
        }))
    }
}

/// Opens the file that a process means, in that process's own view.
fn open_program(asked: &ExecNotification, written: &OsStr, cwd: &Path) -> io::Result<OwnedFd> {
    let pid = asked.pid;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let own = |rest: &str| rustix::fs::open(format!("/proc/{pid}/{rest}"), flags, Mode::empty());
    if written.is_empty() {
        return Ok(own(&format!("fd/{}", asked.directory))?);
    }
    let path = written.to_str().unwrap_or_default();
    for own_name in ["/proc/self/", "/proc/thread-self/"] {
        if let Some(rest) = path.strip_prefix(own_name) {
            return Ok(own(rest)?);
        }
    }
    if let Some(number) = path.strip_prefix("/dev/fd/") {
        return Ok(own(&format!("fd/{number}"))?);
    }
    // `join` leaves an absolute path as it is.
    let whole = if asked.directory == libc::AT_FDCWD || Path::new(written).is_absolute() {
        cwd.join(written)
    } else {
        std::fs::read_link(format!("/proc/{pid}/fd/{}", asked.directory))?.join(written)
    };
    open_in_root(pid, &whole)
}

fn open_in_root(pid: u32, path: &Path) -> io::Result<OwnedFd> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{pid}/root"), directory, Mode::empty())?;
    Ok(rustix::fs::openat2(
        &root,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT,
    )?)
}

/// Returns the arguments with which the kernel starts the interpreters of a script.
fn interpreters_of(pid: u32, file: &OwnedFd, path: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut script = path.to_owned();
    let mut opened = file.try_clone().ok();
    while let Some(file) = opened.take().filter(|_| found.len() < MOST_SCRIPTS) {
        let Some(words) = script_line(&file) else {
            break;
        };
        let Some(interpreter) = words.first().cloned() else {
            break;
        };
        let mut all = words;
        all.push(script);
        found.push(all);
        opened = open_in_root(pid, Path::new(&interpreter)).ok();
        script = interpreter;
    }
    found
}

/// Returns the words behind `#!`: the interpreter, and everything that follows as one argument.
fn script_line(file: &OwnedFd) -> Option<Vec<String>> {
    let found = rustix::fs::fstat(file).ok()?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::RegularFile {
        return None;
    }
    let mut head = Vec::new();
    // With `NONBLOCK`, a run that holds a lease on its own file cannot make this wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    opened.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let line = line.trim();
    let (interpreter, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let mut words = vec![interpreter.to_owned()];
    if !rest.trim().is_empty() {
        words.push(rest.trim().to_owned());
    }
    Some(words)
}

/// Whether the path leads to an open file of a process, which is not visible from here.
fn is_by_descriptor(path: &str) -> bool {
    path.starts_with("/proc/") || path.starts_with("/dev/") || path.contains("/../")
}

/// Reads the strings of an array of pointers that ends with a null pointer.
fn read_words(
    memory: &File,
    address: u64,
    (most, bytes): (usize, usize),
    is_whole: bool,
) -> io::Result<Vec<String>> {
    let mut words = Vec::new();
    let mut left = bytes;
    if address == 0 {
        return Ok(words);
    }
    let mut at = address;
    let mut pieces = [0; POINTERS * 8];
    loop {
        let length = memory.read_at(&mut pieces, at)?;
        let (pointers, _) = pieces.get(..length).unwrap_or_default().as_chunks::<8>();
        if pointers.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for pointer in pointers {
            let pointer = u64::from_ne_bytes(*pointer);
            if pointer == 0 {
                return Ok(words);
            }
            if words.len() >= most || left == 0 {
                return if is_whole {
                    Err(io::ErrorKind::ArgumentListTooLong.into())
                } else {
                    Ok(words)
                };
            }
            let limit = if is_whole { left } else { MOST_PATH.min(left) };
            let word = match read_bytes(memory, pointer, limit) {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge && !is_whole => {
                    return Ok(words);
                }
                word => word?,
            };
            left = left.saturating_sub(word.len() + 1);
            words.push(String::from_utf8_lossy(&word).into_owned());
        }
        at = at.wrapping_add((pointers.len() * 8) as u64);
    }
}

/// Reads a string that ends with a null byte.
pub(super) fn read_bytes(memory: &File, address: u64, limit: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut piece = [0; 512];
    loop {
        // Reads as much as there is, because the string may end where the memory does.
        let at = address.wrapping_add(text.len() as u64);
        let length = memory.read_at(&mut piece, at)?;
        let read = piece.get(..length).filter(|read| !read.is_empty());
        let read = read.ok_or(io::ErrorKind::UnexpectedEof)?;
        if let Some(end) = read.iter().position(|byte| *byte == 0) {
            text.extend(&read[..end]);
            return Ok(text);
        }
        text.extend(read);
        if text.len() > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}
