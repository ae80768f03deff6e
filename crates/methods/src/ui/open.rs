//! `ui.open` and the other methods of pages.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_plan::PtySize;
use interlock_tls::{Fingerprint, Identity};
use interlock_wire::results::{UiClosed, UiCodeMinted, UiOpened, UiPhoneInvited, UiScreenFitted};
use interlock_wire::{OperatorScope, WireError, method, params};
use serde_json::{Map, Value};

use super::codes::CODE_LIFE;
use super::phones::{PHONE_CODE_LIFE, phone_address};
use super::screens::ScreenError;
use super::{approval_views, patches, sandbox_view, screens, views};
use crate::handlers::{Context, unavailable, work};

/// The parameters of a view, taken from the page's address.
#[derive(Debug, Clone, Default)]
pub(super) struct ViewParams(Map<String, Value>);

impl ViewParams {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).and_then(Value::as_str);
        value.filter(|text| !text.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Returns a list of texts.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let all = self.0.get(name).and_then(Value::as_array);
        let texts = all.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    /// Returns a text without which the view cannot be rendered.
    pub(super) fn required(&self, name: &str) -> Result<&str, WireError> {
        self.text(name).ok_or_else(|| {
            let problem = format!("at /params: must have required property '{name}'");
            WireError::params("ui.open", &[problem])
        })
    }
}

/// `ui.open`. From then on the connection is a page, even if the view is refused.
pub(crate) async fn open(
    context: Context<'_>,
    asked: params::UiOpen,
) -> Result<UiOpened, WireError> {
    let wanted = ViewParams(asked.params.unwrap_or_default());
    let topics = &context.client.topics;
    // The page subscribes before anything is read, so that changes during the read arrive as
    // patches.
    let seq = topics.follow(patches::APPROVALS);
    let scope = match asked.view.as_str() {
        "inbox" | "approval" => OperatorScope::Approvals,
        "audit" => OperatorScope::Admin,
        _ => OperatorScope::Read,
    };
    method::require(scope, &context.client.scopes)?;
    let (mut topic, mut seq) = (patches::APPROVALS.to_owned(), seq);
    let mut opened = match asked.view.as_str() {
        "inbox" => approval_views::inbox(context, &wanted).await?,
        "approval" => approval_views::approval(context, &wanted).await?,
        "sessions" => views::sessions(context).await?,
        "session" => {
            topic = screens::topic(wanted.required("id")?);
            seq = topics.follow(&topic);
            let opened = views::session(context, &wanted).await;
            if opened.is_err() {
                // The topic of a session that does not exist is dropped, because its name may be as
                // long as a message.
                topics.leave(&topic);
            }
            opened?
        }
        "nodes" => views::nodes(context).await?,
        "policy" => views::policy(context, &wanted).await?,
        "audit" => views::audit(context, &wanted).await?,
        "sandbox" => sandbox_view::sandbox(context).await?,
        "settings" => views::settings(context).await?,
        "health" => views::health(context).await?,
        other => return Err(WireError::invalid(format!("view: there is no `{other}`"))),
    };
    opened.topic = topic;
    opened.seq = seq;
    if context.client.scopes.allow(OperatorScope::Approvals) {
        opened.pending = views::pending(context).await?;
    }
    Ok(opened)
}

/// `ui.close`.
pub(crate) fn close(context: Context<'_>, asked: &params::UiClose) -> UiClosed {
    let closed = context.client.topics.leave(&asked.topic);
    UiClosed { closed }
}

/// `ui.screen`.
pub(crate) async fn screen(
    context: Context<'_>,
    asked: params::UiScreen,
) -> Result<UiScreenFitted, WireError> {
    let cells = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
    let size = PtySize {
        columns: cells(asked.columns),
        rows: cells(asked.rows),
    };
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        match screens::fit(gateway, &client, &asked.session_id, size) {
            Ok(()) => Ok(UiScreenFitted { ok: true }),
            Err(error @ ScreenError::Owned(_)) => {
                Err(WireError::invalid(error.to_string()).with("code", "SIZE_OWNED"))
            }
            Err(ScreenError::Process(error)) => {
                Err(WireError::unavailable(error.to_string()).with("code", error.code()))
            }
        }
    })
    .await
}

/// `ui.phone`. A phone gets no scope that its operator lacks.
pub(crate) fn phone(context: Context<'_>, _: params::UiPhone) -> Result<UiPhoneInvited, WireError> {
    for scope in [OperatorScope::Approvals, OperatorScope::Read] {
        method::require(scope, &context.client.scopes)?;
    }
    let gateway = context.gateway;
    let config = gateway.dispatcher.host.config();
    let config = config.map_err(|error| unavailable(&error))?;
    let url = phone_address(config.config(), gateway.ui.bound(), gateway.ui.base())?;
    let code = gateway.ui.phones.mint(Instant::now());
    let code = code.map_err(|error| WireError::unavailable(error.to_string()))?;
    let drawing = interlock_web::qr_drawing(&format!("{url}#pair={}", code.expose()));
    let drawing = drawing.ok_or_else(|| WireError::invalid("the address is too long"))?;
    let is_own = config.config().gateway.tls.cert_path.is_none();
    let authority = Identity::kept_authority(gateway.dispatcher.host.state_dir());
    let has_tls = gateway.ui.bound().is_some_and(|(_, has_tls)| has_tls);
    let authority = authority.filter(|_| is_own && has_tls);
    Ok(UiPhoneInvited {
        code,
        url,
        html: drawing.into_string(),
        expires_at_ms: in_ms(PHONE_CODE_LIFE),
        authority_fingerprint: authority.map(|der| Fingerprint::of(&der).to_string()),
    })
}

/// Returns the time after this duration, in milliseconds.
fn in_ms(life: Duration) -> u64 {
    let until = (SystemTime::now() + life).duration_since(UNIX_EPOCH);
    until.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// `ui.code`: only at the Unix socket, where the caller is the owner.
pub(crate) fn code(context: Context<'_>, _: params::UiCode) -> Result<UiCodeMinted, WireError> {
    if context.client.address.is_some() {
        let message = "a code is given at the gateway's Unix socket only: interlock dashboard";
        return Err(WireError::invalid(message).with("code", "LOCAL_ONLY"));
    }
    let code = context.gateway.ui.codes.mint(Instant::now());
    let code = code.map_err(|error| WireError::unavailable(error.to_string()))?;
    Ok(UiCodeMinted {
        code,
        url: context.gateway.ui.address().to_owned(),
        expires_at_ms: in_ms(CODE_LIFE),
    })
}
