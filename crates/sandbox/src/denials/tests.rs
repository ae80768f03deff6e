use interlock_plan::{
    SandboxBackend, SandboxLimits, SandboxUser, SandboxView, UnixSockets, WorkspaceAccess,
};

use super::*;

struct Place {
    _root: tempfile::TempDir,
    root: PathBuf,
    plan: SandboxPlan,
}

impl Place {
    /// `root/w` is the workspace, `root/ro` is shown read-only, `root/data` is not shown.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["w", "ro", "data", "home/.ssh", "state"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in [
            "data/file",
            "ro/file",
            "home/.ssh/id",
            "home/notes",
            "state/key",
        ] {
            std::fs::write(root.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink(root.join("home/.ssh"), root.join("data/keys")).unwrap();
        let bind = |name: &str, access| SandboxMount::Bind {
            source: root.join(name).display().to_string(),
            device: 0,
            inode: 0,
            target: root.join(name).display().to_string(),
            access,
            owner: None,
            reason: String::new(),
        };
        let memory = SandboxMount::Memory {
            target: root.join("tmp").display().to_string(),
            mode: 0o1777,
            reason: String::new(),
        };
        let user = SandboxUser {
            uid: 1,
            gid: 1,
            host_uid: 1,
            host_gid: 1,
        };
        let plan = SandboxPlan {
            backend: SandboxBackend::Native,
            scope: "agent main".to_owned(),
            scope_id: "0".to_owned(),
            scope_directory: "/s".to_owned(),
            view: SandboxView::Minimal,
            workspace_access: WorkspaceAccess::Rw,
            workspace: root.join("w").display().to_string(),
            user,
            cwd: "/workspace".to_owned(),
            mounts: vec![
                bind("w", MountAccess::Rw),
                bind("ro", MountAccess::Ro),
                memory,
                SandboxMount::Bind {
                    source: "/elsewhere".to_owned(),
                    device: 0,
                    inode: 0,
                    target: root.join("home").display().to_string(),
                    access: MountAccess::Rw,
                    owner: None,
                    reason: String::new(),
                },
            ],
            unix_sockets: UnixSockets::Own,
            effects: interlock_plan::SandboxEffects::Direct,
            program_log: None,
            executables: None,
            network: None,
            protect: Vec::new(),
            limits: SandboxLimits {
                memory_bytes: None,
                pids: None,
                milli_cpus: None,
                output_bytes: None,
                tmp_bytes: 1,
                disk_free_bytes: None,
            },
            container: None,
            ssh: None,
        };
        Self {
            _root: directory,
            root,
            plan,
        }
    }

    fn denials(&self, ended: EndedInside<'_>) -> Vec<SandboxDenial> {
        let (home, state_dir) = (self.root.join("home"), self.root.join("state"));
        let place = DenialPlace {
            home: Some(&home),
            state_dir: &state_dir,
            find_program: &|name| {
                let found = match name {
                    "tool" => self.root.join("data/file"),
                    "cat" => self.root.join("ro/file"),
                    _ => return None,
                };
                Some(found.display().to_string())
            },
        };
        denials_of(&self.plan, ended, place)
    }

    /// The denials of this output, where `@` stands for the root.
    fn of_output(&self, output: &str) -> Vec<(String, MountAccess)> {
        let root = self.root.display().to_string();
        let output = output.replace('@', &root);
        let ended = EndedInside {
            output: &output,
            ..EndedInside::default()
        };
        let denials = self.denials(ended).into_iter().map(|denial| {
            assert_eq!(denial.certainty, DenialCertainty::Probable);
            let path = denial.path.unwrap();
            let path = path.strip_prefix(&root).unwrap_or(&path).to_owned();
            (path, denial.access.unwrap())
        });
        denials.collect()
    }
}

#[test]
fn an_error_text_counts_where_the_sandbox_hides_what_the_host_shows() {
    let place = Place::new();
    let (ro, rw) = (MountAccess::Ro, MountAccess::Rw);
    for (output, path, access) in [
        (
            "cat: @/data/file: No such file or directory",
            "/data/file",
            ro,
        ),
        (
            "cat: '@/data/file': No such file or directory",
            "/data/file",
            ro,
        ),
        (
            "Error: ENOENT: no such file or directory, open '@/data/file'",
            "/data/file",
            ro,
        ),
        ("sh: 1: cannot open @/data/file: No such file", "", ro),
        (
            "sh: 1: cannot create @/ro/file: Read-only file system",
            "/ro/file",
            rw,
        ),
        (
            "sh: 1: cannot create @/ro/new: Read-only file system",
            "/ro",
            rw,
        ),
        (
            "touch: cannot touch '@/data/new': Permission denied",
            "/data",
            rw,
        ),
    ] {
        let found = place.of_output(output);
        let expected: Vec<(String, MountAccess)> = match path {
            "" => Vec::new(),
            path => vec![(path.to_owned(), access)],
        };
        assert_eq!(found, expected, "{output}");
    }
}

/// Words prove nothing, and what no bind may show is not found out.
#[test]
fn words_alone_prove_nothing_and_secrets_are_not_named() {
    let place = Place::new();
    for output in [
        "@/data/file",
        "permission denied",
        "@/data/file: Permission denied",
        "cat: @/data/missing: No such file or directory",
        "cat: @/ro/missing: No such file or directory",
        "cat: @/w/missing: No such file or directory",
        "sh: cannot create @/w/x: Permission denied",
        "cat: @/ro/file: No such file or directory",
        "cat: data/file: No such file or directory",
        "cat: @/data/../data/file: No such file or directory",
        "cat: @/home/.ssh/id: No such file or directory",
        "cat: @/data/keys/id: No such file or directory",
        "cat: @/state/key: No such file or directory",
        "ls: @/home: No such file or directory",
        "cat: /etc/shadow: No such file or directory",
        "cat: /: Permission denied",
    ] {
        assert_eq!(place.of_output(output), [], "{output}");
    }
    // A file beside the secrets may be shown by a bind, so it is named.
    let notes = place.of_output("cat: @/home/notes: No such file or directory");
    assert_eq!(notes, [("/home/notes".to_owned(), MountAccess::Ro)]);
}

#[test]
fn hostile_output_costs_a_bounded_look() {
    let place = Place::new();
    let root = place.root.display();
    let mut output = String::new();
    for number in 0..20_000 {
        output += &format!("cat: {root}/data/{number}: No such file or directory\n");
    }
    output += &format!("{}: No such file or directory\n", "/a".repeat(100_000));
    output += "\u{2019}\u{2019}/\u{fffd}\u{2028}: permission denied\n";
    let ended = EndedInside {
        output: &output,
        ..EndedInside::default()
    };
    assert_eq!(place.denials(ended), []);
    // Many real paths: the list has an end.
    for number in 0..40 {
        std::fs::write(place.root.join(format!("data/{number}")), "").unwrap();
    }
    let lines: Vec<String> = (0..40)
        .map(|number| format!("cat: {root}/data/{number}: No such file or directory"))
        .collect();
    let output = lines.join("\n");
    let ended = EndedInside {
        output: &output,
        ..EndedInside::default()
    };
    assert_eq!(place.denials(ended).len(), MAX_DENIALS);
}

#[test]
fn limits_the_filter_and_programs_are_certain() {
    let place = Place::new();
    let hidden = place.root.join("data/file").display().to_string();
    let ended = EndedInside {
        exit_code: Some(127),
        limit: Some("memory"),
        output: "fine\nsh: 1: tool: not found\n",
        ..EndedInside::default()
    };
    let denials = place.denials(ended);
    assert!(
        denials
            .iter()
            .all(|denial| denial.certainty == DenialCertainty::Certain)
    );
    let texts: Vec<String> = denials.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "the limit `memory` was reached".to_owned(),
            format!("the program {hidden} is not in the sandbox"),
        ]
    );
    for (exit_code, output) in [
        (1, "sh: 1: tool: not found"),
        (127, "sh: 1: other: not found"),
        (127, "bash: line 1: cat: command not found"),
        (127, "tool"),
    ] {
        let fine = EndedInside {
            exit_code: Some(exit_code),
            output,
            ..EndedInside::default()
        };
        assert_eq!(place.denials(fine), [], "{output}");
    }
    let killed = EndedInside {
        signal: Some(SIGSYS),
        ..EndedInside::default()
    };
    assert_eq!(place.denials(killed)[0].kind, DenialSubject::Filter);
}
