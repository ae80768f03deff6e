//! The same against a real Matrix homeserver: Synapse, with SQLite and without federation. It runs where
//! `INTERLOCK_SYNAPSE` names the Python of an installation; `tests/run-heavy matrix` makes one.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::tls::Certified;
use testkit::{Machine, eventually};

use super::{Chatting, merge, secret_file};

/// A homeserver of the test. It ends with the test.
struct Synapse {
    child: Child,
    python: PathBuf,
    directory: PathBuf,
    port: u16,
    authority: tokio_rustls::rustls::pki_types::CertificateDer<'static>,
}

impl Drop for Synapse {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("INTERLOCK_SYNAPSE").map(PathBuf::from);
    if python.is_none() {
        println!("skipped: INTERLOCK_SYNAPSE is not set (tests/run-heavy matrix sets it)");
    }
    python
}

impl Synapse {
    fn start(machine: &Machine, python: PathBuf) -> Self {
        let directory = machine.root().join("synapse");
        std::fs::create_dir(&directory).unwrap();
        let certified = Certified::for_names(&["127.0.0.1"]);
        let file = |name: &str, text: &str| {
            std::fs::write(directory.join(name), text).unwrap();
        };
        file("cert.pem", &certified.chain_pem());
        file("key.pem", &certified.key_pem());
        file("log.yaml", "version: 1\nroot: { level: ERROR }\n");
        std::fs::write(
            machine.root().join("chat-ca.pem"),
            certified.authority_pem(),
        )
        .unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // The rates of a server that trusts its bot; one test lowers them.
        let many = "{ per_second: 1000, burst_count: 1000 }";
        let config = format!(
            "server_name: test\npid_file: {0}/pid\nreport_stats: false\ntrusted_key_servers: []\n\
             signing_key_path: {0}/signing.key\nmedia_store_path: {0}/media\n\
             log_config: {0}/log.yaml\nregistration_shared_secret: shared\n\
             macaroon_secret_key: macaroon\nform_secret: form\n\
             tls_certificate_path: {0}/cert.pem\ntls_private_key_path: {0}/key.pem\n\
             database: {{ name: sqlite3, args: {{ database: {0}/db.sqlite }} }}\n\
             rc_message: {many}\nrc_login: {{ address: {many}, account: {many} }}\n\
             rc_invites: {{ per_room: {many}, per_user: {many} }}\nrc_joins: {{ local: {many} }}\n\
             listeners:\n  - {{ port: {port}, tls: true, type: http, bind_addresses: ['127.0.0.1'], \
             resources: [{{ names: [client] }}] }}\n",
            directory.display()
        );
        file("homeserver.yaml", &config);
        let child = Self::spawn(&python, &directory);
        let synapse = Self {
            child,
            python,
            directory,
            port,
            authority: certified.authority.clone(),
        };
        synapse.until_up();
        synapse
    }

    fn spawn(python: &Path, directory: &Path) -> Child {
        Command::new(python)
            .args(["-m", "synapse.app.homeserver", "-c"])
            .arg(directory.join("homeserver.yaml"))
            .arg("--generate-missing-configs")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        Command::new(python)
            .args(["-m", "synapse.app.homeserver", "-c"])
            .arg(directory.join("homeserver.yaml"))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap()
    }

    fn until_up(&self) {
        eventually("Synapse answers", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = Self::spawn(&self.python, &self.directory);
        self.until_up();
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn call(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = format!(
            "{method} /_matrix/client/v3/{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        let mut stream = testkit::tls::connect(self.port, "127.0.0.1", &self.authority);
        let reply = testkit::tls::ask(&mut stream, request.as_bytes());
        let json =
            serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("{path}: {reply:?}"));
        (reply.status, json)
    }

    fn ok(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> Value {
        let (status, json) = self.call(method, path, token, body);
        assert_eq!(status, 200, "{method} {path}: {json}");
        json
    }

    /// Makes an account; its token.
    fn register(&self, name: &str) -> String {
        let script = self.directory.join("register.py");
        let mut file = std::fs::File::create(&script).unwrap();
        file.write_all(b"from synapse._scripts.register_new_matrix_user import main\nmain()\n")
            .unwrap();
        let made = Command::new(&self.python)
            .arg(&script)
            .args(["-u", name, "-p", "password", "--no-admin", "-k", "shared"])
            .arg(self.url())
            .env("SSL_CERT_FILE", self.directory.join("ca.pem"))
            .env("REQUESTS_CA_BUNDLE", self.directory.join("cert.pem"))
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stdout)
        );
        let login = json!({ "type": "m.login.password", "password": "password",
            "identifier": { "type": "m.id.user", "user": name } });
        let known = self.ok("POST", "login", "", Some(&login));
        known["access_token"].as_str().unwrap().to_owned()
    }

    /// The messages of a room, the newest first.
    fn messages(&self, token: &str, room: &str) -> Vec<Value> {
        let path = format!("rooms/{room}/messages?dir=b&limit=100");
        let found = self.ok("GET", &path, token, None);
        found["chunk"].as_array().unwrap().clone()
    }

    fn send(&self, token: &str, room: &str, kind: &str, content: &Value) -> String {
        let transaction = testkit::ws::now_ms();
        let path = format!("rooms/{room}/send/{kind}/t{transaction}");
        let sent = self.ok("PUT", &path, token, Some(content));
        sent["event_id"].as_str().unwrap().to_owned()
    }

    fn react(&self, token: &str, room: &str, event: &str, key: &str) {
        let relation = json!({ "rel_type": "m.annotation", "event_id": event, "key": key });
        self.send(
            token,
            room,
            "m.reaction",
            &json!({ "m.relates_to": relation }),
        );
    }

    fn say(&self, token: &str, room: &str, text: &str) {
        self.send(
            token,
            room,
            "m.room.message",
            &json!({ "msgtype": "m.text", "body": text }),
        );
    }

    /// The prompt about an approval, as its reader has it.
    fn prompt(&self, token: &str, room: &str, short_id: &str) -> String {
        let find = || {
            let mut all = self.messages(token, room).into_iter();
            all.find(|event| {
                let body = event["content"]["body"].as_str().unwrap_or_default();
                event["content"]["m.relates_to"].is_null() && body.contains(short_id)
            })
        };
        eventually("the prompt comes", || find().is_some());
        find().unwrap()["event_id"].as_str().unwrap().to_owned()
    }

    /// What a message says now, by the server's own aggregation.
    fn shown(&self, token: &str, room: &str, event: &str) -> String {
        let found = self.ok("GET", &format!("rooms/{room}/event/{event}"), token, None);
        let edited =
            &found["unsigned"]["m.relations"]["m.replace"]["content"]["m.new_content"]["body"];
        let body = edited
            .as_str()
            .or_else(|| found["content"]["body"].as_str());
        body.unwrap_or_default().to_owned()
    }

    /// Reactions of the bot to a message that were not taken back.
    fn seeds(&self, token: &str, room: &str, event: &str) -> Vec<String> {
        let all = self.messages(token, room).into_iter();
        let own = all.filter(|one| {
            one["type"] == "m.reaction"
                && one["sender"] == "@interlock:test"
                && one["content"]["m.relates_to"]["event_id"] == event
        });
        own.filter_map(|one| Some(one["content"]["m.relates_to"]["key"].as_str()?.to_owned()))
            .collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('!', "%21")
        .replace(':', "%3A")
        .replace('$', "%24")
}

#[test]
fn a_real_homeserver_shows_and_decides_approvals() {
    let Some(python) = python() else { return };
    let machine = Machine::new();
    let mut synapse = Synapse::start(&machine, python);
    let (bot, ada, eve) = (
        synapse.register("interlock"),
        synapse.register("ada"),
        synapse.register("eve"),
    );
    let make = |encrypted: bool| {
        let state = json!([{ "type": "m.room.encryption", "state_key": "",
            "content": { "algorithm": "m.megolm.v1.aes-sha2" } }]);
        let body = json!({ "preset": "private_chat", "invite": ["@interlock:test", "@eve:test"],
            "initial_state": if encrypted { state } else { json!([]) } });
        let made = synapse.ok("POST", "createRoom", &ada, Some(&body));
        made["room_id"].as_str().unwrap().to_owned()
    };
    let (room, encrypted) = (make(false), make(true));
    let eve_joins = format!("join/{}", escaped(&room));
    synapse.ok("POST", &eve_joins, &eve, Some(&json!({})));
    let token = secret_file(&machine, "matrix.token", &bot);
    let mut config = json!({
        "channels": { "matrix": {
            "homeserver": synapse.url(), "userId": "@interlock:test", "tokenFile": token,
            "allowPrivateNetwork": true,
            "execApprovals": { "approvers": ["@ada:test"], "target": "channel" },
        } },
        "approvals": { "exec": { "enabled": true, "targets": [{ "channel": "matrix", "to": room }] } },
    });
    merge(&mut config, &json!({}));
    let mut chat = Chatting::start(machine, &config);
    // It accepts the invitation of an approver.
    eventually("the bot joins", || {
        let path = format!("rooms/{}/joined_members", escaped(&room));
        let joined = synapse.ok("GET", &path, &ada, None);
        joined["joined"].get("@interlock:test").is_some()
    });
    let at = escaped(&room);

    // Allow, with the seeds and without them afterwards.
    let (file, id) = chat.ask_marker("allowed");
    let event = synapse.prompt(&ada, &at, &chat.short_id(&id));
    let place = escaped(&event);
    eventually("the seeds come", || {
        synapse.seeds(&ada, &at, &event).len() == 3
    });
    synapse.react(&eve, &at, &event, "✅");
    eventually("a stranger is refused", || {
        chat.refusals() == ["matrix:@eve:test is not an approver"]
    });
    assert_eq!(chat.ending(&id), None);
    synapse.react(&ada, &at, &event, "✅");
    assert_eq!(
        chat.until_ended(&id),
        ("allow-once".to_owned(), "matrix:@ada:test".to_owned())
    );
    eventually("it runs", || file.exists());
    eventually("it is edited", || {
        let shown = synapse.shown(&ada, &at, &place);
        shown.starts_with("✅ Allowed once by matrix:@ada:test") && shown.contains(" · exit 0")
    });
    eventually("the seeds go", || {
        synapse.seeds(&ada, &at, &event).is_empty()
    });

    // Deny by a tap, always by words.
    let (_, denied) = chat.ask_marker("denied");
    let event = synapse.prompt(&ada, &at, &chat.short_id(&denied));
    synapse.react(&ada, &at, &event, "❌");
    assert_eq!(chat.until_ended(&denied).0, "deny");
    let (_, always) = chat.ask_marker("always");
    let short_id = chat.short_id(&always);
    let event = synapse.prompt(&ada, &at, &short_id);
    synapse.react(&ada, &at, &event, "♾️");
    eventually("the second step is offered", || {
        let said = format!("/approve {short_id} allow-always");
        let all = synapse.messages(&ada, &at);
        all.iter().any(|one| {
            let body = one["content"]["body"].as_str().unwrap_or_default();
            one["content"]["msgtype"] == "m.notice" && body.contains(&said)
        })
    });
    assert_eq!(chat.ending(&always), None);
    synapse.say(&ada, &at, &format!("/approve {short_id} allow-always"));
    assert_eq!(chat.until_ended(&always).0, "allow-always");

    // A gateway that was restarted counts the approvals of a chat anew: the next ones have messages of
    // their own.
    chat.restart();

    // Killed in the middle: the answer that came meanwhile counts, and nothing is sent twice.
    let (_, restarted) = chat.ask_marker("restarted");
    let event = synapse.prompt(&ada, &at, &chat.short_id(&restarted));
    chat.gateway.kill();
    synapse.react(&ada, &at, &event, "❌");
    // More than one sync brings: the answer is the oldest of it.
    for number in 0..120 {
        synapse.say(&eve, &at, &format!("flood {number}"));
    }
    chat.restart();
    assert_eq!(chat.until_ended(&restarted).0, "deny");
    eventually("it is edited", || {
        synapse
            .shown(&ada, &at, &escaped(&event))
            .starts_with("❌ Denied")
    });

    // A program with the account's token shows another command in a prompt: nothing is allowed by it.
    let (file, replaced) = chat.ask_marker("replaced");
    let event = synapse.prompt(&ada, &at, &chat.short_id(&replaced));
    let other = json!({ "msgtype": "m.text", "body": "* other",
        "m.new_content": { "msgtype": "m.text", "body": "command   /usr/bin/true" },
        "m.relates_to": { "rel_type": "m.replace", "event_id": event } });
    synapse.send(&bot, &at, "m.room.message", &other);
    synapse.react(&ada, &at, &event, "✅");
    let words = "allow-once is refused: it was not shown whole here";
    eventually("it is refused", || {
        let all = synapse.messages(&ada, &at);
        all.iter().any(|one| {
            let body = one["content"]["body"].as_str().unwrap_or_default();
            one["content"]["msgtype"] == "m.notice" && body.contains(words)
        })
    });
    assert_eq!(chat.ending(&replaced), None);
    synapse.react(&ada, &at, &event, "❌");
    assert_eq!(chat.until_ended(&replaced).0, "deny");
    assert!(!file.exists());

    // Away: decided elsewhere, edited when the server is back.
    let (_, away) = chat.ask_marker("away");
    let event = synapse.prompt(&ada, &at, &chat.short_id(&away));
    synapse.stop();
    chat.machine.ok(&["approvals", "deny", &away]);
    synapse.start_again();
    let place = escaped(&event);
    eventually("it is edited", || {
        synapse.shown(&ada, &at, &place).starts_with("❌ Denied")
    });

    // An encrypted room gets nothing, and the receipt says why.
    let target = json!([{ "channel": "matrix", "to": encrypted }]).to_string();
    chat.machine
        .ok(&["config", "set", "approvals.exec.targets", &target]);
    eventually("the bot joins", || {
        let path = format!("rooms/{}/joined_members", escaped(&encrypted));
        let joined = synapse.ok("GET", &path, &ada, None);
        joined["joined"].get("@interlock:test").is_some()
    });
    eventually("the target changes", || {
        let database = chat.machine.database();
        let name: String = database
            .query_row("SELECT name FROM chat_target", [], |row| row.get(0))
            .unwrap();
        name == format!("matrix:{encrypted}")
    });
    let (_, refused) = chat.ask_marker("refused");
    eventually("it is refused", || {
        let receipts = chat.receipts(&refused);
        receipts
            .iter()
            .any(|one| one.2.contains("the room is encrypted"))
    });
    let all = synapse.messages(&ada, &escaped(&encrypted));
    assert!(all.iter().all(|one| one["type"] != "m.room.message"));
}
