//! Answers that outlive a connection: a command's result is kept until a gateway has received it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use interlock_wire::params::{NodeEvent, NodeInvokeResult, Params, SkillsBins};
use interlock_wire::{Request, Response};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the gateway may take to answer an event. After that, the result is sent anyway.
const EVENT_TIME: Duration = Duration::from_secs(10);
/// How long the gateway may take to answer a result.
const RESULT_TIME: Duration = Duration::from_secs(30);
/// How often a gateway is asked for the programs of its skills.
const SKILLS_PAUSE: Duration = Duration::from_secs(90);
/// A longer list is ignored.
const MAX_SKILLS: usize = 4096;
/// How many answers wait for a gateway. The oldest are dropped first.
const MAX_KEPT: usize = 256;
/// How many requests wait to be written.
const MAX_QUEUED: usize = 64;

/// The way to the gateway, over its present connection.
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
    /// Whether the connected gateway is an Interlock gateway.
    is_interlock: bool,
    requests: mpsc::Sender<UplinkCall>,
}

/// An event of a run for its session.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) event: NodeEvent,
    /// Whether an Interlock gateway can derive the event from the result, if a caller waits for the
    /// result there.
    pub(crate) is_implied: bool,
}

/// A request, and the receiver of its answer.
#[derive(Debug)]
pub(crate) struct UplinkCall {
    pub(crate) request: Request,
    pub(crate) answer: oneshot::Sender<Response>,
}

/// The fate of an answer.
enum Delivered {
    Taken,
    Refused(String),
    Gone,
}

enum UplinkAnswer {
    Answered(Response),
    /// The gateway is connected but does not answer.
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

    /// From now on, answers go to the connection that reads the returned channel.
    pub(crate) fn attach(&self, is_interlock: bool) -> mpsc::Receiver<UplinkCall> {
        let (requests, calls) = mpsc::channel(MAX_QUEUED);
        let channel = Channel {
            number: self.number(),
            is_interlock,
            requests,
        };
        self.current.send_replace(Some(channel));
        calls
    }

    pub(crate) fn detach(&self) {
        self.current.send_replace(None);
    }

    /// Sends the result, and the event if it is needed. Repeats this after a reconnect, until a
    /// gateway has received the result. Returns whether one has.
    pub(crate) async fn deliver(&self, notice: Option<Notice>, result: NodeInvokeResult) -> bool {
        let (number, dropped) = self.keep();
        let is_taken = tokio::select! {
            is_taken = self.try_deliver(notice, &result) => is_taken,
            () = dropped.cancelled() => {
                tracing::warn!(invoke = result.id, "too many answers wait: this one is dropped");
                false
            }
        };
        self.kept().retain(|(kept, _)| *kept != number);
        is_taken
    }

    /// Sends an event to the connected gateway, if there is one. The gateway asks for events that
    /// must not be lost when it reconnects.
    pub(crate) async fn tell(&self, event: &NodeEvent) {
        let current = self.current.borrow().clone();
        if let Some(channel) = current {
            channel.ask(event, EVENT_TIME).await;
        }
    }

    /// Asks the gateway for the programs of skills as soon as one is connected. Then waits for
    /// another connection, or until it is time to ask again.
    pub(crate) async fn ask_skills(&self, is_wanted: bool, tell: impl FnOnce(Vec<String>)) {
        let mut current = self.current.subscribe();
        let Some(channel) = next(&mut current, None).await else {
            return std::future::pending().await;
        };
        if is_wanted
            && let UplinkAnswer::Answered(response) = channel.ask(&SkillsBins {}, EVENT_TIME).await
            && let Some(bins) = skills(&response)
        {
            tell(bins);
        }
        let _ = timeout(SKILLS_PAUSE, next(&mut current, Some(channel.number))).await;
    }

    async fn try_deliver(&self, mut notice: Option<Notice>, result: &NodeInvokeResult) -> bool {
        let mut current = self.current.subscribe();
        loop {
            let Some(channel) = next(&mut current, None).await else {
                return false;
            };
            match channel.deliver(&mut notice, result).await {
                Delivered::Taken => return true,
                Delivered::Refused(why) => {
                    tracing::error!(invoke = result.id, why, "the gateway did not take a result");
                    return false;
                }
                Delivered::Gone => {}
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

/// Waits for a connection other than `not`.
async fn next(current: &mut watch::Receiver<Option<Channel>>, not: Option<u64>) -> Option<Channel> {
    let is_other = |channel: &Option<Channel>| {
        let number = channel.as_ref().map(|channel| channel.number);
        number.is_some() && number != not
    };
    let found = current.wait_for(is_other).await.ok()?;
    found.clone()
}

impl Channel {
    /// Sends the event first and waits for its answer. If the result implies the event, the event
    /// comes second, and only if no caller received the result.
    async fn deliver(&self, notice: &mut Option<Notice>, result: &NodeInvokeResult) -> Delivered {
        let is_implied = |notice: &Notice| self.is_interlock && notice.is_implied;
        if !notice.as_ref().is_some_and(is_implied) && self.tell(notice).await.is_err() {
            return Delivered::Gone;
        }
        let delivered = match self.ask(result, RESULT_TIME).await {
            UplinkAnswer::Answered(response) if is_taken(&response) => return Delivered::Taken,
            UplinkAnswer::Answered(Response {
                error: Some(error), ..
            }) => Delivered::Refused(error.message),
            UplinkAnswer::Answered(_) => Delivered::Taken,
            UplinkAnswer::Unanswered => Delivered::Refused("it says nothing".to_owned()),
            UplinkAnswer::Gone => return Delivered::Gone,
        };
        match self.tell(notice).await {
            Ok(()) => delivered,
            Err(()) => Delivered::Gone,
        }
    }

    /// Sends the event once. An error means that the gateway is gone.
    async fn tell(&self, notice: &mut Option<Notice>) -> Result<(), ()> {
        if let Some(undelivered) = notice {
            match self.ask(&undelivered.event, EVENT_TIME).await {
                UplinkAnswer::Answered(Response {
                    error: Some(error), ..
                }) => tracing::warn!(%error.message, "the gateway refused an event"),
                UplinkAnswer::Answered(_) | UplinkAnswer::Unanswered => {}
                UplinkAnswer::Gone => return Err(()),
            }
            *notice = None;
        }
        Ok(())
    }

    async fn ask<P: Params>(&self, params: &P, time: Duration) -> UplinkAnswer {
        let id = uuid::Uuid::new_v4().to_string();
        let Ok(request) = Request::new(id, params) else {
            return UplinkAnswer::Unanswered;
        };
        let (answer, answered) = oneshot::channel();
        if self
            .requests
            .send(UplinkCall { request, answer })
            .await
            .is_err()
        {
            return UplinkAnswer::Gone;
        }
        match tokio::time::timeout(time, answered).await {
            Ok(Ok(response)) => UplinkAnswer::Answered(response),
            Ok(Err(_)) => UplinkAnswer::Gone,
            Err(_) => UplinkAnswer::Unanswered,
        }
    }
}

fn skills(response: &Response) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Bins {
        bins: Vec<String>,
    }
    let payload = response.payload.as_deref()?;
    let bins: Bins = serde_json::from_str(payload.get()).ok()?;
    (bins.bins.len() <= MAX_SKILLS).then_some(bins.bins)
}

/// Whether a waiting caller received the result.
fn is_taken(response: &Response) -> bool {
    #[derive(Default, Deserialize)]
    struct ResultTaken {
        #[serde(default)]
        ignored: bool,
    }
    let payload = response.payload.as_deref();
    let taken = payload.and_then(|raw| serde_json::from_str::<ResultTaken>(raw.get()).ok());
    response.error.is_none() && !taken.unwrap_or_default().ignored
}
