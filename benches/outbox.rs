//! What it buys that an answer is sent by the thread that has it, beside one that is left to the task of
//! its connection. Both go through the same outbox, in turns.
//!
//! `cargo bench -p interlock --bench outbox`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss
)]

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use interlock_connections::{Outbox, Outgoing};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const ROUNDS: usize = 2_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (writer, _) = listener.accept().unwrap();
    writer.set_nodelay(true).unwrap();
    writer.set_nonblocking(true).unwrap();
    let outbox = runtime.block_on(async {
        let writer = tokio::net::TcpStream::from_std(writer).unwrap();
        let socket = WebSocketStream::from_raw_socket(writer, Role::Server, None).await;
        let (sink, _) = socket.split();
        Arc::new(Outbox::new(Box::pin(sink), Arc::default()))
    });
    // As in the gateway: one thread serves the connections, others have the answers.
    let served = Arc::clone(&outbox);
    let serving = std::thread::spawn(move || runtime.block_on(served.run()));
    let mut client = tungstenite::WebSocket::from_raw_socket(reader, Role::Client, None);
    let mut measure = |send: fn(&Outbox, Outgoing)| {
        let began = Instant::now();
        send(&outbox, Outgoing::Text("x".repeat(300)));
        assert!(matches!(client.read().unwrap(), Message::Text(_)));
        began.elapsed()
    };
    let (mut own, mut left) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(measure(Outbox::send));
        left.push(measure(Outbox::leave));
    }
    let (own, left) = (median(&mut own), median(&mut left));
    println!(
        "an answer, sent by the thread that has it: {own:?} beside {left:?} by the task: {:.2} times",
        own.as_secs_f64() / left.as_secs_f64()
    );
    outbox.finish();
    serving.join().unwrap();
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}
