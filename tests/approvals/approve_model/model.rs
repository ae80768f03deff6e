//! What the approve-and-run path must do, simple enough to be seen to be right. It knows of files,
//! plans and databases only what a version number tells.

use interlock_approvals::{ApprovalDecision, ApprovalEnding};

/// What agents ask for. Each run leaves its own content behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// A native executable that copies itself.
    Program,
    /// A script in the working directory that writes its version.
    Script,
    /// Shell text.
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The allowlist; a miss is asked about.
    Cautious,
    /// Everything is asked about.
    AskAlways,
    /// Everything runs.
    Open,
    /// The allowlist; a miss is refused.
    Silent,
    /// Nothing runs.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Ask,
    Deny,
}

/// All that a plan pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub command: Command,
    pub session: usize,
    pub directory: usize,
    /// The version of the file that runs.
    pub version: u32,
}

impl Content {
    /// What a run of it leaves behind.
    pub fn evidence(self) -> String {
        format!("{:?} {}", self.command, self.version)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// By a process that is gone.
    LeftBehind,
    Over,
}

#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// Without a limit, if none.
    pub left: Option<u32>,
    pub is_over: bool,
}

impl Grant {
    fn is_alive(self) -> bool {
        !self.is_over && self.left != Some(0)
    }

    fn take(&mut self) {
        self.left = self.left.map(|left| left - 1);
    }
}

#[derive(Debug, Clone)]
pub struct Modelled {
    pub id: String,
    pub digest: String,
    pub content: Content,
    pub offers_always: bool,
    pub fallback_allows: bool,
    /// Its time is up; it has not ended by that yet.
    pub is_due: bool,
    /// The one surface is shown it by a step of its own, the other only together with an answer.
    pub is_shown: [bool; 2],
    pub ended: Option<ApprovalEnding>,
    /// The decision is older than a day.
    pub is_too_late: bool,
    pub claim: Option<Claim>,
    pub grant: Option<Grant>,
}

impl Modelled {
    /// Whether the one run may be claimed.
    fn can_be_claimed(&self) -> bool {
        self.claim.is_none()
            && self.ended.is_some_and(ApprovalEnding::allows)
            && !self.is_too_late
            && self.grant.is_none_or(Grant::is_alive)
    }

    fn take_claim(&mut self, claim: Claim) {
        self.claim = Some(claim);
        if let Some(grant) = &mut self.grant {
            grant.take();
        }
    }
}

/// Who answers, where, and what of it is wrong.
#[derive(Debug, Clone, Copy)]
pub struct Answering {
    pub who: Who,
    pub names_the_plan: bool,
    pub has_shown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Operator,
    OperatorElsewhere,
    Requester,
    AtRequester,
}

/// What a request without an approval comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    Refused,
    Runs,
    Waits,
    /// By one of the grants of these approvals.
    Granted(Vec<usize>),
}

pub const RUNS: &str = "runs";

#[derive(Debug)]
pub struct Model {
    pub directory: usize,
    /// The version of the script in each directory.
    pub scripts: Vec<u32>,
    pub program: u32,
    pub policy: Policy,
    pub fallback_is_full: bool,
    /// What *always* stored, with the content of the script or program.
    pub entries: Vec<(Command, u32)>,
    pub approvals: Vec<Modelled>,
    /// What all runs so far must have left behind, in order.
    pub evidence: Vec<String>,
}

impl Model {
    pub fn current(&self, command: Command, session: usize) -> Content {
        let version = match command {
            Command::Program => self.program,
            Command::Script => self.scripts[self.directory],
            Command::Text => 0,
        };
        Content {
            command,
            session,
            directory: self.directory,
            version,
        }
    }

    fn verdict(&self, command: Command) -> Verdict {
        let has_entry = || self.entries.contains(&self.entry(command));
        match self.policy {
            Policy::Open => Verdict::Allow,
            Policy::Cautious | Policy::Silent if has_entry() => Verdict::Allow,
            Policy::AskAlways | Policy::Cautious => Verdict::Ask,
            Policy::Closed | Policy::Silent => Verdict::Deny,
        }
    }

    fn entry(&self, command: Command) -> (Command, u32) {
        match command {
            Command::Script => (command, self.scripts[self.directory]),
            Command::Program => (command, self.program),
            Command::Text => (command, 0),
        }
    }

    fn entry_of(content: Content) -> (Command, u32) {
        match content.command {
            Command::Script | Command::Program => (content.command, content.version),
            Command::Text => (content.command, 0),
        }
    }

    pub fn ask(&self, command: Command, session: usize) -> Asked {
        match self.verdict(command) {
            Verdict::Deny => Asked::Refused,
            Verdict::Allow => Asked::Runs,
            Verdict::Ask => {
                let content = self.current(command, session);
                let alive: Vec<usize> = (0..self.approvals.len())
                    .filter(|&one| {
                        let one = &self.approvals[one];
                        one.content == content && one.grant.is_some_and(Grant::is_alive)
                    })
                    .collect();
                // One that is not counted is not saved for later.
                let uncounted = |one: &usize| {
                    let grant = self.approvals[*one].grant;
                    grant.is_some_and(|grant| grant.left.is_none())
                };
                if alive.is_empty() {
                    Asked::Waits
                } else if alive.iter().any(uncounted) {
                    Asked::Granted(alive.into_iter().filter(uncounted).collect())
                } else {
                    Asked::Granted(alive)
                }
            }
        }
    }

    pub fn put_down(&mut self, id: String, digest: String, content: Content) {
        self.approvals.push(Modelled {
            id,
            digest,
            content,
            offers_always: content.command != Command::Text && self.policy != Policy::AskAlways,
            fallback_allows: self.fallback_is_full,
            is_due: false,
            is_shown: [false; 2],
            ended: None,
            is_too_late: false,
            claim: None,
            grant: None,
        });
    }

    pub fn ran(&mut self, content: Content) {
        self.evidence.push(content.evidence());
    }

    pub fn ran_by_grant(&mut self, which: usize) {
        let one = &mut self.approvals[which];
        one.grant.as_mut().unwrap().take();
        let content = one.content;
        self.ran(content);
    }

    /// Every look at approvals ends those whose time is up.
    pub fn expire(&mut self) {
        for one in &mut self.approvals {
            if one.is_due && one.ended.is_none() {
                one.ended = Some(if one.fallback_allows {
                    ApprovalEnding::FallbackAllow
                } else {
                    ApprovalEnding::Expired
                });
            }
        }
    }

    /// No process waits for a run that was left behind.
    pub fn recover(&mut self) {
        for one in &mut self.approvals {
            if one.claim == Some(Claim::LeftBehind) {
                one.claim = Some(Claim::Over);
            }
        }
    }

    pub fn decide(
        &mut self,
        which: usize,
        decision: ApprovalDecision,
        by: Answering,
    ) -> &'static str {
        self.expire();
        let entry = Self::entry_of(self.approvals[which].content);
        let is_stored = self.entries.contains(&entry);
        let one = &mut self.approvals[which];
        let is_always = decision == ApprovalDecision::AllowAlways;
        let surface = usize::from(by.who == Who::OperatorElsewhere);
        if is_always && !one.offers_always {
            return "APPROVAL_NOT_OFFERED";
        }
        if !by.names_the_plan {
            return "APPROVAL_REQUEST_MISMATCH";
        }
        if matches!(by.who, Who::Requester | Who::AtRequester) {
            return "APPROVAL_SELF_DECISION";
        }
        if !one.is_shown[surface] && !by.has_shown {
            return "APPROVAL_NOT_SHOWN";
        }
        let told = match one.ended {
            Some(ApprovalEnding::Expired) => return "APPROVAL_EXPIRED",
            Some(ended) if ended != ApprovalEnding::Decision(decision) => {
                return "APPROVAL_ALREADY_DECIDED";
            }
            // Success is not claimed for what is no longer stored.
            Some(_) if is_always && !is_stored => return "APPROVAL_ALREADY_DECIDED",
            Some(_) => "same",
            None => "decided",
        };
        one.is_shown[surface] = true;
        one.ended = Some(ApprovalEnding::Decision(decision));
        if told == "decided" {
            one.grant = match decision {
                ApprovalDecision::AllowSession => Some(None),
                ApprovalDecision::Lease(lease) => {
                    Some(lease.max_uses.map(std::num::NonZeroU32::get))
                }
                _ => None,
            }
            .map(|left| Grant {
                left,
                is_over: false,
            });
            if is_always && !is_stored {
                self.entries.push(entry);
            }
        }
        told
    }

    /// Like a decision, without an approver.
    pub fn fall_back(&mut self, which: usize) -> &'static str {
        let one = &mut self.approvals[which];
        let ending = if one.fallback_allows {
            ApprovalEnding::FallbackAllow
        } else {
            ApprovalEnding::FallbackDeny
        };
        match one.ended {
            Some(ApprovalEnding::Expired) => "APPROVAL_EXPIRED",
            Some(ended) if ended != ending => "APPROVAL_ALREADY_DECIDED",
            _ => {
                one.ended = Some(ending);
                if one.fallback_allows {
                    "decided"
                } else {
                    "APPROVAL_FALLBACK_DENIED"
                }
            }
        }
    }

    pub fn withdraw(&mut self, which: usize) -> &'static str {
        let one = &mut self.approvals[which];
        if one.ended == Some(ApprovalEnding::Expired) {
            return "APPROVAL_EXPIRED";
        }
        one.ended.get_or_insert(ApprovalEnding::Withdrawn);
        "withdrawn"
    }

    /// A claim by a process that dies right then.
    pub fn die_with_claim(&mut self, which: usize) -> &'static str {
        let one = &mut self.approvals[which];
        if !one.can_be_claimed() {
            return "not claimed";
        }
        one.take_claim(Claim::LeftBehind);
        "claimed"
    }

    /// The heart of it: when what was approved may run.
    pub fn run(&mut self, which: usize, is_same: bool, has_supervisor: bool) -> &'static str {
        self.expire();
        if self.approvals[which].claim == Some(Claim::LeftBehind) {
            self.recover();
        }
        let content = self.approvals[which].content;
        let verdict = self.verdict(content.command);
        let is_unchanged = self.current(content.command, content.session) == content;
        let no_fallback = verdict == Verdict::Ask && !self.fallback_is_full;
        let one = &mut self.approvals[which];
        if !is_same {
            return "APPROVAL_REQUEST_MISMATCH";
        }
        if one.claim.is_some() {
            return "APPROVAL_USED";
        }
        let Some(ending) = one.ended else {
            return "APPROVAL_PENDING";
        };
        match ending {
            ApprovalEnding::Decision(ApprovalDecision::Deny) => return "APPROVAL_DENIED",
            ApprovalEnding::FallbackDeny => return "APPROVAL_FALLBACK_DENIED",
            ApprovalEnding::Expired => return "APPROVAL_EXPIRED",
            _ => {}
        }
        if !one.can_be_claimed() {
            return "APPROVAL_ENDED";
        }
        one.take_claim(Claim::Over);
        let is_looser =
            verdict == Verdict::Deny || ending == ApprovalEnding::FallbackAllow && no_fallback;
        if is_looser || !is_unchanged {
            return "APPROVAL_DRIFT";
        }
        if !has_supervisor {
            return "SUPERVISOR_UNAVAILABLE";
        }
        self.ran(content);
        RUNS
    }
}
