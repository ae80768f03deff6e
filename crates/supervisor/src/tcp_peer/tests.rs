use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

fn connection() -> (TcpStream, TcpStream, TcpEnds) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    let local = server.local_addr().unwrap();
    (client, server, TcpEnds { local, peer })
}

fn origin(ends: TcpEnds) -> TcpOrigin {
    let place = SupervisorPaths::new(&std::env::temp_dir().join("interlock-no-such-state"));
    tcp_origins(&[ends], &place).remove(0)
}

/// As the gateway asks: again, while processes start and end.
fn settled_origin(ends: TcpEnds) -> TcpOrigin {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        match origin(ends) {
            TcpOrigin::Moving(_) if Instant::now() < until => {}
            origin => return origin,
        }
    }
}

#[test]
fn a_process_without_a_run_above_it_is_outside() {
    let (_client, _server, ends) = connection();
    assert_eq!(settled_origin(ends), TcpOrigin::Outside);
}

#[test]
fn an_address_of_another_machine_is_remote() {
    let (_client, _server, mut ends) = connection();
    ends.peer = "192.0.2.7:4242".parse().unwrap();
    assert_eq!(origin(ends), TcpOrigin::Remote);
}

#[test]
fn a_connection_that_the_other_end_gave_up_is_not_identified() {
    let (client, _server, ends) = connection();
    drop(client);
    assert!(matches!(origin(ends), TcpOrigin::Unidentified(_)));
}

/// The mark is what a run's processes have; here a process gets it by hand.
#[test]
fn one_marked_holder_makes_it_a_connection_of_a_run() {
    let (client, _server, ends) = connection();
    let inherited = Stdio::from(std::os::fd::OwnedFd::from(client.try_clone().unwrap()));
    let mut holder = Command::new("/bin/sh")
        .args([
            "-c",
            "ulimit -x 5 2> /dev/null || exec prlimit --locks=5 sleep 60; exec sleep 60",
        ])
        .stdin(inherited)
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    while origin(ends) != TcpOrigin::Run(None) {
        assert!(Instant::now() < until, "{:?}", origin(ends));
        std::thread::sleep(Duration::from_millis(5));
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(settled_origin(ends), TcpOrigin::Outside);
}

/// Between fork and exec a child holds every socket of its parent, and it may be gone when it is
/// looked at.
#[test]
fn a_program_that_starts_others_all_the_time_stays_outside() {
    let (_client, _server, ends) = connection();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    Command::new("/bin/true").status().unwrap();
                }
            });
        }
        for _ in 0..100 {
            let origin = settled_origin(ends);
            if origin != TcpOrigin::Outside {
                is_over.store(true, Ordering::Relaxed);
            }
            assert_eq!(origin, TcpOrigin::Outside);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
