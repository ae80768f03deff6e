//! Calls that are sent again: with the same key, the same answer, and the work done once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// How long an answer is kept for callers that ask again.
const KEPT: Duration = Duration::from_mins(10);

/// Answers that are kept at most; the oldest go first.
const MOST: usize = 4096;

pub(crate) type OnceAnswer = (StatusCode, Value);
type OnceWork = Shared<BoxFuture<'static, OnceAnswer>>;

/// Which calls are one and the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OnceKey {
    /// The caller, and its own key.
    name: String,
    /// What is asked for.
    asked: [u8; 32],
}

impl OnceKey {
    /// `name` tells callers apart who must not get each other's answers.
    pub(crate) fn new(name: String, what: &str, mut params: Value) -> Self {
        // In which order they were written makes no difference.
        params.sort_all_objects();
        let asked = Sha256::digest(format!("{what}\n{params}")).into();
        Self { name, asked }
    }
}

/// The key came with another call before: neither is that one's answer this one's, nor is it known
/// which of the two the caller means.
#[derive(Debug, thiserror::Error)]
#[error("the idempotencyKey was used for another call; a new call needs a new key")]
pub(crate) struct KeyReused;

impl KeyReused {
    pub(crate) const CODE: &'static str = "IDEMPOTENCY_KEY_REUSED";
}

#[derive(Debug, Default)]
pub(crate) struct Once(Arc<Mutex<OnceCalls>>);

#[derive(Debug, Default)]
struct OnceCalls {
    works: HashMap<String, OnceRecord>,
    /// Every record was put here once, and may be gone since.
    ages: VecDeque<(Instant, u64, String)>,
    last: u64,
}

#[derive(Debug)]
struct OnceRecord {
    number: u64,
    asked: [u8; 32],
    work: OnceWork,
}

impl OnceCalls {
    /// Forgets this very record; another one of the same name stays.
    fn forget(&mut self, name: &str, number: u64) {
        if self.works.get(name).is_some_and(|one| one.number == number) {
            self.works.remove(name);
        }
    }
}

impl Once {
    /// Does the work, or gives the answer of the first caller with this key. The work belongs to no
    /// connection: when the first caller's is lost, it goes on, and a caller that asks again gets
    /// its answer. `had_effect` says of an answer whether it stands for an effect, or a possible
    /// one: other answers are not kept, and a caller that asks again is a new caller.
    pub(crate) async fn run(
        &self,
        key: Option<OnceKey>,
        had_effect: fn(&OnceAnswer) -> bool,
        work: impl Future<Output = OnceAnswer> + Send + 'static,
    ) -> Result<OnceAnswer, KeyReused> {
        match key {
            Some(key) => Ok(self.work(key, had_effect, work)?.await),
            None => Ok(work.await),
        }
    }

    fn work(
        &self,
        key: OnceKey,
        had_effect: fn(&OnceAnswer) -> bool,
        work: impl Future<Output = OnceAnswer> + Send + 'static,
    ) -> Result<OnceWork, KeyReused> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some((age, ..)) = known.ages.front()
            && (now.saturating_duration_since(*age) > KEPT || known.ages.len() >= MOST)
        {
            if let Some((_, number, oldest)) = known.ages.pop_front() {
                known.forget(&oldest, number);
            }
        }
        let OnceKey { name, asked } = key;
        if let Some(record) = known.works.get(&name) {
            return if record.asked == asked {
                Ok(record.work.clone())
            } else {
                Err(KeyReused)
            };
        }
        known.last += 1;
        let number = known.last;
        let (all, own) = (Arc::clone(&self.0), name.clone());
        let task = tokio::spawn(async move {
            let answer = work.await;
            if !had_effect(&answer) {
                let mut known = all.lock().unwrap_or_else(PoisonError::into_inner);
                known.forget(&own, number);
            }
            answer
        });
        let work = async move { task.await.unwrap_or_else(|_| broken()) };
        let work = work.boxed().shared();
        let record = OnceRecord {
            number,
            asked,
            work: work.clone(),
        };
        known.works.insert(name.clone(), record);
        known.ages.push_back((now, number, name));
        Ok(work)
    }
}

/// The work itself broke off: what came of it is not known, so it is not done again.
fn broken() -> OnceAnswer {
    let message = "the call broke off; whether it had an effect is not known";
    let body = json!({ "ok": false, "error": { "type": "tool_error", "message": message } });
    (StatusCode::INTERNAL_SERVER_ERROR, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn answer(number: usize) -> OnceAnswer {
        (StatusCode::OK, json!(number))
    }

    fn key(name: &str, asked: &str) -> OnceKey {
        OnceKey::new(name.to_owned(), "exec", json!({ "command": asked }))
    }

    fn always(_: &OnceAnswer) -> bool {
        true
    }

    #[tokio::test]
    async fn the_same_key_does_the_work_once_even_when_the_first_caller_leaves() {
        let (once, count) = (Once::default(), Arc::new(AtomicUsize::new(0)));
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let counted = Arc::clone(&count);
        let mut first = Box::pin(once.run(Some(key("a", "x")), always, async move {
            let _ = wait.await;
            answer(counted.fetch_add(1, Ordering::SeqCst))
        }));
        assert!(futures_util::poll!(&mut first).is_pending());
        drop(first);
        let counted = Arc::clone(&count);
        let mut second = Box::pin(once.run(Some(key("a", "x")), always, async move {
            answer(counted.fetch_add(100, Ordering::SeqCst))
        }));
        assert!(futures_util::poll!(&mut second).is_pending());
        go.send(()).unwrap();
        assert_eq!(second.await.unwrap(), answer(0));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let other = once
            .run(Some(key("b", "x")), always, async { answer(7) })
            .await;
        assert_eq!(other.unwrap(), answer(7));
    }

    #[tokio::test]
    async fn the_same_key_for_another_call_is_refused() {
        let once = Once::default();
        let done = once
            .run(Some(key("a", "x")), always, async { answer(1) })
            .await;
        assert_eq!(done.unwrap(), answer(1));
        let other = once
            .run(Some(key("a", "y")), always, async { answer(2) })
            .await;
        assert!(other.is_err());
        // The order in which parameters are written makes no difference.
        let first = OnceKey::new(
            String::new(),
            "exec",
            json!({ "a": 1, "b": { "c": 2, "d": 3 } }),
        );
        let same = OnceKey::new(
            String::new(),
            "exec",
            json!({ "b": { "d": 3, "c": 2 }, "a": 1 }),
        );
        assert_eq!(first, same);
        let tool = OnceKey::new(
            String::new(),
            "process",
            json!({ "a": 1, "b": { "c": 2, "d": 3 } }),
        );
        assert_ne!(first, tool);
    }

    #[tokio::test]
    async fn an_answer_without_effect_is_not_kept() {
        let once = Once::default();
        let never = |_: &OnceAnswer| false;
        for number in 0..MOST + 50 {
            let done = once.run(Some(key("a", "x")), never, async move { answer(number) });
            assert_eq!(done.await.unwrap(), answer(number));
        }
        assert!(once.0.lock().unwrap().works.is_empty());
        assert!(once.0.lock().unwrap().ages.len() <= MOST);
        // What comes of it later is.
        for _ in 0..2 {
            let done = once
                .run(Some(key("a", "y")), always, async { answer(1) })
                .await;
            assert_eq!(done.unwrap(), answer(1));
        }
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let once = Once::default();
        for number in 0..MOST + 50 {
            let done = once.run(Some(key(&number.to_string(), "x")), always, async {
                answer(1)
            });
            done.await.unwrap();
        }
        assert!(once.0.lock().unwrap().works.len() <= MOST);
    }
}
