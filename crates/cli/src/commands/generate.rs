//! `interlock completion` and `interlock man`: generates files from the command line definition, so
//! that they cannot become outdated.

use std::process::ExitCode;

use clap::CommandFactory as _;
use interlock_arguments::{Arguments, CompletionArguments, ManArguments};
use interlock_console::{CommandOutcome, Failure, output};

const NAME: &str = "interlock";

pub fn completion(arguments: &CompletionArguments) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        NAME,
        &mut script,
    );
    output::print_bytes(&script);
    ExitCode::SUCCESS
}

/// Writes one page per command, such as `interlock-approvals-watch.1`.
pub fn man(arguments: &ManArguments) -> CommandOutcome {
    let failed = |error: std::io::Error| {
        let message = format!("{}: {error}", arguments.directory.display());
        Failure::refused("MAN_NOT_WRITTEN", message)
            .with_hint("name a directory that you can write")
    };
    std::fs::create_dir_all(&arguments.directory).map_err(failed)?;
    clap_mangen::generate_to(Arguments::command(), &arguments.directory).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
