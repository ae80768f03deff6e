//! Background sessions, controlled as a program would control them.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Machine, Run};

/// One session of a machine.
#[derive(Clone)]
pub struct Session<'a> {
    pub machine: &'a Machine,
    pub id: String,
}

impl Machine {
    /// Returns a machine on which everything may run without approvals.
    pub fn unguarded() -> Self {
        let machine = Self::new();
        machine.ok(&["exec-policy", "preset", "yolo"]);
        machine
    }

    /// Starts a command in the background, with further flags of `exec`.
    pub fn background(&self, flags: &[&str], command: &str) -> Session<'_> {
        let mut arguments = vec!["exec", "--json", "--background"];
        arguments.extend(flags);
        arguments.extend(["--", command]);
        let started = self.ok(&arguments).json();
        assert_eq!(started["status"], "running", "{started}");
        Session {
            machine: self,
            id: started["sessionId"].as_str().unwrap().to_owned(),
        }
    }

    pub fn process(&self, arguments: &[&str]) -> Run {
        let mut all = vec!["process"];
        all.extend(arguments);
        self.run(&all)
    }

    /// Leaves a session as a supervisor that is gone would leave it, with an empty transcript.
    /// `change` maps JSON pointers into the status to new values.
    pub fn leave_session(&self, name: &str, started_ms: u64, change: &Value) {
        let directory = self.state().join("sessions").join(name);
        fs::create_dir_all(&directory).unwrap();
        let mut status = json!({
            "outcome": { "state": "exited", "code": 0 },
            "startedMs": started_ms,
            "endedMs": started_ms + 1000,
            "totals": { "bytes": 0, "lines": 0, "droppedBytes": 0, "lostBytes": 0 },
            "session": {
                "id": "0", "name": name, "title": "cargo test", "agentId": "main",
                "command": "cargo test", "cwd": "/", "pty": false, "writable": false,
                "raceFree": true, "background": true, "cleanupMs": 1_800_000,
                "supervisor": "gone", "outOfMemory": false,
            },
        });
        for (path, value) in change.as_object().unwrap() {
            *status.pointer_mut(path).unwrap() = value.clone();
        }
        fs::write(directory.join("status.json"), status.to_string()).unwrap();
        for file in ["head.bytes", "head.index"] {
            fs::write(directory.join(file), "").unwrap();
        }
    }

    /// Returns the rows of `process list`, with further flags.
    pub fn sessions(&self, flags: &[&str]) -> Vec<Value> {
        let mut all = vec!["process", "list", "--json"];
        all.extend(flags);
        let listed = self.ok(&all).json();
        listed["sessions"].as_array().unwrap().clone()
    }
}

impl Session<'_> {
    /// Runs `process ACTION SESSION REST…`.
    pub fn run(&self, action: &str, rest: &[&str]) -> Run {
        let mut all = vec![action, &self.id];
        all.extend(rest);
        self.machine.process(&all)
    }

    #[track_caller]
    pub fn ok(&self, action: &str, rest: &[&str]) -> Run {
        let run = self.run(action, rest);
        assert_eq!(run.code, 0, "{action} {rest:?}: {run:#?}");
        run
    }

    #[track_caller]
    pub fn json(&self, action: &str, rest: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(rest);
        self.ok(action, &all).json()
    }

    #[track_caller]
    pub fn keys(&self, keys: &[&str]) {
        self.ok("send-keys", keys);
    }

    /// Types text unchanged, and Enter.
    #[track_caller]
    pub fn line(&self, text: &str) {
        self.keys(&["--literal", text, "Enter"]);
    }

    pub fn rows(&self) -> Vec<String> {
        let screen = self.json("screen", &[]);
        let rows = screen["rows"].as_array().unwrap().iter();
        rows.map(|row| row.as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the screen is as expected. Only a failure reaches the deadline.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl Fn(&[String]) -> bool) {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            let rows = self.rows();
            if holds(&rows) {
                return;
            }
            let screen = rows.join("\n");
            assert!(Instant::now() < end, "never came true: {what}\n{screen}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.until(text, |rows| rows.iter().any(|row| row.contains(text)));
    }

    /// Waits for the end, and returns the status and the exit code.
    #[track_caller]
    pub fn ended(&self) -> (String, Option<i64>) {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            // The offset is behind all output, because a poll in the middle would not wait.
            let polled = self.json("poll", &["--timeout", "1000", "--offset", "999999999"]);
            let status = polled["status"].as_str().unwrap();
            if status != "running" {
                return (status.to_owned(), polled["exitCode"].as_i64());
            }
            assert!(Instant::now() < end, "it never ended: {polled}");
        }
    }
}
