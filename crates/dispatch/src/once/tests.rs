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
    // The order of parameters makes no difference.
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
    for number in 0..MAX_CALLS + 50 {
        let done = once.run(Some(key("a", "x")), never, async move { answer(number) });
        assert_eq!(done.await.unwrap(), answer(number));
    }
    assert!(once.0.lock().by_name.is_empty());
    assert!(once.0.lock().oldest_first.len() <= MAX_CALLS + 1);
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
    for number in 0..MAX_CALLS + 50 {
        let done = once.run(Some(key(&number.to_string(), "x")), always, async {
            answer(1)
        });
        done.await.unwrap();
    }
    assert!(once.0.lock().by_name.len() <= MAX_CALLS);
}

/// An answer of about this many bytes.
fn large(bytes: usize) -> OnceAnswer {
    let details = json!({ "status": "completed", "exitCode": 3, "aggregated": "x".repeat(bytes) });
    (StatusCode::OK, json!({ "result": { "details": details } }))
}

#[tokio::test]
async fn whole_answers_fit_into_a_budget_and_no_call_is_made_again() {
    let once = Once::default();
    let bytes = 1024 * 1024;
    for number in 0..64 {
        let name = number.to_string();
        let done = once.run(Some(key(&name, "x")), always, async move { large(bytes) });
        assert_eq!(done.await.unwrap(), large(bytes));
        assert!(once.0.lock().whole_bytes <= MAX_WHOLE_BYTES);
    }
    let again = |name: &'static str| once.run(Some(key(name, "x")), always, async { answer(0) });
    assert_eq!(again("63").await.unwrap(), large(bytes));
    let (_, oldest) = again("0").await.unwrap();
    let details = &oldest["result"]["details"];
    assert_eq!(details["exitCode"], 3);
    let text = details["aggregated"].as_str().unwrap();
    assert!(text.ends_with("bytes are not kept any more]"), "{text}");
    assert!(text.len() < 2 * MAX_SHORT_TEXT);
}

#[tokio::test]
async fn old_answers_are_shortened_and_then_forgotten() {
    let once = Once::default();
    let done = once.run(Some(key("a", "x")), always, async { large(100_000) });
    done.await.unwrap();
    let start = Instant::now();
    once.0.lock().tidy(start + WHOLE + Duration::from_secs(1));
    assert_eq!(once.0.lock().whole_bytes, 0);
    assert_eq!(once.0.lock().by_name.len(), 1);
    once.0
        .lock()
        .tidy(start + REMEMBERED + Duration::from_secs(1));
    assert!(once.0.lock().by_name.is_empty());
}

/// An approver may take longer than answers are remembered.
#[tokio::test]
async fn a_call_that_still_runs_is_not_forgotten() {
    let (once, count) = (Once::default(), Arc::new(AtomicUsize::new(0)));
    let (go, wait) = tokio::sync::oneshot::channel::<()>();
    let counted = Arc::clone(&count);
    let mut first = Box::pin(once.run(Some(key("a", "x")), always, async move {
        let _ = wait.await;
        answer(counted.fetch_add(1, Ordering::SeqCst))
    }));
    assert!(futures_util::poll!(&mut first).is_pending());
    let late = Instant::now() + REMEMBERED + Duration::from_secs(1);
    once.0.lock().tidy(late);
    let counted = Arc::clone(&count);
    let mut second = Box::pin(once.run(Some(key("a", "x")), always, async move {
        answer(counted.fetch_add(1, Ordering::SeqCst))
    }));
    assert!(futures_util::poll!(&mut second).is_pending());
    go.send(()).unwrap();
    assert_eq!(first.await.unwrap(), answer(0));
    assert_eq!(second.await.unwrap(), answer(0));
    once.0.lock().tidy(late + REMEMBERED + REMEMBERED);
    assert!(once.0.lock().by_name.is_empty());
}

/// A caller chooses how many fields and lists its answers have.
#[tokio::test]
async fn what_is_left_of_an_answer_is_bounded_whatever_it_was() {
    let once = Once::default();
    let paths: Vec<String> = (0..16).map(|_| "p".repeat(4096)).collect();
    let files: Vec<Value> = paths.iter().map(|path| json!({ "path": path })).collect();
    let many =
        json!({ "ok": true, "result": { "details": { "status": "completed", "files": files } } });
    let fields: Value = (0..500)
        .map(|number| (number.to_string(), json!("x".repeat(100))))
        .collect();
    let bodies = [("many", many.clone()), ("fields", fields)];
    for (name, body) in bodies {
        let done = once.run(Some(key(name, "x")), always, async {
            (StatusCode::OK, body)
        });
        done.await.unwrap();
    }
    once.0
        .lock()
        .tidy(Instant::now() + WHOLE + Duration::from_secs(1));
    for record in once.0.lock().by_name.values() {
        let OnceState::Short(kept) = &record.state else {
            panic!("{record:?}");
        };
        assert!(kept.text.len() <= MAX_SHORT_BYTES, "{}", kept.text);
    }
    let again = |name: &'static str| once.run(Some(key(name, "x")), always, async { answer(0) });
    let (status, kept) = again("many").await.unwrap();
    assert_eq!(status, StatusCode::OK);
    assert_eq!(kept["result"]["details"]["status"], "completed");
    let (status, kept) = again("fields").await.unwrap();
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        kept["error"]["message"]
            .as_str()
            .unwrap()
            .contains("carried out")
    );
}

#[test]
fn a_text_is_cut_between_characters() {
    let text = "語".repeat(200);
    let short = shortened(&json!(text), MAX_SHORT_TEXT, MAX_SHORT_LIST);
    let short = short.as_str().unwrap();
    assert!(short.starts_with(&"語".repeat(85)));
    assert!(short.contains(&format!("[{} bytes", 600 - 255)));
}
