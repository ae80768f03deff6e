//! Receives runs: the supervisor hands over the connection of a client that has one, or the last
//! client has another.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_plan::RunPlan;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::conversation::SEND_TIME;
use super::{Birth, Last, report_over, timespec};
use crate::frame;
use crate::handover::{self, Note};
use crate::message::{Go, ShimReady, SupervisorRefusal};

/// How long a client may take to send its order.
const ORDER_TIME: Duration = Duration::from_secs(10);

/// How long to wait for the client of the last run. After that, other clients may have this
/// process.
const NEXT_ORDER_TIME: Duration = Duration::from_secs(10);

/// Waits for the next run of the same agent: for a short time from the last client, and then from
/// any client. A client that learns that this process is waiting finds everything ready, except
/// what `prepare` makes meanwhile. Returns `None` if there is to be no further run.
pub(super) fn next(
    birth: &Birth,
    last: Option<Last>,
    prepare: impl FnOnce(),
) -> Option<Arc<UnixStream>> {
    if let Some(Last {
        over,
        agent,
        orderer,
        confined,
    }) = last
    {
        if let Some(orderer) = orderer {
            match await_orderer(birth, &orderer, prepare) {
                AwaitedOrder::Order => return Some(orderer),
                AwaitedOrder::Nothing if confined => return None,
                AwaitedOrder::Nothing => {}
                AwaitedOrder::End => return None,
            }
        }
        report_over(birth, over, Some(agent));
    }
    loop {
        match take_note(birth) {
            IdleMessage::Order(connection) => return Some(Arc::new(connection)),
            IdleMessage::Nothing => {}
            IdleMessage::End => return None,
        }
    }
}

/// The result of waiting for another order of the last client.
enum AwaitedOrder {
    Order,
    Nothing,
    End,
}

fn await_orderer(birth: &Birth, orderer: &UnixStream, prepare: impl FnOnce()) -> AwaitedOrder {
    if frame::send(orderer, &ShimReady).is_err() {
        return AwaitedOrder::Nothing;
    }
    prepare();
    let until = Instant::now() + NEXT_ORDER_TIME;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut polled = [
            PollFd::new(&birth.control, PollFlags::IN),
            PollFd::new(orderer, PollFlags::IN),
        ];
        match rustix::event::poll(&mut polled, Some(&timespec(left))) {
            Err(Errno::INTR) => continue,
            Ok(1..) => {}
            Ok(0) | Err(_) => return AwaitedOrder::Nothing,
        }
        let [has_note, has_order] = polled.map(|one| !one.revents().is_empty());
        // A supervisor that wants no further orders is heard first.
        if has_note {
            if let IdleMessage::End = take_note(birth) {
                return AwaitedOrder::End;
            }
        } else if has_order {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            return match rustix::net::recv(orderer, &mut [0], flags) {
                Ok((1.., _)) => AwaitedOrder::Order,
                _ => AwaitedOrder::Nothing,
            };
        }
    }
}

/// A message from the supervisor while nothing runs.
enum IdleMessage {
    Order(UnixStream),
    Nothing,
    /// There are no further orders, or the supervisor is gone.
    End,
}

fn take_note(birth: &Birth) -> IdleMessage {
    match handover::receive_note(&birth.control) {
        Ok(Some(Note::Start(connection))) => IdleMessage::Order(connection.into()),
        // The connection comes too late for the last run.
        Ok(Some(Note::Connection(connection))) => {
            let gone = SupervisorRefusal::new("SESSION_NOT_RUNNING", "the session has just ended");
            let _ = frame::send(&UnixStream::from(connection), &Err::<(), _>(gone));
            IdleMessage::Nothing
        }
        Ok(Some(
            Note::Quota(_)
            | Note::Shield(..)
            | Note::ShieldFailed(_)
            | Note::Scope(_)
            | Note::ScopeFailed(_)
            | Note::ScopeAbsent
            | Note::ScopeGone,
        )) => IdleMessage::Nothing,
        Ok(Some(Note::Drain) | None) | Err(_) => IdleMessage::End,
    }
}

/// Waits for the order as long as both the orderer and the supervisor are there. Once the order
/// begins to arrive, the rest must arrive quickly.
pub(super) fn read_plan(
    birth: &Birth,
    connection: &UnixStream,
) -> Result<RunPlan, SupervisorRefusal> {
    loop {
        let mut polled = [
            PollFd::new(connection, PollFlags::IN),
            PollFd::new(&birth.control, PollFlags::IN),
        ];
        let polling = rustix::event::poll(&mut polled, None);
        if !polled[0].revents().is_empty() {
            break;
        }
        if polling.is_ok()
            && let IdleMessage::End = take_note(birth)
        {
            let message = "this supervisor takes no further runs";
            return Err(SupervisorRefusal::new("DRAINING", message));
        }
    }
    let read = || {
        connection.set_read_timeout(Some(ORDER_TIME))?;
        connection.set_write_timeout(Some(SEND_TIME))?;
        receive(connection)
    };
    read().map_err(|error| unreadable(&error))
}

/// Reads the rest of the order. The client that announced the plan may still be finding out whether
/// the plan may run.
pub(super) fn read_go(connection: &UnixStream) -> Result<Go, SupervisorRefusal> {
    receive(connection).map_err(|error| unreadable(&error))
}

fn receive<T: serde::de::DeserializeOwned>(connection: &UnixStream) -> io::Result<T> {
    Ok(frame::receive(connection)?.ok_or(io::ErrorKind::UnexpectedEof)?)
}

fn unreadable(error: &io::Error) -> SupervisorRefusal {
    SupervisorRefusal::new("ORDER_UNREADABLE", format!("no usable order: {error}"))
}
