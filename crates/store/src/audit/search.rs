//! Finds records by agent, kind and time among millions.
//!
//! An index on the records would add a page to every commit. So records are indexed a block at a
//! time. The record that completes a block adds one row for each agent and kind in the block, and
//! one row for each kind of all agents. Such a row holds the number of matching records, their
//! oldest and newest time, and their positions in the block. The records behind the last complete
//! block are scanned.
//!
//! The hash chain does not cover these rows. So a record that they point to is shown only if the
//! record itself matches the filter, and `audit verify` compares the rows with the records.

use rusqlite::types::Value as SqlValue;
use rusqlite::{Row, params_from_iter};

use crate::audit::log::{AuditFilter, AuditOrder, record};
use crate::audit::record::AuditRecord;
use crate::audit::verify::{ChainBreak, ChainProblem};
use crate::change::Sql;
use crate::database::Store;
use crate::error::StoreError;

/// The number of records in a block. The migration that creates the table uses the same number.
pub(super) const BLOCK_RECORDS: u64 = 1024;

/// Selects the rows of the blocks from the first number up to, but not including, the second.
const ROWS: &str = "SELECT CASE WHEN is_all THEN 'all' WHEN typeof(agent) = 'text' THEN 'agent:' || agent ELSE 'none' END
        AS agent_key, (seq - 1) / 1024 AS block, kind, count(*) AS records, min(time_ms) AS oldest_ms,
        max(time_ms) AS newest_ms, json_group_array((seq - 1) % 1024 ORDER BY seq) AS positions
    FROM audit CROSS JOIN (SELECT 0 AS is_all UNION ALL SELECT 1)
    WHERE seq > ?1 * 1024 AND seq <= ?2 * 1024 GROUP BY agent_key, block, kind";

/// The rows without their positions, which are long.
const COUNTS: &str = "audit_block INDEXED BY audit_block_counts";

/// All columns of a record.
const RECORDS: &str = "seq, time_ms, kind, body, hash FROM audit";

/// Returns the number of indexed blocks: the blocks below this number are indexed.
fn indexed_blocks(sql: &Sql<'_>) -> Result<i64, StoreError> {
    let statement = "SELECT coalesce(max(block) + 1, 0) FROM audit_block
        INDEXED BY audit_block_counts WHERE agent_key = 'all'";
    sql.one(statement, [], |row| row.get(0))
}

/// Indexes the blocks that the record `seq` completes.
pub(super) fn index_complete_blocks(sql: &Sql<'_>, seq: u64) -> Result<(), StoreError> {
    if !seq.is_multiple_of(BLOCK_RECORDS) {
        return Ok(());
    }
    let end = (seq / BLOCK_RECORDS).cast_signed();
    // An older version that had the database open may have skipped blocks.
    let first = indexed_blocks(sql)?.min(end - 1);
    sql.execute(
        &format!("INSERT OR REPLACE INTO audit_block {ROWS}"),
        [first, end],
    )?;
    Ok(())
}

impl Store {
    /// Returns the first block whose rows do not match its records. The blocks are read one by one,
    /// so that other processes can use the database meanwhile.
    pub(super) fn wrongly_indexed(&self) -> Result<Option<ChainBreak>, StoreError> {
        let statement = format!(
            "SELECT count(*), coalesce(sum(stored.records IS NOT actual.records
                OR stored.oldest_ms IS NOT actual.oldest_ms
                OR stored.newest_ms IS NOT actual.newest_ms
                OR stored.positions IS NOT actual.positions), 0)
             FROM ({ROWS}) AS actual LEFT JOIN audit_block AS stored USING (agent_key, block, kind)"
        );
        let blocks = self.read(indexed_blocks)?;
        let archived = self.read(|sql| {
            let statement = "SELECT coalesce(max(seq), 0) / 1024 FROM audit_cut";
            sql.one(statement, [], |row| row.get::<_, i64>(0))
        })?;
        let mut rows = 0;
        for block in archived..blocks {
            let counts = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            let compare = |sql: &Sql<'_>| sql.one(&statement, [block, block + 1], counts);
            let (of_records, wrong) = self.read(compare)?;
            if of_records == 0 || wrong > 0 {
                return Ok(Some(not_indexed(block, block + 1)));
            }
            rows += of_records;
        }
        // Rows without records are wrong too.
        let statement = "SELECT count(*) FROM audit_block WHERE block < ?1";
        let stored: i64 = self.read(|sql| sql.one(statement, [blocks], |row| row.get(0)))?;
        Ok((stored != rows).then(|| not_indexed(0, blocks)))
    }
}

fn not_indexed(first: i64, end: i64) -> ChainBreak {
    ChainBreak {
        seq: last_of(first).cast_unsigned() + 1,
        problem: ChainProblem::NotIndexed {
            through: last_of(end).cast_unsigned(),
        },
    }
}

/// SQL conditions that must all hold, with their values.
#[derive(Clone)]
struct Conditions {
    text: String,
    values: Vec<SqlValue>,
}

impl Conditions {
    fn and(mut self, condition: &str, value: impl Into<SqlValue>) -> Self {
        self.text += " AND ";
        self.text += condition;
        self.values.push(value.into());
        self
    }

    fn select(&self, columns: &str) -> String {
        format!("SELECT {columns} WHERE {}", self.text)
    }
}

/// A filter, as conditions on the records and on the rows of blocks.
pub(super) struct AuditSearch<'a> {
    filter: &'a AuditFilter,
    /// The conditions without `from_seq`.
    records: Conditions,
    blocks: Conditions,
}

impl<'a> AuditSearch<'a> {
    pub(super) fn new(filter: &'a AuditFilter) -> Self {
        let mut records = Conditions {
            text: "TRUE".to_owned(),
            values: Vec::new(),
        };
        let mut blocks = records.clone().and(
            "agent_key = ?",
            match &filter.agent {
                Some(agent) => format!("agent:{agent}"),
                None => "all".to_owned(),
            },
        );
        if let Some(agent) = &filter.agent {
            records = records.and("agent = ?", agent.clone());
        }
        if let Some(kind) = filter.kind.map(|kind| kind.as_str().to_owned()) {
            records = records.and("kind = ?", kind.clone());
            blocks = blocks.and("kind = ?", kind);
        }
        if let Some(since_ms) = filter.since_ms {
            records = records.and("time_ms >= ?", since_ms);
            blocks = blocks.and("newest_ms >= ?", since_ms);
        }
        Self {
            filter,
            records,
            blocks,
        }
    }

    /// Returns the condition to start at a value of this column, and the sort order.
    fn walk(&self, column: &str) -> (String, String) {
        match self.filter.order {
            AuditOrder::OldestFirst => (format!("{column} >= ?"), column.to_owned()),
            AuditOrder::NewestFirst => (format!("{column} <= ?"), format!("{column} DESC")),
        }
    }

    /// Returns the matching records from the start of the search, in the order of the filter.
    pub(super) fn records(
        &self,
        sql: &Sql<'_>,
        limit: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let indexed = if self.records.values.is_empty() {
            0 // Without conditions, all records in a row are the right ones.
        } else {
            indexed_blocks(sql)?
        };
        let mut found = Vec::new();
        match self.filter.order {
            AuditOrder::NewestFirst => {
                self.look_through(sql, indexed, limit, &mut found)?;
                self.look_up(sql, indexed, limit, &mut found)?;
            }
            AuditOrder::OldestFirst => {
                self.look_up(sql, indexed, limit, &mut found)?;
                self.look_through(sql, indexed, limit, &mut found)?;
            }
        }
        Ok(found)
    }

    /// Scans the records behind the indexed blocks.
    fn look_through(
        &self,
        sql: &Sql<'_>,
        indexed: i64,
        limit: usize,
        found: &mut Vec<AuditRecord>,
    ) -> Result<(), StoreError> {
        let (from, order) = self.walk("seq");
        let mut wanted = self.records.clone();
        if indexed > 0 {
            wanted = wanted.and("seq > ?", last_of(indexed));
        }
        if let Some(from_seq) = self.filter.from_seq {
            wanted = wanted.and(&from, signed(from_seq));
        }
        let left = limit - found.len();
        let statement = format!("{} ORDER BY {order} LIMIT {left}", wanted.select(RECORDS));
        found.extend(sql.all(&statement, params_from_iter(wanted.values), record)?);
        Ok(())
    }

    /// Reads the records that the rows of blocks point to.
    fn look_up(
        &self,
        sql: &Sql<'_>,
        indexed: i64,
        limit: usize,
        found: &mut Vec<AuditRecord>,
    ) -> Result<(), StoreError> {
        if indexed == 0 || found.len() == limit {
            return Ok(());
        }
        let from_seq = self.filter.from_seq.map(signed);
        let from_block = from_seq.map(|seq| (seq - 1).max(0) / BLOCK_RECORDS.cast_signed());
        let (from, order) = self.walk("block");
        let mut wanted = self.blocks.clone();
        if let Some(block) = from_block {
            wanted = wanted.and(&from, block);
        }
        let statement = wanted.select(&format!("DISTINCT block FROM {COUNTS}"));
        let statement = format!("{statement} ORDER BY {order}");
        let values = params_from_iter(wanted.values);
        let blocks: Vec<i64> = sql.all(&statement, values, |row| row.get(0))?;
        for block in blocks {
            for seq in self.numbers_in(sql, block)? {
                let is_after_start = from_seq.is_none_or(|from| match self.filter.order {
                    AuditOrder::OldestFirst => seq >= from,
                    AuditOrder::NewestFirst => seq <= from,
                });
                if !is_after_start {
                    continue;
                }
                let one = self.records.clone().and("seq = ?", seq);
                let statement = one.select(RECORDS);
                found.extend(sql.optional(&statement, params_from_iter(one.values), record)?);
                if found.len() == limit {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the numbers of the records of a block that may match, in the order of the filter.
    fn numbers_in(&self, sql: &Sql<'_>, block: i64) -> Result<Vec<i64>, StoreError> {
        let wanted = self.blocks.clone().and("block = ?", block);
        let statement = wanted.select(
            "block * 1024 + 1 + position.value FROM audit_block, json_each(positions) AS position",
        );
        let values = params_from_iter(wanted.values);
        let mut numbers: Vec<i64> = sql.all(&statement, values, |row| row.get(0))?;
        numbers.sort_unstable();
        if self.filter.order == AuditOrder::NewestFirst {
            numbers.reverse();
        }
        Ok(numbers)
    }

    /// Counts all matching records, wherever the search starts.
    pub(super) fn total(&self, sql: &Sql<'_>) -> Result<u64, StoreError> {
        let indexed = indexed_blocks(sql)?;
        let since_ms = SqlValue::Integer(self.filter.since_ms.unwrap_or(i64::MIN));
        let conditions = &self.blocks.text;
        let statement = format!(
            "SELECT coalesce(sum(records), 0) FROM {COUNTS} WHERE {conditions} AND oldest_ms >= ?"
        );
        let values = || self.blocks.values.iter().chain([&since_ms]);
        let whole: i64 = sql.one(&statement, params_from_iter(values()), |row| row.get(0))?;
        // Some records of these blocks may be older than `since_ms`. Clocks are set back now and
        // then, so each record is compared.
        let statement = format!(
            "SELECT count(*) FROM (SELECT block * 1024 + 1 + position.value AS number
                FROM {COUNTS}, json_each(positions) AS position WHERE {conditions} AND oldest_ms < ?)
             CROSS JOIN audit ON seq = number WHERE time_ms >= ?"
        );
        let partly = values().chain([&since_ms]);
        let partly: i64 = match self.filter.since_ms {
            Some(_) => sql.one(&statement, params_from_iter(partly), |row| row.get(0))?,
            None => 0,
        };
        let rest = self.records.clone().and("seq > ?", last_of(indexed));
        let statement = rest.select("count(*) FROM audit");
        let rest: i64 = sql.one(&statement, params_from_iter(rest.values), |row| row.get(0))?;
        Ok((whole + partly + rest).cast_unsigned())
    }
}

/// Returns the number of the last record before a block.
fn last_of(block: i64) -> i64 {
    block * BLOCK_RECORDS.cast_signed()
}

fn signed(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
