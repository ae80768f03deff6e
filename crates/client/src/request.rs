//! Builds a run request from the arguments of a command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use interlock_arguments::RequestArguments;
use interlock_command::Source;
use interlock_console::Failure;
use interlock_host::now_ms;
use interlock_policy::{CallerInput, RunRequest};

pub fn request(arguments: &RequestArguments, input: CallerInput) -> Result<RunRequest, Failure> {
    let source = source(arguments)?;
    let cwd = directory(arguments.cwd.as_deref(), "--cwd")?;
    Ok(RunRequest {
        source,
        // The host fills in the workspace of the caller.
        workspace: Vec::new(),
        cwd: utf8(&cwd.into_os_string())?,
        env: environment(&arguments.env)?,
        input,
        now_ms: now_ms(),
    })
}

pub fn source(arguments: &RequestArguments) -> Result<Source, Failure> {
    let words = arguments
        .command
        .iter()
        .map(utf8)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(match words.as_slice() {
        [text] if !arguments.argv => Source::Text(text.clone()),
        _ => Source::Argv(words),
    })
}

/// The directory that a flag names, or else the working directory. The path is canonical because
/// entries are matched against it.
pub fn directory(named: Option<&Path>, flag: &str) -> Result<PathBuf, Failure> {
    let found = match named {
        Some(cwd) => std::fs::canonicalize(cwd).and_then(|cwd| {
            if cwd.is_dir() {
                Ok(cwd)
            } else {
                Err(std::io::ErrorKind::NotADirectory.into())
            }
        }),
        None => std::env::current_dir(),
    };
    found.map_err(|error| {
        let place = named.map_or("the working directory".to_owned(), |cwd| {
            cwd.display().to_string()
        });
        Failure::usage("CWD_UNUSABLE", format!("{place}: {error}"))
            .with_hint(format!("name a directory that exists with {flag}"))
    })
}

pub fn environment(pairs: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Failure::usage(
            "ENV_INVALID",
            format!("`{text}` is not NAME=VALUE"),
        )),
    };
    pairs.iter().map(pair).collect()
}

pub fn utf8(word: &OsString) -> Result<String, Failure> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        let shown = word.to_string_lossy();
        Failure::usage("COMMAND_NOT_UTF8", format!("`{shown}` is not valid UTF-8"))
    })
}
