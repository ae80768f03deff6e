//! A node and its gateway: how it introduces itself, when it gives up, and how it comes back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use interlock_wire::{ErrorCode, Frame, WireError, refusal};
use serde_json::{Value, json};
use testkit::gateway_stand_in::{DEVICE_TOKEN, Node, Pair, StandIn, TOKEN, sha256_hex};
use testkit::{Machine, eventually};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};
use tokio_tungstenite::tungstenite::Message;

fn status(machine: &Machine) -> Value {
    machine.run(&["node", "status", "--json"]).json()
}

#[test]
fn a_node_introduces_itself_as_gateways_expect_and_keeps_its_identity() {
    let machine = Machine::unguarded();
    let stand_in = StandIn::new();
    let flags = ["--display-name", "a machine", "--node-id", "installation-1"];
    let node = Node::start_with(&machine, &stand_in, &flags);
    let link = stand_in.welcome();
    let connect = serde_json::to_value(&link.connect).unwrap();
    assert_eq!(
        connect["client"],
        json!({
            "id": "node-host", "version": env!("CARGO_PKG_VERSION"), "platform": "linux", "mode": "node",
            "displayName": "a machine", "deviceFamily": "Linux", "instanceId": "installation-1",
        })
    );
    assert_eq!(connect["role"], "node");
    assert_eq!(connect["scopes"], json!([]));
    assert_eq!(connect["caps"], json!(["system", "interlock"]));
    assert_eq!(
        connect["commands"],
        json!([
            "system.run.prepare",
            "system.run",
            "system.which",
            "system.execApprovals.get",
            "system.execApprovals.set"
        ])
    );
    assert_eq!(connect["auth"], json!({ "token": TOKEN }));
    assert_eq!(
        (&connect["minProtocol"], &connect["maxProtocol"]),
        (&json!(3), &json!(4))
    );
    let path = connect["pathEnv"].as_str().unwrap();
    assert!(path.contains("/usr/bin"), "{path}");

    eventually("it is connected", || {
        status(&machine)["standing"] == "connected"
    });
    let identity = machine.state().join("identity");
    for name in ["device.json", "device-auth.json"] {
        let mode = fs::metadata(identity.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let auth: Value =
        serde_json::from_slice(&fs::read(identity.join("device-auth.json")).unwrap()).unwrap();
    let gateway = format!("127.0.0.1:{}", stand_in.port());
    assert_eq!(auth["gateways"][&gateway]["token"], DEVICE_TOKEN);
    assert_eq!(auth["deviceId"], link.device_id);
    let first = link.device_id.clone();
    assert_eq!(node.stop().code, 0);
    assert_eq!(status(&machine)["running"], false);

    // Later the token of the device is enough, and the names stay.
    let node = Node::spawn(&machine, &stand_in, &[], None);
    let link = stand_in.welcome();
    let connect = serde_json::to_value(&link.connect).unwrap();
    assert_eq!(connect["auth"], json!({ "deviceToken": DEVICE_TOKEN }));
    assert_eq!(connect["client"]["instanceId"], "installation-1");
    assert_eq!(connect["client"]["displayName"], "a machine");
    assert_eq!(link.device_id, first);
    let said = node.stop().stderr;
    assert!(
        !said.contains(DEVICE_TOKEN) && !said.contains(TOKEN),
        "{said}"
    );
}

#[test]
fn what_a_gateway_gave_is_not_shown_to_another_and_not_replaced_by_it() {
    let machine = Machine::unguarded();
    let (first, second) = (StandIn::new(), StandIn::new());
    let node = Node::start(&machine, &first);
    drop(first.welcome());
    node.stop();
    let node = Node::spawn(&machine, &second, &[], None);
    let guest = second.meet();
    assert_eq!(guest.connect.auth, None);
    drop(guest.welcome_with("token-of-another-gateway"));
    drop(second.meet());
    node.stop();
    let node = Node::spawn(&machine, &first, &[], None);
    let auth = serde_json::to_value(first.meet().connect.auth).unwrap();
    assert_eq!(auth, json!({ "deviceToken": DEVICE_TOKEN }));
    node.stop();
}

#[test]
fn a_fingerprint_in_the_config_means_tls() {
    let machine = Machine::unguarded();
    let pin = "ab".repeat(32);
    machine.ok(&["config", "set", "gateway.remote.tlsFingerprint", &pin]);
    let stand_in = StandIn::new();
    let node = Node::start(&machine, &stand_in);
    let mut first = [0];
    let mut stream = stand_in.accept_stream();
    std::io::Read::read_exact(&mut stream, &mut first).unwrap();
    assert_eq!(first, [0x16], "not the beginning of a handshake");
    let url = status(&machine)["gateway"].to_string();
    assert!(url.starts_with("\"wss://"), "{url}");
    node.stop();
}

#[test]
fn the_token_may_come_from_a_file_that_the_config_names() {
    let machine = Machine::unguarded();
    let file = machine.file("home/token", "of-the-file\n");
    let path = file.display().to_string();
    machine.ok(&["config", "set", "gateway.remote.tokenFile", &path]);
    let stand_in = StandIn::new();
    let _node = Node::spawn(&machine, &stand_in, &[], None);
    let auth = serde_json::to_value(stand_in.meet().connect.auth).unwrap();
    assert_eq!(auth, json!({ "token": "of-the-file" }));
}

#[test]
fn a_password_is_shown_to_gateways_that_ask_for_one() {
    let machine = Machine::unguarded();
    let file = machine.file("home/password", "of-the-file\n");
    let path = file.display().to_string();
    machine.ok(&["config", "set", "gateway.remote.passwordFile", &path]);
    let stand_in = StandIn::new();
    let _node = Node::spawn(&machine, &stand_in, &[], None);
    let auth = serde_json::to_value(stand_in.meet().connect.auth).unwrap();
    assert_eq!(auth, json!({ "password": "of-the-file" }));
}

#[test]
fn a_wrong_shared_token_gives_way_once_to_the_token_of_the_device() {
    let machine = Machine::unguarded();
    let stand_in = StandIn::new();
    let node = Node::start(&machine, &stand_in);
    drop(stand_in.welcome());
    node.stop();
    let refused = |can_retry: bool| {
        refusal::AUTH_TOKEN_MISMATCH
            .error()
            .with("canRetryWithDeviceToken", can_retry)
    };
    let auth = |guest: &testkit::gateway_stand_in::Guest| {
        serde_json::to_value(&guest.connect.auth).unwrap()
    };
    let node = Node::spawn(&machine, &stand_in, &[], Some("an-old-token"));
    let guest = stand_in.meet();
    assert_eq!(auth(&guest), json!({ "token": "an-old-token" }));
    guest.refuse(refused(true));
    let guest = stand_in.meet();
    assert_eq!(auth(&guest), json!({ "deviceToken": DEVICE_TOKEN }));
    let mut link = guest.welcome();
    assert!(link.invoke("system.which", &json!({ "bins": [] })).ok);
    drop(link);
    // And again after the connection was lost; refused, it is over.
    let guest = stand_in.meet();
    assert_eq!(auth(&guest), json!({ "deviceToken": DEVICE_TOKEN }));
    guest.refuse(refused(true));
    assert_eq!(node.wait().code, 78);

    let node = Node::spawn(&machine, &stand_in, &[], Some("an-old-token"));
    stand_in.meet().refuse(refused(false));
    assert_eq!(node.wait().code, 78);
}

#[test]
fn a_device_token_that_was_rotated_is_taken_from_a_file_and_kept() {
    let machine = Machine::unguarded();
    let stand_in = StandIn::new();
    let file = machine.file("home/rotated", "a-new-token\n");
    let path = file.display().to_string();
    let flags = ["--device-token-file", &path];
    for flags in [&flags[..], &[]] {
        let node = Node::spawn(&machine, &stand_in, flags, None);
        let guest = stand_in.meet();
        let auth = serde_json::to_value(&guest.connect.auth).unwrap();
        assert_eq!(auth, json!({ "deviceToken": "a-new-token" }));
        drop(guest);
        node.stop();
    }
}

#[test]
fn a_refusal_for_good_ends_the_node_with_78_and_says_what_to_do() {
    let machine = Machine::unguarded();
    for (refusal, hint) in [
        (&refusal::AUTH_TOKEN_MISMATCH, "INTERLOCK_GATEWAY_TOKEN"),
        (
            &refusal::AUTH_DEVICE_TOKEN_MISMATCH,
            "INTERLOCK_GATEWAY_TOKEN",
        ),
        (&refusal::PROTOCOL_MISMATCH, "update"),
        (&refusal::DEVICE_AUTH_SIGNATURE_INVALID, "log"),
    ] {
        let stand_in = StandIn::new();
        let node = Node::start(&machine, &stand_in);
        stand_in.meet().refuse(refusal.error());
        let run = node.wait();
        assert_eq!(run.code, 78, "{run:#?}");
        assert!(run.stderr.contains("error[GATEWAY_REFUSED]"), "{run:#?}");
        assert!(run.stderr.contains(refusal.message), "{run:#?}");
        assert!(run.stderr.contains(hint), "{run:#?}");
        assert!(!run.stderr.contains(TOKEN), "{run:#?}");
    }
}

#[test]
fn a_node_that_is_not_paired_waits_and_shows_the_command_for_the_operator() {
    let machine = Machine::unguarded();
    let stand_in = StandIn::new();
    let node = Node::start(&machine, &stand_in);
    let required = || {
        WireError::new(
            ErrorCode::NOT_PAIRED,
            "pairing required: device is not approved yet",
        )
        .with("code", "PAIRING_REQUIRED")
        .with("requestId", "request-7")
    };
    stand_in.meet().refuse(required());
    eventually("the request is shown", || {
        status(&machine)["pairingRequest"] == "request-7"
    });
    assert_eq!(status(&machine)["standing"], "pairing-required");
    stand_in.meet().refuse(required());
    let _link = stand_in.welcome();
    eventually("it is connected", || {
        status(&machine)["standing"] == "connected"
    });
    let said = node.stop().stderr;
    let command = "interlock devices approve request-7";
    assert_eq!(said.matches(command).count(), 1, "{said}");
    assert!(said.matches("connecting").count() >= 3, "{said}");
}

#[test]
fn a_gateway_that_is_starting_or_refuses_for_now_is_tried_again() {
    let machine = Machine::unguarded();
    let stand_in = StandIn::new();
    let _node = Node::start(&machine, &stand_in);
    stand_in
        .meet()
        .refuse(refusal::STARTING.error().retry_after(10));
    stand_in.meet().refuse(refusal::AUTH_RATE_LIMITED.error());
    let mut link = stand_in.welcome();
    assert!(link.invoke("system.which", &json!({ "bins": [] })).ok);
}

#[test]
fn plain_text_beyond_private_networks_is_refused_before_anything_is_sent() {
    let machine = Machine::unguarded();
    let run = machine.run(&["node", "run", "--host", "gateway.example.org"]);
    run.refused(2, "PLAINTEXT_REFUSED");
    assert!(run.stderr.contains("--tls-fingerprint"), "{run:#?}");
    let run = machine.run(&["node", "run", "--host", "a", "--tls"]);
    run.refused(2, "FINGERPRINT_MISSING");
    let run = machine.run(&[
        "node",
        "run",
        "--host",
        "a",
        "--tls",
        "--tls-fingerprint",
        "ab",
    ]);
    run.refused(2, "FINGERPRINT_INVALID");
}

#[test]
fn over_tls_only_the_certificate_with_the_fingerprint_is_talked_to() {
    let certified = rcgen::generate_simple_self_signed(vec!["gateway".to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut stand_in = StandIn::new();
    stand_in.tls = Some(Arc::new(config));
    let machine = Machine::unguarded();
    let fingerprint = sha256_hex(&certificate);
    let flags = ["--tls", "--tls-fingerprint", &fingerprint];
    let node = Node::start_with(&machine, &stand_in, &flags);
    let mut link = stand_in.welcome();
    let which = link.invoke("system.which", &json!({ "bins": ["sh"] })).ok();
    assert!(which.payload["bins"]["sh"].is_string());
    node.stop();

    let wrong = "00".repeat(32);
    let flags = ["--tls", "--tls-fingerprint", &wrong];
    let node = Node::start_with(&machine, &stand_in, &flags);
    let stream = stand_in.accept_stream();
    let connection =
        tokio_rustls::rustls::ServerConnection::new(stand_in.tls.clone().unwrap()).unwrap();
    let mut tls = tokio_rustls::rustls::StreamOwned::new(connection, stream);
    let mut byte = [0];
    let read = std::io::Read::read(&mut tls, &mut byte);
    assert!(!matches!(read, Ok(1)), "something was sent");
    let said = node.stop().stderr;
    assert!(said.contains("cannot be reached"), "{said}");
}

#[test]
fn what_a_node_does_not_know_is_answered_or_passed_over() {
    let mut pair = Pair::open();
    let link = &mut pair.link;
    for text in [
        "not JSON",
        "{}",
        r#"{"type":"event","event":"voicewake.changed","payload":{"x":1}}"#,
        r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":1}"#,
        r#"{"type":"event","event":"of.the.future","extra":1}"#,
        r#"{"type":"res","id":"unrelated","ok":true}"#,
        r#"{"type":"req","id":"1","method":"node.list"}"#,
        r#"{"type":"event","event":"node.invoke.request","payload":{"id":1}}"#,
    ] {
        link.send(text);
    }
    let done = link.invoke("camera.snap", &json!({}));
    done.refused("UNAVAILABLE", "command not supported");
    assert!(done.events.is_empty());
    for (params, why) in [
        (Value::Null, "paramsJSON required"),
        (json!("{"), "malformed JSON"),
        (json!("{}"), "bins required"),
    ] {
        link.begin("x", "system.which", &params);
        let message = format!("Error: INVALID_REQUEST: {why}");
        link.end("x").refused("INVALID_REQUEST", &message);
    }
    // An object in place of its text is taken.
    link.begin(
        "y",
        "system.which",
        &json!({ "bins": ["sh", "/bin/sh", "no-such-program"] }),
    );
    let found = link.end("y").ok().payload;
    let names: Vec<&String> = found["bins"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["sh"]);
    assert!(found["bins"]["sh"].as_str().unwrap().ends_with("/sh"));
}

#[test]
fn pings_are_answered() {
    let mut pair = Pair::open();
    let ping = Message::Ping(b"there?".to_vec().into());
    pair.link.socket.send(ping).unwrap();
    assert_eq!(pair.link.next(), Message::Pong(b"there?".to_vec().into()));
}

#[test]
fn a_gateway_that_says_nothing_for_two_ticks_is_left_and_tried_again() {
    let machine = Machine::unguarded();
    let mut stand_in = StandIn::new();
    stand_in.tick_ms = 100;
    let node = Node::start(&machine, &stand_in);
    let silent = stand_in.welcome();
    let again = stand_in.welcome();
    drop((silent, again));
    let said = node.stop().stderr;
    assert!(said.contains("nothing was heard for 200 ms"), "{said}");
}

#[test]
fn a_result_is_kept_while_the_connection_is_lost() {
    let mut pair = Pair::open();
    let (begun, gate) = (
        pair.machine.work().join("begun"),
        pair.machine.root().join("gate"),
    );
    let text = format!(
        "echo begun | tee {}; while [ ! -e {} ]; do sleep 0.02; done; echo ended",
        begun.display(),
        gate.display()
    );
    let call = json!({ "command": ["/bin/sh", "-lc", text], "runId": "long" });
    pair.link
        .begin("i1", "system.run", &Value::String(call.to_string()));
    assert_eq!(testkit::written(&begun), "begun\n");
    drop(pair.link);
    let mut link = pair.stand_in.welcome();
    fs::write(&gate, "").unwrap();
    let done = link.end("i1").ok();
    assert_eq!(done.payload["stdout"], "begun\nended\n");
    assert_eq!(link.order, ["node.event", "node.invoke.result"]);
    // The same once more, on the new connection: it was executed.
    link.run(&call).refused(
        "UNAVAILABLE",
        "SYSTEM_RUN_DENIED: run id was used already; it is not run again",
    );
}

#[test]
fn an_event_that_was_not_answered_is_told_again_before_its_result() {
    let mut pair = Pair::open();
    let call = json!({ "command": ["echo", "hello"], "runId": "r" });
    pair.link
        .begin("i1", "system.run", &Value::String(call.to_string()));
    let Frame::Request(event) = testkit::gateway_stand_in::frame(&mut pair.link.socket) else {
        panic!("no event");
    };
    assert_eq!(event.method, "node.event");
    drop(pair.link);
    let mut link = pair.stand_in.welcome();
    let done = link.end("i1").ok();
    assert_eq!(done.events.len(), 1);
    assert_eq!(done.payload["stdout"], "hello\n");
}

#[test]
fn one_node_runs_for_a_state_directory() {
    let pair = Pair::open();
    let port = pair.stand_in.port();
    let second = pair
        .machine
        .run(&["node", "run", "--host", "127.0.0.1", "--port", &port]);
    second.refused(1, "NODE_RUNS_ALREADY");
    assert!(
        second.stderr.contains(&pair.node.pid().to_string()),
        "{second:#?}"
    );
    let status = status(&pair.machine);
    assert_eq!(status["pid"], pair.node.pid());
    assert_eq!(status["deviceId"], pair.link.device_id);
    assert_eq!(status["node"]["gateway"]["host"], "127.0.0.1");
}

#[test]
fn a_run_cannot_start_a_node() {
    let mut pair = Pair::open();
    let other = pair.machine.root().join("home/other");
    let text = format!(
        "{} --state-dir {} node run --host 127.0.0.1 --port 1",
        crate::BINARY,
        other.display()
    );
    let done = pair.link.run_text(&text).ok();
    assert_eq!(done.payload["exitCode"], 1, "{done:#?}");
    let said = done.payload["stderr"].as_str().unwrap();
    assert!(said.contains("DECISION_FROM_RUN"), "{said}");
}
