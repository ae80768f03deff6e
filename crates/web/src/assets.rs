//! The files that a browser loads, embedded in the program.
//!
//! Their paths contain a hash of all files, so that a browser may cache them forever and never
//! mixes two versions. A debug build reads them from the source tree, so that a change needs no
//! build.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// One file.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    pub name: &'static str,
    pub content_type: &'static str,
    embedded: &'static str,
}

macro_rules! asset {
    ($name:literal, $content_type:literal) => {
        Asset {
            name: $name,
            content_type: $content_type,
            embedded: include_str!(concat!("../assets/", $name)),
        }
    };
}

/// All files except the worker.
pub const ASSETS: &[Asset] = &[
    asset!("app.css", "text/css; charset=utf-8"),
    asset!("app.js", "text/javascript; charset=utf-8"),
    asset!("live.js", "text/javascript; charset=utf-8"),
    asset!("inbox.js", "text/javascript; charset=utf-8"),
    asset!("pages.js", "text/javascript; charset=utf-8"),
    asset!("parts.js", "text/javascript; charset=utf-8"),
    asset!("documents.js", "text/javascript; charset=utf-8"),
    asset!("draft.js", "text/javascript; charset=utf-8"),
    asset!("settings.js", "text/javascript; charset=utf-8"),
    asset!("push.js", "text/javascript; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
];

impl Asset {
    /// Returns what a browser receives: the file without indentation and without comments on lines
    /// of their own.
    pub fn body(&self) -> String {
        let text = compact(&self.source());
        if self.content_type.starts_with("text/css") {
            return compact_rules(&text);
        }
        SIGNS
            .into_iter()
            .fold(text, |text, sign| text.replace(&format!(" {sign} "), sign))
    }

    fn source(&self) -> Cow<'static, str> {
        if cfg!(debug_assertions) {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/");
            if let Ok(text) = std::fs::read_to_string(format!("{path}{}", self.name)) {
                return Cow::Owned(text);
            }
        }
        Cow::Borrowed(self.embedded)
    }
}

/// Operators of scripts that need no blanks around them. No string of a script contains them.
const SIGNS: [&str; 6] = ["=>", "===", "!==", "&&", "||", "??"];

const WORKER: Asset = asset!("sw.js", "text/javascript; charset=utf-8");

/// Returns the worker of the pages. It begins with the version of the files that it caches.
pub fn worker() -> String {
    format!("const VERSION = \"{}\";\n{}", version(), WORKER.body())
}

/// Returns the manifest that a phone needs to install the pages as an app, below this path.
pub fn manifest(base: &str) -> String {
    let icon = format!("{base}/ui/{}/icon.svg", version());
    let manifest = json!({
        "name": "Interlock",
        "short_name": "Interlock",
        "id": format!("{base}/"),
        "start_url": format!("{base}/inbox"),
        "scope": format!("{base}/"),
        "display": "standalone",
        "background_color": "#fafaf9",
        "theme_color": "#0b6bcb",
        "icons": [{ "src": icon, "sizes": "any", "type": "image/svg+xml", "purpose": "any" }],
    });
    manifest.to_string()
}

/// Returns the file of this name.
pub fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Returns the version of all files, which is part of their paths.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let mut hash = Sha256::new();
        for asset in ASSETS.iter().chain([&WORKER]) {
            hash.update(asset.source().as_bytes());
            hash.update([0]);
        }
        let mut version = String::new();
        for byte in &hash.finalize()[..6] {
            let _ = write!(version, "{byte:02x}");
        }
        version
    });
    &VERSION
}

/// Removes indentation and comments. No string of these files spans lines, so blanks at the
/// beginning of a line mean nothing.
fn compact(text: &str) -> String {
    let mut is_comment = false;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.trim();
        let begins = line.starts_with("/**");
        let is_inside = is_comment || begins;
        if is_inside {
            is_comment = !line.contains("*/");
        }
        let after = line.split_once("*/").map_or("", |(_, after)| after.trim());
        let kept = match is_inside {
            // A declaration may follow the comment that gives its type.
            true => after,
            false if line.starts_with("//") => "",
            false => line,
        };
        let kept = without_types(kept);
        if !kept.is_empty() {
            out.push_str(&kept);
            out.push('\n');
        }
    }
    out
}

/// Removes blanks that mean nothing from the rules of a style sheet. No string of it contains these
/// signs.
fn compact_rules(text: &str) -> String {
    let signs = [
        ("{ ", "{"),
        (" {", "{"),
        (" }", "}"),
        ("; ", ";"),
        (": ", ":"),
        (", ", ","),
        (";}", "}"),
        ("\n", ""),
        (" > ", ">"),
    ];
    signs
        .into_iter()
        .fold(text.to_owned(), |text, (long, short)| {
            text.replace(long, short)
        })
}

/// Removes the types that comments in a line give, which only readers need.
fn without_types(line: &str) -> Cow<'_, str> {
    let mut line = Cow::Borrowed(line);
    while let Some((before, rest)) = line.split_once("/** @type ")
        && let Some((_, after)) = rest.split_once("*/")
    {
        line = Cow::Owned(format!("{before}{}", after.trim_start()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_view_takes_at_most_64_kib() {
        // The other pages load their files when they are opened.
        let later = [
            "pages.js",
            "parts.js",
            "documents.js",
            "draft.js",
            "settings.js",
            "push.js",
        ];
        let first = ASSETS.iter().filter(|asset| !later.contains(&asset.name));
        let bytes: usize = first.map(|asset| asset.body().len()).sum();
        let shell = crate::shell("0.0.0", "").into_string().len();
        assert!(bytes + shell <= 64 * 1024, "{bytes} + {shell}");
    }

    #[test]
    fn no_file_names_another_host_or_code_in_text() {
        for asset in ASSETS.iter().chain([&WORKER]) {
            let text = asset.body();
            let own = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in [
                "http://",
                "https://",
                "eval(",
                "new Function",
                "document.write",
                "insertAdjacentHTML",
                "outerHTML",
            ] {
                assert!(!own.contains(forbidden), "{}: {forbidden}", asset.name);
            }
            // Only one place turns text into markup, behind the policy.
            let sinks = text.matches("innerHTML").count();
            assert_eq!(
                sinks,
                usize::from(asset.name == "live.js"),
                "{}",
                asset.name
            );
        }
    }

    #[test]
    fn no_text_of_a_script_holds_signs_that_lose_their_blanks() {
        for asset in ASSETS.iter().chain([&WORKER]) {
            // A regular expression contains quotes that begin no string.
            let source = asset.source();
            for line in source.lines().filter(|line| !line.contains(".exec(")) {
                let texts = line.split(['"', '`']).skip(1).step_by(2);
                for text in texts.filter(|text| !text.contains("${")) {
                    let sign = SIGNS
                        .iter()
                        .find(|sign| text.contains(&format!(" {sign} ")));
                    assert_eq!(sign, None, "{}: {line}", asset.name);
                }
            }
        }
    }

    #[test]
    fn the_worker_keeps_every_file_of_the_pages() {
        let shell = crate::shell("0.0.0", "").into_string();
        let worker = worker();
        for asset in ASSETS {
            let name = format!("\"{}\"", asset.name);
            let is_imported = ["live.js", "inbox.js"].contains(&asset.name);
            let is_kept = shell.contains(asset.name) || worker.contains(&name);
            assert!(is_kept || is_imported, "{}", asset.name);
        }
    }

    #[test]
    fn compacting_keeps_code() {
        let text = "// a\n/** b\n * c */\n  const x = 1; // d\n/** @type {A} */ let y;\n";
        let casts = "/** @type {A} */ (x).y = f(/** @type {B} */ (z));\n";
        assert_eq!(compact(casts), "(x).y = f((z));\n");
        assert_eq!(compact(text), "const x = 1; // d\nlet y;\n");
        let rules =
            "a, b > c { color: red; top: 0; } @media (max-width: 1px) { a:hover { top: 0; } }";
        let short = "a,b>c{color:red;top:0} @media (max-width:1px){a:hover{top:0}}";
        assert_eq!(compact_rules(rules), short);
    }
}
