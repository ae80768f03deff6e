//! `interlock companion`: shows approvals as desktop notifications.
//!
//! `card` is the text of a notification, `board` tracks the notifications and their buttons, `bus`
//! talks to the notification server, and `screen_lock` knows whether the session is locked. This
//! module connects them with the approvals: read [`DesktopCompanion::look`], then
//! [`DesktopCompanion::take`].

mod board;
mod bus;
mod card;
mod screen_lock;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use interlock_approvals::companion::{CompanionListener, DesktopLock, ListenerError};
use interlock_approvals::{ApprovalDecision, ApprovalSummary, OutsideRuns, PendingApproval};
use interlock_arguments::{CompanionArguments, CompanionCommand, StateArguments};
use interlock_client::{open, outside_runs};
use interlock_command::display::Secrets;
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::{LocalHost, now_ms};
use interlock_inbox::ApprovalSource;
use interlock_inbox::decide::DecisionWords;
use interlock_policy::AlwaysForm;
use interlock_store::{Delivery, DeliveryState};
use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use tokio::signal::unix::{SignalKind, signal};

use self::board::{BoardPress, BoardStep, DesktopBoard, DesktopButton, PlacedNotification};
use self::bus::{DesktopBus, DesktopEvent, SentNotification};
use self::card::{DesktopText, no_allow};
use self::screen_lock::ScreenLock;
use super::dashboard;

/// The name of this surface in the delivery records.
const SURFACE: &str = "desktop";

/// How often the companion checks the socket.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often the companion reads the store.
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How long to wait before the next attempt to listen, while another companion has the socket.
const LISTEN_PAUSE: Duration = Duration::from_secs(5);

const LOCKED: &str = "the desktop session is locked, or it is not known whether it is";
const RUN_GOES_ON: &str = "a run is going on, and could press it";

pub fn run(state: &StateArguments, arguments: &CompanionArguments) -> CommandOutcome {
    match &arguments.command {
        Some(CompanionCommand::Install(install)) => {
            interlock_services::companion::install(state, install)
        }
        Some(CompanionCommand::Uninstall(service)) => {
            interlock_services::companion::uninstall(state, service)
        }
        None => show(state, arguments.allow),
    }
}

fn show(state: &StateArguments, allows: bool) -> CommandOutcome {
    let host = open(state)?;
    let outside = outside_runs(host.state_dir())?;
    let lock = DesktopLock::take(host.state_dir());
    let lock = lock.map_err(|error| Failure::refused("COMPANION_LOCK", error.to_string()))?;
    let Some(_lock) = lock else {
        let pid = interlock_approvals::companion::desktop_companion(host.state_dir());
        let pid = pid.map_or(String::new(), |pid| format!(" (pid {pid})"));
        let message = format!("a companion shows approvals on the desktop already{pid}");
        return Err(Failure::refused("COMPANION_RUNNING", message));
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime =
        runtime.map_err(|error| Failure::refused("RUNTIME_UNAVAILABLE", error.to_string()))?;
    runtime.block_on(async {
        let mut companion = DesktopCompanion::open(state, &host, outside, allows).await?;
        output::note("interlock: approvals are shown as notifications of this desktop");
        let ended = companion.serve().await;
        for number in companion.board.numbers() {
            companion.bus.close(number).await;
        }
        ended
    })?;
    Ok(ExitCode::SUCCESS)
}

/// An approval whose notification is on the desktop.
#[derive(Debug)]
struct ShownCard {
    approval: PendingApproval,
    text: DesktopText,
    /// Why the notification has no *Allow once*; `None` if it has.
    no_allow: Option<&'static str>,
}

/// The state of the companion.
struct DesktopCompanion<'a> {
    state: &'a StateArguments,
    host: &'a LocalHost,
    outside: OutsideRuns,
    allows: bool,
    bus: DesktopBus,
    lock: ScreenLock,
    supervisor: SupervisorClient,
    board: DesktopBoard,
    /// The shown approvals by id.
    cards: BTreeMap<String, ShownCard>,
    listener: Option<CompanionListener>,
    listen_from: Instant,
    store_from: Instant,
}

impl<'a> DesktopCompanion<'a> {
    async fn open(
        state: &'a StateArguments,
        host: &'a LocalHost,
        outside: OutsideRuns,
        allows: bool,
    ) -> Result<Self, Failure> {
        let place = SupervisorPaths::new(host.state_dir());
        let bus = DesktopBus::open(place.clone()).await?;
        let lock = ScreenLock::open(bus.session.clone(), place.clone()).await;
        let now = Instant::now();
        Ok(Self {
            state,
            host,
            outside,
            allows,
            bus,
            lock,
            supervisor: SupervisorClient::new(place, env!("CARGO_PKG_VERSION")),
            board: DesktopBoard::default(),
            cards: BTreeMap::new(),
            listener: None,
            listen_from: now,
            store_from: now,
        })
    }

    /// Shows approvals until a signal arrives or the bus is gone.
    async fn serve(&mut self) -> Result<(), Failure> {
        let unusable =
            |error: std::io::Error| Failure::refused("SIGNALS_UNUSABLE", error.to_string());
        let mut interrupt = signal(SignalKind::interrupt()).map_err(unusable)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(unusable)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(unusable)?;
        let mut looks = tokio::time::interval(POLL_INTERVAL);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
                event = self.bus.next() => {
                    let event = event.ok_or_else(|| bus::unavailable("the session bus is gone"))?;
                    self.take(event).await?;
                }
                _ = looks.tick() => self.look().await?,
            }
        }
    }

    /// Updates the desktop to the pending approvals.
    async fn look(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let brought = self.listen(now)?;
        if !brought && now < self.store_from {
            return Ok(());
        }
        self.store_from = now + STORE_POLL_INTERVAL;
        let waiting = ApprovalSource::Here(self.host).waiting()?;
        for step in self.board.look(&waiting, now) {
            match step {
                BoardStep::Close(number) => self.bus.close(number).await,
                BoardStep::Show(id) => self.show(&id).await?,
                BoardStep::ShowCount { ids, replaces } => {
                    self.show_count(ids, replaces, &waiting).await?;
                }
            }
        }
        let shown: BTreeSet<String> = self.board.shown().map(|(id, _)| id.to_owned()).collect();
        self.cards.retain(|id, _| shown.contains(id));
        self.follow_lock().await
    }

    /// Receives approvals from the socket, and returns whether one arrived. If another companion,
    /// such as a terminal, has the socket, approvals are still read from the store.
    fn listen(&mut self, now: Instant) -> Result<bool, Failure> {
        if self.listener.is_none() && now >= self.listen_from {
            self.listen_from = now + LISTEN_PAUSE;
            match CompanionListener::bind(self.host.approvals(), self.outside) {
                Ok(listener) => self.listener = Some(listener),
                Err(ListenerError::Busy { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match &mut self.listener {
            Some(listener) => Ok(!listener.look(self.host.approvals())?.is_empty()),
            None => Ok(false),
        }
    }

    /// Shows an approval with the buttons that are allowed now.
    async fn show(&mut self, id: &str) -> Result<(), Failure> {
        let source = ApprovalSource::Here(self.host);
        let approval = match source.approval(id, Secrets::Masked) {
            Ok(approval) => approval,
            Err(failure) => {
                failure.report(false);
                self.board.give_up(id);
                return Ok(());
            }
        };
        let text = DesktopText::of_approval(&approval);
        let mut reason = no_allow(&approval, &text);
        if text.could_be_markup() && !self.bus.draws_markup() {
            reason = reason.or(Some("this desktop may draw it as markup"));
        }
        if reason.is_none() && self.allows {
            reason = self.desktop_forbids().await;
        }
        let card = ShownCard {
            approval,
            text,
            no_allow: reason,
        };
        let is_first = !self.cards.contains_key(id);
        let sent = self.place(id, &card, 0).await;
        if is_first {
            self.record(id, sent.as_ref().err());
        }
        self.cards.insert(id.to_owned(), card);
        sent
    }

    async fn place(&mut self, id: &str, card: &ShownCard, replaces: u32) -> Result<(), Failure> {
        let mut text = card.text.clone();
        let mut buttons = vec![DesktopButton::Review, DesktopButton::Deny];
        if self.allows {
            match card.no_allow {
                None => buttons.push(DesktopButton::AllowOnce),
                Some(why) => text.body.push_str(&format!("\nno Allow here: {why}")),
            }
        }
        let sent = SentNotification {
            text: &text,
            buttons: buttons
                .iter()
                .flat_map(|button| [button.key(), button.label()])
                .collect(),
            replaces,
            asks: true,
        };
        let (number, server) = self.bus.notify(&sent).await?;
        let appeared = Instant::now();
        let placed = PlacedNotification {
            number,
            server,
            appeared,
        };
        self.board.placed(id, placed);
        Ok(())
    }

    async fn show_count(
        &mut self,
        ids: BTreeSet<String>,
        replaces: u32,
        waiting: &[ApprovalSummary],
    ) -> Result<(), Failure> {
        let counted = waiting.iter().filter(|one| ids.contains(&one.id));
        let text = DesktopText::of_many(counted.map(|one| one.agent.as_str()));
        let button = DesktopButton::Review;
        let sent = SentNotification {
            text: &text,
            buttons: vec![button.key(), button.label()],
            replaces,
            asks: true,
        };
        let (number, server) = self.bus.notify(&sent).await?;
        let placed = PlacedNotification {
            number,
            server,
            appeared: Instant::now(),
        };
        self.board.placed_count(ids, placed);
        Ok(())
    }

    /// Removes *Allow once* while the session is locked or a run is active, and restores it
    /// afterwards.
    async fn follow_lock(&mut self) -> Result<(), Failure> {
        let shown = self.board.shown();
        let shown: Vec<(String, u32)> = shown
            .map(|(id, placed)| (id.to_owned(), placed.number))
            .collect();
        let is_movable =
            |card: &ShownCard| matches!(card.no_allow, None | Some(LOCKED | RUN_GOES_ON));
        if !self.allows || !self.cards.values().any(is_movable) {
            return Ok(());
        }
        let reason = self.desktop_forbids().await;
        for (id, number) in shown {
            let Some(mut card) = self.cards.remove(&id) else {
                continue;
            };
            if is_movable(&card) && card.no_allow != reason {
                card.no_allow = reason;
                self.place(&id, &card, number).await?;
            }
            self.cards.insert(id, card);
        }
        Ok(())
    }

    /// Why no press may allow anything at this moment.
    async fn desktop_forbids(&self) -> Option<&'static str> {
        if !self.lock.is_open().await {
            return Some(LOCKED);
        }
        let supervisors = self.supervisor.supervisors_that_let_us();
        let is_quiet = supervisors.is_ok_and(|all| all.iter().all(|one| one.running == 0));
        (!is_quiet).then_some(RUN_GOES_ON)
    }

    /// Handles an event of the desktop.
    async fn take(&mut self, event: DesktopEvent) -> Result<(), Failure> {
        let (number, server, key) = match event {
            DesktopEvent::Pressed {
                number,
                server,
                key,
            } => (number, server, key),
            DesktopEvent::Closed { number, server } => {
                self.board.closed(number, &server);
                return Ok(());
            }
            DesktopEvent::ServerChanged => {
                self.board.server_changed();
                return Ok(());
            }
        };
        match self.board.press(number, &server, &key, Instant::now()) {
            BoardPress::Unknown => {}
            BoardPress::TooSoon(number) => self.bus.close(number).await,
            BoardPress::Count => {
                self.bus.close(number).await;
                let opened = dashboard::open_inbox(self.state, self.host);
                self.report("The pages were not opened", opened).await?;
            }
            BoardPress::Approval(id, button) => {
                // Some servers leave a notification open after a press.
                self.bus.close(number).await;
                self.press(&id, button).await?;
            }
        }
        Ok(())
    }

    async fn press(&mut self, id: &str, button: DesktopButton) -> Result<(), Failure> {
        let decision = match button {
            DesktopButton::Review => {
                let opened = dashboard::open_approval(self.state, self.host, id);
                return self.report("The page was not opened", opened).await;
            }
            DesktopButton::Deny => ApprovalDecision::Deny,
            DesktopButton::AllowOnce => ApprovalDecision::AllowOnce,
        };
        // Only an approval that was shown can be decided, as it was shown.
        let Some(card) = self.cards.remove(id) else {
            return Ok(());
        };
        if decision.allows() {
            let mut forbids = match (self.allows, card.no_allow) {
                (true, reason) => reason,
                (false, _) => Some("the companion was started without --allow"),
            };
            if forbids.is_none() {
                forbids = self.desktop_forbids().await;
            }
            if let Some(why) = forbids {
                self.board.show_again(id);
                let text = DesktopText::note(&format!("{} was not allowed", short(&card)), why);
                return self.notify_approver(&text).await;
            }
        }
        let words = DecisionWords {
            decision,
            form: AlwaysForm::Exact,
            reason: None,
        };
        let source = ApprovalSource::Here(self.host);
        let answered = source.answer(&card.approval, words, SURFACE, self.outside);
        let word = match decision {
            ApprovalDecision::Deny => "denied",
            _ => "allowed",
        };
        match answered {
            Ok(answer) => match answer.unawaited {
                Some(why) => {
                    let summary = format!("{} is {word}", short(&card));
                    self.notify_approver(&DesktopText::note(&summary, &why))
                        .await
                }
                None => Ok(()),
            },
            Err(failure) => {
                let summary = format!("{} was not {word}", short(&card));
                self.report(&summary, Err(failure)).await
            }
        }
    }

    /// Shows a failure on the desktop.
    async fn report(&mut self, summary: &str, done: Result<(), Failure>) -> Result<(), Failure> {
        match done {
            Ok(()) => Ok(()),
            Err(failure) => {
                let text = DesktopText::note(summary, &failure.to_string());
                failure.report_at(self.state, false);
                self.notify_approver(&text).await
            }
        }
    }

    async fn notify_approver(&mut self, text: &DesktopText) -> Result<(), Failure> {
        let sent = SentNotification {
            text,
            buttons: Vec::new(),
            replaces: 0,
            asks: false,
        };
        self.bus.notify(&sent).await.map(|_| ())
    }

    /// Records the delivery. A sent notification does not count as seen, so other surfaces still
    /// notify.
    fn record(&self, id: &str, failure: Option<&Failure>) {
        let delivery = Delivery {
            surface: SURFACE.to_owned(),
            state: match failure {
                None => DeliveryState::Sent,
                Some(_) => DeliveryState::Failed,
            },
            at_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
            detail: failure.map(ToString::to_string),
        };
        if let Err(error) = self.host.store().record_delivery(id, &delivery) {
            output::note(&format!("warning: a receipt was not recorded: {error}"));
        }
    }
}

fn short(card: &ShownCard) -> &str {
    &card.approval.short_id
}
