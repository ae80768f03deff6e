//! The gateway's port with TLS: its certificate, those who speak it, and those who do not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::Machine;
use testkit::mcp::{Reply, StdioClient, initialize};
use testkit::tls::{Certified, ask, certificate, connect};
use testkit::ws::{EVERYTHING, Gateway};

const ON: &str = "{ gateway: { tls: { enabled: true } } }";

/// Every program may run, and the port speaks TLS.
fn machine() -> Machine {
    let machine = Machine::open();
    machine.write_config(ON);
    machine
}

fn status(machine: &Machine) -> Value {
    machine.ok(&["gateway", "status", "--json"]).json()
}

fn kept(machine: &Machine) -> tokio_rustls::rustls::pki_types::CertificateDer<'static> {
    certificate(&machine.state().join("gateway-cert.pem"))
}

/// What a phone or a program is to trust.
fn authority(machine: &Machine) -> tokio_rustls::rustls::pki_types::CertificateDer<'static> {
    certificate(&machine.state().join("gateway-ca.pem"))
}

fn request(gateway: &Gateway, path: &str, host: &str, more: &str, body: &str) -> Vec<u8> {
    let method = if body.is_empty() { "GET" } else { "POST" };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\
         Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.token,
        body.len()
    )
    .into_bytes()
}

fn call(machine: &Machine, gateway: &Gateway, path: &str, more: &str, body: &str) -> Reply {
    let mut stream = connect(gateway.port, "localhost", &authority(machine));
    ask(
        &mut stream,
        &request(gateway, path, "localhost", more, body),
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

#[test]
fn a_certificate_is_made_once_and_kept_and_its_fingerprint_told() {
    let machine = machine();
    let gateway = machine.gateway();
    let told = status(&machine);
    let expected = hex(&Sha256::digest(kept(&machine)));
    assert_eq!(told["tlsFingerprint"], expected.as_str(), "{told}");
    assert_eq!(told["url"], format!("https://127.0.0.1:{}", gateway.port));
    let shown = machine.ok(&["gateway", "status"]).stdout;
    assert!(
        shown.contains(&format!("--tls --tls-fingerprint {expected}")),
        "{shown}"
    );
    let key = machine.state().join("gateway-key.pem");
    let mode = fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = fs::read(&key).unwrap();
    gateway.stop();
    let _again = machine.gateway();
    assert_eq!(status(&machine)["tlsFingerprint"], expected.as_str());
    assert_eq!(fs::read(&key).unwrap(), before);
}

#[test]
fn http_mcp_and_websocket_are_spoken_inside() {
    let machine = machine();
    let gateway = machine.gateway();
    assert_eq!(call(&machine, &gateway, "/healthz", "", "").status, 200);
    let exec = json!({ "tool": "exec", "args": { "command": "echo inside" } }).to_string();
    let reply = call(&machine, &gateway, "/tools/invoke", "", &exec);
    let answer: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(answer["result"]["details"]["aggregated"], "inside\n");
    let hello = initialize("2025-11-25", &json!({})).to_string();
    let reply = call(&machine, &gateway, "/mcp", "", &hello);
    assert_eq!(reply.result()["protocolVersion"], "2025-11-25");
    let stream = connect(gateway.port, "127.0.0.1", &authority(&machine));
    let mut client = gateway.join(Box::new(stream), EVERYTHING);
    let call = json!({ "name": "exec", "args": { "command": "echo socket" } });
    let answer = client.ok("tools.invoke", &call);
    assert_eq!(answer["output"]["details"]["aggregated"], "socket\n");
}

#[test]
fn clients_of_the_unix_socket_notice_nothing() {
    let machine = machine();
    let gateway = machine.gateway();
    let mut local = gateway.connect_locally(EVERYTHING);
    assert!(local.ok("health", &json!({})).is_object());
    machine.ok(&["nodes", "list", "--json"]);
    machine.ok(&["devices", "list", "--json"]);
    assert_eq!(machine.exec("echo hello").stdout, "hello\n");
    let mut client = StdioClient::begin(&machine, &["--no-spawn"], &json!({}));
    let result = client.call("exec", &json!({ "command": "echo mcp" }));
    assert_eq!(testkit::mcp::output(&result), "mcp", "{result}");
    drop(client);
    machine.ok(&["gateway", "stop"]);
}

/// Common programs, with no code of Interlock in them.
#[test]
fn curl_and_python_take_the_kept_certificate() {
    let machine = machine();
    let gateway = machine.gateway();
    let file = machine.state().join("gateway-cert.pem");
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{}/healthz", gateway.port);
        if Path::new("/usr/bin/curl").exists() {
            let output = Command::new("/usr/bin/curl")
                .args(["--silent", "--show-error", "--noproxy", "*", "--cacert"])
                .arg(&file)
                .arg(&url)
                .output()
                .unwrap();
            assert!(output.stdout.starts_with(b"{\"ok\":true"), "{output:?}");
            let distrusting = Command::new("/usr/bin/curl")
                .args(["--silent", "--noproxy", "*", &url])
                .output()
                .unwrap();
            assert!(!distrusting.status.success(), "{distrusting:?}");
        } else {
            println!("skipped: no curl");
        }
        let program = "import ssl, sys, urllib.request as r\n\
             c = ssl.create_default_context(cafile=sys.argv[1])\n\
             o = r.build_opener(r.ProxyHandler({}), r.HTTPSHandler(context=c))\n\
             print(o.open(sys.argv[2]).read().decode())";
        match Command::new("python3")
            .args(["-c", program])
            .arg(&file)
            .arg(&url)
            .output()
        {
            Ok(output) => assert!(output.stdout.starts_with(b"{\"ok\":true"), "{output:?}"),
            Err(error) => println!("skipped: no python3: {error}"),
        }
    }
}

#[test]
fn a_plain_caller_gets_an_answer_and_harms_no_other() {
    let machine = machine();
    let gateway = machine.gateway();
    let plain = testkit::mcp::raw(
        gateway.port,
        &request(&gateway, "/tools/invoke", "localhost", "", "{}"),
    );
    assert_eq!(plain.status, 400, "{plain:?}");
    assert!(plain.body.contains("speaks TLS"), "{plain:?}");
    // Bytes of no protocol, half a record, and one that promises more than it has.
    for bytes in [
        &b"\0\0\0\0"[..],
        b"\x16",
        b"\x16\x03\x01\xff\xff\x01",
        b"\x16\x03\x01\0\x05hello",
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 2"), "{bytes:?}");
    }
    assert_eq!(call(&machine, &gateway, "/healthz", "", "").status, 200);
}

/// Neither those who say nothing nor those who stop halfway keep others out, and they have to go.
#[test]
fn slow_callers_keep_no_other_out_and_are_sent_away() {
    let machine = machine();
    let gateway = machine.gateway();
    let slow: Vec<TcpStream> = (0..64)
        .map(|number| {
            let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"\x16\x03\x01\x02\0\x01").unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(call(&machine, &gateway, "/healthz", "", "").status, 200);
    for mut stream in slow {
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        let is_closed = read.is_ok_and(|_| rest.is_empty());
        assert!(is_closed, "it was neither served nor sent away: {rest:?}");
    }
}

#[test]
fn pages_of_other_sites_are_kept_out() {
    let machine = machine();
    let gateway = machine.gateway();
    let body = json!({ "tool": "process", "args": { "action": "list" } }).to_string();
    let with = |host: &str, more: &str| {
        let mut stream = connect(gateway.port, "localhost", &authority(&machine));
        let request = request(&gateway, "/tools/invoke", host, more, &body);
        ask(&mut stream, &request).status
    };
    assert_eq!(with("localhost", "Origin: https://localhost\r\n"), 200);
    assert_eq!(with("localhost", "Origin: http://localhost\r\n"), 403);
    assert_eq!(with("localhost", "Origin: https://evil.example\r\n"), 403);
    assert_eq!(with("evil.example", ""), 403);
}

#[test]
fn a_port_that_other_machines_reach_in_plain_text_says_so() {
    for (tls, is_told) in [("{}", true), ("{ enabled: true }", false)] {
        let machine = Machine::open();
        machine.write_config(&format!("{{ gateway: {{ bind: 'lan', tls: {tls} }} }}"));
        let gateway = machine.gateway();
        let log = fs::read_to_string(&gateway.log).unwrap();
        assert_eq!(log.contains("in plain text, tokens too"), is_told, "{log}");
    }
}

/// Writes files for `gateway.tls` and the config that names them.
fn own_files(machine: &Machine, certificate: &str, key: &str) {
    machine.file("home/cert.pem", certificate);
    let key = machine.file("home/key.pem", key);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    machine.write_config(
        "{ gateway: { tls: { enabled: true, certPath: '~/cert.pem', keyPath: '~/key.pem' } } }",
    );
}

#[test]
fn the_owners_certificate_is_shown_with_its_chain_and_its_names_are_this_machines() {
    let machine = Machine::open();
    let certified = Certified::for_names(&["gateway.example"]);
    own_files(&machine, &certified.chain_pem(), &certified.key_pem());
    let gateway = machine.gateway();
    let expected = hex(&Sha256::digest(&certified.certificate));
    assert_eq!(status(&machine)["tlsFingerprint"], expected.as_str());
    assert!(!machine.state().join("gateway-key.pem").exists());
    let mut stream = connect(gateway.port, "gateway.example", &certified.authority);
    let reply = ask(
        &mut stream,
        &request(&gateway, "/healthz", "gateway.example", "", ""),
    );
    assert_eq!(reply.status, 200);
    let sent = stream.conn.peer_certificates().unwrap();
    assert_eq!(sent.len(), 2, "the chain is sent");
    let mut stream = connect(gateway.port, "gateway.example", &certified.authority);
    let reply = ask(
        &mut stream,
        &request(&gateway, "/healthz", "other.example", "", ""),
    );
    assert_eq!(reply.status, 403);
}

#[test]
fn an_expired_certificate_is_told_of_at_the_start() {
    let machine = Machine::open();
    let certified = Certified::with(&["localhost"], |parameters| {
        parameters.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    own_files(&machine, &certified.chain_pem(), &certified.key_pem());
    let gateway = machine.gateway();
    let log = fs::read_to_string(&gateway.log).unwrap();
    assert!(log.contains("the certificate has expired"), "{log}");
    let mut stream = connect(gateway.port, "localhost", &certified.authority);
    let refused = stream.write_all(b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
}

#[test]
fn files_that_cannot_be_used_are_named_before_anything_listens() {
    let machine = Machine::open();
    let (one, other) = (
        Certified::for_names(&["localhost"]),
        Certified::for_names(&["localhost"]),
    );
    let refused = |expected: &str| {
        let run = machine.run(&["gateway", "run", "--port", "0"]);
        run.refused(1, "TLS_UNUSABLE");
        assert!(run.stderr.contains(expected), "{expected}: {run:#?}");
        assert!(run.stderr.contains("hint: "), "{run:#?}");
    };
    let set = |tls: &str| machine.write_config(&format!("{{ gateway: {{ tls: {tls} }} }}"));
    set("{ enabled: true, certPath: '/no/such/cert.pem', keyPath: '/no/such/key.pem' }");
    refused("/no/such/cert.pem: No such file");
    set("{ enabled: true, certPath: '~/cert.pem' }");
    refused("gateway.tls.certPath is set, and gateway.tls.keyPath is not");
    set("{ enabled: true, keyPath: '~/key.pem' }");
    refused("gateway.tls.keyPath is set, and gateway.tls.certPath is not");
    set("{ enabled: true, autoGenerate: false }");
    refused("names no certificate");
    own_files(&machine, "not a certificate", &one.key_pem());
    refused("cert.pem: holds no certificate in PEM form");
    own_files(&machine, &one.chain_pem(), &one.chain_pem());
    refused("key.pem: holds no private key in PEM form");
    own_files(&machine, &one.chain_pem(), &other.key_pem());
    refused("key.pem is not the key of the certificate in");
    own_files(
        &machine,
        &one.chain_pem().replace("\n-----END", "!\n-----END"),
        &one.key_pem(),
    );
    refused("cert.pem: not PEM: a section is not base64");
    own_files(&machine, &one.chain_pem(), &one.key_pem());
    let key = machine.root().join("home/key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    refused("key.pem: others may read or change the private key (mode 0644)");
    // A certificate of its own whose key was removed.
    set("{ enabled: true }");
    drop(machine.gateway());
    fs::remove_file(machine.state().join("gateway-key.pem")).unwrap();
    refused("gateway-key.pem is not");
}

#[test]
fn keys_of_the_config_that_are_not_there_are_named() {
    let machine = Machine::new();
    for (text, expected) in [
        (
            "{ certFile: '/a' }",
            "has the keys `enabled`, `autoGenerate`, `certPath`, `keyPath`",
        ),
        ("{ caPath: '/a' }", "not by certificates"),
        ("{ enabled: 'true' }", "remove the quotes"),
        ("{ certPath: 'a.pem' }", "must be an absolute path"),
    ] {
        machine.write_config(&format!("{{ gateway: {{ tls: {text} }} }}"));
        let run = machine.run(&["config", "validate"]);
        assert_ne!(run.code, 0, "{text}");
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn the_ready_lines_tell_how_a_node_connects() {
    let machine = machine();
    let mut child = machine
        .command(&["gateway", "run", "--port", "0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("for a node: ") {
        let read = std::io::BufRead::read_line(&mut lines, &mut said).unwrap();
        assert_ne!(read, 0, "{said}");
    }
    let told = status(&machine);
    machine.ok(&["gateway", "stop"]);
    child.wait().unwrap();
    let fingerprint = told["tlsFingerprint"].as_str().unwrap();
    assert!(said.starts_with("ready: https://127.0.0.1:"), "{said}");
    assert!(
        said.contains(&format!(
            "certificate fingerprint (SHA-256): {fingerprint}\n"
        )),
        "{said}"
    );
}
