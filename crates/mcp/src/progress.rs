//! Reports of progress to a client that waits, where it asked for them.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use interlock_dispatch::tools::Progress;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;

/// Notices of progress come no closer than this; what was written meanwhile comes together.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a notice that is on its way may hold back the result.
const LAST_NOTICE: Duration = Duration::from_secs(1);

/// Does the work, and reports its progress to a client that wants that: only then is the work given
/// a sender. A report that is not on its way when the work ends is dropped.
pub async fn report_progress<T>(
    context: &RequestContext<RoleServer>,
    work: impl AsyncFnOnce(Option<mpsc::Sender<Progress>>) -> T,
) -> T {
    let Some(token) = context.meta.get_progress_token() else {
        return work(None).await;
    };
    let mut notices = Notices {
        token,
        peer: context.peer.clone(),
        count: 0,
    };
    // A run that writes faster than reports are sent waits, and its next report holds all new
    // output.
    let (sender, mut receiver) = mpsc::channel(1);
    let work = work(Some(sender));
    tokio::pin!(work);
    let mut notice = None;
    let result = loop {
        tokio::select! {
            biased;
            result = &mut work => break result,
            () = sent(&mut notice), if notice.is_some() => notice = None,
            Some(progress) = receiver.recv(), if notice.is_none() => {
                notice = Some(notices.send(progress).boxed());
            }
        }
    };
    // None may follow the result.
    if let Some(notice) = notice {
        let _ = tokio::time::timeout(LAST_NOTICE, notice).await;
    }
    result
}

async fn sent(notice: &mut Option<BoxFuture<'static, ()>>) {
    if let Some(notice) = notice {
        notice.await;
    }
}

/// The client that gets reports of progress, and how many it got.
struct Notices {
    token: ProgressToken,
    peer: Peer<RoleServer>,
    count: u32,
}

impl Notices {
    fn send(&mut self, progress: Progress) -> impl Future<Output = ()> + Send + use<> {
        self.count = self.count.saturating_add(1);
        let message = match progress {
            Progress::Output(text) | Progress::Waiting(text) => text,
        };
        let notice = ProgressNotificationParam::new(self.token.clone(), f64::from(self.count));
        let (notice, peer) = (notice.with_message(message), self.peer.clone());
        async move {
            // A client that is gone gets no report.
            let _ = peer.notify_progress(notice).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
