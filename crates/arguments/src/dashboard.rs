//! `interlock dashboard`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock dashboard
  interlock dashboard --no-open

Opens the pages of the gateway of this machine in a browser and lets that browser in: the address holds a code that
is good once, within a minute. The browser keeps a key of its own, and later opens the page by itself. With --no-open,
or where no browser can be started, the address is printed.

With --qr it lets a phone in instead: scan the code, compare the three words that the phone shows with those of
`interlock devices list`, and approve it with `interlock devices approve`. The gateway must speak TLS and be reached
from other machines (gateway.tls.enabled, gateway.bind or gateway.remote.url).")]
pub struct DashboardArguments {
    /// Print the address, and open no browser
    #[arg(long)]
    pub no_open: bool,
    /// Let a phone in: print a QR code for it, and open no browser
    #[arg(long, conflicts_with = "no_open")]
    pub qr: bool,
    /// Print JSON, and open no browser
    #[arg(long)]
    pub json: bool,
}
