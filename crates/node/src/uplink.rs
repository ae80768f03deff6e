//! Answers that outlive a connection: what a command produced is kept until a gateway has taken it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use interlock_wire::params::{NodeEvent, NodeInvokeResult, Params};
use interlock_wire::{Request, Response};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// How long the gateway may take for the answer to an event, before the result goes all the same.
const EVENT_TIME: Duration = Duration::from_secs(10);
/// The same for the answer to a result.
const RESULT_TIME: Duration = Duration::from_secs(30);
/// That many answers wait for a gateway; the oldest go first.
const MAX_KEPT: usize = 256;
/// Requests that wait to be written.
const MAX_QUEUED: usize = 64;

/// The way to the gateway, whichever connection that is at the time.
#[derive(Debug)]
pub(crate) struct Uplink {
    current: watch::Sender<Option<Channel>>,
    numbers: AtomicU64,
    kept: Mutex<VecDeque<(u64, CancellationToken)>>,
}

/// One connection.
#[derive(Debug, Clone)]
struct Channel {
    number: u64,
    requests: mpsc::Sender<Call>,
}

/// A request, and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) answer: oneshot::Sender<Response>,
}

enum Asked {
    Answered(Response),
    /// The gateway is there and says nothing.
    Unanswered,
    Gone,
}

impl Uplink {
    pub(crate) fn new() -> Self {
        Self {
            current: watch::Sender::new(None),
            numbers: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }

    /// From now on answers go to the connection that reads the other end.
    pub(crate) fn attach(&self) -> mpsc::Receiver<Call> {
        let (requests, calls) = mpsc::channel(MAX_QUEUED);
        let number = self.number();
        self.current
            .send_replace(Some(Channel { number, requests }));
        calls
    }

    pub(crate) fn detach(&self) {
        self.current.send_replace(None);
    }

    /// Tells the event, waits for its answer, then gives the result; again after a reconnect, until
    /// a gateway has taken it. Says whether one has.
    pub(crate) async fn deliver(&self, event: Option<NodeEvent>, result: NodeInvokeResult) -> bool {
        let (number, dropped) = self.keep();
        let is_taken = tokio::select! {
            is_taken = self.try_deliver(event, &result) => is_taken,
            () = dropped.cancelled() => {
                tracing::warn!(invoke = result.id, "too many answers wait: this one is dropped");
                false
            }
        };
        self.kept().retain(|(kept, _)| *kept != number);
        is_taken
    }

    /// Tells an event to the gateway that is there now, if one is. What must not be lost is asked for
    /// by the gateway when it comes back.
    pub(crate) async fn tell(&self, event: &NodeEvent) {
        let current = self.current.borrow().clone();
        if let Some(channel) = current {
            channel.ask(event, EVENT_TIME).await;
        }
    }

    async fn try_deliver(&self, mut event: Option<NodeEvent>, result: &NodeInvokeResult) -> bool {
        let mut current = self.current.subscribe();
        loop {
            let Some(channel) = next(&mut current, None).await else {
                return false;
            };
            if let Some(told) = &event {
                match channel.ask(told, EVENT_TIME).await {
                    Asked::Answered(response) => {
                        if let Some(error) = response.error {
                            tracing::warn!(%error.message, "the gateway refused an event");
                        }
                        event = None;
                    }
                    Asked::Unanswered => event = None,
                    Asked::Gone => {}
                }
            }
            if event.is_none() {
                match channel.ask(result, RESULT_TIME).await {
                    Asked::Answered(response) => {
                        if let Some(error) = response.error {
                            tracing::error!(invoke = result.id, %error.message, "the gateway refused a result");
                            return false;
                        }
                        return true;
                    }
                    Asked::Unanswered => {
                        tracing::error!(invoke = result.id, "the gateway did not take a result");
                        return false;
                    }
                    Asked::Gone => {}
                }
            }
            tracing::info!(
                invoke = result.id,
                "the answer is kept until the gateway is back"
            );
            if next(&mut current, Some(channel.number)).await.is_none() {
                return false;
            }
        }
    }

    fn keep(&self) -> (u64, CancellationToken) {
        let (number, token) = (self.number(), CancellationToken::new());
        let mut kept = self.kept();
        kept.push_back((number, token.clone()));
        if kept.len() > MAX_KEPT
            && let Some((_, oldest)) = kept.pop_front()
        {
            oldest.cancel();
        }
        (number, token)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, VecDeque<(u64, CancellationToken)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// A connection other than that one, as soon as there is one.
async fn next(current: &mut watch::Receiver<Option<Channel>>, not: Option<u64>) -> Option<Channel> {
    let is_other = |channel: &Option<Channel>| {
        let number = channel.as_ref().map(|channel| channel.number);
        number.is_some() && number != not
    };
    let found = current.wait_for(is_other).await.ok()?;
    found.clone()
}

impl Channel {
    async fn ask<P: Params>(&self, params: &P, time: Duration) -> Asked {
        let id = uuid::Uuid::new_v4().to_string();
        let Ok(request) = Request::new(id, params) else {
            return Asked::Unanswered;
        };
        let (answer, answered) = oneshot::channel();
        if self.requests.send(Call { request, answer }).await.is_err() {
            return Asked::Gone;
        }
        match tokio::time::timeout(time, answered).await {
            Ok(Ok(response)) => Asked::Answered(response),
            Ok(Err(_)) => Asked::Gone,
            Err(_) => Asked::Unanswered,
        }
    }
}
