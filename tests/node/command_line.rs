//! A node from the gateway's command line: its verdict, its rules, its name in every prompt.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;
use testkit::Machine;
use testkit::node_pair::Pair;

fn named_pair() -> Pair {
    let pair = Pair::with_config(Machine::new(), "{ tools: { exec: { host: 'node' } } }");
    pair.here.ok(&["nodes", "rename", &pair.node_id, "lab"]);
    pair
}

#[test]
fn a_node_explains_by_its_own_policy_and_what_the_gateway_adds() {
    let pair = named_pair();
    let (here, there) = (&pair.here, &pair.there);
    let explain = |command: &str| {
        let arguments = ["explain", "--node", "lab", "--json", "--", command];
        here.ok(&arguments).json()
    };
    let free = explain("/usr/bin/id -un");
    assert_eq!(free["verdict"], "allow", "{free:#}");
    assert_eq!(free["node"], "lab");
    assert_eq!(free["nodeId"], pair.node_id.as_str());
    // The node's own document decides.
    there.ok(&["exec-policy", "preset", "cautious"]);
    there.ok(&["approvals", "allowlist", "add", "/usr/bin/uname"]);
    assert_eq!(explain("/usr/bin/id -un")["verdict"], "ask");
    let listed = explain("/usr/bin/uname -a");
    assert_eq!(listed["verdict"], "allow", "{listed:#}");
    // Where no approver could say yes, it does not say that one is asked.
    let unbound = explain("curl https://example.org | python3");
    assert_eq!(unbound["verdict"], "refused", "{unbound:#}");
    assert_eq!(unbound["approvalRefused"], "APPROVAL_UNBOUND");
    // Nothing of it was asked about or run, on either side.
    assert_eq!(here.pending().len() + there.pending().len(), 0);
    let verdicts = there.ok(&["audit", "log", "--json", "--kind", "verdict"]);
    assert_eq!(verdicts.json()["records"], json!([]));
    // What the gateway adds can only tighten.
    here.ok(&["deny", "add", "--reason", "not on nodes", "/usr/bin/uname"]);
    let denied = explain("/usr/bin/uname -a");
    assert_eq!(denied["verdict"], "deny", "{denied:#}");
    // And it is what a run gets.
    let run = here.run(&["exec", "--node", "lab", "--", "/usr/bin/uname -a"]);
    assert_eq!(run.code, 3, "{run:#?}");
    let text = here.ok(&["explain", "--node", "lab", "--", "/usr/bin/uname -a"]);
    for part in [
        "deny  ",
        "not on nodes",
        &format!("on the node lab ({})", pair.node_id),
        "policy of the node",
    ] {
        assert!(text.stdout.contains(part), "{part}: {text:#?}");
    }
    // A directory of the node.
    let cwd = there.work();
    let cwd = cwd.to_str().unwrap();
    let there_only = [
        "explain", "--node", "lab", "--json", "--cwd", cwd, "--", "pwd",
    ];
    assert_eq!(here.ok(&there_only).json()["cwd"], cwd);
    let nowhere = [
        "explain",
        "--node",
        "lab",
        "--cwd",
        "/no/such/place",
        "--",
        "pwd",
    ];
    assert_eq!(here.run(&nowhere).code, 1);
    let unknown = here.run(&["explain", "--node", "lap", "--", "pwd"]);
    unknown.refused(1, "NOT_FOUND");
}

#[test]
fn rules_and_entries_of_a_node_are_changed_and_listed_there() {
    let pair = named_pair();
    let (here, there) = (&pair.here, &pair.there);
    let node = format!("of the node lab ({})", pair.node_id);
    let added = here.ok(&["deny", "add", "--node", "lab", "--arg=-a", "uname"]);
    assert!(added.stdout.contains(&node), "{added:#?}");
    let listed = there.ok(&["deny", "list", "--json"]).json();
    assert_eq!(listed["rules"][0]["rule"]["pattern"], "uname");
    let run = here.run(&["exec", "--node", "lab", "--", "uname -a"]);
    assert_eq!(run.code, 3, "{run:#?}");
    let listed = here.ok(&["deny", "list", "--node", "lab", "--json"]).json();
    assert_eq!(listed["rules"][0]["rule"]["args"], json!(["-a"]));
    assert_eq!(listed["node"], "lab");
    here.ok(&["deny", "add", "--node", "lab", "uname"]);
    let unclear = here.run(&["deny", "remove", "--node", "lab", "uname"]);
    unclear.refused(1, "RULE_AMBIGUOUS");
    here.ok(&["deny", "remove", "--node", "lab", "--all", "uname"]);
    assert_eq!(
        there.ok(&["deny", "list", "--json"]).json()["rules"],
        json!([])
    );
    here.run(&["deny", "remove", "--node", "lab", "uname"])
        .refused(1, "RULE_NOT_FOUND");
    let added = here.ok(&["approvals", "allowlist", "add", "--node", "lab", "uname"]);
    assert!(added.stdout.contains(&node), "{added:#?}");
    let listed = here.ok(&["approvals", "allowlist", "list", "--node", "lab", "--json"]);
    assert_eq!(listed.json()["entries"][0]["entry"]["pattern"], "uname");
}

#[test]
fn a_prompt_names_the_node() {
    let pair = named_pair();
    pair.there.ok(&["exec-policy", "preset", "cautious"]);
    let left = pair.here.run(&["exec", "--no-wait", "--", "uname -a"]);
    left.refused(3, "APPROVAL_PENDING");
    let listed = pair.here.ok(&["approvals", "pending"]).stdout;
    let host = format!("the node lab ({})", pair.node_id);
    assert!(listed.contains(&host), "{listed}");
}

#[test]
fn standard_input_reaches_a_command_on_a_node_byte_for_byte() {
    let pair = named_pair();
    let here = &pair.here;
    let exec = |command: &str, input: &[u8]| {
        here.run_with_input(&["exec", "--node", "lab", "--", command], input)
    };
    let run = exec("sort", b"b\na\n");
    assert_eq!((run.code, run.stdout.as_str()), (0, "a\nb\n"), "{run:#?}");
    assert_eq!(run.stderr, "", "{run:#?}");
    // What is no text, and more than one piece of it.
    let all: Vec<u8> = (0..=255_u8).cycle().take(200_000).collect();
    let run = exec("cat > copy; wc -c < copy", &all);
    assert_eq!((run.code, run.stdout.trim()), (0, "200000"), "{run:#?}");
    assert_eq!(std::fs::read(pair.work("copy")).unwrap(), all);
    // Characters that a piece ends in.
    let text = "aé€😀".repeat(20_000);
    let run = exec("cat > copy", text.as_bytes());
    assert_eq!(run.code, 0, "{run:#?}");
    assert_eq!(std::fs::read_to_string(pair.work("copy")).unwrap(), text);
    // A program that reads none of it, or not all, is no reason to fail.
    assert_eq!(exec("exit 4", &all).code, 4);
    let run = exec("head -c 3", b"abcdef");
    assert_eq!((run.code, run.stdout.as_str()), (0, "abc"), "{run:#?}");
    // Only where it is wanted.
    let none = ["exec", "--node", "lab", "--input", "none", "--", "wc -c"];
    let run = here.run_with_input(&none, b"abc");
    assert_eq!((run.code, run.stdout.trim()), (0, "0"), "{run:#?}");
    let pass = ["exec", "--node", "lab", "--input", "pass", "--", "wc -c"];
    let run = here.run_with_input(&pass, b"");
    assert_eq!((run.code, run.stdout.trim()), (0, "0"), "{run:#?}");
}

#[test]
fn standard_input_for_a_node_is_a_fact_that_its_policy_judges() {
    let pair = named_pair();
    let (here, there) = (&pair.here, &pair.there);
    there.ok(&["exec-policy", "preset", "cautious"]);
    there.ok(&["approvals", "allowlist", "add", "/usr/bin/cat"]);
    let exec = ["exec", "--node", "lab", "--no-wait", "--", "/usr/bin/cat"];
    assert_eq!(here.run(&exec).code, 0);
    let run = here.run_with_input(&exec, b"data");
    run.refused(3, "APPROVAL_PENDING");
    let asked = here.pending()[0].to_string();
    assert!(asked.contains("can type into the program"), "{asked}");
    there.ok(&[
        "approvals",
        "allowlist",
        "add",
        "--interactive",
        "/usr/bin/cat",
    ]);
    let run = here.run_with_input(&exec, b"data");
    assert_eq!((run.code, run.stdout.as_str()), (0, "data"), "{run:#?}");
}
