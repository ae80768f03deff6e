//! Sends terminals and output of background sessions to the pages that watch them. One follower per
//! session serves all its viewers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlock_command::display::ShownLine;
use interlock_connections::Client;
use interlock_plan::PtySize;
use interlock_sessions::{Process, ProcessCaller, ProcessError};
use interlock_transcript::LineRange;
use interlock_transcript::screen::{Picture, Screen, ScreenRow, ScreenRun};
use interlock_web::{screen_row, session_output};
use interlock_wire::results::UiPatchOp;

use super::patches;
use crate::gateway::Gateway;

/// The time between two pictures of a screen.
const FRAME: Duration = Duration::from_millis(60);

/// How long one read of a session waits for more output.
const WAIT: Duration = Duration::from_millis(500);

/// The lines of output that a page shows for a session without a terminal.
const SHOWN_LINES: u64 = 400;

/// The most sessions that are followed at once. Each takes a thread.
const MOST_FOLLOWED: usize = 64;

/// The viewers of each followed session.
#[derive(Debug, Default)]
pub(super) struct ScreenFollowers(Mutex<HashMap<String, Vec<Arc<Client>>>>, SizeOwners);

/// The viewer that set the size of each session's terminal.
type SizeOwners = Mutex<HashMap<String, Arc<Client>>>;

impl ScreenFollowers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Client>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the viewers that are still connected. If none is left, it returns `None`, and the
    /// follower ends.
    fn viewers(&self, session: &str, topic: &str) -> Option<Vec<Arc<Client>>> {
        let mut all = self.lock();
        let viewers = all.get_mut(session)?;
        viewers.retain(|client| !client.is_gone() && client.topics.follows(topic));
        if viewers.is_empty() {
            all.remove(session);
            return None;
        }
        Some(viewers.clone())
    }
}

/// Sets the size of a session's terminal. The first viewer to do so owns the size while it watches
/// the session. Otherwise two windows would keep resizing it.
pub(super) fn fit(
    gateway: &Gateway,
    client: &Arc<Client>,
    session: &str,
    size: PtySize,
) -> Result<(), ScreenError> {
    let topic = topic(session);
    let owners = gateway.ui.screens.1.lock();
    let mut owners = owners.unwrap_or_else(PoisonError::into_inner);
    owners.retain(|session, owner| !owner.is_gone() && owner.topics.follows(&self::topic(session)));
    if let Some(owner) = owners.get(session)
        && owner.connection != client.connection
    {
        return Err(ScreenError::Owned(owner.name().to_owned()));
    }
    let process = gateway.dispatcher.process(ProcessCaller::Operator)?;
    process.resize(session, size)?;
    if client.topics.follows(&topic) {
        owners.insert(session.to_owned(), Arc::clone(client));
    }
    Ok(())
}

/// Why a terminal keeps its size.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScreenError {
    #[error("{0} gave this terminal its size, and watches it")]
    Owned(String),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Returns the topic of a session.
pub(super) fn topic(session: &str) -> String {
    format!("session:{session}")
}

/// Sends the session's picture to this client whenever it changes, until the session ends or the
/// client leaves.
pub(super) fn watch(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    session: &str,
    shown: SessionPicture,
) {
    let mut all = gateway.ui.screens.lock();
    let is_followed = all.contains_key(session);
    if !is_followed && all.len() >= MOST_FOLLOWED {
        return;
    }
    let viewers = all.entry(session.to_owned()).or_default();
    viewers.retain(|other| other.connection != client.connection);
    viewers.push(Arc::clone(client));
    drop(all);
    if !is_followed {
        let (gateway, session) = (Arc::clone(gateway), session.to_owned());
        tokio::task::spawn_blocking(move || follow(&gateway, &session, shown));
    }
}

/// What a page shows of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SessionPicture {
    Screen(Vec<ScreenRow>),
    Output(String),
}

fn follow(gateway: &Gateway, session: &str, mut shown: SessionPicture) {
    let topic = topic(session);
    let process = gateway.dispatcher.process(ProcessCaller::Operator);
    let Ok(process) = process else {
        gateway.ui.screens.lock().remove(session);
        return;
    };
    let link = gateway.dispatcher.supervisor.session(session).ok();
    let mut offset = 0;
    while let Some(viewers) = gateway.ui.screens.viewers(session, &topic) {
        if gateway.dispatcher.stop.is_cancelled() {
            return;
        }
        let begun = Instant::now();
        let waited = link.as_ref().map(|link| link.wait(offset, WAIT));
        let is_over = !matches!(&waited, Some(Ok(now)) if !now.ended);
        if let Some(Ok(now)) = &waited {
            offset = now.total_bytes;
        }
        if let Ok(now) = picture(gateway, &process, session) {
            let ops = changes(&shown, &now);
            if !ops.is_empty() {
                patches::send(&viewers, &topic, &ops, None);
            }
            shown = now;
        }
        if is_over {
            // An ended session accepts no input.
            let ended = UiPatchOp {
                op: "remove".to_owned(),
                id: "typing".to_owned(),
                html: String::new(),
            };
            patches::send(&viewers, &topic, &[ended], None);
            gateway.ui.screens.lock().remove(session);
            return;
        }
        std::thread::sleep(FRAME.saturating_sub(begun.elapsed()));
    }
}

/// Returns the present picture of a session.
pub(super) fn picture(
    gateway: &Gateway,
    process: &Process,
    session: &str,
) -> Result<SessionPicture, ProcessError> {
    match process.screen(session) {
        Ok(answer) => Ok(SessionPicture::Screen(styled(
            gateway,
            session,
            &answer.picture,
        ))),
        Err(ProcessError::NoTerminal { .. }) => {
            let range = LineRange {
                offset: None,
                limit: Some(SHOWN_LINES),
            };
            Ok(SessionPicture::Output(visible(
                &process.log(session, range)?.text,
            )))
        }
        Err(error) => Err(error),
    }
}

/// Returns lines of output in which every misleading character is spelled out.
pub(super) fn visible(text: &str) -> String {
    let lines = text.lines().map(|line| ShownLine::new(line).to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the colored rows of a running terminal. A terminal that has ended has plain rows.
fn styled(gateway: &Gateway, session: &str, picture: &Picture) -> Vec<ScreenRow> {
    let link = gateway.dispatcher.supervisor.session(session).ok();
    let drawing = link.and_then(|link| link.drawing().ok());
    let Some(drawing) = drawing else {
        return plain(picture);
    };
    let mut screen = Screen::new(picture.size);
    // The session's own terminal answers its program. This copy must not answer.
    let _ = screen.feed(&drawing.bytes);
    screen.styled_rows()
}

/// Returns the rows of a picture without colors.
pub(super) fn plain(picture: &Picture) -> Vec<ScreenRow> {
    let rows = picture.rows.iter().map(|row| ScreenRow {
        runs: vec![ScreenRun {
            text: row.clone(),
            ..ScreenRun::default()
        }],
    });
    rows.collect()
}

fn changes(before: &SessionPicture, now: &SessionPicture) -> Vec<UiPatchOp> {
    match (before, now) {
        (SessionPicture::Screen(old), SessionPicture::Screen(new)) => {
            let rows = new.iter().enumerate();
            let changed = rows.filter(|(at, row)| old.get(*at) != Some(row));
            let drawn = changed.map(|(at, row)| {
                let (op, id) = if at < old.len() {
                    ("replace", format!("s-{at}"))
                } else {
                    // The terminal has become taller.
                    ("append", "screen".to_owned())
                };
                UiPatchOp {
                    op: op.to_owned(),
                    id,
                    html: screen_row(at, row).into_string(),
                }
            });
            let gone = (new.len()..old.len()).map(|at| UiPatchOp {
                op: "remove".to_owned(),
                id: format!("s-{at}"),
                html: String::new(),
            });
            drawn.chain(gone).collect()
        }
        (SessionPicture::Output(old), SessionPicture::Output(new)) if old == new => Vec::new(),
        (_, SessionPicture::Output(new)) => vec![UiPatchOp {
            op: "replace".to_owned(),
            id: "output-text".to_owned(),
            html: session_output(new).into_string(),
        }],
        (SessionPicture::Output(_), SessionPicture::Screen(_)) => Vec::new(),
    }
}
