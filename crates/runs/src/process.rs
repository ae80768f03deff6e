//! `interlock process`: background sessions, for operators and for agents.

pub mod attach;
mod sessions;
mod text;

use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::time::Duration;

use interlock_arguments::{
    CallerArguments, ProcessCommand, ProcessListArguments, ProcessLogArguments,
    ProcessPasteArguments, ProcessPollArguments, ProcessSendKeysArguments, ProcessSessionArguments,
    ProcessWriteArguments, StateArguments,
};
use interlock_client::{agent_id, known_agent, open, supervisor};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_sessions::{
    CursorInvalid, KeysInput, PollFrom, Process, ProcessAnswer, ProcessCaller, ProcessError,
    SessionListRequest, SessionPage, signal_named,
};
use interlock_transcript::LineRange;
use interlock_transcript::keys::Bracketed;
use interlock_wire::params;
use sessions::{FollowedGateway, SessionPlace};

pub fn run(state: &StateArguments, command: ProcessCommand) -> CommandOutcome {
    let at = |error| failure(state, error);
    match command {
        ProcessCommand::List(arguments) => {
            let page = list(state, &arguments)?;
            if arguments.json {
                output::print_json(&ProcessAnswer::List(page));
            } else if page.sessions.is_empty() {
                let begin = state.in_command("interlock exec --background -- COMMAND");
                output::note(&format!("interlock: no sessions; start one: {begin}"));
            } else {
                let with_agent = arguments.caller.agent.is_none();
                output::print(&text::list(&page.sessions, with_agent));
                if let (Some(next), Some(total)) = (&page.next_cursor, page.total) {
                    let shown = page.sessions.len();
                    output::note(&format!(
                        "interlock: {shown} of {total} sessions, the newest first; go on with --cursor {next}"
                    ));
                }
            }
        }
        ProcessCommand::Poll(arguments) => poll(state, &arguments)?,
        ProcessCommand::Log(arguments) => log(state, &arguments)?,
        ProcessCommand::Write(arguments) => write(state, arguments)?,
        ProcessCommand::SendKeys(arguments) => send_keys(state, arguments)?,
        ProcessCommand::Submit(arguments) => {
            let (sessions, id) = session(state, &arguments)?;
            let written = sessions.submit(&id)?;
            if arguments.json {
                output::print_json(&written);
            }
        }
        ProcessCommand::Paste(arguments) => paste(state, arguments)?,
        ProcessCommand::Screen(arguments) => {
            let (sessions, id) = session(state, &arguments)?;
            let screen = sessions.screen(&id)?;
            if arguments.json {
                output::print_json(&screen);
            } else {
                output::print(&text::screen(&screen));
            }
        }
        ProcessCommand::Kill(arguments) => {
            let signal = arguments.signal.as_deref().map(signal_named);
            let signal = signal.transpose().map_err(at)?;
            let (sessions, id) = session(state, &arguments.session)?;
            let ended = sessions.kill(&id, signal)?;
            if arguments.session.json {
                let session_id = id;
                output::print_json(&ProcessAnswer::Killed { session_id, ended });
            } else {
                output::print(&format!("{id} {ended}\n"));
            }
        }
        ProcessCommand::Clear(arguments) => {
            let (sessions, id) = session(state, &arguments)?;
            removed(&sessions.clear(&id)?, arguments.json);
        }
        ProcessCommand::Remove(arguments) => {
            let (sessions, id) = session(state, &arguments)?;
            removed(&sessions.remove(&id)?, arguments.json);
        }
        ProcessCommand::Attach(arguments) => return attach::run(state, &arguments),
    }
    Ok(ExitCode::SUCCESS)
}

/// A page of the sessions of this machine and of its nodes. A running gateway is asked first: it
/// knows the nodes' sessions too, and does not have to read every session from disk.
fn list(state: &StateArguments, arguments: &ProcessListArguments) -> Result<SessionPage, Failure> {
    let agent = arguments.caller.agent.as_deref();
    let after = arguments.cursor.as_deref().map(str::parse).transpose();
    let request = SessionListRequest {
        after: after.map_err(|error: CursorInvalid| failure(state, error.into()))?,
        limit: usize::try_from(arguments.limit).ok(),
        ..SessionListRequest::default()
    };
    let asked = params::ProcessList {
        agent_id: agent.map(str::to_owned),
        agent_view: agent.map(|_| true),
        limit: Some(arguments.limit),
        cursor: request.after.as_ref().map(ToString::to_string),
        ..params::ProcessList::default()
    };
    if let Some(mut followed) = FollowedGateway::find(state, &arguments.caller)? {
        return followed.page(&asked);
    }
    let process = process(state, &arguments.caller)?;
    match sessions::through_gateway(state, &asked) {
        Some(page) => Ok(page),
        None => process
            .page(&request)
            .map_err(|error| failure(state, error)),
    }
}

/// The `process` tool, for the caller that the arguments name.
fn process(state: &StateArguments, caller: &CallerArguments) -> Result<Process, Failure> {
    if let Some(agent) = &caller.agent {
        agent_id(agent)?;
    }
    let host = open(state)?;
    let caller = match &caller.agent {
        None => ProcessCaller::Operator,
        Some(agent) => {
            let agent = known_agent(&host, agent)?;
            let usual = || format!("agent:{agent}:main");
            let session_key = caller.session_key.clone().unwrap_or_else(usual);
            ProcessCaller::Agent { agent, session_key }
        }
    };
    let client = supervisor(&host)?;
    Process::open(&host, caller, client).map_err(|error| failure(state, error))
}

/// Finds where the session is, and its full id.
fn session<'a>(
    state: &'a StateArguments,
    arguments: &ProcessSessionArguments,
) -> Result<(SessionPlace<'a>, String), Failure> {
    if let Some(followed) = FollowedGateway::find(state, &arguments.caller)? {
        return followed.session(state, &arguments.session);
    }
    let process = process(state, &arguments.caller)?;
    SessionPlace::with(
        state,
        process,
        arguments.caller.agent.as_deref(),
        &arguments.session,
    )
}

/// Turns the error into a failure whose hint can be pasted into a shell.
fn failure(state: &StateArguments, error: ProcessError) -> Failure {
    let hint = error.remedy().map(|remedy| {
        let command = remedy.find("interlock ");
        match command {
            Some(at) if !remedy.contains('(') => {
                format!("{}{}", &remedy[..at], state.in_command(&remedy[at..]))
            }
            _ => remedy,
        }
    });
    Failure::Process {
        error: Box::new(error),
        hint,
    }
}

fn poll(state: &StateArguments, arguments: &ProcessPollArguments) -> Result<(), Failure> {
    let (sessions, id) = session(state, &arguments.session)?;
    let from = arguments
        .offset
        .map_or(PollFrom::LastPoll, PollFrom::Offset);
    let polled = sessions.poll(&id, from, Duration::from_millis(arguments.timeout))?;
    if arguments.session.json {
        output::print_json(&polled);
        return Ok(());
    }
    output::print(&text::transcript(&polled.text()));
    let mut note = format!("interlock: {id} {}", text::standing(&polled.ended));
    let by_offset = arguments.session.caller.agent.is_none() || arguments.offset.is_some();
    if by_offset && polled.ended.exit_code.is_none() {
        note += &format!("; go on with --offset {}", polled.next_offset);
    }
    output::note(&note);
    Ok(())
}

fn log(state: &StateArguments, arguments: &ProcessLogArguments) -> Result<(), Failure> {
    let (sessions, id) = session(state, &arguments.session)?;
    let mut range = LineRange {
        offset: arguments.offset,
        limit: arguments.limit,
    };
    if arguments.session.json {
        output::print_json(&sessions.log(&id, range)?);
        return Ok(());
    }
    // Print page by page until the whole range is shown.
    let mut stop = None;
    loop {
        let page = sessions.log(&id, range)?;
        let text = if stop.is_none() {
            page.text()
        } else {
            page.text.clone()
        };
        output::print(&text::transcript(&text));
        let stop = *stop.get_or_insert_with(|| match range {
            LineRange {
                limit: Some(limit), ..
            } => page.offset.saturating_add(limit),
            // Stop where the log ended at the first page: a session may write forever.
            LineRange { limit: None, .. } => page.total_lines,
        });
        match page.next_offset {
            Some(next) if next < stop && next > page.offset => {
                range = LineRange {
                    offset: Some(next),
                    limit: Some(stop - next),
                };
            }
            _ => return Ok(()),
        }
    }
}

fn write(state: &StateArguments, arguments: ProcessWriteArguments) -> Result<(), Failure> {
    let (sessions, id) = session(state, &arguments.session)?;
    let data = match arguments.data {
        Some(data) => data.into_bytes(),
        // The user must not have to press Ctrl-D to close an empty input.
        None if arguments.eof && std::io::stdin().is_terminal() => Vec::new(),
        None => standard_input()?,
    };
    let written = sessions.write(&id, data, arguments.eof)?;
    if arguments.session.json {
        output::print_json(&written);
    }
    Ok(())
}

fn send_keys(state: &StateArguments, arguments: ProcessSendKeysArguments) -> Result<(), Failure> {
    let (sessions, id) = session(state, &arguments.session)?;
    let keys = KeysInput {
        literal: arguments.literal,
        hex: arguments.hex,
        keys: arguments.keys,
    };
    let sent = sessions.send_keys(&id, keys)?;
    if arguments.session.json {
        output::print_json(&sent);
        return Ok(());
    }
    for warning in &sent.warnings {
        output::note(&format!("warning: {}", output::visible(warning)));
    }
    Ok(())
}

fn paste(state: &StateArguments, arguments: ProcessPasteArguments) -> Result<(), Failure> {
    let (sessions, id) = session(state, &arguments.session)?;
    let text = match (arguments.text, &arguments.file) {
        (Some(text), _) => text,
        (None, Some(path)) => {
            let read = std::fs::read(path);
            let read = read.map_err(|error| unreadable(&path.display().to_string(), &error))?;
            utf8(read)?
        }
        (None, None) => utf8(standard_input()?)?,
    };
    let bracketed = if arguments.no_bracket {
        Bracketed::No
    } else {
        Bracketed::Yes
    };
    let written = sessions.paste(&id, &text, bracketed)?;
    if arguments.session.json {
        output::print_json(&written);
    }
    Ok(())
}

/// Reads standard input up to one byte past the limit, so that input that is too long is noticed.
fn standard_input() -> Result<Vec<u8>, Failure> {
    let most = interlock_sessions::MAX_INPUT_BYTES as u64 + 1;
    let mut data = Vec::new();
    std::io::stdin()
        .lock()
        .take(most)
        .read_to_end(&mut data)
        .map_err(|error| unreadable("standard input", &error))?;
    Ok(data)
}

fn unreadable(what: &str, error: &std::io::Error) -> Failure {
    Failure::usage("INPUT_UNREADABLE", format!("{what}: {error}"))
}

fn utf8(bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage(
            "INPUT_NOT_UTF8",
            "only text can be pasted, and this is not UTF-8",
        )
        .with_hint("send bytes as they are: interlock process write NAME < FILE")
    })
}

fn removed(removed: &interlock_sessions::RemovedSession, json: bool) {
    if json {
        output::print_json(removed);
    } else {
        output::print(&format!("{} removed\n", removed.session_id));
    }
}
