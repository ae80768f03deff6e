//! Refuses commands that act on this machine only while the owner follows a remote gateway, or
//! prints a note. Otherwise the owner could take an answer about this machine for one about the
//! gateway.

use std::sync::Once;

use interlock_arguments::StateArguments;
use interlock_arguments::reach::CommandReach;
use interlock_console::{Failure, output};
use interlock_host::LocalHost;
use interlock_policy::quote;

use crate::remote_gateway::RemoteGateway;

/// Refuses a command that would act on this machine while the owner follows a remote gateway, or
/// prints a note, as the command requires.
pub fn check_reach(state: &StateArguments, host: &LocalHost) -> Result<(), Failure> {
    match state.reach {
        CommandReach::Gateway | CommandReach::Machine => Ok(()),
        // A config that cannot be read names no gateway. The command reads it as well, and reports
        // or repairs the error.
        _ if host.config().is_err() => Ok(()),
        // A token that cannot be read must not stop a command that only reads.
        CommandReach::Noted => {
            if let Ok(Some(remote)) = RemoteGateway::followed(state, host) {
                note_reach(state, &remote);
            }
            Ok(())
        }
        CommandReach::GatewayWithNode if state.names_node => Ok(()),
        CommandReach::GatewayWithNode | CommandReach::Refused => {
            match RemoteGateway::followed(state, host)? {
                Some(remote) => Err(refusal(state, &remote)),
                None => Ok(()),
            }
        }
    }
}

/// Prints, once per process, that the answer is about this machine.
pub fn note_reach(state: &StateArguments, remote: &RemoteGateway) {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        output::note(&format!(
            "interlock: this is about {}, not about the gateway {} that gateway.remote names",
            state.acts_on,
            remote.target.url()
        ));
    });
}

fn refusal(state: &StateArguments, remote: &RemoteGateway) -> Failure {
    let message = format!(
        "this command acts on {} only, and gateway.remote names the gateway {}",
        state.acts_on,
        remote.target.url()
    );
    Failure::refused("LOCAL_ONLY", message).with_hint(format!(
        "for this machine: {}; for the gateway, use the same command on its machine",
        this_command_here(state)
    ))
}

/// The command line of this process with `--local`.
fn this_command_here(state: &StateArguments) -> String {
    let mut words = std::env::args_os().skip(1);
    let mut rest = vec!["interlock --local".to_owned()];
    while let Some(word) = words.next() {
        let word = word.to_string_lossy().into_owned();
        // `in_command` writes the flags of the state.
        match word.split_once('=') {
            None if STATE_FLAGS.contains(&word.as_str()) => drop(words.next()),
            Some((flag, _)) if STATE_FLAGS.contains(&flag) => {}
            _ => rest.push(quote(&word)),
        }
    }
    state.in_command(&rest.join(" "))
}

/// Flags that select the state, each with a value.
const STATE_FLAGS: &[&str] = &["--state-dir", "--config"];
