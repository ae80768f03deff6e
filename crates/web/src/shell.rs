//! The one document around all pages. It contains no data: a page receives its data over the
//! socket.

use maud::{DOCTYPE, Markup, html};

use crate::assets;

/// Sent with the document. Scripts, styles and images load only from this gateway, no text becomes
/// code, and no other page can frame the document.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types interlock";

/// The pages, in the order of the navigation.
const PAGES: &[(&str, &str)] = &[
    ("inbox", "Inbox"),
    ("sessions", "Sessions"),
    ("nodes", "Nodes"),
    ("policy", "Policy"),
    ("audit", "Audit"),
    ("sandbox", "Sandbox"),
    ("settings", "Settings"),
    ("health", "Health"),
];

/// Renders the document for this version of the program, whose pages are below this path.
pub fn shell(version: &str, base: &str) -> Markup {
    let asset = |name: &str| format!("{base}/ui/{}/{name}", assets::version());
    html! {
        (DOCTYPE)
        html lang="en" data-version=(version) data-base=(base) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover";
                meta name="referrer" content="no-referrer";
                title { "Interlock" }
                link rel="icon" href=(asset("icon.svg"));
                link rel="manifest" href=(format!("{base}/manifest.webmanifest"));
                link rel="apple-touch-icon" href=(asset("icon.svg"));
                meta name="theme-color" content="#0b6bcb";
                meta name="mobile-web-app-capable" content="yes";
                link rel="stylesheet" href=(asset("app.css"));
                link rel="modulepreload" href=(asset("live.js"));
                link rel="modulepreload" href=(asset("inbox.js"));
                script type="module" src=(asset("app.js")) {}
            }
            body {
                a class="skip" href="#main" { "Skip to the page" }
                header class="bar" {
                    a class="brand" href=(format!("{base}/inbox")) {
                        svg viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="2" aria-hidden="true" {
                            rect x="1.5" y="5.5" width="10" height="9" rx="4.5" {}
                            rect x="8.5" y="5.5" width="10" height="9" rx="4.5" {}
                        }
                        "Interlock"
                    }
                    nav aria-label="Pages" {
                        @for (name, title) in PAGES {
                            a href=(format!("{base}/{name}")) data-nav=(name) {
                                (title)
                                @if *name == "inbox" { " " span id="nav-count" {} }
                            }
                        }
                    }
                    div class="tools" {
                        span id="link-state" role="status" { "Connecting" }
                        button class="icon" id="theme" aria-label="Light or dark" title="Light or dark" {
                            svg viewBox="0 0 16 16" aria-hidden="true" {
                                circle cx="8" cy="8" r="6.5" fill="none" stroke="currentColor" stroke-width="1.5" {}
                                path d="M8 1.5a6.5 6.5 0 0 1 0 13z" fill="currentColor" {}
                            }
                        }
                        button class="icon" id="help" aria-label="Keys" title="Keys" { "?" }
                    }
                }
                div id="banner" role="status" hidden {}
                main id="main" tabindex="-1" aria-busy="true" {
                    div class="skeleton" aria-label="Loading" { i {} i {} i {} i {} }
                    noscript { p { "This page needs JavaScript." } }
                }
                div id="live" class="sr" aria-live="polite" {}
            }
        }
    }
}
