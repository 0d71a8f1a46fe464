-- The journal, first version. `models/rows.py` says what each column means; a test compares the two.

-- One clock, the database's. Tests freeze it: SET onward.now = '2030-01-01T00:00:00Z'.
-- now() would be frozen inside a transaction, so a lease renewed late in one would be born old.
CREATE FUNCTION onward_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT coalesce(nullif(current_setting('onward.now', true), '')::timestamptz, clock_timestamp()) $$;

CREATE TABLE attempt (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    token BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    branch TEXT NOT NULL,
    owner TEXT,
    worker TEXT,
    error_type TEXT,
    error TEXT,
    output TEXT,
    started_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_attempt PRIMARY KEY (run_id, step_key, token, outcome),
    CONSTRAINT ck_attempt_outcome CHECK (outcome IN (
        'expired', 'died', 'interrupted', 'failed', 'superseded'
    ))
);

CREATE TABLE batch (
    batch_id TEXT NOT NULL,
    label TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_batch PRIMARY KEY (batch_id)
);

CREATE TABLE event (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY,
    run_id TEXT NOT NULL,
    step_key TEXT,
    token BIGINT,
    kind TEXT NOT NULL,
    detail TEXT DEFAULT '' NOT NULL,
    actor TEXT DEFAULT 'onward' NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_event PRIMARY KEY (event_id)
);

CREATE INDEX ix_event_run_id ON event (run_id);

CREATE TABLE live (
    run_id TEXT NOT NULL,
    branch TEXT NOT NULL,
    step_key TEXT NOT NULL,
    prev_key TEXT,
    state TEXT DEFAULT 'pending' NOT NULL,
    missing BIGINT DEFAULT 0 NOT NULL,
    queue TEXT NOT NULL,
    priority BIGINT DEFAULT 0 NOT NULL,
    batch_id TEXT,
    untracked BOOLEAN DEFAULT false NOT NULL,
    attempt BIGINT DEFAULT 0 NOT NULL,
    failures BIGINT DEFAULT 0 NOT NULL,
    crashes BIGINT DEFAULT 0 NOT NULL,
    lost BIGINT DEFAULT 0 NOT NULL,
    pardoned_failures BIGINT DEFAULT 0 NOT NULL,
    pardoned_crashes BIGINT DEFAULT 0 NOT NULL,
    pardoned_lost BIGINT DEFAULT 0 NOT NULL,
    token BIGINT DEFAULT 0 NOT NULL,
    owner TEXT,
    worker TEXT,
    carrier TEXT,
    pid BIGINT,
    pid_started BIGINT,
    claimed_at TIMESTAMP WITH TIME ZONE,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    slot_at TIMESTAMP WITH TIME ZONE,
    publish_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    publications BIGINT DEFAULT 0 NOT NULL,
    block_reason TEXT,
    error_type TEXT,
    error TEXT,
    progress_done FLOAT,
    progress_total FLOAT,
    progress_note TEXT,
    revision BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_live PRIMARY KEY (run_id, branch),
    CONSTRAINT ck_live_state CHECK (state IN ('pending', 'running', 'waiting', 'unknown', 'failed')),
    CONSTRAINT ck_live_lease CHECK ((state = 'running') = (owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CONSTRAINT ck_live_missing CHECK (missing >= 0),
    CONSTRAINT ck_live_block_reason CHECK (block_reason IS NULL OR block_reason IN (
        'unknown_effect', 'untracked_step', 'version_incompatible', 'no_worker',
        'environment_changed', 'artifact_changed', 'budget_exceeded', 'poison_step',
        'unserialisable_output', 'idempotency_conflict', 'replay_mismatch', 'approval_expired',
        'compensation_failed', 'llm_unavailable', 'journal_rewound'
    ))
);

CREATE TABLE pass (
    name TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    completed_at TIMESTAMP WITH TIME ZONE,
    seconds FLOAT,
    detail TEXT DEFAULT '' NOT NULL,
    CONSTRAINT pk_pass PRIMARY KEY (name)
);

CREATE TABLE plan (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    position BIGINT NOT NULL,
    step_name TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    branch TEXT NOT NULL,
    input TEXT NOT NULL,
    arguments TEXT NOT NULL,
    next_key TEXT,
    fork TEXT[],
    joins TEXT,
    join_index BIGINT,
    tolerant BOOLEAN DEFAULT false NOT NULL,
    untracked BOOLEAN DEFAULT false NOT NULL,
    rate_limit FLOAT,
    throttle TEXT,
    inserted_by TEXT,
    CONSTRAINT pk_plan PRIMARY KEY (run_id, step_key)
);

CREATE TABLE step (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    branch TEXT NOT NULL,
    state TEXT NOT NULL,
    prev_key TEXT,
    input_digest TEXT,
    output TEXT,
    output_digest TEXT,
    joins TEXT,
    join_index BIGINT,
    attempt BIGINT NOT NULL,
    token BIGINT NOT NULL,
    worker TEXT,
    tokens BIGINT,
    cost FLOAT,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_step PRIMARY KEY (run_id, step_key),
    CONSTRAINT ck_step_state CHECK (state IN ('completed', 'failed', 'cancelled')),
    CONSTRAINT ck_step_output CHECK ((state = 'cancelled') = (output IS NULL) AND (output IS NULL) = (output_digest IS NULL))
);

CREATE TABLE throttle (
    name TEXT NOT NULL,
    next_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_throttle PRIMARY KEY (name)
);

CREATE TABLE worker (
    start_id TEXT NOT NULL,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    pid_started BIGINT NOT NULL,
    pid_space TEXT NOT NULL,
    queues TEXT[] NOT NULL,
    concurrency BIGINT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    stopped_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_worker PRIMARY KEY (start_id)
);

CREATE INDEX ix_worker_name ON worker (name);

CREATE TABLE run (
    run_id TEXT NOT NULL,
    batch_id TEXT,
    submission_key TEXT,
    input TEXT NOT NULL,
    input_digest TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    interface_digest TEXT NOT NULL,
    code_digest TEXT NOT NULL,
    model TEXT,
    prompt_digest TEXT,
    policy TEXT,
    config_digest TEXT,
    priority BIGINT DEFAULT 0 NOT NULL,
    state TEXT DEFAULT 'pending' NOT NULL,
    hold TEXT,
    reason TEXT,
    detail TEXT,
    result_key TEXT,
    step_count BIGINT NOT NULL,
    duplicates BIGINT DEFAULT 0 NOT NULL,
    cancellation_id TEXT,
    cancelled_by TEXT,
    cancel_reason TEXT,
    revision BIGINT DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_run PRIMARY KEY (run_id),
    CONSTRAINT ck_run_state CHECK (state IN (
        'pending', 'running', 'waiting', 'blocked', 'compensating', 'completed', 'failed',
        'cancelled', 'compensated'
    )),
    CONSTRAINT ck_run_hold CHECK (hold IS NULL OR hold IN ('cancel', 'failed')),
    CONSTRAINT ck_run_result CHECK ((state = 'completed') = (result_key IS NOT NULL)),
    CONSTRAINT fk_run_batch_id FOREIGN KEY(batch_id) REFERENCES batch (batch_id),
    CONSTRAINT uq_run_submission_key UNIQUE (submission_key)
);

CREATE INDEX ix_run_batch_id ON run (batch_id);

CREATE INDEX ix_run_created_at ON run (created_at);

CREATE INDEX ix_run_held ON run (run_id) WHERE hold IS NOT NULL;

-- Room for HOT updates: a step's life is three updates of one row, none of an indexed column.
-- Vacuum comes by count, not by share: dead versions of a small hot table cost every sweep.
ALTER TABLE live SET (fillfactor = 50, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_analyze_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE run SET (fillfactor = 80);

-- What is finished never changes. Retention, when it comes, sets onward.retention in its transaction.
CREATE FUNCTION onward_insert_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF current_setting('onward.retention', true) = 'on' AND TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'table % of the journal is insert-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER plan_insert_only BEFORE UPDATE OR DELETE ON plan
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER step_insert_only BEFORE UPDATE OR DELETE ON step
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER attempt_insert_only BEFORE UPDATE OR DELETE ON attempt
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER event_insert_only BEFORE UPDATE OR DELETE ON event
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER plan_no_truncate BEFORE TRUNCATE ON plan EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER step_no_truncate BEFORE TRUNCATE ON step EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER attempt_no_truncate BEFORE TRUNCATE ON attempt EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER event_no_truncate BEFORE TRUNCATE ON event EXECUTE FUNCTION onward_insert_only();

-- One row per planned step with the one state people mean; hides the split of live and finished.
CREATE VIEW steps AS
SELECT p.run_id, p.step_key, p.position, p.step_name, p.kind, p.branch, p.queue,
       coalesce(s.state, CASE WHEN l.missing = 0 THEN l.state END, 'not_reached') AS state,
       coalesce(s.attempt, l.attempt, 0) AS attempt, coalesce(s.token, l.token, 0) AS token,
       coalesce(s.worker, l.worker) AS worker, l.failures, l.crashes, l.lost, l.block_reason,
       l.error_type, l.error, coalesce(s.started_at, l.claimed_at) AS started_at, s.finished_at,
       l.due_at, l.lease_expires_at, s.output_digest, s.tokens, s.cost,
       l.progress_done, l.progress_total, l.progress_note, p.inserted_by
FROM plan p
LEFT JOIN step s ON s.run_id = p.run_id AND s.step_key = p.step_key
LEFT JOIN live l ON l.run_id = p.run_id AND l.branch = p.branch AND l.step_key = p.step_key;

CREATE VIEW runs AS
SELECT r.run_id, r.batch_id, r.submission_key, r.workflow, r.version, r.state, r.hold, r.reason, r.detail,
       r.priority, r.step_count, r.duplicates, r.created_at, r.started_at, r.finished_at, r.cancelled_by,
       r.cancel_reason,
       (SELECT count(*) FROM step s WHERE s.run_id = r.run_id AND s.state = 'completed') AS completed_steps
FROM run r;
