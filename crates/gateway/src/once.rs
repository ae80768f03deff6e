//! Calls that are sent again: with the same key, the same answer, and the work done once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use serde_json::{Value, json};

/// So long an answer is kept for those who ask again.
const KEPT: Duration = Duration::from_mins(10);

/// Answers that are kept at most; the oldest go first.
const MOST: usize = 4096;

type Answer = (StatusCode, Value);
type Work = Shared<BoxFuture<'static, Answer>>;

#[derive(Debug, Default)]
pub(crate) struct Once(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    works: HashMap<String, Work>,
    ages: VecDeque<(Instant, String)>,
}

impl Once {
    /// Does the work, or gives the answer of who came first with this key. The work belongs to no
    /// connection: when that of the first is lost, it goes on, and whoever asks again gets its
    /// answer.
    pub(crate) async fn run(
        &self,
        key: Option<String>,
        work: impl Future<Output = Answer> + Send + 'static,
    ) -> Answer {
        match key {
            Some(key) => self.work(key, work).await,
            None => work.await,
        }
    }

    fn work(&self, key: String, work: impl Future<Output = Answer> + Send + 'static) -> Work {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some((age, _)) = known.ages.front()
            && (now.saturating_duration_since(*age) > KEPT || known.works.len() >= MOST)
        {
            if let Some((_, oldest)) = known.ages.pop_front() {
                known.works.remove(&oldest);
            }
        }
        if let Some(work) = known.works.get(&key) {
            return work.clone();
        }
        let task = tokio::spawn(work);
        let work = async move { task.await.unwrap_or_else(|_| broken()) };
        let work = work.boxed().shared();
        known.works.insert(key.clone(), work.clone());
        known.ages.push_back((now, key));
        work
    }
}

/// The work itself broke off: what came of it is not known, so it is not done again.
fn broken() -> Answer {
    let message = "the call broke off; whether it had an effect is not known";
    let body = json!({ "ok": false, "error": { "type": "tool_error", "message": message } });
    (StatusCode::INTERNAL_SERVER_ERROR, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn answer(number: usize) -> Answer {
        (StatusCode::OK, json!(number))
    }

    #[tokio::test]
    async fn the_same_key_does_the_work_once_even_when_the_first_caller_leaves() {
        let (once, count) = (Once::default(), Arc::new(AtomicUsize::new(0)));
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let counted = Arc::clone(&count);
        let mut first = Box::pin(once.run(Some("a".to_owned()), async move {
            let _ = wait.await;
            answer(counted.fetch_add(1, Ordering::SeqCst))
        }));
        assert!(futures_util::poll!(&mut first).is_pending());
        drop(first);
        let counted = Arc::clone(&count);
        let mut second = Box::pin(once.run(Some("a".to_owned()), async move {
            answer(counted.fetch_add(100, Ordering::SeqCst))
        }));
        assert!(futures_util::poll!(&mut second).is_pending());
        go.send(()).unwrap();
        assert_eq!(second.await, answer(0));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let other = once.run(Some("b".to_owned()), async { answer(7) }).await;
        assert_eq!(other, answer(7));
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let once = Once::default();
        for number in 0..MOST + 50 {
            once.run(Some(number.to_string()), async { answer(1) })
                .await;
        }
        assert!(once.0.lock().unwrap().works.len() <= MOST);
    }
}
