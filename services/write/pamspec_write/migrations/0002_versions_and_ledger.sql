-- Immutable versions, their erasable halves, the states they had over the ledger, and the ledger itself.
-- A version is known inside by (scope_key, ledger_seq): the ledger sequence of the event that made it.
--
-- Look-ups by an id have indexes that begin with the id. Row-level security restricts scope_key in every statement, so
-- any index that begins with it looks usable to the planner, and on a young table, whose statistics say nothing, it
-- would read a whole scope to find one row.

CREATE TABLE core.version (
  scope_key   bigint NOT NULL,
  ledger_seq  bigint NOT NULL,
  object_id   text COLLATE "C" NOT NULL,   -- the id of an object, a relationship or a delegation
  kind        "char" NOT NULL CHECK (kind IN ('o', 'r', 'd')),
  version_seq integer NOT NULL CHECK (version_seq >= 1),
  version_id  text COLLATE "C" NOT NULL,
  metadata    bytea NOT NULL,              -- JSON; digested into the ledger event as payload.version_digest
  PRIMARY KEY (scope_key, ledger_seq)
);
CREATE UNIQUE INDEX version_id_unique ON core.version (version_id, scope_key);
CREATE UNIQUE INDEX version_seq_unique ON core.version (object_id, scope_key, version_seq);

-- What an erasure removes: values and the salt that keys their digests.
CREATE TABLE core.version_private (
  scope_key      bigint NOT NULL,
  ledger_seq     bigint NOT NULL,
  operation_hash bytea NOT NULL,   -- the operation record that answers with this version
  salt           bytea,
  content        bytea,            -- the client's JSON, compacted; null once erased
  private        bytea,            -- JSON {actor, provenance, integrity?, policy_basis?}; null once erased
  PRIMARY KEY (scope_key, ledger_seq)
);

-- Current and past state, filterable: a version was the head for positions from_seq <= p < to_seq.
CREATE TABLE core.version_span (
  scope_key          bigint NOT NULL,
  from_seq           bigint NOT NULL,
  to_seq             bigint NOT NULL DEFAULT 9223372036854775807,
  object_id          text COLLATE "C" NOT NULL,
  kind               "char" NOT NULL,
  version_seq        integer NOT NULL,
  version_id         text COLLATE "C" NOT NULL,
  object_type        text COLLATE "C" NOT NULL,   -- for a relationship its relationship_type
  schema_id          text COLLATE "C",
  lifecycle_state    text COLLATE "C" NOT NULL,
  availability_state text COLLATE "C" NOT NULL,
  retention_state    text COLLATE "C" NOT NULL,
  validation_state   text COLLATE "C" NOT NULL,
  actor_id           text COLLATE "C" NOT NULL,
  provenance_id      text COLLATE "C" NOT NULL,
  observed_at        timestamptz,
  asserted_at        timestamptz,
  valid_from         timestamptz,
  valid_until        timestamptz,
  committed_at       timestamptz NOT NULL,
  created_by         text COLLATE "C" NOT NULL,
  content            jsonb,                       -- a projection of the content without what jsonb cannot hold
  PRIMARY KEY (scope_key, from_seq)
);
CREATE UNIQUE INDEX version_span_head ON core.version_span (object_id, scope_key) WHERE to_seq = 9223372036854775807;
CREATE INDEX version_span_head_order ON core.version_span (scope_key, from_seq DESC, object_id)
  WHERE to_seq = 9223372036854775807;

CREATE VIEW core.object_head WITH (security_invoker = true) AS
  SELECT * FROM core.version_span WHERE to_seq = 9223372036854775807;

CREATE TABLE core.ledger (
  scope_key   bigint NOT NULL,
  sequence    bigint NOT NULL,
  event_id    text COLLATE "C" NOT NULL,
  event_type  text COLLATE "C" NOT NULL,
  subject_id  text COLLATE "C",            -- the object, relationship, delegation or subscription it is about
  recorded_at timestamptz NOT NULL,
  event       bytea NOT NULL,              -- the one byte form: hashed, stored, published, polled
  entry_hash  bytea NOT NULL,
  PRIMARY KEY (scope_key, sequence)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02);   -- readers of the tail find it marked as visible to all
CREATE INDEX ledger_subject ON core.ledger (subject_id, scope_key, sequence) WHERE subject_id IS NOT NULL;

CREATE FUNCTION core.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% accepts INSERT only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.ledger
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.version
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();

-- Outcomes of operations: idempotency and look-up. Unique by operation id and by (operation, key), per principal.
CREATE TABLE core.operation_record (
  scope_key      bigint NOT NULL,
  operation_hash bytea NOT NULL,           -- of (principal, operation_id)
  key_hash       bytea,                    -- of (principal, operation, idempotency_key)
  operation      text COLLATE "C" NOT NULL,
  operation_id   text COLLATE "C" NOT NULL,
  actor_id       text COLLATE "C" NOT NULL,
  state          "char" NOT NULL CHECK (state IN ('c', 'f', 'a')),   -- committed, failed, abandoned
  salt           bytea,                    -- keys the fingerprint; null once erased
  fingerprint    bytea,                    -- of the request; null when it can never be repeated, or once erased
  status         smallint NOT NULL,
  ledger_seq     bigint,                   -- the version that the answer is made of
  last_seq       bigint,                   -- the last event of the operation
  answer         bytea,                    -- the answer that no version can give back: an error, a batch, an event
  created_at     timestamptz NOT NULL,
  PRIMARY KEY (operation_hash, scope_key)
);
CREATE UNIQUE INDEX operation_record_key ON core.operation_record (key_hash, scope_key) WHERE key_hash IS NOT NULL;

CREATE TABLE core.source_event (
  scope_key      bigint NOT NULL,
  source_hash    bytea NOT NULL,           -- of (source, id)
  operation_hash bytea NOT NULL,
  salt           bytea,
  fingerprint    bytea,                    -- of the payload; null once erased, and then it never recreates
  PRIMARY KEY (source_hash, scope_key)
);
CREATE INDEX source_event_operation ON core.source_event (operation_hash, scope_key);

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['version', 'version_private', 'version_span', 'ledger', 'operation_record', 'source_event']
  LOOP
    EXECUTE format('ALTER TABLE core.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE core.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY by_scope_keys ON core.%I USING
      (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]))$p$, name);
  END LOOP;
END $$;

GRANT SELECT, INSERT ON core.version, core.ledger TO pamspec_write;
GRANT SELECT, INSERT, UPDATE ON core.version_private, core.version_span, core.operation_record, core.source_event
  TO pamspec_write;
GRANT SELECT ON core.object_head TO pamspec_write, pamspec_query, pamspec_subscription;
GRANT SELECT ON core.version, core.version_private, core.version_span, core.ledger TO pamspec_query, pamspec_subscription;

-- The relay refills a stream from the ledger; it sees events and where they go, and no content.
GRANT SELECT ON core.ledger TO pamspec_relay;
GRANT SELECT (scope_key, tenant_token, scope_token, partition) ON core.scope TO pamspec_relay;
GRANT SELECT ON core.scope_head TO pamspec_relay;
CREATE POLICY relay_reads ON core.ledger FOR SELECT TO pamspec_relay USING (true);
CREATE POLICY relay_reads ON core.scope FOR SELECT TO pamspec_relay USING (true);
CREATE POLICY relay_reads ON core.scope_head FOR SELECT TO pamspec_relay USING (true);
