//! Limits: rows P21 to P24.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::site::{USUAL, with_every_backend};

/// P21: processes. Where the system has no control group for it, the namespace counts them.
#[test]
fn a_fork_bomb_stays_small() {
    with_every_backend(&format!("{USUAL}, limits: {{ pids: 64 }}"), |site| {
        let began = Instant::now();
        let result = site
            .result("for i in $(seq 300); do sleep 3 & done; echo end; ls -d /proc/[0-9]* | wc -l");
        assert!(began.elapsed() < Duration::from_secs(50), "{result:#}");
        let text = result["output"]["text"].as_str().unwrap_or_default();
        assert!(text.contains("ork"), "{result:#}");
        assert_eq!(result["limit"]["limit"], "pids", "{result:#}");
        let few = site.result("sleep 0.1 & true; ls -d /proc/[0-9]* | wc -l");
        assert!(few["limit"].is_null(), "{few:#}");
    });
}

/// The round trips of a program that echoes a byte: what any process has to wait for on this machine.
struct Echo {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Echo {
    fn start() -> Self {
        let mut child = Command::new("/usr/bin/cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    fn round_trip(&mut self) -> Duration {
        let began = Instant::now();
        self.input.write_all(b"x").unwrap();
        self.output.read_exact(&mut [0]).unwrap();
        began.elapsed()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// P21: a real bomb, while a gateway serves others. It responds within 100 ms throughout; where the machine
/// keeps every process waiting for longer, a plain program that echoes a byte is the measure.
#[test]
fn p21_a_fork_bomb_ends_and_the_gateway_answers_meanwhile() {
    with_every_backend(&format!("{USUAL}, limits: {{ pids: 64 }}"), |site| {
        let gateway = site.machine.gateway();
        let mut client = gateway.connect(testkit::ws::EVERYTHING);
        let mut echo = Echo::start();
        let is_over = AtomicBool::new(false);
        let (result, waits) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut waits = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let before = echo.round_trip();
                    let began = Instant::now();
                    client.ok("health", &serde_json::json!({}));
                    let wait = began.elapsed();
                    waits.push((wait, before.max(echo.round_trip())));
                    std::thread::sleep(Duration::from_millis(10));
                }
                waits
            });
            // Its first process stays for a moment, so that the bomb has time; it starts nothing itself.
            let result = site
                .result("f() { f | f & }; f; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
            is_over.store(true, Ordering::Relaxed);
            (result, asking.join().unwrap())
        });
        assert_eq!(result["limit"]["limit"], "pids", "{result:#}");
        assert_eq!(result["limit"]["bound"], 64, "{result:#}");
        let text = result["output"]["text"].as_str().unwrap_or_default();
        assert!(text.contains("ork"), "fork fails: {result:#}");
        let slowest_echo = waits.iter().map(|(_, echo)| *echo).max().unwrap();
        // An answer takes several switches between processes: of the gateway's threads and of this one.
        let bound = Duration::from_millis(100).max(slowest_echo * 6);
        let late: Vec<_> = waits.iter().filter(|(wait, _)| *wait > bound).collect();
        assert!(
            late.is_empty(),
            "{late:?} of {}: echoes took {slowest_echo:?} at most",
            waits.len()
        );
        // Nothing of the bomb is left, and the next run starts as usual.
        assert_eq!(site.says("ls -d /proc/[0-9]* | wc -l").trim().len(), 1);
    });
}

/// P22: memory. Without a control group the run is refused: a limit is never left out.
#[test]
fn memory_is_limited_or_the_run_is_refused() {
    with_every_backend(&format!("{USUAL}, limits: {{ memory: '100m' }}"), |site| {
        let text = "head -c 1000000000 /dev/zero | tail -c 1000000000 | wc -c";
        let mut other = Command::new("/usr/bin/sleep").arg("600").spawn().unwrap();
        let run = site.machine.run(&["exec", "--json", "--", text]);
        let is_alive = other.try_wait().unwrap().is_none();
        let _ = other.kill();
        let _ = other.wait();
        assert!(is_alive, "another process was killed: {run:#?}");
        if run.stdout.is_empty() {
            assert!(run.stderr.contains("LIMITS_UNAVAILABLE"), "{run:#?}");
            return;
        }
        let result = run.json();
        assert_eq!(result["limit"]["limit"], "memory", "{result:#}");
        assert_eq!(result["limit"]["bound"], 100 << 20, "{result:#}");
        assert!(
            result["limit"]["peak"].as_u64().unwrap() <= 101 << 20,
            "{result:#}"
        );
    });
}

/// P23: private file systems.
#[test]
fn private_file_systems_are_as_large_as_the_owner_says() {
    with_every_backend(&format!("{USUAL}, limits: {{ tmp: '8m' }}"), |site| {
        for directory in ["/tmp", "/dev/shm", "/run", "/var/tmp"] {
            let run = site.inside(&format!(
                "head -c 100000000 /dev/zero > {directory}/x; stat -c %s {directory}/x"
            ));
            assert!(
                run.stderr.contains("No space left"),
                "{directory}: {run:#?}"
            );
            let size: u64 = run.stdout.trim().parse().unwrap();
            assert!(size <= 8 << 20, "{directory}: {size}");
        }
    });
}

/// P24: output, to the byte.
#[test]
fn a_run_that_writes_too_much_is_ended() {
    with_every_backend(
        &format!("{USUAL}, limits: {{ outputBytes: '1m' }}"),
        |site| {
            let result = site.result("yes");
            assert_eq!(result["limit"]["limit"], "output", "{}", result["limit"]);
            assert_eq!(result["output"]["totalBytes"], 1 << 20);
            let fine = site.result("head -c 1000 /dev/zero");
            assert!(fine["limit"].is_null() && fine["exitCode"] == 0, "{fine:#}");
        },
    );
}

/// The sandbox's own time limit is smaller than that of the call.
#[test]
fn the_smaller_time_limit_counts() {
    with_every_backend(&format!("{USUAL}, limits: {{ timeout: 1 }}"), |site| {
        let result = site.result("sleep 30");
        assert_eq!(result["timedOut"], true, "{result:#}");
        assert_eq!(result["limit"]["limit"], "time", "{result:#}");
        assert_eq!(result["limit"]["bound"], 1000, "{result:#}");
    });
}
