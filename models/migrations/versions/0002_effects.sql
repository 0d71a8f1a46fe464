-- Effects: what a run asked the outside world to change. `models/effect_rows.py` says what each column means.

-- What moves: intents whose outcome is not final. A settled one is deleted here by the statement that
-- records its settlement, so this table holds what is under way or in doubt and little else.
CREATE TABLE effect (
    key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    branch TEXT NOT NULL,
    queue TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    effect_class TEXT NOT NULL,
    undoes TEXT,
    request TEXT NOT NULL,
    request_digest TEXT,
    state TEXT NOT NULL,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    nonce TEXT DEFAULT '' NOT NULL,
    sends BIGINT DEFAULT 1 NOT NULL,
    pardoned_sends BIGINT DEFAULT 0 NOT NULL,
    earlier_doubt BOOLEAN DEFAULT false NOT NULL,
    start_id TEXT NOT NULL,
    worker TEXT NOT NULL,
    pid BIGINT NOT NULL,
    pid_started BIGINT NOT NULL,
    pid_space TEXT NOT NULL,
    call_over BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    first_sent_at TIMESTAMP WITH TIME ZONE NOT NULL,
    sent_at TIMESTAMP WITH TIME ZONE NOT NULL,
    send_by TIMESTAMP WITH TIME ZONE NOT NULL,
    resend_until TIMESTAMP WITH TIME ZONE,
    absent_after TIMESTAMP WITH TIME ZONE,
    doubted_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    looks BIGINT DEFAULT 0 NOT NULL,
    checks BIGINT DEFAULT 0 NOT NULL,
    failed_checks BIGINT DEFAULT 0 NOT NULL,
    looker TEXT,
    looker_until TIMESTAMP WITH TIME ZONE,
    passed BOOLEAN DEFAULT false NOT NULL,
    person TEXT,
    error TEXT,
    revision BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_effect PRIMARY KEY (key),
    CONSTRAINT ck_effect_state CHECK (state IN ('intended', 'unknown', 'refused', 'absent'))
);

CREATE INDEX ix_effect_run_id ON effect (run_id);

-- What is finished: one row per effect, its request and its result, and who says so.
CREATE TABLE effect_settlement (
    key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    branch TEXT NOT NULL,
    queue TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    effect_class TEXT NOT NULL,
    undoes TEXT,
    request TEXT NOT NULL,
    request_digest TEXT,
    outcome TEXT NOT NULL,
    result TEXT,
    result_digest TEXT,
    source TEXT NOT NULL,
    actor TEXT DEFAULT 'onward' NOT NULL,
    reason TEXT,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    sends BIGINT NOT NULL,
    worker TEXT NOT NULL,
    position BIGINT GENERATED ALWAYS AS IDENTITY,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    first_sent_at TIMESTAMP WITH TIME ZONE NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_effect_settlement PRIMARY KEY (key),
    CONSTRAINT ck_effect_settlement_outcome CHECK (outcome IN ('settled', 'abandoned')),
    CONSTRAINT ck_effect_settlement_source CHECK (source IN ('answer', 'lookup', 'late_answer', 'person')),
    CONSTRAINT ck_effect_settlement_result CHECK ((outcome = 'settled') = (result IS NOT NULL))
);

CREATE INDEX ix_effect_settlement_run_id ON effect_settlement (run_id);

-- Late answers of owners that were displaced: read before the world is asked, and by itself no outcome.
CREATE TABLE effect_evidence (
    key TEXT NOT NULL,
    token BIGINT NOT NULL,
    result TEXT NOT NULL,
    result_digest TEXT NOT NULL,
    worker TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_effect_evidence PRIMARY KEY (key, token)
);

-- One per run whose effects are being undone, or were.
CREATE TABLE compensation (
    run_id TEXT NOT NULL,
    state TEXT NOT NULL,
    only_keys TEXT[],
    requested_by TEXT NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    queue TEXT NOT NULL,
    run_state TEXT NOT NULL,
    run_reason TEXT,
    run_detail TEXT,
    failures BIGINT DEFAULT 0 NOT NULL,
    pardoned_failures BIGINT DEFAULT 0 NOT NULL,
    doer TEXT,
    doer_until TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    error TEXT,
    requested_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    revision BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_compensation PRIMARY KEY (run_id),
    CONSTRAINT ck_compensation_state CHECK (state IN ('undoing', 'blocked', 'done')),
    CONSTRAINT ck_compensation_doer CHECK ((doer IS NULL) = (doer_until IS NULL) AND (doer IS NULL OR state = 'undoing'))
);

CREATE INDEX ix_compensation_open ON compensation (run_id) WHERE state <> 'done';

-- A journal that went back in time: what it says did not happen may have happened.
CREATE TABLE rewind (
    rewind_id BIGINT GENERATED ALWAYS AS IDENTITY,
    rewound_to TIMESTAMP WITH TIME ZONE NOT NULL,
    declared_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    CONSTRAINT pk_rewind PRIMARY KEY (rewind_id)
);

-- The pulse that a journal and its broker share; a journal behind the broker's copy has lost commits.
CREATE TABLE pulse (
    name TEXT NOT NULL,
    beat BIGINT NOT NULL,
    system_id TEXT NOT NULL,
    timeline BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_pulse PRIMARY KEY (name)
);

ALTER TABLE run DROP CONSTRAINT ck_run_hold;
ALTER TABLE run ADD CONSTRAINT ck_run_hold CHECK (hold IS NULL OR hold IN ('cancel', 'failed', 'compensate'));
ALTER TABLE run ADD COLUMN on_failure TEXT;
ALTER TABLE plan ADD COLUMN has_lookup BOOLEAN DEFAULT false NOT NULL;

ALTER TABLE effect SET (fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.0);

CREATE TRIGGER effect_settlement_insert_only BEFORE UPDATE OR DELETE ON effect_settlement
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER effect_evidence_insert_only BEFORE UPDATE OR DELETE ON effect_evidence
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER rewind_insert_only BEFORE UPDATE OR DELETE ON rewind
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER effect_settlement_no_truncate BEFORE TRUNCATE ON effect_settlement EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER effect_evidence_no_truncate BEFORE TRUNCATE ON effect_evidence EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER rewind_no_truncate BEFORE TRUNCATE ON rewind EXECUTE FUNCTION onward_insert_only();

-- What is settled is never open again. A statement that waited for a lock reads settlements as of its start;
-- one that came meanwhile is seen here, after the row is in (a settlement deletes the row it settles, so none
-- can come any more), and the statement is repeated.
CREATE FUNCTION onward_settled_once() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF EXISTS (SELECT 1 FROM effect_settlement WHERE key = NEW.key) THEN
        RAISE EXCEPTION 'effect % has just been settled', NEW.key USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER effect_settled_once AFTER INSERT ON effect FOR EACH ROW EXECUTE FUNCTION onward_settled_once();

-- One row per effect with the one state people mean; hides the split of open and settled.
CREATE VIEW effects AS
SELECT e.key, e.run_id, e.step_key, e.branch, e.tool, e.tool_version, e.effect_class, e.undoes, e.state,
       e.request_digest, NULL::text AS result, NULL::text AS source, 'onward' AS actor, e.person,
       e.error, e.sends, e.checks, e.looks, e.worker, e.token, e.attempt, e.created_at, e.first_sent_at,
       e.sent_at, e.doubted_at, CASE WHEN e.state = 'unknown' THEN e.due_at END AS due_at,
       NULL::timestamptz AS settled_at, NULL::bigint AS position
FROM effect e
UNION ALL
SELECT s.key, s.run_id, s.step_key, s.branch, s.tool, s.tool_version, s.effect_class, s.undoes, s.outcome,
       s.request_digest, s.result, s.source, s.actor, NULL, s.reason, s.sends, NULL, NULL, s.worker,
       s.token, s.attempt, s.created_at, s.first_sent_at, NULL, NULL, NULL, s.settled_at, s.position
FROM effect_settlement s;
