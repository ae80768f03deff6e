//! The tables. Steps are only ever added at the end; their number is the version of a database.

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
    // The agent is read out of the body, which the hash covers, so it cannot say anything else.
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
    // What changes is in small rows; what may be large is written once, beside them.
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
    // The key is what makes a claim single-use: an approval's claim has the approval's id.
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
    M::up(
        "CREATE TABLE handed_plan (
            digest TEXT NOT NULL PRIMARY KEY,
            at_ms INTEGER NOT NULL,
            plan TEXT NOT NULL
        ) STRICT;
        CREATE INDEX handed_plan_age ON handed_plan (at_ms);",
    ),
];
