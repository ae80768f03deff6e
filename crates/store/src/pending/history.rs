//! Approvals that have ended, for clients that look back.

use rusqlite::params;

use crate::database::Store;
use crate::error::StoreError;
use crate::limits::MAX_PAGE;

/// A page of approvals that have ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndedPage {
    /// The ids, the latest request first.
    pub ids: Vec<String>,
    /// The number behind which the next page begins. `None` on the last page.
    pub next: Option<i64>,
}

impl Store {
    /// Returns the ended approvals that were requested before the approval with this number.
    pub fn ended_approvals(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<EndedPage, StoreError> {
        let limit = limit.clamp(1, MAX_PAGE);
        let rows: Vec<(String, i64)> = self.read(|sql| {
            sql.all(
                "SELECT id, number FROM approval WHERE ending IS NOT NULL AND number < ?1
                 ORDER BY number DESC LIMIT ?2",
                params![
                    before.unwrap_or(i64::MAX),
                    i64::try_from(limit + 1).unwrap_or(i64::MAX)
                ],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
        })?;
        let has_more = rows.len() > limit;
        let next = rows.get(limit - 1).map(|(_, number)| *number);
        Ok(EndedPage {
            ids: rows.into_iter().take(limit).map(|(id, _)| id).collect(),
            next: next.filter(|_| has_more),
        })
    }
}
