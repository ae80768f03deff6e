use super::*;

fn reason(path: &str) -> Option<&'static str> {
    ProtectedPath::find(Path::new(path)).map(|row| row.path)
}

#[test]
fn what_runs_later_is_protected_at_any_depth() {
    let cases = [
        ("/w/.git/hooks/pre-commit", ".git/"),
        ("/w/.git/config", ".git/"),
        ("/w/.git", ".git/"),
        ("/w/sub/repo/.git/info/attributes", ".git/"),
        ("/w/.git/worktrees/x/commondir", ".git/"),
        ("/w/HEAD", "HEAD"),
        ("/w/.github/workflows/ci.yml", ".github/workflows/"),
        ("/w/a/b/.vscode/tasks.json", ".vscode/"),
        ("/w/.mcp.json", ".mcp.json"),
        ("/home/u/.bashrc", ".bashrc"),
        ("/home/u/.config/systemd/user/x.service", ".config/systemd/"),
        ("/home/u/.ssh/authorized_keys", ".ssh/"),
        ("/home/u/.cargo/config.toml", ".cargo/config.toml"),
        ("/home/u/.claude/settings.json", ".claude/"),
        ("/home/u/.claude/worktrees/x", ".claude/"),
        ("/w/Jenkinsfile.release", "Jenkinsfile*"),
        ("/etc/cron.d/x", "/etc/cron.d/"),
    ];
    for (path, row) in cases {
        assert_eq!(reason(path), Some(row), "{path}");
    }
}

#[test]
fn other_spellings_of_a_name_are_the_same_name() {
    for path in [
        "/w/.GIT/config",
        "/w/.Git/HOOKS/x",
        "/w/git~1/config",
        "/w/.git./config",
        "/w/.git /config",
        "/w/.git::$INDEX_ALLOCATION/config",
        "/w/.g\u{200c}it/config",
        "/w/.\u{df}h/authorized_keys",
        "/w/.\u{17f}sh/authorized_keys",
        "/w/.BASHRC",
        "/w/JENKINSFILE",
    ] {
        assert!(reason(path).is_some(), "{path}");
    }
}

#[test]
fn ordinary_work_is_not_protected() {
    for path in [
        "/w/src/main.rs",
        "/w/package.json",
        "/w/Makefile",
        "/w/Cargo.toml",
        "/w/build.rs",
        "/w/.gitignore",
        "/w/.gitattributes",
        "/w/.github/CODEOWNERS",
        "/w/.github/ISSUE_TEMPLATE/bug.md",
        "/w/.env",
        "/w/.eslintrc.json",
        "/w/.prettierrc",
        "/w/tsconfig.json",
        "/w/Dockerfile",
        "/w/docker-compose.yml",
        "/w/README.md",
        "/w/head/x.rs",
        "/w/config/git/notes.md",
        "/w/docs/profile",
        "/w/etc/profile",
        "/home/u/.claude/worktrees/fix/src/main.rs",
        "/home/u/.codex/worktrees/1a2b/repo/README.md",
        "/home/u/.local/share/interlock/workspaces/main/a.py",
    ] {
        assert_eq!(reason(path), None, "{path}");
    }
}

#[test]
fn a_checkout_beneath_a_settings_directory_has_protected_paths_of_its_own() {
    assert_eq!(
        reason("/home/u/.claude/worktrees/fix/.github/workflows/ci.yml"),
        Some(".github/workflows/")
    );
    assert_eq!(
        reason("/home/u/.claude/worktrees/fix/.claude/settings.json"),
        Some(".claude/")
    );
}

#[test]
fn every_row_has_its_reason_and_stands_once() {
    let mut seen = std::collections::HashSet::new();
    for row in PROTECTED_PATHS {
        assert!(!row.reason.is_empty() && !row.path.is_empty());
        assert!(seen.insert(row.path), "{} stands twice", row.path);
        assert!(row.path.matches('*').count() <= 1, "{}", row.path);
    }
}
