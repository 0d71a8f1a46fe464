-- Model calls and other reads, budgets, artifacts. `models/call_rows.py` says what each column means.

-- What was asked and what came back, one row per request that was answered. An answer that is not taken
-- (cut short, empty, of another model) is a row of its own: asking again takes the next position.
CREATE TABLE recorded_call (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    generation BIGINT DEFAULT 0 NOT NULL,
    scope TEXT NOT NULL,
    position BIGINT NOT NULL,
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,
    method TEXT NOT NULL,
    url TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    dialect TEXT NOT NULL,
    model TEXT,
    model_answered TEXT,
    request TEXT NOT NULL,
    status BIGINT NOT NULL,
    headers TEXT NOT NULL,
    answer TEXT NOT NULL,
    answer_digest TEXT NOT NULL,
    state TEXT NOT NULL,
    response_id TEXT,
    tokens_in BIGINT,
    tokens_out BIGINT,
    cost NUMERIC,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    worker TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    answered_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_recorded_call PRIMARY KEY (run_id, step_key, generation, scope, position),
    CONSTRAINT ck_recorded_call_kind CHECK (kind IN ('model', 'read')),
    CONSTRAINT ck_recorded_call_state CHECK (state IN (
        'complete', 'length', 'cut', 'empty', 'refused', 'malformed', 'other_model', 'pending', 'failed'
    ))
);

-- What the step made of an answer: until there is a row here it is only suggested.
CREATE TABLE call_verdict (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    generation BIGINT DEFAULT 0 NOT NULL,
    scope TEXT NOT NULL,
    position BIGINT NOT NULL,
    verdict TEXT NOT NULL,
    reason TEXT,
    token BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_call_verdict PRIMARY KEY (run_id, step_key, generation, scope, position),
    CONSTRAINT ck_call_verdict_verdict CHECK (verdict IN ('accepted', 'rejected')),
    CONSTRAINT ck_call_verdict_reason CHECK ((verdict = 'rejected') = (reason IS NOT NULL))
);

-- What a run, or a batch of runs, may spend, and what it has. A null limit is none.
CREATE TABLE wallet (
    wallet_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    parent_id TEXT,
    limit_tokens BIGINT,
    limit_cost NUMERIC,
    limit_calls BIGINT,
    limit_seconds DOUBLE PRECISION,
    limit_attempts BIGINT,
    spent_tokens BIGINT DEFAULT 0 NOT NULL,
    spent_cost NUMERIC DEFAULT 0 NOT NULL,
    spent_calls BIGINT DEFAULT 0 NOT NULL,
    held_tokens BIGINT DEFAULT 0 NOT NULL,
    held_cost NUMERIC DEFAULT 0 NOT NULL,
    held_calls BIGINT DEFAULT 0 NOT NULL,
    recovery_tokens BIGINT DEFAULT 0 NOT NULL,
    recovery_cost NUMERIC DEFAULT 0 NOT NULL,
    revision BIGINT DEFAULT 0 NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_wallet PRIMARY KEY (wallet_id),
    CONSTRAINT ck_wallet_kind CHECK (kind IN ('run', 'batch')),
    CONSTRAINT ck_wallet_amounts CHECK (
        spent_tokens >= 0 AND spent_cost >= 0 AND spent_calls >= 0
        AND held_tokens >= 0 AND held_cost >= 0 AND held_calls >= 0
        AND recovery_tokens >= 0 AND recovery_cost >= 0
    ),
    -- NaN is more than everything to PostgreSQL: as a limit it would allow all, as a cost it could never be paid.
    CONSTRAINT ck_wallet_limits CHECK (
        coalesce(limit_tokens, 0) >= 0 AND coalesce(limit_calls, 0) >= 0 AND coalesce(limit_attempts, 0) >= 0
        AND coalesce(limit_cost, 0) >= 0 AND coalesce(limit_cost, 0) < 'Infinity'
        AND coalesce(limit_seconds, 0) >= 0 AND coalesce(limit_seconds, 0) < 'Infinity'
    )
);
ALTER TABLE wallet SET (fillfactor = 50);

-- What is set aside for a request that may be on its way. Deleted by what settles it.
CREATE TABLE hold (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    generation BIGINT DEFAULT 0 NOT NULL,
    scope TEXT NOT NULL,
    position BIGINT NOT NULL,
    token BIGINT NOT NULL,
    send BIGINT NOT NULL,
    wallet_id TEXT NOT NULL,
    model TEXT,
    tokens BIGINT NOT NULL,
    cost NUMERIC,
    made_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_hold PRIMARY KEY (run_id, step_key, generation, scope, position, token, send),
    CONSTRAINT ck_hold_amounts CHECK (tokens >= 0 AND (cost IS NULL OR cost >= 0 AND cost < 'Infinity'))
);

-- What was charged, and for what: once for each hold. `recovery`: nobody had anything of it, since its answer was
-- lost.
CREATE TABLE spend (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    generation BIGINT DEFAULT 0 NOT NULL,
    scope TEXT NOT NULL,
    position BIGINT NOT NULL,
    token BIGINT NOT NULL,
    send BIGINT NOT NULL,
    wallet_id TEXT NOT NULL,
    model TEXT,
    tokens BIGINT NOT NULL,
    cost NUMERIC,
    recovery BOOLEAN DEFAULT false NOT NULL,
    seconds DOUBLE PRECISION,
    at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_spend PRIMARY KEY (run_id, step_key, generation, scope, position, token, send),
    CONSTRAINT ck_spend_amounts CHECK (tokens >= 0 AND (cost IS NULL OR cost >= 0 AND cost < 'Infinity'))
);

-- When an endpoint may be asked again, and how fast: shared by all workers.
CREATE TABLE endpoint (
    endpoint TEXT NOT NULL,
    not_before TIMESTAMP WITH TIME ZONE,
    spread DOUBLE PRECISION DEFAULT 0 NOT NULL,
    waiters BIGINT DEFAULT 0 NOT NULL,
    reason TEXT,
    strikes BIGINT DEFAULT 0 NOT NULL,
    since TIMESTAMP WITH TIME ZONE,
    request_level DOUBLE PRECISION,
    token_level DOUBLE PRECISION,
    level_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_endpoint PRIMARY KEY (endpoint)
);
ALTER TABLE endpoint SET (fillfactor = 50);

-- Content kept outside the journal. The row is written after the file is whole.
CREATE TABLE artifact (
    digest TEXT NOT NULL,
    size BIGINT NOT NULL,
    encoding TEXT NOT NULL,
    stored_size BIGINT NOT NULL,
    encrypted BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_artifact PRIMARY KEY (digest),
    CONSTRAINT ck_artifact_encoding CHECK (encoding IN ('identity', 'gzip'))
);

-- Which step made or took which artifact.
CREATE TABLE artifact_use (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    digest TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_artifact_use PRIMARY KEY (run_id, step_key, digest, name, role),
    CONSTRAINT ck_artifact_use_role CHECK (role IN ('made', 'taken', 'output', 'input'))
);
CREATE INDEX ix_artifact_use_digest ON artifact_use (digest);

-- The wallet that a run's calls are paid from: its own, its batch's, or that of the run it came from.
ALTER TABLE run ADD COLUMN wallet_id TEXT;

-- What changes how a step's records are read in later attempts. 'branch': they are set aside, and everything is
-- asked anew (the step's generation is the number of these rows). 'pardon': a person tries again, and answers
-- rejected under this token or an earlier one do not count against the limit on asking.
CREATE TABLE call_reset (
    run_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    token BIGINT NOT NULL,
    reason TEXT NOT NULL,
    actor TEXT DEFAULT 'onward' NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT onward_now() NOT NULL,
    CONSTRAINT pk_call_reset PRIMARY KEY (run_id, step_key, kind, token),
    CONSTRAINT ck_call_reset_kind CHECK (kind IN ('branch', 'pardon'))
);

CREATE TRIGGER recorded_call_insert_only BEFORE UPDATE OR DELETE ON recorded_call
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER call_verdict_insert_only BEFORE UPDATE OR DELETE ON call_verdict
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER spend_insert_only BEFORE UPDATE OR DELETE ON spend
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER call_reset_insert_only BEFORE UPDATE OR DELETE ON call_reset
    FOR EACH ROW EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER recorded_call_no_truncate BEFORE TRUNCATE ON recorded_call EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER call_verdict_no_truncate BEFORE TRUNCATE ON call_verdict EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER spend_no_truncate BEFORE TRUNCATE ON spend EXECUTE FUNCTION onward_insert_only();
CREATE TRIGGER call_reset_no_truncate BEFORE TRUNCATE ON call_reset EXECUTE FUNCTION onward_insert_only();
