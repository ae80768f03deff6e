//! The tables. New steps are only added at the end: the number of steps is the version of a
//! database.

use rusqlite_migration::M;

pub(crate) const MIGRATIONS: &[M<'static>] = &[
    M::up(
        "CREATE TABLE approvals_document (
            only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
            text TEXT NOT NULL,
            hash TEXT NOT NULL,
            updated_at_ms INTEGER NOT NULL
        ) STRICT;",
    ),
    // The agent is extracted from the body. The hash covers the body, so the column cannot differ
    // from what was hashed.
    M::up(
        "CREATE TABLE audit (
            seq INTEGER PRIMARY KEY,
            time_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            body TEXT NOT NULL,
            hash BLOB NOT NULL,
            agent ANY GENERATED ALWAYS AS
                (CASE WHEN json_valid(body) THEN json_extract(body, '$.agent') END) VIRTUAL
        ) STRICT;
        CREATE INDEX audit_kind ON audit (kind, seq);
        CREATE INDEX audit_agent ON audit (agent, seq) WHERE agent IS NOT NULL;",
    ),
    // Values that change are in small rows. Values that may be large are written once, in a table
    // beside them.
    M::up(
        "CREATE TABLE approval (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            short_id TEXT NOT NULL UNIQUE,
            plan_digest TEXT NOT NULL,
            content_digest TEXT NOT NULL,
            binding TEXT NOT NULL,
            agent TEXT NOT NULL,
            session_key TEXT NOT NULL,
            host TEXT NOT NULL,
            node TEXT,
            requester TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            expires_at_ms INTEGER NOT NULL,
            ending TEXT,
            lease_for_ms INTEGER,
            lease_max_uses INTEGER,
            decider TEXT,
            ended_at_ms INTEGER,
            CHECK ((ending IS NULL) = (ended_at_ms IS NULL)),
            CHECK ((ending IS 'lease') = (lease_for_ms IS NOT NULL))
        ) STRICT;
        CREATE INDEX approval_undecided ON approval (expires_at_ms, number) WHERE ending IS NULL;
        CREATE TABLE approval_content (
            number INTEGER PRIMARY KEY REFERENCES approval (number) ON DELETE CASCADE,
            preview TEXT NOT NULL,
            verdict TEXT NOT NULL,
            always TEXT,
            plan TEXT NOT NULL
        ) STRICT;
        CREATE TABLE approval_delivery (
            number INTEGER NOT NULL REFERENCES approval (number) ON DELETE CASCADE,
            surface TEXT NOT NULL,
            state TEXT NOT NULL,
            at_ms INTEGER NOT NULL,
            detail TEXT,
            PRIMARY KEY (number, surface, state)
        ) STRICT, WITHOUT ROWID;",
    ),
    // The primary key makes a claim single-use: the claim of an approval has the approval's id.
    M::up(
        "CREATE TABLE run_claim (
            id TEXT NOT NULL PRIMARY KEY,
            approval_id TEXT NOT NULL,
            grant_id TEXT,
            digest TEXT NOT NULL,
            agent TEXT NOT NULL,
            session_key TEXT NOT NULL,
            host TEXT NOT NULL,
            node TEXT,
            claimer TEXT NOT NULL,
            claimed_at_ms INTEGER NOT NULL,
            state TEXT NOT NULL,
            ended_at_ms INTEGER,
            outcome TEXT,
            CHECK ((state = 'unfinished') = (ended_at_ms IS NULL)),
            CHECK ((state = 'finished') = (outcome IS NOT NULL))
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX run_claim_unfinished ON run_claim (claimed_at_ms, id)
            WHERE state = 'unfinished';
        CREATE TABLE run_grant (
            id TEXT NOT NULL PRIMARY KEY,
            approval_id TEXT NOT NULL UNIQUE,
            content_digest TEXT NOT NULL,
            agent TEXT NOT NULL,
            session_key TEXT NOT NULL,
            host TEXT NOT NULL,
            node TEXT,
            decider TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            expires_at_ms INTEGER,
            max_uses INTEGER,
            uses INTEGER NOT NULL DEFAULT 0,
            CHECK (max_uses IS NULL OR uses <= max_uses)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX run_grant_key ON run_grant (session_key, content_digest);",
    ),
    M::up(
        "CREATE TABLE agent_token (
            hash TEXT NOT NULL PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            agent TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            elicitation INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;",
    ),
    M::up(
        "CREATE TABLE device (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE node (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE pairing_request (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            device_id TEXT NOT NULL,
            at_ms INTEGER NOT NULL,
            body TEXT NOT NULL,
            UNIQUE (kind, device_id)
        ) STRICT;",
    ),
    // Events of a session wait until they are delivered. A run has one event of each kind: the
    // unique index and the row in `open_run` make an event happen only once.
    M::up(
        "CREATE TABLE session_events (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session_key TEXT NOT NULL,
            agent TEXT NOT NULL,
            kind TEXT NOT NULL,
            run_id TEXT NOT NULL,
            text TEXT NOT NULL,
            payload TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            wakes INTEGER NOT NULL CHECK (wakes IN (0, 1)),
            delivered_at_ms INTEGER
        ) STRICT;
        CREATE INDEX session_events_of ON session_events (session_key, id);
        CREATE INDEX session_events_age ON session_events (created_at_ms);
        CREATE UNIQUE INDEX session_events_once ON session_events (run_id, kind);
        CREATE TABLE session_events_dropped (
            session_key TEXT NOT NULL PRIMARY KEY,
            dropped INTEGER NOT NULL,
            told INTEGER NOT NULL DEFAULT 0,
            at_ms INTEGER NOT NULL,
            CHECK (told <= dropped)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE stale_commands (
            session_key TEXT NOT NULL,
            command_digest TEXT NOT NULL,
            at_ms INTEGER NOT NULL,
            PRIMARY KEY (session_key, command_digest)
        ) STRICT, WITHOUT ROWID;",
    ),
    // Runs whose end is not recorded yet, including those that were claimed before this step.
    M::up(
        "CREATE TABLE open_run (
            id TEXT NOT NULL PRIMARY KEY,
            approval_id TEXT,
            agent TEXT NOT NULL,
            session_key TEXT NOT NULL,
            host TEXT NOT NULL,
            node TEXT,
            command TEXT NOT NULL,
            waiter TEXT NOT NULL,
            started_at_ms INTEGER NOT NULL,
            session TEXT,
            announced INTEGER NOT NULL DEFAULT 0 CHECK (announced IN (0, 1))
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX open_run_of ON open_run (session_key);
        INSERT INTO open_run
            (id, approval_id, agent, session_key, host, node, command, waiter, started_at_ms, session)
        SELECT claim.id, claim.approval_id, claim.agent, claim.session_key, claim.host, claim.node,
            ifnull((SELECT preview FROM approval JOIN approval_content USING (number)
                WHERE approval.id = claim.approval_id), '?'),
            claim.claimer, claim.claimed_at_ms,
            (SELECT json_extract(body, '$.session') FROM audit
                WHERE kind = 'run-started' AND time_ms >= claim.claimed_at_ms
                    AND json_valid(body) AND json_extract(body, '$.runId') = claim.id
                    AND json_extract(body, '$.session') IS NOT NULL LIMIT 1)
        FROM run_claim AS claim WHERE claim.state = 'unfinished';",
    ),
    // Each script of an agent has one content: the one that was allowed last.
    M::up(
        "CREATE TABLE approved_contents (
            agent TEXT NOT NULL,
            path TEXT NOT NULL,
            sha256 TEXT NOT NULL,
            content TEXT NOT NULL,
            approved_at_ms INTEGER NOT NULL,
            PRIMARY KEY (agent, path)
        ) STRICT;",
    ),
    // A grant keeps the command that it is for, and grants for a session get an end.
    M::up(
        "ALTER TABLE run_grant ADD COLUMN preview TEXT NOT NULL DEFAULT '';
        UPDATE run_grant SET preview = coalesce((SELECT preview FROM approval
            JOIN approval_content USING (number) WHERE approval.id = run_grant.approval_id), '');
        UPDATE run_grant SET expires_at_ms = created_at_ms + 86400000 WHERE expires_at_ms IS NULL;",
    ),
    // The last use of an entry is stored beside the document, because a use must not change the
    // document's hash.
    M::up(
        "CREATE TABLE entry_use (
            entry TEXT NOT NULL PRIMARY KEY,
            used_at_ms INTEGER NOT NULL,
            command TEXT NOT NULL,
            resolved TEXT
        ) STRICT, WITHOUT ROWID;",
    ),
    M::up(
        "CREATE TABLE handed_plan (
            digest TEXT NOT NULL PRIMARY KEY,
            at_ms INTEGER NOT NULL,
            plan TEXT NOT NULL
        ) STRICT;
        CREATE INDEX handed_plan_age ON handed_plan (at_ms);",
    ),
    // The settings of sessions, and the last event that each reader has passed on.
    M::up(
        "CREATE TABLE session_settings (
            session_key TEXT NOT NULL PRIMARY KEY,
            agent TEXT NOT NULL,
            label TEXT,
            host TEXT,
            security TEXT,
            ask TEXT,
            node TEXT,
            elevated TEXT,
            updated_at_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE session_events_reader (
            name TEXT NOT NULL PRIMARY KEY,
            up_to INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;",
    ),
    // Every index adds a page to each commit. Records of kinds that every run writes are numerous,
    // so they are found without an index. Records of seldom kinds get one, so that they are not
    // searched for among the others. The other two indexes were on tables that hold little. The
    // condition must be the one in `audit::log`.
    M::up(
        "DROP INDEX IF EXISTS audit_kind;
        CREATE INDEX IF NOT EXISTS audit_seldom ON audit (kind, seq)
            WHERE kind NOT IN ('verdict', 'delivery', 'run-started', 'run-ended');
        DROP INDEX IF EXISTS open_run_of;
        DROP INDEX IF EXISTS session_events_age;",
    ),
    // The index by agent is dropped for the same reason: nearly every record names an agent, so the
    // index added a page to every commit and read the body of every record again.
    M::up("DROP INDEX IF EXISTS audit_agent;"),
    // Several plans may have the same digest. An approval is bound to the first plan, and the
    // policy allows the newest one by itself.
    M::up(
        "ALTER TABLE handed_plan ADD COLUMN newest TEXT NOT NULL DEFAULT '';
        UPDATE handed_plan SET newest = plan;",
    ),
    // Tokens of operators and nodes, stored as hashes.
    M::up(
        "CREATE TABLE role_token (
            hash TEXT NOT NULL PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            role TEXT NOT NULL CHECK (role IN ('operator', 'node')),
            created_at_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;",
    ),
    // The content of bound scripts, pinned when the approval was created.
    M::up(
        "CREATE TABLE approval_script (
            number INTEGER NOT NULL REFERENCES approval (number) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            path TEXT NOT NULL,
            sha256 TEXT NOT NULL,
            content BLOB NOT NULL,
            PRIMARY KEY (number, position)
        ) STRICT;",
    ),
    // Rows that allow something to run are sealed. The document names the audit record that wrote
    // it.
    M::up(
        "ALTER TABLE approvals_document ADD COLUMN audit_seq INTEGER;
        ALTER TABLE approvals_document ADD COLUMN seal BLOB;
        ALTER TABLE approval ADD COLUMN seal BLOB;
        ALTER TABLE run_grant ADD COLUMN seal BLOB;",
    ),
    // Each new approval counts the pending approvals of its agent.
    M::up(
        "CREATE INDEX approval_waiting_of ON approval (agent, expires_at_ms) WHERE ending IS NULL;",
    ),
    // The reason why an approver denied an approval, in the approver's words.
    M::up("ALTER TABLE approval ADD COLUMN deny_reason TEXT;"),
    // The positions of the audit records of each agent and kind in a block of 1024; `audit::search`
    // has the same statement for new blocks. The table has row ids, because a search in a table
    // without row ids reads every long row that it compares.
    M::up(
        "CREATE TABLE audit_block (
            agent_key TEXT NOT NULL,
            block INTEGER NOT NULL,
            kind TEXT NOT NULL,
            records INTEGER NOT NULL,
            oldest_ms INTEGER NOT NULL,
            newest_ms INTEGER NOT NULL,
            positions TEXT NOT NULL,
            PRIMARY KEY (agent_key, block, kind)
        ) STRICT;
        CREATE INDEX audit_block_counts
            ON audit_block (agent_key, block, kind, records, oldest_ms, newest_ms);
        INSERT INTO audit_block
        SELECT CASE WHEN is_all THEN 'all' WHEN typeof(agent) = 'text' THEN 'agent:' || agent ELSE 'none' END
            AS agent_key, (seq - 1) / 1024 AS block, kind, count(*), min(time_ms), max(time_ms),
            json_group_array((seq - 1) % 1024 ORDER BY seq)
        FROM audit CROSS JOIN (SELECT 0 AS is_all UNION ALL SELECT 1)
        WHERE seq > 0 AND seq <= (SELECT max(seq) FROM audit) / 1024 * 1024
        GROUP BY agent_key, block, kind;",
    ),
    // The start of the audit chain behind the archived records; see `audit::archive`.
    M::up(
        "CREATE TABLE audit_cut (
            only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
            seq INTEGER NOT NULL,
            hash BLOB NOT NULL,
            record INTEGER NOT NULL,
            seal BLOB NOT NULL
        ) STRICT;",
    ),
    // The sandboxes of runs whose end is not recorded yet.
    M::up(
        "CREATE TABLE IF NOT EXISTS run_sandbox (
            id TEXT NOT NULL PRIMARY KEY,
            sandbox TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;",
    ),
    // What sandboxes denied to runs that may be repeated outside, and the additional binds of
    // conversations.
    M::up(
        "CREATE TABLE IF NOT EXISTS run_denial (
            id TEXT NOT NULL PRIMARY KEY,
            agent TEXT NOT NULL,
            session_key TEXT NOT NULL,
            command_sha256 TEXT NOT NULL,
            denials TEXT NOT NULL,
            at_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS session_bind (
            session_key TEXT NOT NULL,
            agent TEXT NOT NULL,
            bind TEXT NOT NULL,
            PRIMARY KEY (session_key, agent, bind)
        ) STRICT, WITHOUT ROWID;",
    ),
    // The targets of chat messages, the messages that were sent or wait, how far each account has
    // read, and ids that count once; see `chat`.
    M::up(
        "CREATE TABLE chat_target (
            name TEXT NOT NULL PRIMARY KEY,
            after_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE chat_message (
            number INTEGER NOT NULL REFERENCES approval (number) ON DELETE CASCADE,
            target TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('queued', 'sent', 'failed')),
            due_at_ms INTEGER,
            tries INTEGER NOT NULL DEFAULT 0,
            shown INTEGER NOT NULL DEFAULT 0,
            chat TEXT,
            message TEXT,
            offers_allow INTEGER NOT NULL DEFAULT 0 CHECK (offers_allow IN (0, 1)),
            is_group INTEGER NOT NULL DEFAULT 0 CHECK (is_group IN (0, 1)),
            PRIMARY KEY (number, target)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX chat_message_due ON chat_message (due_at_ms) WHERE due_at_ms IS NOT NULL;
        CREATE INDEX chat_message_at ON chat_message (message, chat) WHERE message IS NOT NULL;
        CREATE TABLE chat_cursor (
            account TEXT NOT NULL PRIMARY KEY,
            cursor TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE chat_once (
            id TEXT NOT NULL PRIMARY KEY,
            at_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;",
    ),
];

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use rusqlite_migration::Migrations;

    use super::MIGRATIONS;

    /// The first versions gave a session grant no end, and did not know what it was for.
    #[test]
    fn a_session_grant_of_an_older_version_gets_an_end_and_its_command() {
        const FIRST_STEPS: usize = 4;
        let mut database = Connection::open_in_memory().unwrap();
        let older = Migrations::from_slice(&MIGRATIONS[..FIRST_STEPS]);
        older.to_latest(&mut database).unwrap();
        database
            .execute_batch(
                "INSERT INTO approval VALUES
                    (7, 'a', 'aaaaa', 'd', 'c', 'native', 'main', 's', 'gateway', NULL, 'r', 1, 2,
                     'allow-session', NULL, NULL, 'bob', 1);
                 INSERT INTO approval_content VALUES (7, 'rg x', '{}', NULL, '{}');
                 INSERT INTO run_grant VALUES
                    ('g', 'a', 'c', 'main', 's', 'gateway', NULL, 'bob', 5, NULL, NULL, 0),
                    ('h', 'gone', 'c', 'main', 's', 'gateway', NULL, 'bob', 5, 9, NULL, 0);",
            )
            .unwrap();
        let all = Migrations::from_slice(MIGRATIONS);
        all.to_latest(&mut database).unwrap();
        let read = |id: &str| -> (i64, String) {
            let statement = "SELECT expires_at_ms, preview FROM run_grant WHERE id = ?1";
            let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            database.query_row(statement, [id], columns).unwrap()
        };
        let end = 5 + crate::grant::MAX_SESSION_GRANT_MS;
        assert_eq!(read("g"), (end, "rg x".to_owned()));
        assert_eq!(read("h"), (9, String::new()));
    }
}
