//! Measures the cost of a start by plan, compared with the system's own way.
//!
//! `cargo bench -p interlock-engine`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use interlock_engine::{
    AuthorizationKey, OpenedPlan, OutputSink, RunStatus, Settings, StreamKind, start,
};

const HUNDRED_MEGABYTES: u64 = 100_000_000;

fn main() {
    divan::main();
}

struct Count(Arc<AtomicU64>);

impl OutputSink for Count {
    fn output(&self, _: StreamKind, bytes: &[u8]) {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

fn run(bencher: divan::Bencher, line: &str, expected: u64) {
    let directory = tempfile::tempdir().unwrap();
    let plan = testkit::plans::plan(line, directory.path());
    let key = AuthorizationKey::from_bytes([7; 32]);
    let authorized = testkit::plans::authorized(&key, &plan);
    bencher.bench_local(|| {
        let count = Arc::new(AtomicU64::new(0));
        let sink = Count(Arc::clone(&count));
        let run = start(
            OpenedPlan::open(plan.clone()),
            authorized.authorization(),
            &key,
            &Settings::default(),
            sink,
        )
        .unwrap();
        assert_eq!(run.wait().status, RunStatus::Exited(0));
        assert_eq!(count.load(Ordering::Relaxed), expected);
    });
}

/// Verifies, opens, checks, hashes (as root), starts, reads both pipes and waits.
#[divan::bench]
fn true_by_plan(bencher: divan::Bencher) {
    run(bencher, "/bin/true", 0);
}

/// Does the part of this that the standard library supports: `posix_spawn`, both pipes, wait.
#[divan::bench]
fn true_by_posix_spawn(bencher: divan::Bencher) {
    bencher.bench_local(|| {
        let output = Command::new("/bin/true")
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success());
    });
}

#[divan::bench]
fn a_pipeline_of_three_by_plan(bencher: divan::Bencher) {
    run(bencher, "/usr/bin/printf abc | /bin/cat | /bin/cat", 3);
}

#[divan::bench]
fn a_pipeline_of_three_by_bash(bencher: divan::Bencher) {
    bencher.bench_local(|| {
        let output = Command::new("/bin/bash")
            .args(["-c", "/usr/bin/printf abc | /bin/cat | /bin/cat"])
            .env_clear()
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"abc");
    });
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn hundred_megabytes_by_plan(bencher: divan::Bencher) {
    let line = format!("head -c {HUNDRED_MEGABYTES} /dev/zero");
    run(bencher, &line, HUNDRED_MEGABYTES);
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn hundred_megabytes_by_reading(bencher: divan::Bencher) {
    bencher.bench_local(|| {
        let mut child = Command::new("/usr/bin/head")
            .args(["-c", &HUNDRED_MEGABYTES.to_string(), "/dev/zero"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut buffer = vec![0; 128 * 1024];
        let mut total = 0;
        loop {
            let length = output.read(&mut buffer).unwrap();
            if length == 0 {
                break;
            }
            total += length as u64;
        }
        assert!(child.wait().unwrap().success());
        assert_eq!(total, HUNDRED_MEGABYTES);
    });
}
