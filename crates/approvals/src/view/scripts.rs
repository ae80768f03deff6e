//! Shows the scripts of an approval to an approver: the pinned content, never what the path leads
//! to by now.

use interlock_command::display::ShownLine;
use interlock_plan::{PinnedFile, RunPlan, hex};
use interlock_store::PinnedScript;
use sha2::{Digest as _, Sha256};

use super::{ApprovalView, ViewBlock, ViewLabel};
use crate::content::{bytes_of, scripts};

/// How many digits of a hash an approver sees.
const SHOWN_DIGITS: usize = 16;

/// Adds the content of every bound script. `stored` holds the scripts that were kept with the
/// approval. A script that was too long for that is read again and compared with its hash. Returns
/// `false` if a script no longer has its pinned content and so cannot be shown: then the approval
/// must not be allowed.
pub fn add_scripts(view: &mut ApprovalView, plan: &RunPlan, stored: &[PinnedScript]) -> bool {
    let mut all_shown = true;
    for script in scripts(plan) {
        let kept = stored.iter().find(|one| one.path == script.canonical);
        let content = match kept {
            Some(kept) => Some(kept.content.clone()),
            None => bytes_of(script),
        };
        match content.filter(|content| is_pinned(script, content)) {
            Some(content) => add_script(view, script, &content),
            None => {
                all_shown = false;
                let text = format!(
                    "{} is no longer what was asked about: it cannot be shown, and will not run",
                    script.canonical
                );
                view.warning(ViewLabel::Script, &text);
            }
        }
    }
    all_shown
}

fn is_pinned(script: &PinnedFile, content: &[u8]) -> bool {
    script.sha256.as_deref() == Some(hex(&Sha256::digest(content)).as_str())
}

fn add_script(view: &mut ApprovalView, script: &PinnedFile, content: &[u8]) {
    let hash = script.sha256.as_deref().unwrap_or_default();
    let hash = hash.get(..SHOWN_DIGITS).unwrap_or(hash);
    let title = format!(
        "{}, {} bytes, sha256 {hash}…",
        script.canonical,
        content.len()
    );
    if content.contains(&0) {
        view.warning(
            ViewLabel::Script,
            &format!("{title}: not a text, so it is not shown"),
        );
        return;
    }
    let text = visible_bytes(content);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    view.block(ViewBlock {
        label: ViewLabel::Script,
        title: ShownLine::new(&title),
        lines: text.split('\n').map(ShownLine::new).collect(),
        left_out_lines: 0,
        is_diff: false,
    });
}

/// The text of a file, with invalid UTF-8 bytes spelled out.
fn visible_bytes(content: &[u8]) -> String {
    let mut text = String::with_capacity(content.len());
    for chunk in content.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02X}");
        }
    }
    text
}
