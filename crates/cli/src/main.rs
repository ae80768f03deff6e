#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    interlock::main()
}
