#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_approvals::Lease;
use interlock_command::display::{Secrets, command};

use super::*;

fn approval(name: &str) -> PendingApproval {
    PendingApproval {
        view: interlock_approvals::ApprovalView::default(),
        id: format!("id-{name}"),
        short_id: name.to_owned(),
        plan_digest: format!("digest-{name}"),
        agent: "main".to_owned(),
        session_key: "agent:main:main".to_owned(),
        host: "gateway".to_owned(),
        command: command("touch x", Secrets::Masked).unwrap(),
        cwd: "/".to_owned(),
        binding: "native".to_owned(),
        binding_reason: String::new(),
        reasons: Vec::new(),
        always: Vec::new(),
        always_form: interlock_policy::AlwaysForm::Exact,
        no_always: Some("no reason".to_owned()),
        offered: vec![ApprovalDecision::AllowOnce, ApprovalDecision::Deny],
        diff: None,
        requester: "caller".to_owned(),
        created_at_ms: 0,
        expires_at_ms: 1,
        ended: None,
        wider: Vec::new(),
        not_wider: Vec::new(),
        node: None,
        remote: None,
        deliveries: Vec::new(),
    }
}

fn rows(names: &[&str]) -> Vec<ApprovalSummary> {
    let row = |name: &&str| ApprovalSummary {
        id: format!("id-{name}"),
        short_id: (*name).to_owned(),
        plan_digest: format!("digest-{name}"),
        content_digest: format!("content-{name}"),
        binding: "native".to_owned(),
        preview: "touch x".to_owned(),
        agent: "main".to_owned(),
        session_key: "agent:main:main".to_owned(),
        host: "gateway".to_owned(),
        node: None,
        requester: "caller".to_owned(),
        created_at_ms: 0,
        expires_at_ms: 1,
    };
    names.iter().map(row).collect()
}

/// An inbox in which an approver has selected this approval and read it.
fn looking_at(name: &str, names: &[&str], now: Instant) -> Inbox {
    let mut inbox = Inbox::new(Filter::default());
    assert_eq!(inbox.update(rows(names)), None);
    inbox.open(approval(name), Chosen::ByPerson, now);
    read_all(&mut inbox);
    inbox
}

fn read_all(inbox: &mut Inbox) {
    if let Selection::Open(open) = &mut inbox.selection {
        open.is_command_seen = true;
    }
}

fn decided(inbox: &Inbox, decision: ApprovalDecision, now: Instant) -> Option<&str> {
    let approval = inbox.decidable(decision, now).ok();
    approval.map(|approval| approval.short_id.as_str())
}

#[test]
fn the_selection_follows_the_approval_and_not_the_position() {
    let now = Instant::now();
    let mut inbox = looking_at("b", &["a", "b", "c"], now);
    for names in [&["b", "c"][..], &["x", "y", "b"], &["b"]] {
        assert_eq!(inbox.update(rows(names)), None);
        assert_eq!(decided(&inbox, ApprovalDecision::AllowOnce, now), Some("b"));
    }
}

#[test]
fn after_an_approval_ends_no_key_decides_another_one() {
    let now = Instant::now();
    let mut inbox = looking_at("b", &["a", "b", "c"], now);
    inbox.mode = Mode::Confirming {
        wish: Wish::plain(ApprovalDecision::AllowSession),
        ids: inbox.equal_ids(),
    };
    assert_eq!(inbox.update(rows(&["a", "c"])).as_deref(), Some("id-b"));
    inbox.ended("denied by another".to_owned());
    assert_eq!(inbox.mode, Mode::Looking);
    let later = now + Duration::from_hours(1);
    for decision in [ApprovalDecision::AllowOnce, ApprovalDecision::Deny] {
        let why = inbox.decidable(decision, later).unwrap_err();
        assert!(why.contains("denied by another"), "{why}");
    }
    // The next approval has taken the position of the ended one; moving up leads to the one before.
    assert_eq!(inbox.neighbour(1).as_deref(), Some("id-c"));
    assert_eq!(inbox.neighbour(-1).as_deref(), Some("id-a"));
    inbox.open(approval("c"), Chosen::ByPerson, later);
    read_all(&mut inbox);
    assert_eq!(decided(&inbox, ApprovalDecision::Deny, later), Some("c"));
}

#[test]
fn an_approval_that_appears_by_itself_takes_no_keys_for_a_moment() {
    let now = Instant::now();
    let mut inbox = Inbox::new(Filter::default());
    inbox.update(rows(&["a"]));
    assert_eq!(inbox.first().as_deref(), Some("id-a"));
    inbox.open(approval("a"), Chosen::ByItself, now);
    read_all(&mut inbox);
    assert_eq!(decided(&inbox, ApprovalDecision::Deny, now), None);
    assert_eq!(
        decided(&inbox, ApprovalDecision::Deny, now + UNEXPECTED),
        Some("a")
    );
    // An approval is selected by itself only if none was selected before.
    inbox.update(rows(&["b"]));
    assert_eq!(inbox.first(), None);
}

#[test]
fn an_approval_that_was_not_read_to_its_end_can_only_be_denied() {
    let now = Instant::now();
    let mut inbox = looking_at("a", &["a"], now);
    inbox.reveal(approval("a"), true);
    assert_eq!(decided(&inbox, ApprovalDecision::AllowOnce, now), None);
    assert_eq!(decided(&inbox, ApprovalDecision::Deny, now), Some("a"));
    // Another approval has not been read yet.
    inbox.reveal(approval("z"), true);
    assert_eq!(decided(&inbox, ApprovalDecision::Deny, now), Some("a"));
}

#[test]
fn only_offered_decisions_are_accepted() {
    let now = Instant::now();
    let inbox = looking_at("a", &["a"], now);
    let why = inbox
        .decidable(ApprovalDecision::AllowAlways, now)
        .unwrap_err();
    assert!(why.contains("no reason"), "{why}");
    assert!(
        inbox
            .decidable(ApprovalDecision::Lease(Lease::LONGEST), now)
            .is_err()
    );
}

#[test]
fn moving_stays_within_the_list() {
    let now = Instant::now();
    let mut inbox = looking_at("a", &["a", "b"], now);
    assert_eq!(inbox.neighbour(-1).as_deref(), Some("id-a"));
    assert_eq!(inbox.neighbour(1).as_deref(), Some("id-b"));
    assert_eq!(inbox.neighbour(99).as_deref(), Some("id-b"));
    inbox.update(Vec::new());
    assert_eq!(inbox.neighbour(1), None);
}

/// Rows of one command that two agents ask for, and of another command.
fn asked_twice() -> Vec<ApprovalSummary> {
    let mut rows = rows(&["a", "b", "c", "d"]);
    for row in &mut rows {
        "content".clone_into(&mut row.content_digest);
    }
    "other".clone_into(&mut rows[1].agent);
    "another-content".clone_into(&mut rows[3].content_digest);
    rows
}

#[test]
fn approvals_of_one_agent_for_the_same_command_are_equal() {
    let now = Instant::now();
    let mut inbox = Inbox::new(Filter::default());
    inbox.update(asked_twice());
    assert_eq!(inbox.equal_ids(), Vec::<String>::new());
    inbox.open(approval("c"), Chosen::ByPerson, now);
    assert_eq!(inbox.equal_ids(), ["id-c", "id-a"]);
    // A difference in any of these makes two approvals different.
    let changes: [fn(&mut ApprovalSummary); 5] = [
        |row| row.preview.push('!'),
        |row| row.binding.push('!'),
        |row| row.host.push('!'),
        |row| row.node = Some("lab".to_owned()),
        |row| row.content_digest.push('!'),
    ];
    for change in changes {
        let mut rows = asked_twice();
        change(&mut rows[0]);
        inbox.update(rows);
        assert_eq!(inbox.equal_ids(), ["id-c"]);
    }
    // Only the conversation may differ.
    let mut rows = asked_twice();
    rows[0].session_key.push('!');
    inbox.update(rows);
    assert_eq!(inbox.equal_ids(), ["id-c", "id-a"]);
}

#[test]
fn hidden_approvals_are_neither_selected_nor_decided() {
    let now = Instant::now();
    let mut inbox = looking_at("c", &["a"], now);
    inbox.update(asked_twice());
    inbox.open(approval("c"), Chosen::ByPerson, now);
    for (text, shown) in [
        ("agent:other", &["b"][..]),
        ("AGENT:Main", &["a", "c", "d"]),
        ("agent:mai", &[]),
        ("host:gate touch", &["a", "b", "c", "d"]),
        ("touch y", &[]),
        ("agent:main agent:other", &[]),
        ("", &["a", "b", "c", "d"]),
    ] {
        inbox.set_filter(Filter::parse(text));
        let names: Vec<&str> = inbox.rows.iter().map(|row| row.short_id.as_str()).collect();
        assert_eq!(names, shown, "{text}");
        if !shown.contains(&"c") {
            assert!(
                inbox.decidable(ApprovalDecision::Deny, now).is_err(),
                "{text}"
            );
            assert!(inbox.equal_ids().is_empty(), "{text}");
        }
        inbox.set_filter(Filter::default());
        inbox.open(approval("c"), Chosen::ByPerson, now);
    }
}

#[test]
fn a_filter_being_typed_survives_changes_of_the_list() {
    let now = Instant::now();
    let mut inbox = looking_at("a", &["a", "b"], now);
    inbox.mode = Mode::Filtering("agent:".to_owned());
    inbox.update(rows(&["b"]));
    inbox.ended("expired".to_owned());
    inbox.open(approval("b"), Chosen::ByItself, now);
    assert_eq!(inbox.mode, Mode::Filtering("agent:".to_owned()));
}
