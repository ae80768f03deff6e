//! Matrix: prompts with seeds, decisions, edits, restarts.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use testkit::chat::MatrixStandIn;
use testkit::{Machine, eventually};

use super::{ADA, Chatting, ROOM, matrix_config, merge};

pub(super) fn chatting(change: &Value) -> (Chatting, MatrixStandIn) {
    let machine = Machine::new();
    let matrix = MatrixStandIn::start(&machine);
    let mut config = matrix_config(&machine, &matrix.server.url());
    merge(&mut config, change);
    (Chatting::start(machine, &config), matrix)
}

/// The message about an approval, once it is there.
pub(super) fn prompt_of(chat: &Chatting, matrix: &MatrixStandIn, id: &str) -> (String, Value) {
    let short_id = chat.short_id(id);
    let find = || {
        let mut prompts = matrix.prompts(ROOM).into_iter();
        prompts.rfind(|(_, content)| content["body"].as_str().unwrap().contains(&short_id))
    };
    eventually("the prompt comes", || find().is_some());
    find().unwrap()
}

#[test]
fn a_reaction_of_an_approver_allows_the_run_and_the_message_says_so() {
    let (chat, matrix) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("allowed");
    let (event, content) = prompt_of(&chat, &matrix, &id);
    let body = content["body"].as_str().unwrap();
    let short_id = chat.short_id(&id);
    assert!(
        body.starts_with(&format!(
            "⏳ {short_id} · main @ gateway · agent:main:main\n"
        )),
        "{body}"
    );
    for shown in [
        "command   /usr/bin/touch ",
        "\nwhy ",
        "\nbinding ",
        "\nalways ",
        &format!(
            "/approve {short_id} allow-once|allow-session|lease 30m|allow-always|deny [reason]"
        ),
        &format!("/approve/{id}"),
    ] {
        assert!(body.contains(shown), "{shown}: {body}");
    }
    eventually("the seeds come", || matrix.seeds(&event).len() == 3);
    assert!(!file.exists());
    matrix.react(ROOM, ADA, &event, "✅\u{fe0f}");
    let (ending, decider) = chat.until_ended(&id);
    assert_eq!(
        (ending.as_str(), decider.as_str()),
        ("allow-once", "matrix:@ada:test")
    );
    eventually("it runs", || file.exists());
    eventually("the message says what became of it", || {
        let shown = matrix.shown(&event);
        shown.starts_with("✅ Allowed once by matrix:@ada:test ") && shown.contains(" · exit 0")
    });
    eventually("the seeds are gone", || matrix.seeds(&event).is_empty());
    let receipts = chat.receipts(&id);
    let states: Vec<&str> = receipts.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(states, ["queued", "sent", "seen"], "{receipts:?}");
    assert!(receipts.iter().all(|one| one.0 == format!("matrix:{ROOM}")));
}

#[test]
fn decisions_are_typed_or_tapped_and_always_takes_a_second_step() {
    let (chat, matrix) = chatting(&json!({}));
    let (denied, first) = chat.ask_marker("denied");
    let (event, _) = prompt_of(&chat, &matrix, &first);
    matrix.react(ROOM, ADA, &event, "❌");
    assert_eq!(chat.until_ended(&first).0, "deny");
    eventually("it is shown", || {
        matrix
            .shown(&event)
            .starts_with("❌ Denied by matrix:@ada:test")
    });
    // Typed, with a reason for the agent.
    let (_, second) = chat.ask_marker("typed");
    prompt_of(&chat, &matrix, &second);
    let short_id = chat.short_id(&second);
    matrix.say(
        ROOM,
        ADA,
        &format!("approve {short_id} deny not on a Friday"),
    );
    assert_eq!(chat.until_ended(&second).0, "deny");
    let reason: String = chat
        .machine
        .database()
        .query_row(
            "SELECT deny_reason FROM approval WHERE id = ?1",
            [&second],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(reason, "not on a Friday");
    // One tap stores nothing for good.
    let (stored, third) = chat.ask_marker("stored");
    let (event, _) = prompt_of(&chat, &matrix, &third);
    matrix.react(ROOM, ADA, &event, "♾");
    let step = format!(
        "To store it for good, type: /approve {} allow-always",
        chat.short_id(&third)
    );
    eventually("the second step is offered", || {
        matrix.notices(ROOM).contains(&step)
    });
    assert_eq!(chat.ending(&third), None);
    matrix.say(
        ROOM,
        ADA,
        &format!("/approve {} allow-always", chat.short_id(&third)),
    );
    assert_eq!(chat.until_ended(&third).0, "allow-always");
    eventually("it runs", || stored.exists());
    assert!(!denied.exists());
}

#[test]
fn what_is_decided_elsewhere_while_the_server_is_away_is_shown_when_it_is_back() {
    let (chat, matrix) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("elsewhere");
    let (event, _) = prompt_of(&chat, &matrix, &id);
    matrix.server.is_away.store(true, Ordering::SeqCst);
    chat.machine.ok(&["approvals", "deny", &id]);
    let before = matrix.server.accepted.load(Ordering::SeqCst);
    eventually("it is tried", || {
        matrix.server.accepted.load(Ordering::SeqCst) > before + 1
    });
    assert!(matrix.shown(&event).starts_with('⏳'));
    matrix.server.is_away.store(false, Ordering::SeqCst);
    eventually("the message is edited", || {
        matrix.shown(&event).starts_with("❌ Denied by ")
    });
    // A late reaction gets the winner.
    matrix.react(ROOM, ADA, &event, "✅");
    let short_id = chat.short_id(&id);
    let late = |notice: &String| notice.starts_with(&format!("{short_id}: ❌ Denied by "));
    eventually("the winner is named", || {
        matrix.notices(ROOM).iter().any(late)
    });
    assert_eq!(chat.ending(&id).unwrap().0, "deny");
    assert!(!file.exists());
}

#[test]
fn a_restart_loses_no_prompt_no_answer_and_repeats_none() {
    let (mut chat, matrix) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("restarted");
    let (event, _) = prompt_of(&chat, &matrix, &id);
    // The gateway has a place in the stream by now.
    matrix.say(ROOM, ADA, "/approve");
    eventually("it listens", || matrix.notices(ROOM).len() == 1);
    chat.gateway.kill();
    matrix.react(ROOM, ADA, &event, "✅");
    chat.restart();
    assert_eq!(chat.until_ended(&id).0, "allow-once");
    eventually("it runs", || file.exists());
    assert_eq!(matrix.prompts(ROOM).len(), 1);
}

#[test]
fn a_direct_message_goes_to_each_approver_in_a_room_that_is_made_once() {
    let (chat, matrix) = chatting(&json!({
        "channels": { "matrix": { "execApprovals": { "target": "dm" } } },
        "approvals": { "exec": { "enabled": false } },
    }));
    let (_, first) = chat.ask_marker("first");
    let room = "!direct0:test";
    eventually("the prompt comes", || matrix.prompts(room).len() == 1);
    let (_, second) = chat.ask_marker("second");
    eventually("the next one comes there too", || {
        matrix.prompts(room).len() == 2
    });
    assert_eq!(matrix.state.lock().rooms, [room]);
    let (event, _) = matrix.prompts(room).remove(0);
    matrix.react(room, ADA, &event, "❌");
    assert_eq!(chat.until_ended(&first).0, "deny");
    assert_eq!(chat.ending(&second), None);
}

#[test]
fn many_approvals_become_one_message_that_is_edited() {
    let (chat, matrix) = chatting(&json!({}));
    let ids: Vec<String> = (0..6)
        .map(|number| chat.ask_marker(&format!("m{number}")).1)
        .collect();
    let shown = || {
        let prompts = matrix.prompts(ROOM).into_iter();
        prompts
            .map(|(event, _)| matrix.shown(&event))
            .collect::<Vec<_>>()
    };
    eventually("all are shown", || {
        let all = shown().join("\n");
        ids.iter().all(|id| all.contains(&chat.short_id(id)))
    });
    let prompts = matrix.prompts(ROOM);
    assert_eq!(
        prompts.len(),
        4,
        "three by themselves, and one for the rest: {:#?}",
        shown()
    );
    let (group, _) = &prompts[3];
    eventually("it says how many", || {
        matrix.shown(group).starts_with("⏳ 3 approvals wait")
    });
    assert_eq!(matrix.seeds(group), Vec::<String>::new());
    // A reaction to it names no approval; typed, one can be denied and none allowed.
    matrix.react(ROOM, ADA, group, "✅");
    let last = chat.short_id(&ids[5]);
    matrix.say(ROOM, ADA, &format!("/approve {last} allow-once"));
    let refused =
        format!("{last}: allow-once is refused: it was not shown whole here: open it to allow it");
    eventually("it is refused", || matrix.notices(ROOM).contains(&refused));
    matrix.say(ROOM, ADA, &format!("/approve {last} deny"));
    assert_eq!(chat.until_ended(&ids[5]).0, "deny");
    eventually("the list is edited", || {
        matrix.shown(group).starts_with("⏳ 2 approvals wait")
    });
    assert_eq!(chat.ending(&ids[4]), None);
}

#[test]
fn directives_of_owners_set_the_conversation_of_a_prompt_or_the_one_they_name() {
    let (chat, matrix) = chatting(&json!({
        "commands": { "ownerAllowFrom": [format!("matrix:{ADA}")] },
    }));
    let (_, id) = chat.ask_marker("directed");
    let (event, _) = prompt_of(&chat, &matrix, &id);
    let reply = json!({ "m.in_reply_to": { "event_id": event } });
    let content = json!({ "msgtype": "m.text", "body": "/exec ask=always", "m.relates_to": reply });
    matrix.say_with(ROOM, ADA, &content);
    let said = "agent:main:main exec: host=default security=default ask=always node=default; elevated=default";
    eventually("it is set", || {
        matrix.notices(ROOM).iter().any(|notice| notice == said)
    });
    matrix.say(ROOM, ADA, "/exec agent:main:other security=deny");
    eventually("another is set", || {
        let notices = matrix.notices(ROOM);
        notices
            .iter()
            .any(|notice| notice.starts_with("agent:main:other exec: host=default security=deny"))
    });
    matrix.say(ROOM, ADA, "/exec ask=off");
    eventually("which one is asked", || {
        matrix
            .notices(ROOM)
            .iter()
            .any(|notice| notice.starts_with("name the conversation"))
    });
    matrix.say(ROOM, ADA, "/elev agent:main:main on");
    eventually("elevated has its own switch", || {
        matrix
            .notices(ROOM)
            .iter()
            .any(|notice| notice.contains("tools.elevated.enabled"))
    });
}

#[test]
fn a_message_can_be_removed_instead() {
    let (chat, matrix) = chatting(&json!({
        "channels": { "matrix": { "execApprovals": { "cleanupAfterResolve": true } } },
    }));
    let (_, id) = chat.ask_marker("removed");
    let (event, _) = prompt_of(&chat, &matrix, &id);
    chat.machine.ok(&["approvals", "deny", &id]);
    eventually("it is taken away", || {
        matrix.state.lock().redacted.contains(&event)
    });
}

#[test]
fn filters_and_patience_keep_a_chat_calm() {
    let (chat, matrix) = chatting(&json!({ "approvals": { "exec": {
        "sessionFilter": ["^agent:main:(main|other)$"], "agentFilter": ["main"],
        "targets": [
            { "channel": "matrix", "to": ROOM },
            { "channel": "matrix", "to": "!patient:test", "afterSec": 1 },
        ],
    } } }));
    // What is decided before its time is not sent.
    let (_, early) = chat.ask_marker("early");
    chat.machine.ok(&["approvals", "deny", &early]);
    let (_, late) = chat.ask_marker("late");
    eventually("the patient chat gets the other one", || {
        matrix.prompts("!patient:test").len() == 1
    });
    let (_, content) = matrix.prompts("!patient:test").remove(0);
    assert!(
        content["body"]
            .as_str()
            .unwrap()
            .contains(&chat.short_id(&late))
    );
    // Another conversation than those of the filter.
    chat.machine.ok(&[
        "config",
        "set",
        "approvals.exec.sessionFilter",
        "[\"nothing\"]",
    ]);
    chat.machine.ok(&[
        "config",
        "set",
        "approvals.exec.targets",
        "[{channel: 'matrix', to: '!other:test'}]",
    ]);
    eventually("the targets change", || {
        let names: Vec<String> = {
            let database = chat.machine.database();
            let mut statement = database.prepare("SELECT name FROM chat_target").unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        names == ["matrix:!other:test"]
    });
    let (_, unwanted) = chat.ask_marker("unwanted");
    let rows = |id: &str| -> i64 {
        let statement =
            "SELECT count(*) FROM chat_message JOIN approval USING (number) WHERE id = ?1";
        chat.machine
            .database()
            .query_row(statement, [id], |row| row.get(0))
            .unwrap()
    };
    eventually("it is dropped", || rows(&unwanted) == 0);
    assert_eq!(matrix.prompts("!other:test").len(), 0);
    assert_eq!(chat.receipts(&unwanted), []);
}

#[test]
fn owners_are_approvers_without_a_list_and_a_channel_is_never_a_person() {
    let machine = Machine::new();
    let matrix = MatrixStandIn::start(&machine);
    let mut config = matrix_config(&machine, &matrix.server.url());
    config["channels"]["matrix"]["execApprovals"] = json!({ "target": "channel" });
    let owners = json!([
        "*",
        "telegram:@eve:test",
        format!("matrix:{ADA}"),
        "matrix:*"
    ]);
    config["commands"] = json!({ "ownerAllowFrom": owners });
    config["approvals"]["exec"]["targets"] = json!([
        { "channel": "matrix", "to": ROOM }, { "channel": "matrix", "to": ADA },
    ]);
    let chat = Chatting::start(machine, &config);
    let listed = chat.machine.ok(&["channels", "list", "--json"]).json();
    assert_eq!(listed["problems"][0]["key"], "approvals.exec.targets[1].to");
    assert_eq!(
        listed["targets"][0]["target"],
        format!("matrix:{ROOM}"),
        "{listed:#}"
    );
    assert_eq!(listed["targets"].as_array().unwrap().len(), 1);
    let (file, id) = chat.ask_marker("owned");
    let (event, _) = prompt_of(&chat, &matrix, &id);
    matrix.react(ROOM, "@eve:test", &event, "✅");
    matrix.react(ROOM, "*", &event, "✅");
    eventually("both are refused", || chat.refusals().len() == 2);
    assert_eq!(chat.ending(&id), None);
    matrix.react(ROOM, ADA, &event, "✅");
    assert_eq!(chat.until_ended(&id).0, "allow-once");
    eventually("it runs", || file.exists());
    // No room was made for a person.
    assert!(matrix.state.lock().rooms.is_empty());
}

#[test]
fn a_patient_chat_stays_silent_where_an_approver_has_seen_it_by_then() {
    let (chat, matrix) = chatting(&json!({ "approvals": { "exec": { "targets": [
        { "channel": "matrix", "to": ROOM },
        { "channel": "matrix", "to": "!patient:test", "afterSec": 4 },
    ] } } }));
    let mut page = chat.gateway.connect(testkit::ws::EVERYTHING);
    let (_, seen) = chat.ask_marker("seen");
    page.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": seen } }),
    );
    let (_, unseen) = chat.ask_marker("unseen");
    eventually("the other one is sent there", || {
        !matrix.prompts("!patient:test").is_empty()
    });
    let all = matrix.prompts("!patient:test");
    let text = all[0].1["body"].as_str().unwrap();
    assert!(text.contains(&chat.short_id(&unseen)), "{text}");
    assert_eq!(all.len(), 1);
    // The chat that does not wait has both.
    assert_eq!(matrix.prompts(ROOM).len(), 2);
    assert_eq!((chat.ending(&seen), chat.ending(&unseen)), (None, None));
}
