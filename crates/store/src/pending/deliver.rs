//! Records which surfaces an approval was sent to. An approval can be decided only where it was
//! shown.

use rusqlite::params;
use serde_json::json;

use crate::audit::AuditKind;
use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::limits::{self, MAX_DELIVERIES};
use crate::pending::find::{ApprovalState, state_of};
use crate::pending::{ApprovalError, Delivery, DeliveryState};

impl Store {
    /// Records a delivery. Each state of a surface is stored once, with its first time. Returns
    /// whether this state was new.
    pub fn record_delivery(&self, id: &str, delivery: &Delivery) -> Result<bool, StoreError> {
        self.change(|change| change.record_delivery(id, delivery))
    }
}

impl Change<'_> {
    pub fn record_delivery(&self, id: &str, delivery: &Delivery) -> Result<bool, StoreError> {
        limits::SURFACE.check(&delivery.surface)?;
        limits::DELIVERY_DETAIL.check_if_any(delivery.detail.as_deref())?;
        let approval = state_of(&self.sql, id)?;
        if !self.deliver(&approval, delivery)? {
            return Ok(false);
        }
        let record = json!({
            "agent": approval.agent,
            "approvalId": id,
            "detail": delivery.detail,
            "state": delivery.state.as_str(),
            "surface": delivery.surface,
        });
        self.append(AuditKind::Delivery, &record, delivery.at_ms)?;
        Ok(true)
    }

    /// Stores a delivery without an audit record.
    pub(super) fn deliver(
        &self,
        approval: &ApprovalState,
        delivery: &Delivery,
    ) -> Result<bool, StoreError> {
        let stored: i64 = self.sql.one(
            "SELECT count(*) FROM approval_delivery WHERE number = ?1",
            [approval.number],
            |row| row.get(0),
        )?;
        if stored.unsigned_abs() >= MAX_DELIVERIES as u64 {
            return Err(ApprovalError::TooManyDeliveries {
                short_id: approval.short_id.clone(),
            }
            .into());
        }
        let added = self.sql.execute(
            "INSERT INTO approval_delivery (number, surface, state, at_ms, detail)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            params![
                approval.number,
                delivery.surface,
                delivery.state.as_str(),
                delivery.at_ms,
                delivery.detail,
            ],
        )?;
        Ok(added > 0)
    }

    /// Whether the approval was sent to this surface, or read by it.
    pub(super) fn was_shown(&self, number: i64, surface: &str) -> Result<bool, StoreError> {
        self.sql.one(
            "SELECT EXISTS (SELECT 1 FROM approval_delivery
             WHERE number = ?1 AND surface = ?2 AND state IN (?3, ?4))",
            params![
                number,
                surface,
                DeliveryState::Sent.as_str(),
                DeliveryState::Seen.as_str()
            ],
            |row| row.get(0),
        )
    }
}
