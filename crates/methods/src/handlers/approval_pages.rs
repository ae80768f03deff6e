//! Pages of pending approvals by filter, and the deliveries of one approval.

use interlock_approvals::{PendingCursor, PendingCursorInvalid, summary_to_send};
use interlock_command::display::Secrets;
use interlock_store::ApprovalSummary;
use interlock_wire::WireError;
use interlock_wire::approval::{ApprovalDeliveries, ApprovalReceipt, ApprovalRows};
use interlock_wire::params::{self, ApprovalPageFilter};

use super::{Context, approvals_unavailable, find_approval, work};

/// Approvals on one page if the caller names no limit.
const PAGE: usize = 100;

/// `exec.approval.page`. A row of a list is not a prompt, so it does not count as shown.
pub(super) async fn page(
    context: Context<'_>,
    asked: params::ExecApprovalPage,
) -> Result<ApprovalRows, WireError> {
    let limit = asked.limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(PAGE);
    let Some(filter) = asked.filter else {
        let after = asked.cursor.as_deref().map(str::parse::<PendingCursor>);
        let after = after.transpose().map_err(not_a_cursor)?;
        return work(context, move |gateway| {
            let approvals = gateway.dispatcher.host.approvals();
            let page = approvals.pending_page(after, limit);
            let page = page.map_err(|error| approvals_unavailable(&error))?;
            Ok(ApprovalRows {
                approvals: page.approvals.iter().map(summary_to_send).collect(),
                total: Some(page.unexpired),
                next_cursor: page.next.map(|next| next.to_string()),
            })
        })
        .await;
    };
    let after = asked.cursor.as_deref().map(FilteredCursor::parse);
    let after = after.transpose().map_err(not_a_cursor)?;
    work(context, move |gateway| {
        let approvals = gateway.dispatcher.host.approvals();
        let all = approvals.all_pending();
        let mut all = all.map_err(|error| approvals_unavailable(&error))?;
        all.retain(|row| fits(row, &filter));
        let from = after.map_or(0, |after| after.place(&all));
        let until = from.saturating_add(limit).min(all.len());
        let last = all[from..until].last().filter(|_| until < all.len());
        Ok(ApprovalRows {
            approvals: all[from..until].iter().map(summary_to_send).collect(),
            total: Some(all.len() as u64),
            next_cursor: last.map(|last| format!("{}.{}", last.expires_at_ms, last.id)),
        })
    })
    .await
}

fn not_a_cursor(error: PendingCursorInvalid) -> WireError {
    WireError::invalid(format!("cursor {error}")).with("code", "CURSOR_INVALID")
}

fn fits(row: &ApprovalSummary, filter: &ApprovalPageFilter) -> bool {
    let is = |wanted: &Option<String>, value: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == value)
    };
    is(&filter.agent_id, &row.agent)
        && is(&filter.session_key, &row.session_key)
        && is(&filter.host, row.node.as_deref().unwrap_or(&row.host))
}

/// The approval behind which a page begins.
struct FilteredCursor {
    expires_at_ms: i64,
    id: String,
}

impl FilteredCursor {
    fn parse(text: &str) -> Result<Self, PendingCursorInvalid> {
        let (expires, id) = text.split_once('.').ok_or(PendingCursorInvalid)?;
        Ok(Self {
            expires_at_ms: expires.parse().map_err(|_| PendingCursorInvalid)?,
            id: id.to_owned(),
        })
    }

    /// Returns the index at which the page begins. If the cursor's own approval has been decided
    /// meanwhile, the page begins with the approvals that expire at the same time or later, so that
    /// none is left out.
    fn place(&self, all: &[ApprovalSummary]) -> usize {
        let own = all.iter().position(|row| row.id == self.id);
        own.map_or_else(
            || all.partition_point(|row| row.expires_at_ms < self.expires_at_ms),
            |at| at + 1,
        )
    }
}

/// `deliveries.list`.
pub(super) async fn deliveries(
    context: Context<'_>,
    asked: params::DeliveriesList,
) -> Result<ApprovalDeliveries, WireError> {
    work(context, move |gateway| {
        let approval = find_approval(gateway, &asked.id, Secrets::Masked)?;
        let receipts = approval.deliveries.into_iter();
        let receipts = receipts.map(|delivery| ApprovalReceipt {
            surface: delivery.surface,
            state: delivery.state.as_str().to_owned(),
            at_ms: delivery.at_ms,
            detail: delivery.detail,
        });
        Ok(ApprovalDeliveries {
            id: approval.id,
            deliveries: receipts.collect(),
        })
    })
    .await
}
