//! Where approvals are read and decided: in the store of this machine, or at the gateway that
//! `gateway.remote` names.
//!
//! Both offer the same operations. A decision at a remote gateway names the digest of the plan that
//! was on the screen, so that the gateway decides exactly what the approver read.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use interlock_approvals::{
    ApprovalDecision, ApprovalEnd, ApprovalEnding, ApprovalSummary, OutsideRuns, PendingApproval,
    PendingCursor, StoredDecision, UnreadableApproval, read_summaries,
};
use interlock_arguments::StateArguments;
use interlock_client::{CallFailure, GatewayClient, RemoteGateway, read_result};
use interlock_command::display::Secrets;
use interlock_console::Failure;
use interlock_host::{LocalHost, now_ms};
use interlock_policy::{AlwaysForm, Entry};
use interlock_wire::params::{ExecApprovalGet, ExecApprovalList, ExecApprovalResolve, Params};
use serde::Deserialize;
use serde_json::Value;

use super::decide::{DecisionWords, answer, check_shown, unawaited, unawaited_elsewhere};

/// How long the gateway may take to answer before it counts as unreachable.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How many approvals one request lists.
const PAGE: usize = 500;

/// How long to wait before the next attempt to reach an unreachable gateway.
const RECONNECT_DELAY: Duration = Duration::from_secs(2);

/// The error code of a gateway that is unreachable for now.
const UNREACHABLE: &str = "GATEWAY_UNREACHABLE";

/// Where approvals wait.
#[derive(Debug)]
pub enum ApprovalSource<'a> {
    Here(&'a LocalHost),
    Gateway(RemoteInbox),
}

/// A page of pending approvals. The approval that expires first comes first.
#[derive(Debug)]
pub struct WaitingApprovals {
    pub approvals: Vec<ApprovalSummary>,
    /// How many approvals are pending on all pages.
    pub total: u64,
    /// Where the next page begins; `None` on the last page.
    pub next: Option<PendingCursor>,
}

/// The result of a decision.
#[derive(Debug)]
pub struct DecisionAnswer {
    pub stored: StoredDecision,
    /// What the approver should know if no process waits to start what was allowed.
    pub unawaited: Option<String>,
}

impl<'a> ApprovalSource<'a> {
    /// Opens the inbox of the remote gateway that the owner follows, or else that of this machine.
    pub fn open(state: &StateArguments, host: &'a LocalHost) -> Result<Self, Failure> {
        Ok(match RemoteGateway::followed(state, host)? {
            Some(remote) => Self::Gateway(RemoteInbox::connect(host, remote)?),
            None => Self::Here(host),
        })
    }

    /// The address of the remote gateway; `None` for the inbox of this machine.
    pub fn gateway(&self) -> Option<String> {
        match self {
            Self::Here(_) => None,
            Self::Gateway(remote) => Some(remote.gateway.target.url()),
        }
    }

    /// A page of the pending approvals.
    pub fn page(
        &self,
        after: Option<PendingCursor>,
        limit: usize,
    ) -> Result<WaitingApprovals, Failure> {
        match self {
            Self::Here(host) => {
                let page = host.approvals().pending_page(after, limit)?;
                Ok(WaitingApprovals {
                    total: page.unexpired,
                    approvals: page.approvals,
                    next: page.next,
                })
            }
            Self::Gateway(remote) => {
                let asked = ExecApprovalList {
                    summary: Some(true),
                    limit: u64::try_from(limit).ok(),
                    cursor: after.map(|after| after.to_string()),
                };
                let listed = remote.request(&asked)?.into_rows();
                let approvals = read_summaries(listed.approvals).map_err(unreadable)?;
                let count = u64::try_from(approvals.len()).unwrap_or(u64::MAX);
                Ok(WaitingApprovals {
                    total: listed.total.unwrap_or(count),
                    approvals,
                    next: listed.next_cursor.and_then(|next| next.parse().ok()),
                })
            }
        }
    }

    /// All pending approvals.
    pub fn waiting(&self) -> Result<Vec<ApprovalSummary>, Failure> {
        let mut page = self.page(None, PAGE)?;
        let mut all = page.approvals;
        while let Some(next) = page.next {
            page = self.page(Some(next), PAGE)?;
            all.append(&mut page.approvals);
        }
        Ok(all)
    }

    /// Reads an approval by its id, its short id or the beginning of its id.
    pub fn approval(&self, reference: &str, secrets: Secrets) -> Result<PendingApproval, Failure> {
        match self {
            Self::Here(host) => Ok(host.approvals().approval(reference, secrets)?),
            Self::Gateway(remote) => remote.approval(reference, secrets),
        }
    }

    /// Decides an approval that was shown on a surface of this process.
    pub fn answer(
        &self,
        approval: &PendingApproval,
        words: DecisionWords<'_>,
        surface: &str,
        outside: OutsideRuns,
    ) -> Result<DecisionAnswer, Failure> {
        match self {
            Self::Here(host) => {
                let stored = answer(host, approval, words, surface, outside)?;
                let unawaited = unawaited(host, approval, words.decision);
                Ok(DecisionAnswer { stored, unawaited })
            }
            Self::Gateway(remote) => {
                check_shown(approval, words.decision)?;
                remote.answer(approval, words)
            }
        }
    }

    /// Describes how an approval ended that is no longer pending.
    pub fn ended(&self, id: &str) -> String {
        let ended = match self {
            Self::Here(host) => host.approvals().ended(id).map_err(Failure::from),
            Self::Gateway(remote) => remote
                .approval(id, Secrets::Masked)
                .map(|approval| approval.ended),
        };
        match ended {
            Ok(Some(ended)) => ended.to_string(),
            Ok(None) => "no longer listed".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

/// Whether a failure may be temporary, so that an inbox keeps polling.
pub fn is_outage(failure: &Failure) -> bool {
    failure.code() == UNREACHABLE
}

/// The inbox of a remote gateway. It reconnects by itself if the connection breaks.
#[derive(Debug)]
pub struct RemoteInbox {
    gateway: RemoteGateway,
    state_dir: PathBuf,
    link: RefCell<InboxLink>,
}

type ConnectOutcome = Result<GatewayClient, Failure>;

#[derive(Debug)]
enum InboxLink {
    Up(Box<GatewayClient>),
    /// A thread is connecting. No call waits for it.
    Connecting(Receiver<ConnectOutcome>),
    /// The last attempt failed.
    Down {
        again_at: Instant,
        why: String,
    },
}

/// The gateway's answer to a decision.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResolvedApproval {
    again: bool,
    #[serde(default)]
    form: Option<AlwaysForm>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    stored: Vec<Entry>,
    caller_has_ended: bool,
}

impl RemoteInbox {
    fn connect(host: &LocalHost, gateway: RemoteGateway) -> Result<Self, Failure> {
        let client = connected(host.state_dir(), &gateway)?;
        Ok(Self {
            gateway,
            state_dir: host.state_dir().to_owned(),
            link: RefCell::new(InboxLink::Up(Box::new(client))),
        })
    }

    /// Reads an approval. The gateway lets a connection decide only what the connection has read
    /// before.
    fn approval(&self, reference: &str, secrets: Secrets) -> Result<PendingApproval, Failure> {
        let params = ExecApprovalGet {
            id: reference.to_owned(),
            inbox: Some(true),
            reveal: (secrets == Secrets::Revealed).then_some(true),
        };
        let sent = self.request(&params)?;
        PendingApproval::of_sent(sent.into_inbox()).map_err(unreadable)
    }

    fn answer(
        &self,
        approval: &PendingApproval,
        words: DecisionWords<'_>,
    ) -> Result<DecisionAnswer, Failure> {
        // The connection may be newer than the approval on the screen, so it reads the approval
        // again. The digest below makes sure that the approver decides what was on the screen.
        self.approval(&approval.id, Secrets::Masked)?;
        let decision = words.decision;
        let mut params = ExecApprovalResolve {
            id: approval.id.clone(),
            decision: decision.as_str().to_owned(),
            plan_digest: Some(approval.plan_digest.clone()),
            ..ExecApprovalResolve::default()
        };
        let reason = words.reason.filter(|reason| !reason.is_empty());
        params.reason = reason.map(str::to_owned);
        if decision == ApprovalDecision::AllowAlways && !words.form.is_exact() {
            params.form = Some(words.form.to_string());
        }
        if let ApprovalDecision::Lease(lease) = decision {
            let time = u64::try_from(lease.expires_in.as_millis()).unwrap_or(u64::MAX);
            params.expires_in_ms = Some(time);
            params.max_uses = lease.max_uses.map(|uses| u64::from(uses.get()));
        }
        let resolved = self.request_json(&params)?;
        let resolved: ResolvedApproval = serde_json::from_value(resolved).map_err(|error| {
            let message = format!("it was decided, and the answer cannot be read: {error}");
            Failure::refused("GATEWAY_REFUSED", message)
        })?;
        let is_unawaited = decision.allows() && resolved.caller_has_ended;
        Ok(DecisionAnswer {
            unawaited: is_unawaited.then(|| unawaited_elsewhere(approval)),
            stored: StoredDecision {
                again: resolved.again,
                ended: ApprovalEnd {
                    ending: ApprovalEnding::Decision(decision),
                    decider: None,
                    reason: resolved.reason,
                    at_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
                },
                entries: resolved.stored,
                form: resolved.form,
            },
        })
    }

    /// Calls a method if the gateway is connected. If the connection breaks, the call fails, and a
    /// thread reconnects for later calls.
    fn request<P: Params>(&self, params: &P) -> Result<P::Answer, Failure> {
        read_result::<P>(self.request_json(params)?).map_err(CallFailure::into_reported)
    }

    fn request_json<P: Params>(&self, params: &P) -> Result<Value, Failure> {
        let mut link = self.link.borrow_mut();
        self.renew(&mut link)?;
        let client = match &mut *link {
            InboxLink::Up(client) => client,
            InboxLink::Connecting(_) => return Err(self.unreachable("connecting again")),
            InboxLink::Down { why, .. } => return Err(self.unreachable(why)),
        };
        match client.request_json(params) {
            Ok(answer) => Ok(answer),
            Err(lost) if lost.is_lost() => {
                *link = InboxLink::Connecting(self.connect_again());
                Err(self.unreachable(&lost.message))
            }
            Err(refused) => Err(CallFailure::into_reported(refused)),
        }
    }

    /// Takes the connection that a thread has made, or starts a thread that makes one. A gateway
    /// that refuses this client is not tried again.
    fn renew(&self, link: &mut InboxLink) -> Result<(), Failure> {
        match link {
            InboxLink::Connecting(made) => match made.try_recv() {
                Ok(Ok(client)) => *link = InboxLink::Up(Box::new(client)),
                Ok(Err(failure)) if is_outage(&failure) => {
                    *link = InboxLink::Down {
                        again_at: Instant::now() + RECONNECT_DELAY,
                        why: failure.to_string(),
                    };
                }
                Ok(Err(failure)) => return Err(failure),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    *link = InboxLink::Connecting(self.connect_again());
                }
            },
            InboxLink::Down { again_at, .. } if Instant::now() >= *again_at => {
                *link = InboxLink::Connecting(self.connect_again());
            }
            InboxLink::Up(_) | InboxLink::Down { .. } => {}
        }
        Ok(())
    }

    fn connect_again(&self) -> Receiver<ConnectOutcome> {
        let (made, receiver) = channel();
        let (state_dir, gateway) = (self.state_dir.clone(), self.gateway.clone());
        std::thread::spawn(move || {
            let _ = made.send(connected(&state_dir, &gateway));
        });
        receiver
    }

    fn unreachable(&self, why: &str) -> Failure {
        let url = self.gateway.target.url();
        Failure::refused(UNREACHABLE, format!("the gateway {url}: {why}"))
            .with_hint("see where it is: interlock config get gateway.remote.url")
    }
}

fn connected(state_dir: &std::path::Path, gateway: &RemoteGateway) -> ConnectOutcome {
    let client = GatewayClient::connect_remote(state_dir, gateway)?;
    client.limit_calls(CALL_TIMEOUT)?;
    Ok(client)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unreadable(error: UnreadableApproval) -> Failure {
    Failure::refused("GATEWAY_REFUSED", error.to_string())
}
