//! Repeated calls: the same key gets the same answer, and the work is done once.
//!
//! Answers are kept for a while, in a bounded number of bytes. Then their long texts are dropped,
//! and a caller that repeats its call learns the result without the output. Answers are kept as
//! JSON text, because parsed values take about six times as much memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// How long a call is remembered, so that it is not carried out again.
const REMEMBERED: Duration = Duration::from_mins(10);

/// How long the whole answer is kept. A caller that lost its connection returns soon.
const WHOLE: Duration = Duration::from_secs(45);

/// The limit of bytes of all whole answers. The oldest are shortened first.
const MAX_WHOLE_BYTES: usize = 16 * 1024 * 1024;

/// How many calls are remembered. The oldest are forgotten first.
const MAX_CALLS: usize = 4096;

/// The longest text in a shortened answer, in bytes.
const MAX_SHORT_TEXT: usize = 256;

/// The longest list in a shortened answer.
const MAX_SHORT_LIST: usize = 16;

/// A whole shortened answer, in bytes. One that has more fields than that is shortened further.
const MAX_SHORT_BYTES: usize = 2 * 1024;

pub type OnceAnswer = (StatusCode, Value);
type OnceWork = Shared<BoxFuture<'static, Arc<OnceAnswer>>>;

/// Identifies equal calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceKey {
    /// The caller, and the key that it chose.
    name: String,
    /// The digest of the call's name and parameters.
    digest: [u8; 32],
}

impl OnceKey {
    /// Makes a key. `name` must distinguish callers that must not get each other's answers.
    pub fn new(name: String, what: &str, mut params: Value) -> Self {
        // The order of the parameters makes no difference.
        params.sort_all_objects();
        let digest = Sha256::digest(format!("{what}\n{params}")).into();
        Self { name, digest }
    }
}

/// The key came with another call before. That call's answer does not belong to this call, and it
/// is unknown which of the two the caller means.
#[derive(Debug, thiserror::Error)]
#[error("the idempotencyKey was used for another call; a new call needs a new key")]
pub struct KeyReused;

impl KeyReused {
    pub const CODE: &'static str = "IDEMPOTENCY_KEY_REUSED";
}

#[derive(Debug, Default)]
pub struct Once(Arc<OnceCalls>);

#[derive(Debug, Default)]
struct OnceCalls(Mutex<OnceRecords>);

#[derive(Debug, Default)]
struct OnceRecords {
    by_name: HashMap<Arc<str>, OnceRecord>,
    /// The start of every record, or the last time at which its call was seen running. The record
    /// may have been forgotten since.
    oldest_first: VecDeque<(Instant, u64, Arc<str>)>,
    /// The end of every whole answer.
    whole: VecDeque<(Instant, u64, Arc<str>)>,
    whole_bytes: usize,
    last_number: u64,
}

#[derive(Debug)]
struct OnceRecord {
    number: u64,
    digest: [u8; 32],
    state: OnceState,
}

#[derive(Debug)]
enum OnceState {
    Running(OnceWork),
    Whole {
        whole: KeptAnswer,
        /// What is left of it later.
        short: KeptAnswer,
    },
    Short(KeptAnswer),
}

/// An answer as text.
#[derive(Debug, Clone)]
struct KeptAnswer {
    status: StatusCode,
    text: Arc<str>,
}

impl KeptAnswer {
    fn of((status, body): &OnceAnswer) -> Self {
        Self {
            status: *status,
            text: body.to_string().into(),
        }
    }

    /// Without long texts and lists, and never longer than [`MAX_SHORT_BYTES`].
    fn shortened_of((status, body): &OnceAnswer) -> Self {
        let limits = [(MAX_SHORT_TEXT, MAX_SHORT_LIST), (64, 4), (16, 1)];
        let texts = limits.map(|(most_text, most_items)| {
            move || shortened(body, most_text, most_items).to_string()
        });
        let fits = |text: &String| text.len() <= MAX_SHORT_BYTES;
        match texts.into_iter().map(|text| text()).find(fits) {
            Some(text) => Self {
                status: *status,
                text: text.into(),
            },
            None => Self::of(&not_kept()),
        }
    }

    fn into_answer(self) -> OnceAnswer {
        // It was made from a value.
        serde_json::from_str(&self.text).map_or_else(|_| broken(), |body| (self.status, body))
    }
}

impl OnceCalls {
    fn lock(&self) -> MutexGuard<'_, OnceRecords> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnceRecords {
    /// Forgets exactly this record; a newer one with the same name stays.
    fn forget(&mut self, name: &str, number: u64) {
        if self
            .by_name
            .get(name)
            .is_some_and(|one| one.number == number)
            && let Some(OnceRecord {
                state: OnceState::Whole { whole, .. },
                ..
            }) = self.by_name.remove(name)
        {
            self.whole_bytes -= whole.text.len();
        }
    }

    /// Forgets and shortens old or surplus records. A call that still runs is never forgotten, since
    /// its key would then start the work a second time.
    fn tidy(&mut self, now: Instant) {
        let is_old = |since: &Instant, limit| now.saturating_duration_since(*since) > limit;
        let mut running = Vec::new();
        while let Some((since, ..)) = self.oldest_first.front()
            && (is_old(since, REMEMBERED) || self.oldest_first.len() > MAX_CALLS)
        {
            if let Some((_, number, name)) = self.oldest_first.pop_front() {
                if self.is_running(&name, number) {
                    running.push((now, number, name));
                } else {
                    self.forget(&name, number);
                }
            }
        }
        self.oldest_first.extend(running);
        while let Some((since, ..)) = self.whole.front()
            && (is_old(since, WHOLE) || self.whole_bytes > MAX_WHOLE_BYTES)
        {
            if let Some((_, number, name)) = self.whole.pop_front() {
                self.shorten(&name, number);
            }
        }
    }

    fn is_running(&self, name: &str, number: u64) -> bool {
        let record = self.by_name.get(name).filter(|one| one.number == number);
        record.is_some_and(|one| matches!(one.state, OnceState::Running(_)))
    }

    fn shorten(&mut self, name: &str, number: u64) {
        let record = self.by_name.get_mut(name);
        let Some(record) = record.filter(|one| one.number == number) else {
            return;
        };
        if let OnceState::Whole { whole, short } = &record.state {
            self.whole_bytes -= whole.text.len();
            record.state = OnceState::Short(short.clone());
        }
    }

    fn set_answer(&mut self, name: &Arc<str>, number: u64, whole: KeptAnswer, short: KeptAnswer) {
        let record = self.by_name.get_mut(name);
        let Some(record) = record.filter(|one| one.number == number) else {
            return;
        };
        self.whole_bytes += whole.text.len();
        record.state = OnceState::Whole { whole, short };
        let now = Instant::now();
        self.whole.push_back((now, number, Arc::clone(name)));
        self.tidy(now);
    }
}

impl Once {
    /// Does the work, or returns the answer of the first caller with this key. The work belongs to
    /// no connection: it continues if the first caller's connection is lost, and a caller that
    /// repeats the call gets its answer. `had_effect` says whether an answer stands for an effect,
    /// or a possible one. Other answers are not kept, and a repeated call is then a new one.
    pub async fn run(
        &self,
        key: Option<OnceKey>,
        had_effect: fn(&OnceAnswer) -> bool,
        work: impl Future<Output = OnceAnswer> + Send + 'static,
    ) -> Result<OnceAnswer, KeyReused> {
        let Some(key) = key else {
            return Ok(work.await);
        };
        Ok(match self.begin(key, had_effect, work)? {
            OnceState::Running(work) => Arc::unwrap_or_clone(work.await),
            OnceState::Whole { whole: answer, .. } | OnceState::Short(answer) => {
                answer.into_answer()
            }
        })
    }

    /// Forgets and shortens old records. Must be called repeatedly while the gateway runs.
    pub fn tidy(&self) {
        self.0.lock().tidy(Instant::now());
    }

    fn begin(
        &self,
        key: OnceKey,
        had_effect: fn(&OnceAnswer) -> bool,
        work: impl Future<Output = OnceAnswer> + Send + 'static,
    ) -> Result<OnceState, KeyReused> {
        let mut known = self.0.lock();
        let now = Instant::now();
        known.tidy(now);
        let OnceKey { name, digest } = key;
        let name: Arc<str> = name.into();
        if let Some(record) = known.by_name.get(&name) {
            if record.digest != digest {
                return Err(KeyReused);
            }
            return Ok(match &record.state {
                OnceState::Running(work) => OnceState::Running(work.clone()),
                OnceState::Whole { whole: kept, .. } | OnceState::Short(kept) => {
                    OnceState::Short(kept.clone())
                }
            });
        }
        known.last_number += 1;
        let number = known.last_number;
        let (all, own) = (Arc::clone(&self.0), Arc::clone(&name));
        let task = tokio::spawn(async move {
            let answer = work.await;
            if had_effect(&answer) {
                let whole = KeptAnswer::of(&answer);
                let short = KeptAnswer::shortened_of(&answer);
                all.lock().set_answer(&own, number, whole, short);
            } else {
                all.lock().forget(&own, number);
            }
            Arc::new(answer)
        });
        let work = async move { task.await.unwrap_or_else(|_| Arc::new(broken())) };
        let work = work.boxed().shared();
        let record = OnceRecord {
            number,
            digest,
            state: OnceState::Running(work.clone()),
        };
        known.by_name.insert(Arc::clone(&name), record);
        known.oldest_first.push_back((now, number, name));
        Ok(OnceState::Running(work))
    }
}

/// The same answer without its long texts and lists: ids, status and counts stay.
fn shortened(value: &Value, most_text: usize, most_items: usize) -> Value {
    let within = |value: &Value| shortened(value, most_text, most_items);
    match value {
        Value::String(text) if text.len() > most_text => {
            let end = (0..=most_text)
                .rev()
                .find(|end| text.is_char_boundary(*end));
            let kept = &text[..end.unwrap_or_default()];
            let gone = text.len() - kept.len();
            format!("{kept}\n[{gone} bytes are not kept any more]").into()
        }
        Value::Array(items) => items.iter().take(most_items).map(within).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), within(value)))
            .collect(),
        value => value.clone(),
    }
}

/// The answer of work that broke off. Its effect is unknown, so it is not done again.
fn broken() -> OnceAnswer {
    failed("the call broke off; whether it had an effect is not known")
}

/// An answer of so many fields that nothing of it is kept.
fn not_kept() -> OnceAnswer {
    failed("the call was carried out, and its answer is not kept any more; it is not made again")
}

fn failed(message: &str) -> OnceAnswer {
    let body = json!({ "ok": false, "error": { "type": "tool_error", "message": message } });
    (StatusCode::INTERNAL_SERVER_ERROR, body)
}

#[cfg(test)]
mod tests;
