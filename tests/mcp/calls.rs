//! Calls over MCP as models and owners meet them: where programs are found, where calls start, which
//! conversation they belong to, how results read, and what a denial says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use serde_json::{Value, json};
use testkit::mcp::{Gateway, StdioClient, initialize, modern, output, text, tool_call};
use testkit::{Machine, eventually};

/// Two programs of one name in directories of their own, which say where they are.
fn candidates(machine: &Machine) {
    for name in ["first", "second", "evil"] {
        std::fs::create_dir_all(machine.root().join(name)).unwrap();
        machine.script(
            &format!("{name}/which-one"),
            &format!("#!/bin/sh\necho {name}\n"),
        );
    }
}

fn path_of(machine: &Machine, names: &[&str]) -> String {
    let own = names.iter().map(|name| machine.root().join(name));
    let all = own.map(|path| path.display().to_string());
    let all: Vec<String> = all.chain(["/usr/bin".into(), "/bin".into()]).collect();
    all.join(":")
}

#[test]
fn one_name_leads_to_one_program_for_explain_exec_and_mcp() {
    let machine = Machine::unguarded();
    candidates(&machine);
    let _gateway = Gateway::start(&machine);
    for order in [["first", "second"], ["second", "first"]] {
        let path = path_of(&machine, &order);
        let with_path = |arguments: &[&str]| {
            let mut command = machine.command(arguments);
            command.env("PATH", &path);
            testkit::finish(&mut command)
        };
        let explained = with_path(&["explain", "--json", "--", "which-one"]).json();
        let resolved = explained["segments"][0]["resolved"].as_str().unwrap();
        let expected = machine.root().join(order[0]).join("which-one");
        assert_eq!(Path::new(resolved), expected);
        assert_eq!(
            with_path(&["exec", "--", "which-one"]).stdout.trim(),
            order[0]
        );
        let mut client = StdioClient::start_with(&machine, &["--no-spawn"], |command| {
            command.env("PATH", &path);
        })
        .initialized(&json!({}));
        let result = client.call("exec", &json!({ "command": "which-one" }));
        assert_eq!(output(&result), order[0]);
        // What a call says of PATH changes nothing.
        let own =
            json!({ "command": "which-one", "env": { "PATH": path_of(&machine, &["evil"]) } });
        let refused = client.call("exec", &own);
        assert_eq!(refused["structuredContent"]["code"], "ENV_REJECTED");
    }
}

/// The gateway asks the login shell; what that adds comes behind the client's own directories, also for
/// commands that ask no shell.
#[test]
fn what_the_login_shell_adds_comes_last_for_all_of_them() {
    let machine = Machine::unguarded();
    candidates(&machine);
    std::fs::create_dir_all(machine.root().join("login")).unwrap();
    machine.script("login/login-only", "#!/bin/sh\necho login\n");
    machine.script("login/which-one", "#!/bin/sh\necho login\n");
    let line = format!("PATH={}:$PATH\n", machine.root().join("login").display());
    for name in [".profile", ".bash_profile", ".zprofile"] {
        machine.file(&format!("home/{name}"), &line);
    }
    let _gateway = Gateway::start(&machine);
    let path = path_of(&machine, &["first"]);
    let mut client = StdioClient::start_with(&machine, &["--no-spawn"], |command| {
        command.env("PATH", &path);
    })
    .initialized(&json!({}));
    for (name, expected) in [("login-only", "login"), ("which-one", "first")] {
        let result = client.call("exec", &json!({ "command": name }));
        assert_eq!(output(&result), expected, "{result}");
        let mut command = machine.command(&["exec", "--", name]);
        let run = testkit::finish(command.env("PATH", &path));
        assert_eq!(run.stdout.trim(), expected, "{run:#?}");
    }
}

/// Messages to `interlock mcp` inside a run; what came back.
fn from_inside(machine: &Machine, before: &str, messages: &[Value]) -> String {
    let lines: Vec<String> = messages.iter().map(Value::to_string).collect();
    let input = machine.file("input", lines.join("\n") + "\n");
    let answer = machine.root().join("output");
    let last = messages.last().unwrap()["id"].to_string();
    let command = format!(
        "(cat {input}; until grep -q '\"id\":{last}[,}}]' {answer}; do sleep 0.01; done) \
         | {before} {binary} mcp --no-spawn > {answer}; cat {answer}",
        input = input.display(),
        answer = answer.display(),
        binary = crate::BINARY,
    );
    machine.exec(&command).stdout
}

#[test]
fn a_run_brings_no_path_of_its_own() {
    let machine = Machine::unguarded();
    // Inside the shield the socket does not exist.
    machine.switch_shield_off();
    candidates(&machine);
    std::fs::rename(
        machine.root().join("first/which-one"),
        machine.bin().join("which-one"),
    )
    .unwrap();
    let _gateway = Gateway::start(&machine);
    let evil = path_of(&machine, &["evil"]);
    let messages = [
        initialize("2025-11-25", &json!({})),
        tool_call(2, "exec", &json!({ "command": "which-one" })),
    ];
    let told = from_inside(&machine, &format!("PATH={evil}"), &messages);
    assert!(told.contains("\\n\\nfirst\""), "{told}");
    assert!(!told.contains("evil"), "{told}");
}

/// Answers the question for roots, which must be the next message.
fn answer_roots(client: &mut StdioClient<'_>, roots: &[&Path]) {
    let asked = client.receive();
    assert_eq!(asked["method"], "roots/list", "{asked}");
    let roots: Vec<Value> = roots
        .iter()
        .map(|root| json!({ "uri": format!("file://{}", root.display()) }))
        .collect();
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": roots } }));
}

fn pwd(client: &mut StdioClient<'_>, arguments: &Value, roots: &[&Path]) -> String {
    let id = client.ask(tool_call(0, "exec", arguments));
    if !roots.is_empty() {
        answer_roots(client, roots);
    }
    let answer = client.answer(id);
    output(&answer["result"]).to_owned()
}

fn canonical(path: &Path) -> String {
    path.canonicalize().unwrap().display().to_string()
}

#[test]
fn roots_of_the_owners_client_say_where_calls_start() {
    let machine = Machine::unguarded();
    let (one, two) = (machine.root().join("one"), machine.root().join("two"));
    std::fs::create_dir_all(one.join("inner")).unwrap();
    std::fs::create_dir_all(&two).unwrap();
    let roots = json!({ "roots": { "listChanged": true } });
    let mut client = StdioClient::begin(&machine, &[], &roots);
    let here = json!({ "command": "pwd" });
    assert_eq!(pwd(&mut client, &here, &[&one]), canonical(&one));
    // Asked for once; `workdir` is relative to it.
    let inner = json!({ "command": "pwd", "workdir": "inner" });
    assert_eq!(pwd(&mut client, &inner, &[]), canonical(&one.join("inner")));
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    client.send(&changed);
    assert_eq!(pwd(&mut client, &here, &[&two, &one]), canonical(&two));
    // Neither `/`, nor the home directory, nor what is not there is a workspace: the call starts where
    // the client is.
    let home = machine.root().join("home");
    let missing = machine.root().join("missing");
    for root in [Path::new("/"), machine.root(), &home, &missing] {
        client.send(&changed);
        let found = pwd(&mut client, &here, &[root]);
        assert_eq!(found, canonical(&machine.work()), "{root:?}");
    }
}

#[test]
fn roots_of_a_client_by_http_stay_within_the_agents_workspace() {
    let machine = Machine::unguarded();
    let workspace = machine.root().join("configured");
    std::fs::create_dir_all(workspace.join("inner")).unwrap();
    let configured = json!(workspace).to_string();
    machine.ok(&["config", "set", "agents.defaults.workspace", &configured]);
    let gateway = Gateway::start(&machine);
    for (root, expected) in [
        (machine.work(), workspace.clone()),
        (workspace.join("inner/../../work"), workspace.clone()),
        ("/".into(), workspace.clone()),
        (workspace.join("inner"), workspace.join("inner")),
    ] {
        let mut client = gateway.client(&gateway.token(&[]));
        client.initialize("2025-11-25", &json!({ "roots": {} }));
        let mut stream = client.open(&client.tool_call("exec", &json!({ "command": "pwd" })));
        let asked = stream.next_message();
        assert_eq!(asked["method"], "roots/list", "{asked}");
        let roots = json!([{ "uri": format!("file://{}", root.display()) }]);
        client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": roots } }));
        let answer = stream.next_message();
        assert_eq!(output(&answer["result"]), canonical(&expected), "{root:?}");
    }
}

fn listed(client: &mut StdioClient<'_>) -> (Vec<String>, u64) {
    let result = client.call("process", &json!({ "action": "list" }));
    let data = &result["structuredContent"];
    let sessions = data["sessions"].as_array().unwrap().iter();
    let ids = sessions.map(|one| one["sessionId"].as_str().unwrap().to_owned());
    let elsewhere = data["otherConversations"].as_u64().unwrap_or_default();
    (ids.collect(), elsewhere)
}

#[test]
fn each_client_is_a_conversation_of_its_own_unless_it_asks_for_one() {
    let machine = Machine::unguarded();
    let _gateway = Gateway::start(&machine);
    let sleeps = json!({ "command": "exec sleep 600", "background": true });
    let begin = |flags: &[&str]| {
        let mut all = vec!["--no-spawn"];
        all.extend(flags);
        StdioClient::begin(&machine, &all, &json!({}))
    };
    let (mut one, mut other) = (begin(&[]), begin(&[]));
    let started = one.call("exec", &sleeps);
    let id = started["structuredContent"]["sessionId"].as_str().unwrap();
    assert_eq!(listed(&mut one), (vec![id.to_owned()], 0));
    assert_eq!(listed(&mut other), (vec![], 1));
    // The same in the version without `initialize`, which has no sessions of its own.
    let mut newest = StdioClient::start(&machine, &["--no-spawn"]);
    let call = |client: &mut StdioClient<'_>, name: &str, arguments: &Value| {
        let id = client.ask(modern(tool_call(0, name, arguments), &json!({})));
        client.answer(id)["result"].clone()
    };
    let own = call(&mut newest, "exec", &sleeps);
    let all = call(&mut newest, "process", &json!({ "action": "list" }));
    let sessions = all["structuredContent"]["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "{all}");
    assert_eq!(
        sessions[0]["sessionId"],
        own["structuredContent"]["sessionId"]
    );
    // Two that ask for the same one share it.
    let (mut left, mut right) = (
        begin(&["--session-key", "shared"]),
        begin(&["--session-key", "agent:main:shared"]),
    );
    let shared = left.call("exec", &sleeps);
    let shared = shared["structuredContent"]["sessionId"].as_str().unwrap();
    assert_eq!(listed(&mut right).0, [shared]);
    // Another agent's conversation is not to be had.
    machine
        .run(&["mcp", "--no-spawn", "--session-key", "agent:other:main"])
        .refused(1, "GATEWAY_REFUSED");
}

#[test]
fn a_result_is_text_with_head_and_tail_and_data_without_the_output() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let mut client = StdioClient::begin(&machine, &["--no-spawn"], &json!({}));
    let numbers = json!({ "command": "seq 1 100000" });
    for most in [30_000, 2_000] {
        if most != 30_000 {
            let most = most.to_string();
            machine.ok(&["config", "set", "tools.exec.resultChars", &most]);
        }
        let result = client.call("exec", &numbers);
        let told = text(&result);
        let shown = told.chars().count();
        assert!(shown <= most && shown > most / 2, "{shown}");
        let status = told.lines().next().unwrap();
        assert!(status.starts_with("exit code 0, "), "{status}");
        let place = format!(", in {} on gateway", machine.work().display());
        assert!(status.ends_with(&place), "{status}");
        assert!(told.contains("\n\n1\n2\n3\n"), "{told}");
        assert!(told.contains("\n99999\n100000\n\n("), "{told}");
        let data = &result["structuredContent"];
        assert_eq!(data["totalBytes"], 588_895);
        let left_out = data["omittedBytes"].as_u64().unwrap();
        assert!(told.contains(&format!("[{left_out} bytes with ")), "{told}");
        assert!(told.contains(&format!(
            "({left_out} of 588895 bytes are left out; read them"
        )));
        assert!(!data.to_string().contains("99999"), "{data}");
        // The line that it names is where the gap begins, or the one before.
        let line = told.rsplit_once("offset ").unwrap().1;
        let line: u64 = line.trim_end_matches(')').parse().unwrap();
        let log = client.call(
            "process",
            &json!({ "action": "log", "sessionId": data["sessionId"], "offset": line, "limit": 2 }),
        );
        let lines = format!("{}\n{}", line + 1, line + 2);
        assert_eq!(output(&log), lines, "{log}");
        assert!(told.contains(&format!("\n{line}\n")), "{line}");
        assert!(
            !log["structuredContent"]
                .to_string()
                .contains(&lines.replace('\n', "\\n"))
        );
    }
    // A page of a transcript fits too, and says where the next one begins.
    let data = client.call("exec", &numbers)["structuredContent"].clone();
    let page = json!({ "action": "log", "sessionId": data["sessionId"], "offset": 0 });
    let log = client.call("process", &page);
    assert!(text(&log).chars().count() <= 2_000);
    let next = log["structuredContent"]["nextOffset"].as_u64();
    let next = next.unwrap_or_else(|| panic!("{log}"));
    assert!(output(&log).ends_with(&format!("\n{next}")), "{log}");
    // Programs at other transports get what they got before.
    let answer = gateway_invoke(&gateway, &numbers);
    let details = &answer["result"]["details"];
    assert!(details["aggregated"].as_str().unwrap().len() > 100_000);
    let failed = gateway_invoke(&gateway, &json!({ "command": "echo x; exit 3" }));
    assert_eq!(
        failed["result"]["content"][0]["text"],
        "x\n\n(Command exited with code 3)"
    );
}

fn gateway_invoke(gateway: &Gateway<'_>, arguments: &Value) -> Value {
    let body = json!({ "tool": "exec", "args": arguments }).to_string();
    let request = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
         Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.port,
        gateway.token(&[]),
        body.len()
    );
    let reply = testkit::mcp::raw(gateway.port, request.as_bytes());
    serde_json::from_str(&reply.body).unwrap()
}

#[test]
fn the_first_line_says_how_a_command_ended_or_that_it_goes_on() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    for (arguments, begins, status) in [
        (json!({ "command": "exit 3" }), "exit code 3, ", "completed"),
        (
            json!({ "command": "kill -KILL $$" }),
            "ended by SIGKILL, ",
            "failed",
        ),
        (
            json!({ "command": "exec sleep 600", "timeout": 0.2 }),
            "timed out and ended, ",
            "failed",
        ),
        (
            json!({ "command": "exec sleep 600", "background": true }),
            "still running, session ",
            "running",
        ),
    ] {
        let result = client.call("exec", &arguments);
        assert!(text(&result).starts_with(begins), "{result}");
        assert_eq!(result["structuredContent"]["status"], status);
    }
    let result = client.call("exec", &json!({ "command": "true" }));
    assert_eq!(output(&result), "(no output)");
    let refused = client.call("exec", &json!({ "command": "echo $(", "host": "sandbox" }));
    assert!(
        text(&refused).starts_with("denied (SANDBOX_UNAVAILABLE): "),
        "{refused}"
    );
}

/// A client of the newest protocol version closes the connection of a request as soon as it has the
/// result. Before that, the same cancels the call.
#[test]
fn a_background_run_outlives_the_connection_that_started_it() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&[])).newest();
    let sleeps = json!({ "command": "exec sleep 600", "background": true });
    let runs = 20;
    for _ in 0..runs {
        let started = client.call("exec", &sleeps);
        assert_eq!(started["structuredContent"]["status"], "running");
    }
    // An answer of the gateway that comes after all that the calls have left to do.
    let listed = machine.ok(&["process", "list", "--json"]).stdout;
    let running = listed.matches("\"running\"").count();
    assert_eq!(running, runs, "{listed}");
}

/// Some clients show their model the data of a result instead of its text.
#[test]
fn clients_that_would_hide_the_text_get_the_text_alone() {
    let machine = Machine::unguarded();
    let _gateway = Gateway::start(&machine);
    for (name, has_data) in [
        ("claude-code", false),
        ("codex-mcp-client", false),
        ("Visual Studio Code", false),
        ("opencode", true),
        ("gemini-cli-mcp-client", true),
    ] {
        let mut client = StdioClient::start(&machine, &["--no-spawn"]);
        let mut hello = initialize("2025-11-25", &json!({}));
        hello["params"]["clientInfo"]["name"] = name.into();
        client.send(&hello);
        client.receive();
        let list = json!({ "jsonrpc": "2.0", "method": "tools/list", "params": {} });
        let id = client.ask(list);
        let tools = client.answer(id)["result"]["tools"].clone();
        for tool in tools.as_array().unwrap() {
            assert_eq!(tool["outputSchema"].is_object(), has_data, "{name}");
        }
        let result = client.call("exec", &json!({ "command": "echo hello" }));
        assert_eq!(output(&result), "hello");
        assert_eq!(result["structuredContent"].is_object(), has_data, "{name}");
    }
}

fn asked(command: &str) -> Value {
    json!({ "command": command, "ask": "always" })
}

#[test]
fn a_denial_tells_the_approvers_words_once() {
    const WORDS: &str = "use the staging host instead";
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    let id = client.ask(tool_call(0, "exec", &asked("echo waits")));
    eventually("it is asked", || !machine.pending_ids().is_empty());
    let short = machine.pending_ids().remove(0);
    let decided = machine.ok(&["approvals", "deny", &short, "--reason", WORDS, "--json"]);
    assert_eq!(decided.json()["reason"], WORDS);
    let result = client.answer(id)["result"].clone();
    assert_eq!(result.to_string().matches(WORDS).count(), 1, "{result}");
    let told = text(&result);
    assert!(told.starts_with("denied (APPROVAL_DENIED): "), "{told}");
    let next = client.call("exec", &json!({ "command": "echo next" }));
    assert!(!next.to_string().contains(WORDS), "{next}");

    // A caller that went on reads it with its next result.
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "1"]);
    let pending = client.call("exec", &asked("echo later"));
    assert_eq!(pending["structuredContent"]["status"], "approval-pending");
    let short = machine.pending_ids().remove(0);
    let odd = format!("{WORDS}\n\u{1b}[2J");
    machine.ok(&["approvals", "deny", &short, "--reason", &odd]);
    let next = client.call("exec", &json!({ "command": "echo next" }));
    assert_eq!(next.to_string().matches(WORDS).count(), 1, "{next}");
    assert!(!text(&next).contains('\u{1b}'), "{next}");
    let after = client.call("exec", &json!({ "command": "echo next" }));
    assert!(!after.to_string().contains(WORDS), "{after}");
    let records = machine.ok(&["audit", "log", "--kind", "decision", "--json"]);
    let records = records.json()["records"].as_array().unwrap().clone();
    assert_eq!(records[0]["body"]["reason"], WORDS);
}

#[test]
fn an_operator_denies_with_words_over_the_gateway() {
    const WORDS: &str = "not on a Friday";
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = StdioClient::begin(&machine, &["--no-spawn"], &json!({}));
    let id = client.ask(tool_call(0, "exec", &asked("echo waits")));
    eventually("it is asked", || !machine.pending_ids().is_empty());
    let mut operator = gateway.connect_locally(&["operator.approvals"]);
    let listed = operator.ok("exec.approval.list", &json!({}));
    let approval = listed[0]["id"].clone();
    operator.ok(
        "exec.approval.resolve",
        &json!({ "id": approval, "decision": "deny", "reason": WORDS }),
    );
    let result = client.answer(id)["result"].clone();
    assert_eq!(result.to_string().matches(WORDS).count(), 1, "{result}");
}

/// The model is told which text is asked about, before it writes any.
#[test]
fn the_description_says_which_commands_need_no_prompt() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    let id = client.ask(json!({ "jsonrpc": "2.0", "method": "tools/list", "params": {} }));
    let tools = client.answer(id)["result"]["tools"].clone();
    let described = tools[0]["description"].as_str().unwrap();
    for word in ["Plain commands", "$(...)", "2>&1", "workdir", "git status"] {
        assert!(described.contains(word), "{word}: {described}");
    }
    assert!(described.len() < 1_200, "{}", described.len());
}

#[test]
fn hints_for_an_agent_name_the_tools_and_no_command_line() {
    let machine = Machine::unguarded();
    let _gateway = Gateway::start(&machine);
    let mut client = StdioClient::begin(&machine, &["--no-spawn"], &json!({}));
    let started = client.call(
        "exec",
        &json!({ "command": "sleep 30", "background": true }),
    );
    let id = &started["structuredContent"]["sessionId"];
    for (call, hint) in [
        (
            json!({ "action": "log", "sessionId": "no-such" }),
            "process, action list",
        ),
        (
            json!({ "action": "screen", "sessionId": id }),
            "exec with pty true",
        ),
        (
            json!({ "action": "write", "sessionId": id, "data": "x" }),
            "exec with stdin pipe",
        ),
        (
            json!({ "action": "clear", "sessionId": id }),
            "process, action remove",
        ),
    ] {
        let result = client.call("process", &call);
        assert!(text(&result).contains(hint), "{result:#}");
        assert!(!text(&result).contains("interlock "), "{result:#}");
    }
    client.call("process", &json!({ "action": "kill", "sessionId": id }));
}
