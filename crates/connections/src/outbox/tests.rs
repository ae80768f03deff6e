use futures_util::StreamExt as _;
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// More than a socket takes when its peer does not read.
const MUCH: usize = 4 * 1024 * 1024;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_mins(1);

/// What is to be sent to a client, and that client.
async fn pair() -> (Arc<Outbox>, WebSocketStream<UnixStream>) {
    let (here, there) = UnixStream::pair().unwrap();
    let own = WebSocketStream::from_raw_socket(here, Role::Server, None).await;
    let client = WebSocketStream::from_raw_socket(there, Role::Client, None).await;
    let out = Outbox::new(Box::pin(own), Arc::default());
    (Arc::new(out), client)
}

async fn next(client: &mut WebSocketStream<UnixStream>) -> Message {
    let message = tokio::time::timeout(LONG, client.next()).await;
    message.unwrap().unwrap().unwrap()
}

/// Runs it until it has found that the client takes no more.
async fn fill(out: &Arc<Outbox>) -> tokio::task::JoinHandle<()> {
    let sending = Arc::clone(out);
    let task = tokio::spawn(async move { sending.run().await });
    while out.line().on_its_way.is_none() {
        tokio::task::yield_now().await;
    }
    task
}

#[tokio::test]
async fn a_client_that_is_slow_to_read_gets_all_and_the_reason_of_the_end() {
    let (out, mut client) = pair().await;
    out.leave(Outgoing::Text("x".repeat(MUCH)));
    out.leave(Outgoing::Text("last".to_owned()));
    out.leave(Outgoing::Close(Close::restart()));
    let task = fill(&out).await;
    // As when the connection ends while the client does not read.
    out.finish();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!task.is_finished());
    assert_eq!(next(&mut client).await.len(), MUCH);
    assert_eq!(next(&mut client).await, Message::text("last"));
    let Message::Close(Some(close)) = next(&mut client).await else {
        panic!("a close frame");
    };
    assert_eq!(close.reason.as_str(), Close::restart().reason);
    tokio::time::timeout(LONG, task).await.unwrap().unwrap();
    assert_eq!(out.bytes(), 0);
}

#[tokio::test]
async fn what_several_threads_send_comes_whole_and_each_in_its_order() {
    let (out, mut client) = pair().await;
    let sending = Arc::clone(&out);
    let task = tokio::spawn(async move { sending.run().await });
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let out = Arc::clone(&out);
            std::thread::spawn(move || {
                for number in 0..200 {
                    out.send(Outgoing::Text(format!("{thread} {number}")));
                }
            })
        })
        .collect();
    let mut following = [0; 4];
    for _ in 0..800 {
        let message = next(&mut client).await.into_text().unwrap();
        let (thread, number) = message.as_str().split_once(' ').unwrap();
        let thread: usize = thread.parse().unwrap();
        assert_eq!(number.parse::<usize>().unwrap(), following[thread]);
        following[thread] += 1;
    }
    for thread in threads {
        thread.join().unwrap();
    }
    out.finish();
    tokio::time::timeout(LONG, task).await.unwrap().unwrap();
}

#[tokio::test]
async fn nothing_is_counted_of_a_client_that_was_given_up() {
    let all = Arc::new(AtomicUsize::new(0));
    let (here, _there) = UnixStream::pair().unwrap();
    let own = WebSocketStream::from_raw_socket(here, Role::Server, None).await;
    let out = Arc::new(Outbox::new(Box::pin(own), Arc::clone(&all)));
    out.leave(Outgoing::Text("x".repeat(MUCH)));
    out.leave(Outgoing::Text("x".to_owned()));
    let task = fill(&out).await;
    // The frames that the socket took are counted off already.
    assert!(all.load(Ordering::Relaxed) > MUCH / 2);
    task.abort();
    out.give_up();
    assert_eq!((out.bytes(), all.load(Ordering::Relaxed)), (0, 0));
    out.send(Outgoing::Text("unread".to_owned()));
    assert_eq!(all.load(Ordering::Relaxed), 0);
}

/// A frame of one text is never followed by another text, whatever its characters are cut in.
#[tokio::test]
async fn a_long_text_goes_in_frames_and_comes_whole() {
    let (out, mut client) = pair().await;
    let sending = Arc::clone(&out);
    let task = tokio::spawn(async move { sending.run().await });
    let long = "ä€".repeat(SENT_TOGETHER);
    for round in 0..3 {
        out.leave(Outgoing::Text(long.clone()));
        out.leave(Outgoing::Ping);
        out.send(Outgoing::Text(format!("short {round}")));
    }
    out.finish();
    for round in 0..3 {
        assert_eq!(next(&mut client).await, Message::text(long.as_str()));
        assert!(matches!(next(&mut client).await, Message::Ping(_)));
        assert_eq!(
            next(&mut client).await,
            Message::text(format!("short {round}"))
        );
    }
    tokio::time::timeout(LONG, task).await.unwrap().unwrap();
    assert_eq!(out.bytes(), 0);
}

/// No buffer of a connection grows to the size of what it sent once.
#[tokio::test]
async fn no_frame_is_much_longer_than_what_is_sent_together() {
    let mut waiting = VecDeque::new();
    let mut message = first_frame(
        vec![b'x'; 5 * SENT_TOGETHER + 1].into(),
        Data::Text,
        &mut waiting,
    );
    let mut frames = Vec::new();
    loop {
        let Message::Frame(frame) = &message else {
            panic!("a frame");
        };
        frames.push(frame.payload().len());
        match waiting.pop_front() {
            Some(Outgoing::Rest(rest)) => message = first_frame(rest, Data::Continue, &mut waiting),
            _ => break,
        }
    }
    assert_eq!(frames.len(), 6);
    assert!(
        frames.iter().all(|length| *length <= SENT_TOGETHER),
        "{frames:?}"
    );
}
