use std::os::fd::AsFd as _;

use super::*;

struct Site {
    root: tempfile::TempDir,
    store: ScopeStore,
}

impl Site {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = ScopeStore::new(root.path());
        Self { root, store }
    }

    /// A scope of a conversation.
    fn open(&self, conversation: &str) -> Result<String, SandboxError> {
        let settings = Sandbox {
            scope: Some(SandboxScope::Session),
            ..Sandbox::default()
        };
        let of = ScopeOf {
            settings: &settings,
            agent: "main",
            session_key: conversation,
            workspace: self.root.path(),
            effects: SandboxEffects::Direct,
            root: None,
        };
        Ok(self.store.open(of, false)?.record.id)
    }

    /// The same, last used so long ago.
    fn used(&self, conversation: &str, ago: Duration) -> String {
        let id = self.open(conversation).unwrap();
        let used = File::options()
            .write(true)
            .open(self.store.directory(&id).join(USED))
            .unwrap();
        used.set_modified(SystemTime::now() - ago).unwrap();
        id
    }

    fn is_there(&self, id: &str) -> bool {
        self.store.directory(id).join(RECORD).exists()
    }
}

const HOUR: Duration = Duration::from_hours(1);

#[test]
fn the_scopes_that_were_used_longest_ago_make_room_for_a_new_one() {
    let site = Site::new();
    let ids: Vec<String> = (1..=4)
        .map(|hours| site.used(&format!("agent:main:{hours}"), HOUR * hours))
        .collect();
    site.store.make_room(5).unwrap();
    assert!(ids.iter().all(|id| site.is_there(id)));
    site.store.make_room(3).unwrap();
    let there: Vec<bool> = ids.iter().map(|id| site.is_there(id)).collect();
    assert_eq!(there, [true, true, false, false]);
}

#[test]
fn a_scope_that_is_in_use_or_holds_changes_does_not_make_room() {
    let site = Site::new();
    let changed = site.used("agent:main:changed", HOUR * 9);
    std::fs::create_dir_all(site.store.directory(&changed).join(LAYERS).join("run")).unwrap();
    let running = site.used("agent:main:running", HOUR * 8);
    let held = File::open(site.store.directory(&running)).unwrap();
    rustix::fs::flock(held.as_fd(), FlockOperation::LockShared).unwrap();
    let lately = site.used("agent:main:lately", Duration::ZERO);
    let old = site.used("agent:main:old", HOUR);
    site.store.make_room(4).unwrap();
    assert!(!site.is_there(&old));
    let error = site.store.make_room(3).unwrap_err().to_string();
    assert!(error.contains("interlock sandbox prune"), "{error}");
    assert!(
        [changed, running, lately]
            .iter()
            .all(|id| site.is_there(id))
    );
}

#[test]
fn callers_cannot_have_more_scopes_than_there_is_room_for() {
    let site = Site::new();
    for number in 0..MOST_SCOPES {
        site.open(&format!("agent:main:{number}")).unwrap();
    }
    let refused = site.open("agent:main:more").unwrap_err().to_string();
    assert!(refused.contains("1000 sandboxes"), "{refused}");
    // Those that are there go on.
    site.open("agent:main:0").unwrap();
    let id = site.used("agent:main:1", HOUR);
    site.open("agent:main:more").unwrap();
    assert!(!site.is_there(&id));
}
