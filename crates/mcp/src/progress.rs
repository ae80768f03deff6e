//! Progress reports for a waiting client, if it requested them.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use interlock_dispatch::tools::Progress;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;

/// The least time between two reports. Output in between is combined.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a report that is being sent may delay the result.
const LAST_NOTICE: Duration = Duration::from_secs(1);

/// Does the work and reports its progress, if the client requested reports; only then does `work`
/// get a sender. A report that is not being sent yet when the work ends is dropped.
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
    // A run that writes faster than reports are sent waits. Its next report contains all new
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
    // No report may follow the result.
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

/// The client that gets progress reports, and the number of reports so far.
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
            // A failure means that the client is gone.
            let _ = peer.notify_progress(notice).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
