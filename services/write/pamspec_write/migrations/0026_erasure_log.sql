-- Which erasures are logged outside PostgreSQL: a backup that is older than they are is then restored without what they
-- erased. The relay logs them; it sees ids alone.
ALTER TABLE core.erasure ADD COLUMN logged_at timestamptz;
ALTER TABLE core.scope_deletion ADD COLUMN logged_at timestamptz;
CREATE INDEX erasure_unlogged ON core.erasure (opened_at) WHERE logged_at IS NULL;
CREATE INDEX scope_deletion_unlogged ON core.scope_deletion (requested_at) WHERE logged_at IS NULL;
CREATE POLICY relay_logs ON core.erasure FOR SELECT TO pamspec_relay USING (true);
CREATE POLICY relay_notes ON core.erasure FOR UPDATE TO pamspec_relay USING (true);
CREATE POLICY relay_logs ON core.scope_deletion FOR SELECT TO pamspec_relay USING (true);
CREATE POLICY relay_notes ON core.scope_deletion FOR UPDATE TO pamspec_relay USING (true);
GRANT SELECT (scope_key, erasure_id, tenant_id, kind, subject_kind, subject_id, position, erased_from, erased_to,
  opened_at, logged_at), UPDATE (logged_at) ON core.erasure TO pamspec_relay;
GRANT SELECT (scope_key, requested_at, logged_at), UPDATE (logged_at) ON core.scope_deletion TO pamspec_relay;
GRANT SELECT (tenant_id) ON core.scope TO pamspec_relay;

-- Entries of the erasure log that a restore has looked at: what came later in this store is no matter of theirs. It is
-- part of a backup, so that the next restore knows which history an entry is of.
CREATE TABLE core.replayed_erasure (
  erasure_id  text COLLATE "C" PRIMARY KEY,
  replayed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE core.replayed_erasure ENABLE ROW LEVEL SECURITY;
