//! `interlock dashboard`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock dashboard
  interlock dashboard --no-open

Opens the pages of the gateway of this machine in a browser and lets that browser in: the address holds a code that
is good once, within a minute. The browser keeps a key of its own, and later opens the page by itself. With --no-open,
or where no browser can be started, the address is printed.")]
pub struct DashboardArguments {
    /// Print the address, and open no browser
    #[arg(long)]
    pub no_open: bool,
    /// Print JSON, and open no browser
    #[arg(long)]
    pub json: bool,
}
