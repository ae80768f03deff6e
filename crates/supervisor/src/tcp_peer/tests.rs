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

fn looks() -> TcpLooks {
    let place = SupervisorPaths::new(&std::env::temp_dir().join("interlock-no-such-state"));
    TcpLooks::new(place)
}

fn origin(ends: TcpEnds) -> TcpOrigin {
    looks().origins(&[ends]).remove(0)
}

/// As the gateway asks: again, while processes start and end.
fn settled(looks: &mut TcpLooks, ends: TcpEnds) -> TcpOrigin {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        match looks.origins(&[ends]).remove(0) {
            TcpOrigin::Moving(_) if Instant::now() < until => {}
            origin => return origin,
        }
    }
}

fn settled_origin(ends: TcpEnds) -> TcpOrigin {
    settled(&mut looks(), ends)
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
fn marked_holder(client: &TcpStream) -> std::process::Child {
    let inherited = Stdio::from(std::os::fd::OwnedFd::from(client.try_clone().unwrap()));
    Command::new("/bin/sh")
        .args([
            "-c",
            "ulimit -x 5 2> /dev/null || exec prlimit --locks=5 sleep 60; exec sleep 60",
        ])
        .stdin(inherited)
        .spawn()
        .unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_marked_holder_makes_it_a_connection_of_a_run() {
    let (client, _server, ends) = connection();
    let mut holder = marked_holder(&client);
    wait_until("the holder is known", || {
        origin(ends) == TcpOrigin::Run(None)
    });
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

/// What is remembered of this process does not hide what gets its connection later, nor that it is
/// marked itself.
#[test]
fn a_known_holder_hides_no_holder_of_a_run() {
    let (client, _server, ends) = connection();
    let mut looks = looks();
    let me = i32::try_from(std::process::id()).unwrap();
    wait_until("this process is known", || {
        assert_eq!(settled(&mut looks, ends), TcpOrigin::Outside);
        looks.learn();
        looks.seen.knows_outsider(me)
    });
    assert_eq!(settled(&mut looks, ends), TcpOrigin::Outside);
    let mut holder = marked_holder(&client);
    wait_until("the holder is known", || {
        looks.learn();
        looks.origins(&[ends]) == [TcpOrigin::Run(None)]
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(settled(&mut looks, ends), TcpOrigin::Outside);
    let (second, _other_server, others) = connection();
    assert_eq!(settled(&mut looks, others), TcpOrigin::Outside);
    drop(second);
    let gone = looks.origins(&[others]).remove(0);
    assert!(matches!(gone, TcpOrigin::Unidentified(_)), "{gone:?}");
}

/// A process that holds a connection, was known before, and is marked then.
#[test]
fn a_mark_counts_whatever_is_remembered() {
    let (client, _server, ends) = connection();
    let mut holder = Command::new("/bin/sh")
        .args([
            "-c",
            "read go; ulimit -x 5 || exec prlimit --locks=5 sleep 60; sleep 60",
        ])
        .stdin(Stdio::piped())
        .stdout(std::os::fd::OwnedFd::from(client.try_clone().unwrap()))
        .spawn()
        .unwrap();
    let pid = i32::try_from(holder.id()).unwrap();
    let mut looks = looks();
    wait_until("the holder is known", || {
        assert_eq!(settled(&mut looks, ends), TcpOrigin::Outside);
        looks.learn();
        looks.seen.knows_outsider(pid)
    });
    drop(holder.stdin.take());
    wait_until("the mark is seen", || {
        looks.learn();
        looks.origins(&[ends]) == [TcpOrigin::Run(None)]
    });
    assert!(!looks.seen.knows_outsider(pid));
    holder.kill().unwrap();
    holder.wait().unwrap();
}
