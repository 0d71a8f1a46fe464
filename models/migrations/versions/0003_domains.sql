-- States as domains. A CHECK of a table is parsed and evaluated by every statement that writes a row of it,
-- whichever columns change: a sixth of what the hot statements cost the database. A domain's is kept ready
-- in memory and evaluated only where a value is assigned.

DROP VIEW runs;
DROP VIEW steps;

CREATE DOMAIN live_state AS text CONSTRAINT ck_live_state
    CHECK (VALUE IN ('pending', 'running', 'waiting', 'unknown', 'failed'));
CREATE DOMAIN block_reason AS text CONSTRAINT ck_live_block_reason
    CHECK (VALUE IN (
        'unknown_effect', 'untracked_step', 'version_incompatible', 'no_worker',
        'environment_changed', 'artifact_changed', 'budget_exceeded', 'poison_step',
        'unserialisable_output', 'idempotency_conflict', 'replay_mismatch', 'approval_expired',
        'compensation_failed', 'llm_unavailable', 'journal_rewound'
    ));
CREATE DOMAIN missing_count AS bigint CONSTRAINT ck_live_missing CHECK (VALUE >= 0);
CREATE DOMAIN step_state AS text CONSTRAINT ck_step_state
    CHECK (VALUE IN ('completed', 'failed', 'cancelled'));
CREATE DOMAIN run_state AS text CONSTRAINT ck_run_state
    CHECK (VALUE IN (
        'pending', 'running', 'waiting', 'blocked', 'compensating', 'completed', 'failed',
        'cancelled', 'compensated'
    ));
CREATE DOMAIN run_hold AS text CONSTRAINT ck_run_hold CHECK (VALUE IN ('cancel', 'failed', 'compensate'));

ALTER TABLE live
    DROP CONSTRAINT ck_live_state, DROP CONSTRAINT ck_live_missing, DROP CONSTRAINT ck_live_block_reason,
    ALTER state TYPE live_state, ALTER missing TYPE missing_count, ALTER block_reason TYPE block_reason;
ALTER TABLE step DROP CONSTRAINT ck_step_state, ALTER state TYPE step_state;
ALTER TABLE run
    DROP CONSTRAINT ck_run_state, DROP CONSTRAINT ck_run_hold,
    ALTER state TYPE run_state, ALTER hold TYPE run_hold;

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
