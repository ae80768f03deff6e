//! Shared parts of tests: plans from text, sinks that record everything, processes that a mark
//! identifies, and runs in a process of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock_command::{Connector, Line, Segment, lex};
use interlock_engine::{
    AuthorizationKey, AuthorizedPlan, OpenedPlan, OutputSink, PlanPermission, Run, RunOutcome,
    Settings, StartError, StreamKind, start,
};
use interlock_plan::{
    BindingKind, FsResolver, PinnedDirectory, PinnedFile, PlanAction, PlanBinding, PlanNext,
    PlanPipeline, PlanProgram, PlanRedirection, PlanShield, PlanStage, PlanStdin, PlanStream,
    PlanTarget, RunPlan, TimeFormat,
};
use interlock_programs::builtins::Builtin;
use interlock_programs::{Lookup, Resolver as _};

pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A time that no test takes, short enough to wait for.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub fn pin(name: &str, cwd: &str) -> PinnedFile {
    let resolver = FsResolver::from_path_value(PATH, None);
    match resolver.executable(name, cwd) {
        Lookup::Found(found) => PinnedFile::of(&found).unwrap(),
        Lookup::Missing(missing) => panic!("{name}: {missing}"),
    }
}

pub fn directory(path: &Path) -> PinnedDirectory {
    let canonical = fs::canonicalize(path).unwrap();
    let metadata = fs::metadata(&canonical).unwrap();
    PinnedDirectory {
        requested: path.to_str().unwrap().to_owned(),
        canonical: canonical.to_str().unwrap().to_owned(),
        device: metadata.dev(),
        inode: metadata.ino(),
    }
}

pub fn plan_of(command: &str, program: PlanProgram, cwd: &Path) -> RunPlan {
    RunPlan {
        agent_id: "main".to_owned(),
        session_key: None,
        account: None,
        command: command.to_owned(),
        program,
        cwd: directory(cwd),
        directories: Vec::new(),
        libraries: Vec::new(),
        unknown_libraries: Vec::new(),
        binding: PlanBinding::of_kind(BindingKind::Native),
        env: BTreeMap::from([
            ("PATH".to_owned(), PATH.to_owned()),
            ("LC_ALL".to_owned(), "C".to_owned()),
        ]),
        overrides: Vec::new(),
        pty: None,
        stdin: PlanStdin::Null,
        timeout_ms: None,
        race_freedom: None,
        shield: PlanShield::Off,
        sandbox: None,
        elevated: interlock_plan::Elevation::Off,
        retry: None,
        tree: None,
    }
}

/// Returns the plan of a plain command line that runs without a shell.
pub fn plan(line: &str, cwd: &Path) -> RunPlan {
    let lexed = lex(line).unwrap_or_else(|odd| panic!("{line:?} is not plain: {odd:?}"));
    let mut place = directory(cwd).canonical;
    let pipelines = pipelines(&lexed, &mut place);
    let mut directories = Vec::new();
    entered(&pipelines, &mut directories);
    RunPlan {
        directories,
        ..plan_of(line, PlanProgram::Direct { pipelines }, cwd)
    }
}

/// Collects the directories that the `cd` commands of a line enter.
fn entered(pipelines: &[PlanPipeline], directories: &mut Vec<PinnedDirectory>) {
    for stage in pipelines.iter().flat_map(|pipeline| &pipeline.stages) {
        match &stage.action {
            PlanAction::Group { pipelines } => entered(pipelines, directories),
            PlanAction::Builtin {
                name,
                arguments,
                cwd,
            } if name == "cd" => {
                let target = arguments.last().unwrap();
                directories.extend(PinnedDirectory::entered(cwd, target).ok());
            }
            PlanAction::Builtin { .. } | PlanAction::Execute { .. } => {}
        }
    }
}

/// Returns the plan of any text that a shell runs.
pub fn shell_plan(shell: &str, options: &[&str], text: &str, cwd: &Path) -> RunPlan {
    let program = PlanProgram::Shell {
        shell: pin(shell, "/"),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        text: text.to_owned(),
    };
    plan_of(text, program, cwd)
}

fn pipelines(line: &Line, cwd: &mut String) -> Vec<PlanPipeline> {
    let one = |pipeline: &interlock_command::Pipeline, cwd: &mut String| PlanPipeline {
        stages: pipeline
            .segments
            .iter()
            .map(|segment| stage(segment, cwd, pipeline.segments.len() == 1))
            .collect(),
        timed: pipeline.timed.map(|timed| {
            if timed.posix_format {
                TimeFormat::Posix
            } else {
                TimeFormat::Bash
            }
        }),
        next: match pipeline.next {
            Connector::And => PlanNext::And,
            Connector::Or => PlanNext::Or,
            Connector::Sequence => PlanNext::Sequence,
            Connector::Background => PlanNext::Background,
            Connector::End => PlanNext::End,
        },
    };
    line.pipelines
        .iter()
        .map(|pipeline| one(pipeline, cwd))
        .collect()
}

fn stage(segment: &Segment, cwd: &mut String, alone: bool) -> PlanStage {
    let words: Vec<String> = segment.words.iter().map(|word| word.text.clone()).collect();
    let here = cwd.clone();
    let group = match words.as_slice() {
        [shell, option, text] if shell == "sh" && option == "-c" => lex(text).ok().filter(|line| {
            let names = line.segments().map(Segment::name);
            names.into_iter().all(|name| name != "exit")
        }),
        _ => None,
    };
    let action = if let Some(line) = group {
        PlanAction::Group {
            pipelines: pipelines(&line, &mut here.clone()),
        }
    } else if Builtin::named(&words[0]).is_some() {
        if let (true, "cd") = (alone, words[0].as_str()) {
            let resolver = FsResolver::from_path_value(PATH, None);
            if let Some(there) = resolver.directory(words.last().unwrap(), &here) {
                *cwd = there;
            }
        }
        PlanAction::Builtin {
            name: words[0].clone(),
            arguments: words[1..].to_vec(),
            cwd: here,
        }
    } else {
        let assignments = segment.assignments.iter();
        PlanAction::Execute {
            executable: pin(&words[0], &here),
            argv: words,
            env: assignments
                .map(|one| (one.name.clone(), one.value.clone()))
                .collect(),
            cwd: here,
            passes_on: Vec::new(),
            paths: Vec::new(),
        }
    };
    let redirections = segment.redirections.iter();
    PlanStage {
        action,
        redirections: redirections
            .map(|one| PlanRedirection {
                stream: match one.stream {
                    interlock_command::Stream::Stdin => PlanStream::Stdin,
                    interlock_command::Stream::Stdout => PlanStream::Stdout,
                    interlock_command::Stream::Stderr => PlanStream::Stderr,
                    interlock_command::Stream::Both => PlanStream::Both,
                },
                target: match one.target {
                    interlock_command::Target::Null => PlanTarget::Null,
                    interlock_command::Target::Stdout => PlanTarget::Stdout,
                    interlock_command::Target::Stderr => PlanTarget::Stderr,
                },
            })
            .collect(),
    }
}

/// A sink that records everything.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Streams>>);

#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Streams {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub terminal: Vec<u8>,
}

impl Kept {
    pub fn get(&self) -> Streams {
        self.0.lock().unwrap().clone()
    }

    /// Waits until the output contains this text.
    pub fn wait_for(&self, text: &str) -> Streams {
        let began = Instant::now();
        loop {
            let streams = self.get();
            let all = [&*streams.stdout, &streams.stderr, &streams.terminal].concat();
            if String::from_utf8_lossy(&all).contains(text) {
                return streams;
            }
            assert!(began.elapsed() < PATIENCE, "no {text:?} in {streams:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl OutputSink for Kept {
    fn output(&self, stream: StreamKind, bytes: &[u8]) {
        let mut streams = self.0.lock().unwrap();
        match stream {
            StreamKind::Stdout => streams.stdout.extend_from_slice(bytes),
            StreamKind::Stderr => streams.stderr.extend_from_slice(bytes),
            StreamKind::Terminal => streams.terminal.extend_from_slice(bytes),
        }
    }
}

/// Stands for the verdict or the claim of a host.
struct Permitted(interlock_plan::PlanDigest);

impl PlanPermission for Permitted {
    fn into_permitted_digest(self) -> interlock_plan::PlanDigest {
        self.0
    }
}

/// Authorizes a plan as a host does after a verdict or an approval.
pub fn authorized(key: &AuthorizationKey, plan: &RunPlan) -> AuthorizedPlan {
    let permission = Permitted(plan.digest());
    key.authorize(plan.clone(), permission).unwrap()
}

pub fn key() -> AuthorizationKey {
    AuthorizationKey::from_bytes([42; 32])
}

pub fn begin_with(plan: &RunPlan, settings: &Settings) -> Result<(Run, Kept), StartError> {
    let key = key();
    let kept = Kept::default();
    let run = start(
        OpenedPlan::open(plan.clone()),
        authorized(&key, plan).authorization(),
        &key,
        settings,
        kept.clone(),
    )?;
    Ok((run, kept))
}

pub fn begin(plan: &RunPlan) -> (Run, Kept) {
    begin_with(plan, &Settings::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    pub outcome: RunOutcome,
    pub stdout: String,
    pub stderr: String,
    pub terminal: String,
}

pub fn run(plan: &RunPlan) -> Ran {
    let (run, kept) = begin(plan);
    let outcome = run.wait();
    let streams = kept.get();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        outcome,
        stdout: text(&streams.stdout),
        stderr: text(&streams.stderr),
        terminal: text(&streams.terminal),
    }
}

pub fn run_line(line: &str) -> Ran {
    let scratch = tempfile::tempdir().unwrap();
    run(&plan(line, scratch.path()))
}

/// A variable that identifies all processes of a run, whatever they do to detach themselves.
pub struct Mark(String);

impl Mark {
    pub fn on(plan: &mut RunPlan) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}.{number}", std::process::id());
        plan.env
            .insert("INTERLOCK_TEST_MARK".to_owned(), mark.clone());
        Self(format!("INTERLOCK_TEST_MARK={mark}"))
    }

    pub fn processes(&self) -> Vec<String> {
        fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| {
                let environment = fs::read(entry.path().join("environ")).ok()?;
                let mut variables = environment.split(|byte| *byte == 0);
                variables.find(|variable| *variable == self.0.as_bytes())?;
                let command = fs::read(entry.path().join("cmdline")).ok()?;
                Some(String::from_utf8_lossy(&command).replace('\0', " "))
            })
            .collect()
    }

    pub fn wait_until_none(&self) {
        let began = Instant::now();
        while !self.processes().is_empty() {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.processes());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn has(program: &str) -> bool {
    let found = PATH
        .split(':')
        .any(|directory| Path::new(directory).join(program).exists());
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

/// Writes an executable from another process, for the reason that [`copy_of_this_program`] gives.
pub fn executable(path: &Path, content: &[u8]) {
    let mut written = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = written.stdin.take().unwrap();
    input.write_all(content).unwrap();
    drop(input);
    assert!(written.wait().unwrap().success());
}

const ORDINARY: &str = "INTERLOCK_TEST_AS_ORDINARY_USER";

/// Copies this program in another process. Otherwise, a child that another thread starts meanwhile
/// would briefly hold this process's descriptor, and a file that is open for writing cannot be
/// executed.
pub fn copy_of_this_program(directory: &Path) -> PathBuf {
    let program = directory.join("tests");
    let copied = Command::new("/bin/cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    program
}

/// Returns the prefix of a module's test names. In a program's first file it is empty.
pub fn tests_of(module: &str) -> &str {
    module.split_once("::").map_or("", |(_, inner)| inner)
}

/// Runs all other tests of the module again as a user without rights.
pub fn run_again_as_ordinary_user(module: &str, except: &str) {
    if !rustix::process::geteuid().is_root() || !has("setpriv") {
        return;
    }
    // Other users may have no access to the build directory.
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = copy_of_this_program(scratch.path());
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .args([tests_of(module), "--skip", except])
        .env(ORDINARY, "1")
        .env_remove("TMPDIR")
        .current_dir("/")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !report.contains(" 0 passed"),
        "{report}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
