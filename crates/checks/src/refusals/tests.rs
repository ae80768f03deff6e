#![allow(clippy::unwrap_used)]

use interlock_command::{Host, analyse};
use interlock_programs::VirtualHost;

use super::*;

fn code(source: Source) -> Option<&'static str> {
    let resolver = VirtualHost::new();
    let host = Host {
        resolver: &resolver,
        trusted_dirs: &[],
    };
    let analysis = analyse(source, "/w", host).unwrap();
    refusal(&analysis).map(|refusal| refusal.code())
}

fn of_text(text: &str) -> Option<&'static str> {
    code(Source::Text(text.to_owned()))
}

#[test]
fn approvals_are_not_given_through_a_shell() {
    for text in [
        "/approve 7f3a allow-once",
        "/APPROVE 7f3a Deny",
        "/approve@interlock_bot 7f3a always",
        "/approve",
        "  /approve 7f3a deny",
        "'/approve' 7f3a deny",
        "ls && /approve 7f3a deny",
        "sh -c '/approve 7f3a deny'",
        "sudo /approve 7f3a deny",
        "env A=1 /approve 7f3a deny",
        "x=$(/approve 7f3a deny)",
        "/approve 7f3a deny it's",
        "ls\n/approve 7f3a \"allow-once",
        "interlock approvals approve 7f3a",
        "interlock approvals deny 7f3a",
        "interlock approvals watch",
        "interlock --state-dir /s approvals approve 7f3a",
        "/usr/bin/interlock approvals --json approve 7f3a",
        "timeout 5 bash -lc 'interlock approvals approve 7f3a'",
    ] {
        assert_eq!(of_text(text), Some("APPROVE_IN_SHELL"), "{text}");
    }
    let argv = ["/approve", "7f3a", "deny"].map(str::to_owned).to_vec();
    assert_eq!(code(Source::Argv(argv)), Some("APPROVE_IN_SHELL"));
}

#[test]
fn logins_that_need_a_person_are_refused() {
    for text in [
        "openclaw channels login",
        "openclaw channels login --channel whatsapp",
        "openclaw --profile work channels login",
        "cd /tmp && openclaw channels login || true",
        "bash -c \"openclaw channels login\"",
    ] {
        assert_eq!(of_text(text), Some("INTERACTIVE_LOGIN"), "{text}");
    }
}

#[test]
fn what_only_speaks_of_them_is_not_refused() {
    for text in [
        "echo '/approve 7f3a deny'",
        "printf '%s' /approve",
        "grep -r /approve src",
        "cat docs/approve.md",
        "./approve 7f3a",
        "/opt/approve 7f3a",
        "/approved 7f3a",
        "/approve/run",
        "openclaw channels list",
        "openclaw channels login --help",
        "openclaw status",
        "echo openclaw channels login",
        "interlock approvals pending",
        "interlock approvals get",
        "interlock explain -- ls",
        "git commit -m 'openclaw channels login is refused'",
        "gcloud auth login",
        "npm login",
        "cat <<EOF\n/approve 7f3a deny\nEOF",
        "cat <<'EOF' > notes; sh $X\n/approve 7f3a deny\nEOF",
    ] {
        assert_eq!(of_text(text), None, "{text}");
    }
}

#[test]
fn each_says_what_to_use_instead() {
    for refusal in ROWS.iter().map(|row| row.refusal).chain([APPROVE]) {
        assert!(refusal.remedy().contains("user"), "{}", refusal.remedy());
        assert!(!refusal.to_string().ends_with('.'), "{refusal}");
    }
}
