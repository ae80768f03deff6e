//! Limits: rows P21 to P24.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::site::{USUAL, everywhere, with_every_backend};

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
            // The next run that fails finds it full as well; one that does not fail is not blamed.
            let failed = site.result(&format!(
                "echo more > {directory}/y; cat {directory}/x > {directory}/z"
            ));
            assert_eq!(failed["limit"]["limit"], "tmp", "{failed:#}");
            assert!(site.result("true")["limit"].is_null());
            assert_eq!(
                site.inside(&format!("rm -f {directory}/x {directory}/y {directory}/z"))
                    .code,
                0
            );
        }
        let result = site.result("head -c 100000000 /dev/zero > /tmp/x; true");
        assert_eq!(result["limit"]["limit"], "tmp", "{result:#}");
        assert_eq!(result["limit"]["bound"], 8 << 20, "{result:#}");
        let peak = result["limit"]["peak"].as_u64().unwrap();
        assert!(peak > 7 << 20 && peak <= 8 << 20, "{result:#}");
        let text = site.inside("head -c 100000000 /dev/zero > /dev/shm/x");
        assert!(text.stderr.contains("limit: tmp"), "{text:#?}");
        assert_eq!(site.inside("rm /tmp/x /dev/shm/x").code, 0);
        let fine = site.result("head -c 1000000 /dev/zero > /tmp/x");
        assert!(fine["limit"].is_null() && fine["exitCode"] == 0, "{fine:#}");
    });
}

/// A small file system of the host, over a directory of the machine, until it is dropped.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// `None` where this user cannot mount.
    fn over(directory: &std::path::Path, megabytes: u32) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        if !testkit::is_root() {
            println!("skipped: only root can mount a file system");
            return None;
        }
        let owner = std::fs::metadata(directory).unwrap();
        let options = format!(
            "size={megabytes}m,mode=0700,uid={},gid={}",
            owner.uid(),
            owner.gid()
        );
        let mounted = std::process::Command::new("/usr/bin/mount")
            .args(["-t", "tmpfs", "-o", &options, "small"])
            .arg(directory)
            .status();
        assert!(mounted.unwrap().success());
        Some(Self(directory.to_owned()))
    }

    fn free(&self) -> u64 {
        let output = std::process::Command::new("/usr/bin/stat")
            .args(["-f", "-c", "%a %S"])
            .arg(&self.0)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(|one| one.parse().unwrap())
            .collect();
        numbers[0] * numbers[1]
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("/usr/bin/umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

/// A run does not fill the disk of the host: it is ended before.
#[test]
fn a_run_that_would_fill_the_disk_of_the_host_is_ended() {
    let slowly =
        "i=0; while head -c 200000 /dev/zero >> big; do sleep 0.01; done; echo full > note";
    everywhere(&format!("{USUAL}, limits: {{ diskFree: '16m' }}"), |site| {
        let Some(disk) = SmallDisk::over(&site.work(), 64) else {
            return;
        };
        let result = site.result(slowly);
        assert_eq!(result["limit"]["limit"], "disk", "{result:#}");
        assert_eq!(result["limit"]["bound"], 16 << 20, "{result:#}");
        let left = result["limit"]["peak"].as_u64().unwrap();
        assert!(left < 16 << 20 && left > 1 << 20, "{result:#}");
        assert!(disk.free() > 1 << 20, "{}", disk.free());
        assert!(
            !site.work().join("note").exists(),
            "it never saw a full disk"
        );
        // The next one has less than that: it may use half.
        let fine = site.result("head -c 100000 /dev/zero > small; sleep 0.1");
        assert!(fine["limit"].is_null() && fine["exitCode"] == 0, "{fine:#}");
    });
    // Without a setting the bound is larger than such a disk, and half of it is left.
    everywhere(USUAL, |site| {
        let Some(disk) = SmallDisk::over(&site.work(), 64) else {
            return;
        };
        let result = site.result(slowly);
        assert_eq!(result["limit"]["limit"], "disk", "{result:#}");
        assert!(disk.free() > 20 << 20, "{}", disk.free());
    });
}

/// Nor does one leave it without files that could be made: the host's own programs would fail as on a full disk.
#[test]
fn a_run_that_would_use_up_the_files_of_a_disk_is_ended() {
    const FILES: u64 = 4_000;
    let slowly = "i=0; while : > f$i; do i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.01; done; echo full > note";
    everywhere(USUAL, |site| {
        let Some(disk) = SmallDisk::over(&site.work(), 64) else {
            return;
        };
        let work = site.work();
        let counted = std::process::Command::new("/usr/bin/mount")
            .args([
                "-o",
                &format!("remount,nr_inodes={FILES}"),
                work.to_str().unwrap(),
            ])
            .status();
        assert!(counted.unwrap().success());
        let result = site.result(slowly);
        assert_eq!(result["limit"]["limit"], "disk", "{result:#}");
        let left = rustix::fs::statvfs(&work).unwrap().f_favail;
        assert!(left > FILES / 8, "{left}");
        assert!(!work.join("note").exists(), "it never saw a full disk");
        drop(disk);
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
