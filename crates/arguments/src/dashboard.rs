//! `interlock dashboard`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock dashboard
  interlock dashboard --no-open

Opens the pages of this machine's gateway in a browser and pairs that browser: the address contains a code that is valid
once, for one minute. The browser keeps its own key, so it can open the pages later without a code. With --no-open, or if
no browser can be started, the address is printed.

With --qr a phone is paired instead: scan the code, compare the three words that the phone shows with those of
`interlock devices list`, and approve the phone with `interlock devices approve`. The gateway must use TLS and be
reachable from other machines (gateway.tls.enabled, gateway.bind or gateway.remote.url).")]
pub struct DashboardArguments {
    /// Print the address instead of opening a browser
    #[arg(long)]
    pub no_open: bool,
    /// Pair a phone: print a QR code instead of opening a browser
    #[arg(long, conflicts_with = "no_open")]
    pub qr: bool,
    /// Print JSON instead of opening a browser
    #[arg(long)]
    pub json: bool,
}
