//! Calls by HTTP, at a rate or as fast as they are answered; and sizes that the environment changes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How large a test is: as the environment says, else as it fits every test run.
pub fn size(name: &str, short: usize) -> usize {
    let given = std::env::var(name).ok();
    given.map_or(short, |text| text.parse().unwrap())
}

/// `POST /tools/invoke` with `exec`. None where the connection ended before there was an answer.
pub fn exec(port: u16, token: &str, arguments: &Value) -> Option<Value> {
    let body = json!({ "tool": "exec", "args": arguments }).to_string();
    let answer = post(port, token, &body)?;
    assert_eq!(answer["ok"], true, "{answer}");
    Some(answer["result"]["details"].clone())
}

fn post(port: u16, token: &str, body: &str) -> Option<Value> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    let head = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    // What was cut in the middle is no answer.
    serde_json::from_str(body).ok()
}

/// Times of calls, the shortest first.
pub struct Times(Vec<Duration>);

impl Times {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }

    pub fn at(&self, part: f64) -> Duration {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let index = (self.0.len() as f64 * part) as usize;
        self.0[index.min(self.0.len() - 1)]
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let milliseconds = |part| self.at(part).as_secs_f64() * 1000.0;
        write!(
            f,
            "p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms",
            milliseconds(0.5),
            milliseconds(0.99),
            milliseconds(1.0)
        )
    }
}

/// Does `count` pieces of work on so many threads: at a rate, each at its time, or each as soon as a
/// thread is free. Returns what each took from when it was due.
pub fn at_rate(
    count: usize,
    threads: usize,
    rate: Option<usize>,
    work: impl Fn(usize) + Sync,
) -> Times {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let one_thread = || {
        let mut times = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return times;
            }
            let due = match rate {
                Some(rate) => began + Duration::from_secs_f64(number as f64 / rate as f64),
                None => Instant::now(),
            };
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            work(number);
            times.push(due.elapsed());
        }
    };
    let times = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one_thread)).collect();
        let times = threads.into_iter().map(|thread| thread.join().unwrap());
        times.flatten().collect()
    });
    Times::of(times)
}
