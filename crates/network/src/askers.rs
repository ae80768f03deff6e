//! The processes that answer this process's questions: a gateway, and commands that wait for a run.
//! They have the store, know which run a connection comes from, and ask an approver. This process
//! knows none of that. While none of them is connected, names that no entry lists are refused.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_engine::sandbox::{MOST_QUESTION_BYTES, NetworkAnswer, NetworkQuestion};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

/// How long a connection waits for a decision.
pub(crate) const ASK_TIME: Duration = Duration::from_secs(30);

/// Extra time for the final answer of a process, which knows how long the connection waits.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long to wait for a process to connect, because one that has just started a run may not have
/// done so yet.
const JOIN_TIME: Duration = Duration::from_secs(3);

/// Number of unread questions above which a process is skipped.
const MOST_UNREAD: usize = 256;

pub(crate) const NO_ASKER: &str = "not in network.allow, and no gateway runs that could ask";
const NO_ANSWER: &str = "not in network.allow, and no approver decided in time";

/// All processes that answer questions.
#[derive(Debug, Clone)]
pub(crate) struct Askers {
    state: Arc<Mutex<AskerState>>,
    /// Prefix of question IDs, which is different for each instance of `netd`.
    nonce: Arc<str>,
    /// Notifies that another process has joined.
    joined: Arc<Notify>,
    join_time: Duration,
}

#[derive(Debug, Default)]
struct AskerState {
    next: u64,
    links: HashMap<u64, mpsc::Sender<Arc<[u8]>>>,
    waiting: HashMap<String, WaitingQuestion>,
}

#[derive(Debug)]
struct WaitingQuestion {
    /// Processes that have not answered yet.
    asked: BTreeSet<u64>,
    tell: oneshot::Sender<NetworkAnswer>,
}

impl Askers {
    pub fn new() -> io::Result<Self> {
        let mut bytes = [0_u8; 8];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self {
            state: Arc::default(),
            nonce: format!("{:016x}", u64::from_ne_bytes(bytes)).into(),
            joined: Arc::default(),
            join_time: JOIN_TIME,
        })
    }

    /// Adds a process, which answers questions until it closes the connection.
    pub fn add(&self, connection: OwnedFd) -> io::Result<()> {
        let stream = std::os::unix::net::UnixStream::from(connection);
        stream.set_nonblocking(true)?;
        let (from, to) = UnixStream::from_std(stream)?.into_split();
        let (sender, questions) = mpsc::channel(MOST_UNREAD);
        let mut state = self.lock();
        state.next += 1;
        let link = state.next;
        state.links.insert(link, sender);
        drop(state);
        self.joined.notify_waiters();
        let askers = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = askers.hear(link, from) => {}
                _ = send(questions, to) => {}
            }
            askers.lose(link);
        });
        Ok(())
    }

    /// Asks all processes. The first decision counts. `question` needs no ID.
    pub async fn ask(&self, mut question: NetworkQuestion) -> NetworkAnswer {
        let joined = self.joined.notified();
        if self.lock().links.is_empty() {
            let _ = timeout(self.join_time, joined).await;
        }
        let (tell, told) = oneshot::channel();
        let id = {
            let mut state = self.lock();
            state.next += 1;
            let id = format!("{}-{}", self.nonce, state.next);
            question.id.clone_from(&id);
            let mut line = serde_json::to_vec(&question).unwrap_or_default();
            line.push(b'\n');
            let line: Arc<[u8]> = line.into();
            let took = |(link, sender): (&u64, &mpsc::Sender<Arc<[u8]>>)| {
                let is_sent = sender.try_send(Arc::clone(&line)).is_ok();
                is_sent.then_some(*link)
            };
            let asked: BTreeSet<u64> = state.links.iter().filter_map(took).collect();
            if asked.is_empty() {
                return refusal(id, NO_ASKER);
            }
            let waiting = WaitingQuestion { asked, tell };
            state.waiting.insert(id.clone(), waiting);
            id
        };
        let time = Duration::from_millis(question.wait_ms) + LAST_WORDS;
        let answer = timeout(time, told).await;
        self.lock().waiting.remove(&id);
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => refusal(id, NO_ASKER),
            Err(_) => refusal(id, NO_ANSWER),
        }
    }

    async fn hear(&self, link: u64, from: OwnedReadHalf) {
        let mut lines = BufReader::new(from);
        loop {
            let mut said = Vec::new();
            let mut bounded = (&mut lines).take(MOST_QUESTION_BYTES as u64);
            match bounded.read_until(b'\n', &mut said).await {
                Ok(length) if length > 0 && said.ends_with(b"\n") => {}
                // The process is gone, or sent something that is not an answer.
                _ => return,
            }
            if let Ok(answer) = serde_json::from_slice::<NetworkAnswer>(&said) {
                self.take_answer(link, answer);
            }
        }
    }

    fn take_answer(&self, link: u64, answer: NetworkAnswer) {
        let mut state = self.lock();
        let Some(waiting) = state.waiting.get_mut(&answer.id) else {
            return;
        };
        // Only processes that were asked may answer.
        if !waiting.asked.remove(&link) {
            return;
        }
        let is_last = waiting.asked.is_empty();
        if (!answer.cannot_ask || is_last)
            && let Some(waiting) = state.waiting.remove(&answer.id)
        {
            let _ = waiting.tell.send(answer);
        }
    }

    fn lose(&self, link: u64) {
        let mut state = self.lock();
        state.links.remove(&link);
        // Once no process is left that could answer, the sender is dropped, which reports that.
        state.waiting.retain(|_, waiting| {
            waiting.asked.remove(&link);
            !waiting.asked.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, AskerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(id: String, reason: &str) -> NetworkAnswer {
    NetworkAnswer {
        id,
        allowed: false,
        reason: reason.to_owned(),
        run_id: None,
        cannot_ask: true,
    }
}

async fn send(mut questions: mpsc::Receiver<Arc<[u8]>>, mut to: OwnedWriteHalf) -> io::Result<()> {
    // An earlier instance of `netd` may have left half a line.
    to.write_all(b"\n").await?;
    while let Some(question) = questions.recv().await {
        to.write_all(&question).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(host: &str, wait_ms: u64) -> NetworkQuestion {
        NetworkQuestion {
            id: String::new(),
            scope_id: "00".to_owned(),
            scope: "agent main".to_owned(),
            host: host.to_owned(),
            port: 443,
            namespace: 1,
            from: "127.0.0.1:5000".parse().unwrap(),
            to: "198.18.1.0:443".parse().unwrap(),
            wait_ms,
        }
    }

    async fn read(from: &mut BufReader<UnixStream>) -> NetworkQuestion {
        loop {
            let mut line = String::new();
            from.read_line(&mut line).await.unwrap();
            if let Ok(question) = serde_json::from_str(&line) {
                return question;
            }
        }
    }

    async fn answer(to: &mut BufReader<UnixStream>, id: &str, allowed: bool, cannot_ask: bool) {
        let answer = NetworkAnswer {
            id: id.to_owned(),
            allowed,
            reason: "said".to_owned(),
            run_id: None,
            cannot_ask,
        };
        let mut line = serde_json::to_vec(&answer).unwrap();
        line.push(b'\n');
        to.get_mut().write_all(&line).await.unwrap();
    }

    fn without_patience() -> Askers {
        Askers {
            join_time: Duration::from_millis(20),
            ..Askers::new().unwrap()
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_process_that_joins_a_moment_later_is_asked() {
        let askers = Askers::new().unwrap();
        let asking = tokio::spawn({
            let askers = askers.clone();
            async move { askers.ask(question("a.test", 30_000)).await }
        });
        tokio::task::yield_now().await;
        let mut one = joined(&askers);
        let id = read(&mut one).await.id;
        answer(&mut one, &id, true, false).await;
        assert!(asking.await.unwrap().allowed);
    }

    fn joined(askers: &Askers) -> BufReader<UnixStream> {
        let (own, other) = std::os::unix::net::UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        askers.add(other.into()).unwrap();
        BufReader::new(UnixStream::from_std(own).unwrap())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn without_a_process_that_could_ask_a_name_is_refused_at_once() {
        let askers = without_patience();
        let answered = askers.ask(question("a.test", 30_000)).await;
        assert!(!answered.allowed && answered.reason == NO_ASKER);
        // One that goes while it is asked is no answer either.
        let mut one = joined(&askers);
        let asking = tokio::spawn({
            let askers = askers.clone();
            async move { askers.ask(question("a.test", 30_000)).await }
        });
        read(&mut one).await;
        drop(one);
        let answered = asking.await.unwrap();
        assert!(!answered.allowed && answered.reason == NO_ASKER);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_answer_is_for_the_question_that_it_names() {
        let askers = without_patience();
        let (mut one, mut two) = (joined(&askers), joined(&askers));
        let ask = |host: &'static str, wait_ms| {
            let askers = askers.clone();
            tokio::spawn(async move { askers.ask(question(host, wait_ms)).await })
        };
        let first = ask("a.test", 30_000);
        let id = read(&mut one).await.id;
        assert_eq!(read(&mut two).await.id, id);
        // Half a line, a line without end, an id that is not waited for, and the answer.
        one.get_mut().write_all(b"{\"id\":\n").await.unwrap();
        answer(&mut one, "0000000000000000-1", true, false).await;
        answer(&mut one, &id, false, true).await;
        answer(&mut two, &id, true, false).await;
        assert!(first.await.unwrap().allowed);
        // What was said of the first is not heard again, and says nothing of the second.
        let second = ask("b.test", 200);
        let second_id = read(&mut one).await.id;
        assert_ne!(second_id, id);
        assert_eq!(read(&mut two).await.id, second_id);
        answer(&mut one, &id, true, false).await;
        answer(&mut two, &id, true, false).await;
        let second = second.await.unwrap();
        assert!(!second.allowed && second.reason == NO_ANSWER);
        // One that sends without end is not listened to, and does no harm.
        let mut long = vec![b'x'; MOST_QUESTION_BYTES * 2];
        long.push(b'\n');
        let _ = one.get_mut().write_all(&long).await;
        let third = ask("c.test", 30_000);
        let id = read(&mut two).await.id;
        answer(&mut two, &id, true, false).await;
        assert!(third.await.unwrap().allowed);
    }
}
