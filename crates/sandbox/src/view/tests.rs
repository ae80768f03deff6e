use super::*;

/// Where the mounts of a sandbox stand, as `kind access target`.
fn shown(plan: &SandboxPlan) -> Vec<String> {
    let line = |mount: &SandboxMount| match mount {
        SandboxMount::Bind { target, access, .. } => format!("bind {} {target}", access.as_str()),
        SandboxMount::Overlay { target, .. } => format!("overlay {target}"),
        SandboxMount::Cache { target, .. } => format!("cache {target}"),
        SandboxMount::Copy { target, access, .. } => format!("copy {} {target}", access.as_str()),
        SandboxMount::Hold { target, access, .. } => format!("hold {} {target}", access.as_str()),
        SandboxMount::Cover { target, .. } => format!("cover {target}"),
        SandboxMount::Memory { target, .. } => format!("memory {target}"),
        SandboxMount::Link { target, .. } => format!("link {target}"),
        SandboxMount::Image { image } => format!("image {image}"),
        SandboxMount::Processes => "processes".to_owned(),
        SandboxMount::Devices => "devices".to_owned(),
    };
    plan.mounts.iter().map(line).collect()
}

struct Site {
    _root: tempfile::TempDir,
    home: PathBuf,
    state: PathBuf,
    work: PathBuf,
}

impl Site {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        let site = Self {
            home: path.join("home"),
            state: path.join("home/.interlock"),
            work: path.join("home/project"),
            _root: root,
        };
        for directory in [
            &site.state,
            &site.work.join(".git/hooks"),
            &site.home.join(".ssh"),
            &site.home.join(".cargo/bin"),
        ] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(site.work.join(".git/config"), "").unwrap();
        site
    }

    fn prepare(
        &self,
        settings: &str,
        workspace: &Path,
        cwd: &str,
    ) -> Result<PreparedSandbox, SandboxError> {
        let settings: Sandbox = serde_json::from_str(settings).unwrap();
        prepare_sandbox(&SandboxRequest {
            settings: &settings,
            backend: interlock_plan::SandboxBackend::Native,
            agent: "main",
            session_key: "agent:main:main",
            effects: interlock_plan::SandboxEffects::Direct,
            workspace,
            cwd,
            state_dir: &self.state,
            own_paths: &[],
            home: self.home.to_str(),
        })
    }
}

#[test]
fn a_writable_workspace_holds_what_git_obeys_and_what_is_above_it() {
    let site = Site::new();
    let work = site.work.to_str().unwrap();
    let prepared = site
        .prepare(r#"{ "workspaceAccess": "rw" }"#, &site.work, work)
        .unwrap();
    let all = shown(&prepared.plan);
    let at = |line: &str| all.iter().position(|one| one == line);
    let above = at(&format!("hold rw {work}/.git")).expect("the repository is held");
    let hooks = at(&format!("hold ro {work}/.git/hooks")).expect("the hooks are held");
    let copy = at("copy rw /workspace").expect("the fixed name");
    assert!(above < hooks && hooks < copy, "{all:#?}");
    assert!(at(&format!("hold ro {work}/.git/config")).is_some());
    assert!(
        at(&format!("hold ro {work}/.git")).is_none(),
        "git has to write there"
    );
    // What does not exist gets no mount point.
    assert!(!all.iter().any(|line| line.contains(".vscode")), "{all:#?}");
    let home = site.home.to_str().unwrap();
    assert!(at(&format!("bind rw {home}")).is_some(), "{all:#?}");
    assert!(
        at(&format!("bind ro {home}/.cargo/bin")).is_some(),
        "{all:#?}"
    );
    assert_eq!(prepared.tool_paths, [format!("{home}/.cargo/bin")]);
}

#[test]
fn the_state_directory_is_covered_wherever_a_mount_shows_it() {
    let site = Site::new();
    let home = site.home.to_str().unwrap();
    for access in ["rw", "ro"] {
        let settings = format!(r#"{{ "workspaceAccess": "{access}" }}"#);
        let prepared = site.prepare(&settings, &site.home, home).unwrap();
        let all = shown(&prepared.plan);
        let has = |line: String| all.contains(&line);
        assert!(has(format!("cover {home}/.interlock")), "{all:#?}");
        assert!(has(format!("cover {home}/.ssh")), "{all:#?}");
    }
}

#[test]
fn a_working_directory_outside_of_what_is_shown_is_refused() {
    let site = Site::new();
    let work = site.work.to_str().unwrap();
    std::fs::create_dir(site.work.join("sub")).unwrap();
    std::os::unix::fs::symlink("/etc", site.work.join("out")).unwrap();
    let go = |access: &str, cwd: &str| {
        let settings = format!(r#"{{ "workspaceAccess": "{access}" }}"#);
        let prepared = site.prepare(&settings, &site.work, cwd);
        prepared
            .map(|prepared| prepared.plan.cwd)
            .map_err(|error| error.code())
    };
    assert_eq!(go("rw", "/workspace/sub"), Ok(format!("{work}/sub")));
    assert_eq!(go("ro", "/agent/sub"), Ok(format!("{work}/sub")));
    assert_eq!(go("ro", "/workspace"), Ok("/workspace".to_owned()));
    assert_eq!(go("none", work), Ok("/workspace".to_owned()));
    let outside = Err("WORKDIR_OUTSIDE_SANDBOX");
    for cwd in [
        "/etc/..",
        "/etc",
        "/",
        "/workspace/out",
        "/workspace/../etc",
        "/tmp",
    ] {
        assert_eq!(go("rw", cwd), outside, "{cwd}");
    }
    assert_eq!(go("none", &format!("{work}/sub")), outside);
}

#[test]
fn changed_settings_and_other_conversations_are_other_scopes() {
    let site = Site::new();
    let work = site.work.to_str().unwrap();
    let id = |settings: &str| {
        site.prepare(settings, &site.work, work)
            .unwrap()
            .plan
            .scope_id
    };
    assert_eq!(id("{}"), id("{}"));
    assert_ne!(id("{}"), id(r#"{ "workspaceAccess": "ro" }"#));
    assert_ne!(
        id(r#"{ "scope": "session" }"#),
        id(r#"{ "scope": "shared" }"#)
    );
    let store = ScopeStore::new(&site.state);
    let (scopes, unusable) = store.list();
    assert_eq!((scopes.len(), unusable.len()), (4, 0));
    for scope in scopes {
        assert!(store.remove(&scope.id).unwrap());
    }
    assert!(store.list().0.is_empty());
}

/// A later mount covers earlier ones below it: what they hide would be shown again.
#[test]
fn a_workspace_above_the_home_directory_hides_what_is_in_it() {
    let site = Site::new();
    let above = site.home.parent().unwrap();
    let home = site.home.to_str().unwrap();
    for (view, access) in [("minimal", "rw"), ("minimal", "ro"), ("host", "rw")] {
        let settings = format!(r#"{{ "workspaceAccess": "{access}", "view": "{view}" }}"#);
        let prepared = site
            .prepare(&settings, above, above.to_str().unwrap())
            .unwrap();
        let all = shown(&prepared.plan);
        for hidden in [".interlock", ".ssh"] {
            assert!(all.contains(&format!("cover {home}/{hidden}")), "{all:#?}");
        }
        assert!(!all.contains(&format!("bind rw {home}")), "{all:#?}");
    }
}

#[test]
fn a_workspace_in_a_hidden_directory_needs_the_minimal_view() {
    let site = Site::new();
    let hidden = site.home.join(".config/editor");
    std::fs::create_dir_all(&hidden).unwrap();
    let text = hidden.to_str().unwrap();
    assert!(site.prepare("{}", &hidden, text).is_ok());
    let refused = site.prepare(r#"{ "view": "host" }"#, &hidden, text);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("which `view: host` hides"), "{refused}");
}
