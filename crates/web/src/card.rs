//! The card of one approval, which shows it whole: the command first, then where it runs, why, and
//! what is bound, then what deserves suspicion, then the decisions.

use interlock_approvals::{
    ApprovalView, EFFECT_BINDING, NETWORK_BINDING, PATCH_BINDING, PendingApproval, ViewBlock,
    ViewLabel, ViewPart, ViewTone, requester_has_ended,
};
use interlock_command::display::ShownLine;
use interlock_policy::{AlwaysForm, Entry};
use interlock_store::{
    ApprovalClaim, ApprovalDecision, ApprovalEnd, ClaimState, DeliveryState, RecordedOutcome,
};
use maud::{Markup, html};

use crate::inbox::{ending_word, place};
use crate::text::{self, CommandColors};

/// Where a card is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardFrame {
    /// In its row of the inbox.
    Row,
    /// Alone on a page.
    Alone,
}

/// The data of a card.
#[derive(Debug)]
pub struct CardFacts<'a> {
    pub approval: &'a PendingApproval,
    /// The part of the view that is sent.
    pub view: &'a ApprovalView,
    /// Whether the view leaves nothing out. Only then may the approval be allowed here.
    pub is_whole: bool,
    pub frame: CardFrame,
    /// How many other approvals ask for exactly the same, and are shown by this card as well.
    pub equal: usize,
    /// Whether the approval expired and may be asked again.
    pub may_ask_again: bool,
    /// The run that the approval allowed, if it was claimed.
    pub run: Option<AllowedRun>,
}

/// The run that an approval allowed.
#[derive(Debug)]
pub struct AllowedRun {
    pub claim: ApprovalClaim,
    /// The id of its background session, if it became one.
    pub session: Option<String>,
}

/// The card.
pub fn approval_card(facts: &CardFacts<'_>) -> Markup {
    let CardFacts {
        approval,
        view,
        is_whole,
        frame,
        ..
    } = *facts;
    let is_masked = view.masked_secrets > 0;
    let class = match frame {
        CardFrame::Row => "card",
        CardFrame::Alone => "card alone",
    };
    html! {
        div class=(class) id=(format!("card-{}", approval.id)) data-id=(approval.id) data-digest=(approval.plan_digest)
            data-agent=(text::line(&approval.agent)) data-kind=(approval.binding)
            data-masked[is_masked && approval.ended.is_none()] data-ended[approval.ended.is_some()] {
            @if frame == CardFrame::Alone {
                div class="line whoami" {
                    h1 class="grow" { (text::line(&approval.agent)) span class="muted" { " " (asks_to(&approval.binding)) } }
                    @if approval.ended.is_none() { time class="left" data-until=(approval.expires_at_ms) {} }
                }
            }
            (command(view))
            dl class="facts" {
                dt { "where" }
                dd {
                    @for value in view.values(ViewLabel::Directory) { code { (value.as_str()) } " " }
                    span class="muted" { "on " (place(&approval.host, approval.node.as_deref())) }
                    @for value in view.values(ViewLabel::User) { span class="muted" { " as " (value.as_str()) } }
                }
                @if let Some(sandbox) = &view.sandbox { dt { "sandbox" } dd { (text::line(&sandbox.to_string())) } }
                (values(view, ViewLabel::Runs, "runs"))
                (values(view, ViewLabel::Why, "why asked"))
                (values(view, ViewLabel::Binding, "bound"))
                (values(view, ViewLabel::Env, "env"))
                (receipts(approval))
            }
            (warnings(approval, view))
            @for part in &view.parts {
                @if let ViewPart::Block(block) = part {
                    @if block.label != ViewLabel::Command { (block_details(block)) }
                }
            }
            details {
                summary { "Everything else in the plan" }
                dl class="facts" {
                    @for part in &view.parts {
                        @if let ViewPart::Field(field) = part {
                            @if is_elsewhere(field.label) {
                                dt { (field.label.as_str()) } dd { (field.value.as_str()) }
                            }
                        }
                    }
                    dt { "id" } dd { code { (approval.short_id) } " " code class="faint" { (approval.id) } }
                    dt { "digest" } dd { code class="faint" { (approval.plan_digest) } }
                    dt { "always" }
                    dd {
                        @if let Some(why) = &approval.no_always { "is not offered: " (text::line(why)) }
                        @for entry in &approval.always { code { (stored(entry)) } " " }
                        @for not in &approval.not_wider { br; "not as " (not.form) ": " (text::line(&not.why)) }
                    }
                }
            }
            div class="decide" {
                @match &approval.ended {
                    Some(ended) => {
                        (outcome(&approval.id, ended, facts.run.as_ref()))
                        @if facts.may_ask_again { (ask_again(&approval.id)) }
                    }
                    None => { (decisions(approval, view, is_whole, facts.equal)) }
                }
            }
        }
    }
}

/// Renders the card of an approval that has ended while a page shows it. The outcome replaces the
/// buttons.
pub fn ended_card(approval: &PendingApproval, ended: &ApprovalEnd, may_ask_again: bool) -> Markup {
    html! {
        div class="card" id=(format!("card-{}", approval.id)) {
            (outcome(&approval.id, ended, None))
            @if may_ask_again { (ask_again(&approval.id)) }
        }
    }
}

/// Renders the button that asks the same approver again.
pub(crate) fn ask_again(id: &str) -> Markup {
    html! { button class="button small again" data-act="again" data-again=(id) { "Ask again" } }
}

/// Lists where the approval was shown, and where it could not be, one line for each surface.
pub fn receipts(approval: &PendingApproval) -> Markup {
    let mut surfaces: Vec<&str> = Vec::new();
    for delivery in &approval.deliveries {
        if !surfaces.contains(&delivery.surface.as_str()) {
            surfaces.push(&delivery.surface);
        }
    }
    html! {
        dt id=(format!("shown-{}", approval.id)) hidden[surfaces.is_empty()] { "shown" }
        dd id=(format!("receipts-{}", approval.id)) hidden[surfaces.is_empty()] {
            @for surface in surfaces {
                span class="receipt" {
                    (surface_name(surface)) ": "
                    @for (at, delivery) in approval.deliveries.iter().filter(|one| one.surface == surface).enumerate() {
                        @if at > 0 { ", " }
                        span class=(if delivery.state == DeliveryState::Failed { "bad" } else { "muted" }) {
                            (delivery.state.as_str())
                            @if let Some(detail) = &delivery.detail { " (" (text::line(detail)) ")" }
                        }
                        " " span class="faint" { (text::at(delivery.at_ms)) }
                    }
                }
            }
        }
    }
}

/// Returns a word for the surface of a receipt.
fn surface_name(surface: &str) -> String {
    let (kind, rest) = surface.split_once(':').unwrap_or((surface, ""));
    match kind {
        "web" => "browser".to_owned(),
        "ws" => "client".to_owned(),
        kind if rest.is_empty() => text::line(kind),
        kind => format!("{} {}", text::line(kind), text::line(rest)),
    }
}

/// Renders how an approval ended.
pub(crate) fn outcome(id: &str, ended: &ApprovalEnd, run: Option<&AllowedRun>) -> Markup {
    let tone = if ended.ending.allows() { "good" } else { "bad" };
    html! {
        div class="outcome" {
            p {
                b class=(tone) { (ending_word(ended)) }
                @if let Some(decider) = &ended.decider { " by " (text::line(decider)) }
                " " span class="muted" { (text::at(ended.at_ms)) }
            }
            @if let Some(reason) = &ended.reason { p class="muted" { "“" (text::line(reason)) "”" } }
            (run_line(id, run))
        }
    }
}

/// Renders on one line how a run went on: that it started, how it ended, and where its output is.
pub fn run_line(id: &str, run: Option<&AllowedRun>) -> Markup {
    html! {
        p class="muted small" id=(format!("run-{id}")) data-run[run.is_some()] {
            @if let Some(AllowedRun { claim, session }) = run {
                "Started " (text::at(claim.claimed_at_ms))
                @match &claim.state {
                    ClaimState::Unfinished => {}
                    ClaimState::Unknown { .. } => " · what became of it is unknown; it is not run again",
                    ClaimState::Finished { outcome, .. } => { " · " (ended_words(outcome)) }
                }
                @if let Some(session) = session {
                    " · " a href=(format!("/sessions/{}", text::line(session))) { (text::line(session)) }
                }
            }
        }
    }
}

/// Returns in words how a run ended.
fn ended_words(outcome: &RecordedOutcome) -> String {
    let mut words = match (outcome.exit_code.value(), outcome.signal, &outcome.status) {
        (Some(code), _, _) => format!("exit code {code}"),
        (None, Some(signal), _) => format!("ended by signal {signal}"),
        (None, None, Some(status)) => text::line(status.as_str()),
        (None, None, None) => "ended".to_owned(),
    };
    if let Some(code) = &outcome.code {
        words.push_str(&format!(" ({})", text::line(code)));
    }
    match outcome.duration_ms {
        Some(ms) if ms < 1000 => words.push_str(&format!(" after {ms} ms")),
        Some(ms) => words.push_str(&format!(" after {} s", ms / 1000)),
        None => {}
    }
    words
}

fn command(view: &ApprovalView) -> Markup {
    let lines = view.parts.iter().find_map(|part| match part {
        ViewPart::Field(field) if field.label == ViewLabel::Command => {
            Some(field.value.as_str().to_owned())
        }
        ViewPart::Block(block) if block.label == ViewLabel::Command => {
            let lines: Vec<&str> = block.lines.iter().map(ShownLine::as_str).collect();
            Some(lines.join("\n"))
        }
        _ => None,
    });
    html! {
        pre class="text command" tabindex="0" aria-label="The command" {
            code { (text::command_with(&lines.unwrap_or_default(), colors(view))) }
            span class="end" data-end {}
        }
    }
}

/// Returns whether the owner wants commands of this agent in colors.
fn colors(view: &ApprovalView) -> CommandColors {
    if view.has_colors() {
        CommandColors::On
    } else {
        CommandColors::Off
    }
}

/// Renders all values of one kind beneath one label.
fn values(view: &ApprovalView, label: ViewLabel, name: &str) -> Markup {
    html! {
        @for (at, value) in view.values(label).enumerate() {
            dt { @if at == 0 { (name) } }
            dd {
                @match label {
                    ViewLabel::Runs => { code { (text::command_with(value.as_str(), colors(view))) } }
                    ViewLabel::Env => { code { (value.as_str()) } }
                    _ => { (text::sentence(value.as_str())) }
                }
            }
        }
    }
}

/// Returns what the agent wants, for the heading of a card that stands alone.
fn asks_to(binding: &str) -> &'static str {
    match binding {
        EFFECT_BINDING => "asks to keep what a run changed",
        PATCH_BINDING => "asks to change files",
        NETWORK_BINDING => "asks to reach a host",
        _ => "asks to run",
    }
}

/// Returns what an allowing decision does if the caller no longer waits.
fn after_the_caller(binding: &str) -> &'static str {
    match binding {
        EFFECT_BINDING => {
            "has gone; a yes commits the changes all the same, by the gateway or with the next command"
        }
        _ => "has gone; nothing waits for this, and a yes runs nothing by itself",
    }
}

/// Lists facts that deserve suspicion, as plain sentences.
fn warnings(approval: &PendingApproval, view: &ApprovalView) -> Markup {
    let toned = view.parts.iter().filter_map(|part| match part {
        ViewPart::Field(field) if field.tone == ViewTone::Warning => Some(field),
        _ => None,
    });
    let toned: Vec<_> = toned.collect();
    let is_gone = approval.ended.is_none() && requester_has_ended(&approval.requester);
    let is_unbound = approval.binding == "unbound";
    html! {
        @if !toned.is_empty() || is_gone || is_unbound || view.masked_secrets > 0 {
            ul class="mind" {
                @if is_unbound { li { b { "unbound: " } "what runs cannot be pinned; it may change between your decision and its start" } }
                @for field in toned { li { b { (field.label.as_str()) ": " } (field.value.as_str()) } }
                @if is_gone { li { b { "caller: " } (after_the_caller(&approval.binding)) } }
                @if view.masked_secrets > 0 {
                    li {
                        b { "secrets: " } (view.masked_secrets) " masked "
                        @if approval.ended.is_none() { button class="button small" data-act="reveal" { "Reveal" kbd { "r" } } }
                    }
                }
            }
        }
    }
}

/// Renders a script, a difference or a patch. It is unfolded, so that its end can be reached.
fn block_details(block: &ViewBlock) -> Markup {
    html! {
        details open {
            summary { (block.label.as_str()) " " span class="faint" { (block.title.as_str()) } }
            pre class="text" tabindex="0" {
                code {
                    @for (at, line) in block.lines.iter().enumerate() {
                        @if at > 0 { "\n" }
                        @match diff_class(block, line.as_str()) {
                            Some(class) => { span class=(class) { (line.as_str()) } }
                            None => { (line.as_str()) }
                        }
                    }
                }
                @if block.left_out_lines > 0 { "\n" span class="warn" { "… " (block.left_out_lines) " more lines are not shown here" } }
                span class="end" data-end {}
            }
        }
    }
}

fn diff_class(block: &ViewBlock, line: &str) -> Option<&'static str> {
    if !block.is_diff {
        return None;
    }
    match line.chars().next() {
        Some('+') => Some("plus"),
        Some('-') => Some("minus"),
        Some('@') => Some("at"),
        _ => None,
    }
}

/// Whether a fact is shown nowhere else on the card.
fn is_elsewhere(label: ViewLabel) -> bool {
    !matches!(
        label,
        ViewLabel::Command
            | ViewLabel::Directory
            | ViewLabel::User
            | ViewLabel::Runs
            | ViewLabel::Why
            | ViewLabel::Binding
            | ViewLabel::Env
    )
}

fn decisions(
    approval: &PendingApproval,
    view: &ApprovalView,
    is_whole: bool,
    equal: usize,
) -> Markup {
    let offers = |decision| is_whole && approval.offers(decision);
    let lease = approval
        .offered
        .iter()
        .any(|one| matches!(one, ApprovalDecision::Lease(_)));
    let offers_any = offers(ApprovalDecision::AllowOnce);
    html! {
        @if equal > 0 {
            label class="alike" {
                input type="checkbox" data-alike;
                "Decide all " (equal + 1) " alike"
                span class="muted small" { " They ask for exactly this, in the same conversation." }
            }
        }
        div class="choices" {
            @if offers_any {
                button class="button allow main" data-act="allow" data-word="allow-once" disabled { "Allow once" kbd { "o" } }
            }
            @if offers(ApprovalDecision::AllowSession) {
                button class="button" data-act="allow" data-word="allow-session" disabled { "Session" kbd { "s" } }
            }
            @if offers_any && lease {
                button class="button" data-act="allow" data-word="lease" disabled { "For a time" kbd { "l" } }
            }
            @if offers(ApprovalDecision::AllowAlways) {
                button class="button" data-act="allow" data-word="allow-always" disabled { "Always" kbd { "a" } }
            }
            input class="reason" type="text" data-reason maxlength="500" placeholder="Reason, if denied" aria-label="Reason, if denied; the agent reads it" autocomplete="off";
            button class="button deny" data-act="deny" { "Deny" kbd { "d" } }
        }
        div class="confirm" hidden {}
        @if offers_any {
            p class="note gone" data-unseen { "Scroll to the end of the text to allow." }
            div class="forms" hidden { (forms(approval)) }
        } @else {
            p class="note" { "Not all of it can be shown here, so that it can only be denied." @if view.left_out_lines() > 0 { " " (view.left_out_lines()) " lines are left out." } }
        }
    }
}

/// Lists what *always* would store, in each form that the approver may choose.
fn forms(approval: &PendingApproval) -> Markup {
    let first = (approval.always_form, &approval.always);
    let wider = approval
        .wider
        .iter()
        .map(|wider| (wider.form, &wider.entries));
    html! {
        @for (at, (form, entries)) in std::iter::once(first).chain(wider).enumerate() {
            label {
                input type="radio" name=(format!("form-{}", approval.id)) value=(if at == 0 { "exact".to_owned() } else { form.to_string() }) checked[at == 0];
                (form_words(form))
                @for entry in entries { code { (stored(entry)) } }
            }
        }
    }
}

fn form_words(form: AlwaysForm) -> String {
    match form {
        AlwaysForm::Exact => "exactly this".to_owned(),
        AlwaysForm::Leading(1) => "this program, when its first argument is the same".to_owned(),
        AlwaysForm::Leading(count) => {
            format!("this program, when its first {count} arguments are the same")
        }
        AlwaysForm::Program => "this program with any arguments".to_owned(),
        AlwaysForm::Project => "these words, in this project".to_owned(),
    }
}

/// Returns an entry of the policy document on one line, with everything that limits it.
pub(crate) fn stored(entry: &Entry) -> String {
    let mut parts = vec![match (&entry.args, &entry.arg_pattern) {
        (Some(args), _) if args.is_empty() => "no arguments".to_owned(),
        (Some(args), _) => format!("arguments {}", args.join(" ")),
        (None, Some(pattern)) if pattern.starts_with("sha256:") => {
            "exactly these arguments in this directory".to_owned()
        }
        (None, Some(pattern)) => format!("arguments like {pattern}"),
        (None, None) => "any arguments".to_owned(),
    }];
    parts.extend(
        entry
            .called_as
            .iter()
            .map(|name| format!("called as {name}")),
    );
    parts.extend(entry.cwd.iter().map(|cwd| format!("in {cwd}")));
    parts.extend(
        entry
            .paths
            .iter()
            .map(|paths| format!("files in {}", paths.join(", "))),
    );
    if let Some(file) = &entry.bound_file {
        let files = std::iter::once((&file.path, &file.sha256));
        let also = file.also.iter().map(|also| (&also.path, &also.sha256));
        for (path, hash) in files.chain(also) {
            parts.push(format!(
                "{path} with the content {}…",
                hash.get(..12).unwrap_or(hash)
            ));
        }
        if !file.interpreters.is_empty() {
            parts.push(format!("run by {}", file.interpreters.join(", ")));
        }
    }
    if !entry.env.is_empty() {
        parts.push(format!("env {}", entry.env.join(" ")));
    }
    match (entry.interactive, entry.terminal) {
        (true, Some(true)) => parts.push("on a terminal".to_owned()),
        (true, Some(false)) => parts.push("with an open stdin".to_owned()),
        (true, None) => parts.push("also where the caller can type".to_owned()),
        (false, _) => {}
    }
    if entry.shield.is_some() {
        parts.push("also without the shield".to_owned());
    }
    text::line(&format!("{} ({})", entry.pattern, parts.join(", ")))
}
