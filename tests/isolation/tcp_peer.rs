//! Over TCP the process at the other end counts more than the secret it shows: a run is no operator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::sync::{PoisonError, RwLock};

use serde_json::json;
use testkit::ws::Gateway;
use testkit::{Machine, eventually};

/// Calls the gateway in one of several ways, and prints what each call got: the status, and the code
/// of the error or `-`.
const CALL: &str = r"
import array, base64, ctypes, json, os, socket, ssl, sys, time
way, host, port, token = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

def connect():
    return socket.create_connection((host, port), timeout=50)

def request(method, path, body, token=token):
    return (f'{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n'
            'Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n'
            f'Content-Length: {len(body)}\r\n\r\n{body}').encode()

INVOKE = json.dumps({'tool': 'process', 'args': {'action': 'list'}})
INITIALIZE = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'initialize', 'params': {
    'protocolVersion': '2025-06-18', 'capabilities': {}, 'clientInfo': {'name': 'x', 'version': '1'}}})

def answer(s):
    data = b''
    while b'\r\n\r\n' not in data:
        more = s.recv(65536)
        if not more:
            return 'closed'
        data += more
    head, body = data.split(b'\r\n\r\n', 1)
    length = [int(l.split(b':')[1]) for l in head.split(b'\r\n') if l.lower().startswith(b'content-length')]
    while length and len(body) < length[0]:
        body += s.recv(65536)
    try:
        code = json.loads(body)['error']['code']
    except Exception:
        code = '-'
    return head.split(b' ')[1].decode() + ' ' + code

def call(s, method='POST', path='/tools/invoke', body=INVOKE):
    s.sendall(request(method, path, body))
    return answer(s)

def frame(text):
    data = text.encode()
    assert len(data) < 65536
    return b'\x81' + bytes([0x80 | 126]) + len(data).to_bytes(2, 'big') + bytes(4) + data

def read_frame(s):
    def exactly(n):
        data = b''
        while len(data) < n:
            more = s.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data
    first, length = exactly(2)
    if length == 126:
        length = int.from_bytes(exactly(2), 'big')
    elif length == 127:
        length = int.from_bytes(exactly(8), 'big')
    return first & 15, exactly(length)

def websocket(role):
    s = connect()
    key = base64.b64encode(bytes(16)).decode()
    s.sendall((f'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
               f'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n').encode())
    data = b''
    while not data.endswith(b'\r\n\r\n'):
        data += s.recv(1)
    read_frame(s)
    s.sendall(frame(json.dumps({'type': 'req', 'id': '1', 'method': 'connect', 'params': {
        'minProtocol': 4, 'maxProtocol': 4, 'role': role,
        'scopes': ['operator.admin', 'operator.approvals'],
        'client': {'id': 'gateway-client', 'mode': 'backend', 'version': '1', 'platform': 'linux'},
        'auth': {'token': token}}})))
    said = json.loads(read_frame(s)[1])
    return 'ok' if said['ok'] else said['error']['details'].get('code', '-')

def everything():
    print(call(connect()))
    print(call(connect(), 'GET', '/metrics', ''))
    print(call(connect(), 'POST', '/mcp', INITIALIZE))
    s = connect()
    print(call(s))
    print(call(s))
    print(websocket('operator'))

if way == 'everything':
    everything()
elif way == 'once':
    print(call(connect()))
elif way == 'orphan':
    reader, writer = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            while os.getppid() == os.getpgrp():
                time.sleep(0.01)
            os.write(writer, (call(connect()) + '\n').encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    print(os.fdopen(reader).read().strip())
elif way == 'tls':
    context = ssl._create_unverified_context()
    print(call(context.wrap_socket(connect())))
elif way == 'hidden':
    assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
    print(call(connect()))
elif way == 'ring':
    # A thread with descriptors of its own.
    import threading
    said = []
    def apart():
        if ctypes.CDLL(None).unshare(0x400) == 0:
            said.append(call(connect()))
        else:
            said.append('403 PEER_IN_RUN')
    thread = threading.Thread(target=apart)
    thread.start()
    thread.join()
    print(said[0])
elif way == 'stay-hidden':
    assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
    print('hidden', flush=True)
    time.sleep(600)
elif way == 'leaderless':
    # The first thread ends, and another one goes on: by its state the process is a zombie.
    import platform, threading
    assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
    def alone():
        while ' Z ' not in open('/proc/self/stat').read():
            time.sleep(0.01)
        os.write(1, (call(connect()) + '\n').encode())
        os._exit(0)
    threading.Thread(target=alone).start()
    ctypes.CDLL(None).syscall({'x86_64': 60}.get(platform.machine(), 93), 0)
elif way == 'proxy':
    listener = socket.create_server(('127.0.0.1', 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        client, _ = listener.accept()
        server = connect()
        server.sendall(client.recv(65536))
        client.sendall(server.recv(65536))
        client.close()
elif way == 'receive':
    # Outside: gets a connection from a run, and calls by it.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(host)
    listener.listen(1)
    s, _ = listener.accept()
    message, fds, _, _ = socket.recv_fds(s, 16, 1)
    passed = socket.socket(fileno=fds[0])
    passed.settimeout(50)
    print(call(passed), flush=True)
    s.sendall(b'.')
elif way.startswith('pass:'):
    # In a run: makes a connection, passes it on, and keeps it or not.
    passed = connect()
    print(call(passed))
    s = socket.socket(socket.AF_UNIX)
    while s.connect_ex(way[5:].rstrip('!')) != 0:
        time.sleep(0.02)
    socket.send_fds(s, [b'x'], [passed.fileno()])
    if way.endswith('!'):
        passed.close()
    s.recv(1)
";

/// A run that hides makes connections of its whole user unclear, and the tests share one: the test
/// that hides something holds this for writing.
static HIDING: RwLock<()> = RwLock::new(());

struct EndedOnDrop(std::process::Child);

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Scene {
    machine: Machine,
    gateway: Gateway,
}

impl Scene {
    /// A gateway on a machine where everything runs; none where there is no Python.
    fn on(machine: Machine, config: &str) -> Option<Self> {
        if !Path::new("/usr/bin/python3").exists() {
            println!("skipped: /usr/bin/python3 is not installed");
            return None;
        }
        machine.ok(&["exec-policy", "preset", "yolo"]);
        machine.configure(config);
        machine.file("call.py", CALL);
        let gateway = machine.gateway();
        Some(Self { machine, gateway })
    }

    fn words(&self, way: &str, host: &str, token: &str) -> [String; 6] {
        [
            "/usr/bin/python3".to_owned(),
            self.machine.root().join("call.py").display().to_string(),
            way.to_owned(),
            host.to_owned(),
            self.gateway.port.to_string(),
            token.to_owned(),
        ]
    }

    fn text(&self, way: &str, host: &str, token: &str) -> String {
        self.words(way, host, token)
            .map(|word| format!("'{word}'"))
            .join(" ")
    }

    /// From inside a run.
    fn in_run(&self, way: &str, host: &str, token: &str) -> String {
        let text = self.text(way, host, token);
        let run = self.machine.exec(&text);
        assert_eq!(run.code, 0, "{way}: {run:#?}");
        run.stdout
    }

    /// From a process of the same user that is no run.
    fn outside(&self, way: &str, host: &str, token: &str) -> String {
        let child = self.outside_child(way, host, token);
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn outside_child(&self, way: &str, host: &str, token: &str) -> std::process::Child {
        let words = self.words(way, host, token);
        let mut command = self.machine.other_program(&words[0]);
        command.args(&words[1..]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }
}

const OUTSIDE: &str = "200 -\n200 -\n200 -\n200 -\n200 -\nok\n";
const IN_RUN: &str = "403 PEER_IN_RUN\n403 PEER_IN_RUN\n403 PEER_IN_RUN\n403 PEER_IN_RUN\n\
                      403 PEER_IN_RUN\nPEER_IN_RUN\n";
const ONE_IN_RUN: &str = "403 PEER_IN_RUN\n";

fn machines() -> Vec<Machine> {
    let mut machines = vec![Machine::new()];
    machines.extend(Machine::of_ordinary_user());
    machines
}

#[test]
fn a_run_is_no_operator_whatever_token_it_shows() {
    let _shared = HIDING.read().unwrap_or_else(PoisonError::into_inner);
    for machine in machines() {
        let Some(scene) = Scene::on(machine, "{}") else {
            return;
        };
        let token = scene.machine.operator_token();
        assert_eq!(scene.outside("everything", "127.0.0.1", &token), OUTSIDE);
        assert_eq!(scene.in_run("everything", "127.0.0.1", &token), IN_RUN);
        for way in ["orphan", "ring"] {
            assert_eq!(scene.in_run(way, "127.0.0.1", &token), ONE_IN_RUN, "{way}");
        }
        // While a run lives, the owner goes on as ever.
        let sleeper = scene.machine.background(&[], "sleep 600");
        assert_eq!(scene.outside("everything", "127.0.0.1", &token), OUTSIDE);
        drop(sleeper);
    }
}

#[test]
fn a_run_with_an_agents_token_is_that_agent_only_if_it_is_its_own() {
    let _shared = HIDING.read().unwrap_or_else(PoisonError::into_inner);
    for machine in machines() {
        let config = "{ agents: { list: [{ id: 'main' }, { id: 'other' }] } }";
        let Some(scene) = Scene::on(machine, config) else {
            return;
        };
        let token = |agent: &str| {
            let minted = scene.machine.ok(&["agents", "token", agent]).stdout;
            minted.trim().to_owned()
        };
        assert_eq!(scene.in_run("once", "127.0.0.1", &token("main")), "200 -\n");
        assert_eq!(
            scene.in_run("once", "127.0.0.1", &token("other")),
            ONE_IN_RUN
        );
        assert_eq!(
            scene.outside("once", "127.0.0.1", &token("other")),
            "200 -\n"
        );
    }
}

#[test]
fn a_connection_that_a_run_has_a_part_in_is_the_runs() {
    let _shared = HIDING.read().unwrap_or_else(PoisonError::into_inner);
    for machine in machines() {
        let Some(scene) = Scene::on(machine, "{}") else {
            return;
        };
        let token = scene.machine.operator_token();
        for leaves in ["", "!"] {
            let socket = scene
                .machine
                .root()
                .join(format!("home/pass{}.sock", leaves.len()));
            let socket = socket.to_str().unwrap();
            let receiver = scene.outside_child("receive", socket, &token);
            let way = format!("pass:{socket}{leaves}");
            assert_eq!(
                scene.in_run(&way, "127.0.0.1", &token),
                ONE_IN_RUN,
                "{leaves}"
            );
            let said = receiver.wait_with_output().unwrap().stdout;
            assert_eq!(String::from_utf8(said).unwrap(), ONE_IN_RUN, "{leaves}");
        }
        // A proxy in a run speaks for the run.
        let proxy = scene
            .machine
            .background(&[], &scene.text("proxy", "127.0.0.1", &token));
        let log = |id: &str| scene.machine.ok(&["process", "log", id]).stdout;
        let port = || {
            log(&proxy.id)
                .lines()
                .find_map(|line| line.trim().parse::<u16>().ok())
        };
        eventually("the proxy listens", || port().is_some());
        let mut words = scene.words("once", "127.0.0.1", &token);
        words[4] = port().unwrap().to_string();
        let called = scene
            .machine
            .other_program(&words[0])
            .args(&words[1..])
            .output();
        assert_eq!(
            String::from_utf8(called.unwrap().stdout).unwrap(),
            ONE_IN_RUN
        );
    }
}

#[test]
fn every_address_of_this_machine_is_local() {
    let _shared = HIDING.read().unwrap_or_else(PoisonError::into_inner);
    let other = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    };
    for machine in machines() {
        let config = "{ gateway: { bind: 'custom', customBindHost: '::' } }";
        let Some(scene) = Scene::on(machine, config) else {
            return;
        };
        let token = scene.machine.operator_token();
        let mut hosts = vec![
            "127.0.0.1".to_owned(),
            "127.0.0.2".to_owned(),
            "::1".to_owned(),
        ];
        hosts.extend(other().ok().map(|ip| ip.to_string()));
        for host in &hosts {
            assert_eq!(scene.outside("once", host, &token), "200 -\n", "{host}");
            assert_eq!(scene.in_run("once", host, &token), ONE_IN_RUN, "{host}");
        }
    }
}

#[test]
fn tls_hides_nothing_of_whose_connection_it_is() {
    let _shared = HIDING.read().unwrap_or_else(PoisonError::into_inner);
    for machine in machines() {
        let Some(scene) = Scene::on(machine, "{ gateway: { tls: { enabled: true } } }") else {
            return;
        };
        let token = scene.machine.operator_token();
        assert_eq!(scene.outside("tls", "127.0.0.1", &token), "200 -\n");
        assert_eq!(scene.in_run("tls", "127.0.0.1", &token), ONE_IN_RUN);
    }
}

#[test]
fn a_process_that_shows_nothing_is_trusted_only_where_no_run_can_be_meant() {
    let _shared = HIDING.write().unwrap_or_else(PoisonError::into_inner);
    // Root reads the descriptors of every process.
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    let Some(scene) = Scene::on(machine, "{}") else {
        return;
    };
    let token = scene.machine.operator_token();
    assert_eq!(scene.outside("hidden", "127.0.0.1", &token), "200 -\n");
    let said = scene.in_run("hidden", "127.0.0.1", &token);
    assert!(
        said == ONE_IN_RUN || said == "403 PEER_UNIDENTIFIED\n",
        "{said}"
    );
    // A program such as an SSH agent is no cover for a run whose first thread has ended.
    let mut closed = EndedOnDrop(scene.outside_child("stay-hidden", "127.0.0.1", &token));
    let mut line = String::new();
    let mut closed_output = BufReader::new(closed.0.stdout.take().unwrap());
    closed_output.read_line(&mut line).unwrap();
    assert_eq!(line, "hidden\n");
    for shield in ["on", "off"] {
        let _ = scene
            .machine
            .run(&["config", "set", "tools.exec.shield", shield]);
        let said = scene.in_run("leaderless", "127.0.0.1", &token);
        assert!(
            said == ONE_IN_RUN || said == "403 PEER_UNIDENTIFIED\n",
            "{shield}: {said}"
        );
    }
    assert_eq!(scene.outside("leaderless", "127.0.0.1", &token), "200 -\n");
    drop(closed);
    let hidden = scene.text("stay-hidden", "127.0.0.1", &token);
    let hidden = scene.machine.background(&[], &hidden);
    let log = || scene.machine.ok(&["process", "log", &hidden.id]).stdout;
    eventually("the run is hidden", || log().contains("hidden"));
    assert_eq!(
        scene.outside("hidden", "127.0.0.1", &token),
        "403 PEER_UNIDENTIFIED\n"
    );
    // The Unix socket is open all the time.
    scene.machine.ok(&["devices", "list"]);
}

#[test]
fn the_refusal_says_what_to_do() {
    let _shared = HIDING.read().unwrap_or_else(PoisonError::into_inner);
    let Some(scene) = Scene::on(Machine::new(), "{}") else {
        return;
    };
    let token = scene.machine.operator_token();
    let url = format!("http://127.0.0.1:{}/metrics", scene.gateway.port);
    if !Path::new("/usr/bin/curl").exists() {
        println!("skipped: /usr/bin/curl is not installed");
        return;
    }
    let text = format!("curl -s -H 'Authorization: Bearer {token}' {url}");
    let run = scene.machine.exec(&text);
    let said = run.json();
    assert_eq!(said["error"]["code"], json!("PEER_IN_RUN"));
    let message = said["error"]["message"].as_str().unwrap();
    assert!(message.contains("decide outside of the run"), "{message}");
}
