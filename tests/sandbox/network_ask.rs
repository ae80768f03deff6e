//! Names that no entry lists: an approver is asked, the connection waits, and what is decided holds for
//! exactly that name, port and agent.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Run, eventually};

use crate::network::{Internet, netd_of, places};
use crate::site::USUAL;

const ASKS: &str = "network: { allow: ['ok.test:80'], deny: ['bad.test:*'] }";

/// A gateway in the internet of the test. It ends with this.
struct RunningGateway<'a> {
    net: &'a Internet,
    child: Child,
}

impl<'a> RunningGateway<'a> {
    fn start(net: &'a Internet) -> Self {
        let child = net.start(&["gateway", "run", "--port", "0"]);
        eventually("the gateway", || net.run(&["gateway", "status"]).code == 0);
        Self { net, child }
    }

    fn kill(mut self) -> &'a Internet {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.net
    }
}

impl Drop for RunningGateway<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run that goes on, with what it writes.
fn begin(net: &Internet, text: &str) -> Child {
    begin_as(net, "main", text)
}

fn begin_as(net: &Internet, agent: &str, text: &str) -> Child {
    let mut command = net.command(&["exec", "--agent", agent, "--timeout", "60", "--", text]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end(child: Child) -> Run {
    Run::of(&child.wait_with_output().unwrap())
}

fn pending(net: &Internet) -> Vec<Value> {
    let listed = net.run(&["approvals", "pending", "--json"]).json();
    listed["approvals"].as_array().unwrap().clone()
}

/// Waits for one approval, and says its short id.
fn asked(net: &Internet, host: &str) -> String {
    let mut id = String::new();
    eventually(&format!("a question about {host}"), || {
        let found = pending(net)
            .into_iter()
            .find(|one| one["command"] == format!("reach {host}"));
        id = found.map_or(String::new(), |one| {
            one["shortId"].as_str().unwrap().to_owned()
        });
        !id.is_empty()
    });
    id
}

fn fetch(host: &str) -> String {
    format!("curl -s --max-time 40 http://{host}/")
}

fn hello(host: &str) -> String {
    format!("hello from {host}/\n")
}

#[test]
fn a_new_name_waits_for_an_approver_and_once_is_for_the_run() {
    Internet::everywhere(ASKS, |net| {
        let _gateway = RunningGateway::start(net);
        // Two connections to one name, and one to the same name on another port, in one run.
        let text = format!(
            "{}; {}; curl -sk --max-time 4 https://no.test/ || echo refused",
            fetch("no.test"),
            fetch("NO.test.")
        );
        let run = begin(net, &text);
        let id = asked(net, "no.test:80");
        let shown = net.run(&["approvals", "pending", &id]).stdout;
        for words in [
            "reach no.test:80",
            "curl -s",
            "agent main",
            "agent:main:main",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let approved = net.run(&["approvals", "approve", &id]);
        assert_eq!(approved.code, 0, "{approved:#?}");
        // The other port is another question.
        let other = asked(net, "no.test:443");
        assert_eq!(pending(net).len(), 1);
        net.run(&["approvals", "deny", &other]);
        let run = end(run);
        let expected = format!("{}{}refused\n", hello("no.test"), hello("no.test."));
        assert_eq!(run.stdout.to_lowercase(), expected, "{run:#?}");
        // The run went on, so its conversation does not read that nothing ran.
        let told = net.run(&["events", "--session", "agent:main:main"]).stdout;
        for words in ["Host denied", "goes on without this host"] {
            assert!(told.contains(words), "{words}: {told}");
        }
        assert!(!told.contains("no output exists"), "{told}");
        // Another run is asked about again: once was for the first.
        let again = begin(net, &fetch("no.test"));
        let id = asked(net, "no.test:80");
        net.run(&["approvals", "deny", &id]);
        assert!(!end(again).stdout.contains("hello"));
        let records = net.audit();
        assert!(places(&records, "allowed").contains(&"no.test:80".to_owned()));
        let allowed = records
            .iter()
            .find(|one| one["verdict"] == "allowed")
            .unwrap();
        assert!(
            allowed["allowedBy"]
                .as_str()
                .unwrap()
                .starts_with("allow-once"),
            "{allowed}"
        );
        assert!(allowed["runId"].is_string(), "{allowed}");
        assert_eq!(net.run(&["audit", "verify"]).code, 0);
    });
}

#[test]
fn always_is_for_the_agent_keeps_the_home_and_can_be_revoked() {
    Internet::everywhere(ASKS, |net| {
        let gateway = RunningGateway::start(net);
        assert_eq!(net.inside("touch ~/kept").code, 0);
        let run = begin(net, &fetch("no.test"));
        let id = asked(net, "no.test:80");
        assert_eq!(net.run(&["approvals", "approve", &id, "--always"]).code, 0);
        assert_eq!(end(run).stdout, hello("no.test"));
        // The same scope, with what runs left there, and no question.
        let run = net.inside(&format!("ls ~/kept && {}", fetch("no.test")));
        assert!(run.stdout.ends_with(&hello("no.test")), "{run:#?}");
        assert!(run.stdout.contains("kept"), "{run:#?}");
        let explained = net.run(&["sandbox", "explain"]).stdout;
        assert!(explained.contains("no.test:80 always"), "{explained}");
        // Not another port, a name below it, nor an address that it has.
        for other in [
            "http://sub.no.test/",
            "https://no.test/",
            "http://93.184.216.35/",
        ] {
            let run = net.inside(&format!("curl -sk --max-time 2 {other}"));
            assert!(!run.stdout.contains("hello"), "{other}: {run:#?}");
        }
        // Another agent has not been allowed anything.
        net.site.machine.configure(&format!(
            "{{ agents: {{ defaults: {{ sandbox: {{ {USUAL}, {ASKS} }} }}, list: [{{ id: 'main' }}, {{ id: 'lab' }}] }} }}"
        ));
        let run = begin_as(net, "lab", &fetch("no.test"));
        let id = asked(net, "no.test:80");
        net.run(&["approvals", "deny", &id]);
        assert!(!end(run).stdout.contains("hello"));
        // What was granted holds for a command without a gateway too, and new names do not.
        let net = gateway.kill();
        let run = net.inside(&format!("{}; {}", fetch("no.test"), fetch("other.test")));
        assert!(run.stdout.starts_with(&hello("no.test")), "{run:#?}");
        assert!(
            run.stdout.contains("no gateway runs that could ask"),
            "{run:#?}"
        );
        let grants = net.run(&["approvals", "grants", "--json"]).json();
        let grants = grants["grants"].as_array().unwrap();
        assert_eq!(grants.len(), 1, "{grants:#?}");
        assert_eq!(grants[0]["command"], "reach no.test:80");
        let revoke = ["approvals", "revoke", grants[0]["id"].as_str().unwrap()];
        assert_eq!(net.run(&revoke).code, 0);
        let run = net.inside(&fetch("no.test"));
        assert!(!run.stdout.contains("hello"), "{run:#?}");
    });
}

#[test]
fn session_and_lease_are_for_the_conversation() {
    Internet::everywhere(ASKS, |net| {
        let _gateway = RunningGateway::start(net);
        for terms in [&["--session"][..], &["--for", "1h"]] {
            let run = begin(net, &fetch("no.test"));
            let id = asked(net, "no.test:80");
            // Connections are not counted.
            let counted = net.run(&["approvals", "approve", &id, "--for", "1h", "--uses", "2"]);
            assert_ne!(counted.code, 0, "{counted:#?}");
            let mut words = vec!["approvals", "approve", id.as_str()];
            words.extend(terms);
            assert_eq!(net.run(&words).code, 0);
            assert_eq!(end(run).stdout, hello("no.test"));
            let run = net.inside(&fetch("no.test"));
            assert_eq!(run.stdout, hello("no.test"), "{terms:?}: {run:#?}");
            let grants = net.run(&["approvals", "grants", "--json"]).json();
            let id = grants["grants"][0]["id"].as_str().unwrap().to_owned();
            assert_eq!(net.run(&["approvals", "revoke", &id]).code, 0);
        }
    });
}

#[test]
fn what_is_denied_or_no_name_is_never_asked_about() {
    let settings = "network: { ask: true, deny: ['bad.test:*'] }";
    Internet::everywhere(settings, |net| {
        let _gateway = RunningGateway::start(net);
        let begun = Instant::now();
        for target in [
            "http://bad.test/",
            "http://93.184.216.35/",
            "http://localhost:9000/",
            "http://host.internal/",
            "http://lan/",
            "http://no.test:9000/",
            "-x http://127.0.0.1:3128 http://no.test:9000/",
            "--socks5-hostname 127.0.0.1:1080 http://no.test:9000/",
        ] {
            let run = net.inside(&format!("curl -sf --max-time 20 {target}"));
            assert_ne!(run.code, 0, "{target}: {run:#?}");
        }
        assert!(begun.elapsed() < Duration::from_mins(1));
        assert!(pending(net).is_empty(), "{:#?}", pending(net));
        assert_eq!(net.accepted(), "");
        // A name that is allowed does not lead into the owner's network.
        let run = begin(net, &fetch("meta.test"));
        let id = asked(net, "meta.test:80");
        net.run(&["approvals", "approve", &id]);
        assert!(end(run).stdout.contains("private address"));
        assert_eq!(net.accepted(), "");
        // By way of a proxy a name is asked about as well.
        let text = "curl -sk --max-time 40 -x http://127.0.0.1:3128 https://no.test/p";
        let run = begin(net, text);
        let id = asked(net, "no.test:443");
        net.run(&["approvals", "approve", &id]);
        assert_eq!(end(run).stdout, "hello from no.test/p\n");
    });
}

#[test]
fn a_run_cannot_bury_an_approver_and_what_it_left_is_taken_back() {
    Internet::everywhere("network: { ask: true }", |net| {
        let _gateway = RunningGateway::start(net);
        let text = "for i in $(seq 40); do curl -s --max-time 20 http://n$i.test/ & done; wait";
        let mut run = begin(net, text);
        eventually("questions", || pending(net).len() == 8);
        // A few names that were asked for twice do not ask twice.
        let mut hosts: Vec<String> = pending(net)
            .iter()
            .map(|one| one["command"].as_str().unwrap().to_owned())
            .collect();
        hosts.sort();
        hosts.dedup();
        assert_eq!(hosts.len(), 8);
        assert_eq!(pending(net).len(), 8);
        run.kill().unwrap();
        run.wait().unwrap();
        eventually(
            "the questions of a run that has ended to be taken back",
            || pending(net).is_empty(),
        );
    });
}

/// Two runs share a network; what is decided is for the one that asked.
#[test]
fn runs_that_share_a_network_are_told_apart() {
    Internet::everywhere("network: { ask: true }", |net| {
        let _gateway = RunningGateway::start(net);
        let loops = "for i in $(seq 400); do curl -sf --max-time 30 http://no.test/ && exit 0; sleep 0.1; done; exit 1";
        let first = begin(net, &format!("sleep 0.3; {loops} # first"));
        let id = asked(net, "no.test:80");
        assert_eq!(net.run(&["approvals", "approve", &id]).code, 0);
        let first = end(first);
        assert_eq!(first.stdout, hello("no.test"), "{first:#?}");
        // A server of the first conversation's goes on beside it.
        let other = begin(
            net,
            "python3 -m http.server 7999 >/dev/null 2>&1 & sleep 20",
        );
        let second = begin(net, &fetch("no.test"));
        let id = asked(net, "no.test:80");
        let shown = net.run(&["approvals", "pending", &id]).stdout;
        assert!(shown.contains("curl -s --max-time 40"), "{shown}");
        net.run(&["approvals", "deny", &id]);
        assert!(!end(second).stdout.contains("hello"));
        let mut other = other;
        other.kill().unwrap();
        other.wait().unwrap();
    });
}

/// Neither the end of the gateway nor that of the server of networks allows anything, and both are taken up
/// again.
#[test]
fn a_question_survives_the_gateway_and_the_server_of_networks() {
    Internet::everywhere("network: { ask: true }", |net| {
        let gateway = RunningGateway::start(net);
        let text = "for i in $(seq 60); do curl -sf --max-time 20 http://no.test/ && exit 0; sleep 0.2; done; exit 1";
        let run = begin(net, text);
        let id = asked(net, "no.test:80");
        let net = gateway.kill();
        // Without a gateway it is still there to be decided, once.
        assert_eq!(asked(net, "no.test:80"), id);
        let gateway = RunningGateway::start(net);
        for netd in netd_of(&net.site.machine) {
            let killed = Command::new("/usr/bin/kill").args(["-9", &netd]).status();
            assert!(killed.unwrap().success());
        }
        assert_eq!(asked(net, "no.test:80"), id);
        assert_eq!(pending(net).len(), 1);
        assert_eq!(net.accepted(), "");
        assert_eq!(net.run(&["approvals", "approve", &id]).code, 0);
        let run = end(run);
        assert_eq!(run.stdout, hello("no.test"), "{run:#?}");
        drop(gateway);
    });
}
