-- Legal holds over a type or a whole scope. A hold bites from the moment it is a row here (it is one of the scope's
-- rules); a job then moves retention_state object by object, and back when the hold is released.

CREATE TABLE core.legal_hold (
  scope_key        bigint NOT NULL REFERENCES core.scope,
  hold_id          text COLLATE "C" NOT NULL,
  object_type      text COLLATE "C",            -- null: everything of the scope
  policy_basis     text NOT NULL,
  actor_id         text COLLATE "C" NOT NULL,
  authenticated_as text COLLATE "C",
  operation_id     text COLLATE "C" NOT NULL,
  placed_at        timestamptz NOT NULL,
  placed_seq       bigint NOT NULL,             -- the scope's last ledger sequence when it was placed
  released_at      timestamptz,
  release_basis    text,
  released_by      text COLLATE "C",
  release_operation_id text COLLATE "C",
  done_seq         bigint NOT NULL DEFAULT 0,   -- heads up to this sequence have been looked at by the job
  undone           boolean NOT NULL DEFAULT false,   -- released, and every object that it held is let go
  leased_until     timestamptz NOT NULL DEFAULT '-infinity',
  PRIMARY KEY (scope_key, hold_id)
);
CREATE UNIQUE INDEX legal_hold_id ON core.legal_hold (hold_id);
CREATE INDEX legal_hold_open ON core.legal_hold (scope_key) WHERE NOT undone;

-- The objects that the job has put on hold, for which hold, and what their retention_state was before.
CREATE TABLE core.held_object (
  scope_key       bigint NOT NULL,
  object_id       text COLLATE "C" NOT NULL,
  hold_id         text COLLATE "C" NOT NULL,
  retention_state text COLLATE "C" NOT NULL,
  PRIMARY KEY (object_id, scope_key)
);
CREATE INDEX held_object_hold ON core.held_object (hold_id, object_id);

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['legal_hold', 'held_object']
  LOOP
    EXECUTE format('ALTER TABLE core.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE core.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY by_scope_keys ON core.%I USING
      (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]))$p$, name);
  END LOOP;
END $$;

GRANT SELECT, INSERT ON core.legal_hold TO pamspec_write;
GRANT UPDATE (released_at, release_basis, released_by, release_operation_id, done_seq, undone, leased_until)
  ON core.legal_hold TO pamspec_write;
GRANT SELECT, INSERT, UPDATE, DELETE ON core.held_object TO pamspec_write;
GRANT SELECT ON core.legal_hold TO pamspec_query;

-- Which holds have work for the job, over all scopes: where they are, and nothing of what they say.
CREATE FUNCTION core.holds_due(lim integer)
RETURNS TABLE (
  scope_key bigint, hold_id text, tenant_id text, scope_id text, tenant_token text, scope_token text, partition smallint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT l.scope_key, l.hold_id, s.tenant_id, s.scope_id, s.tenant_token, s.scope_token, s.partition
  FROM core.legal_hold l JOIN core.scope s USING (scope_key) JOIN core.scope_head h USING (scope_key)
  WHERE NOT l.undone AND l.leased_until < clock_timestamp()
    AND (l.released_at IS NOT NULL OR l.done_seq < h.last_seq)
  ORDER BY l.leased_until, l.hold_id LIMIT lim
$$;
GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.holds_due(integer) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.holds_due(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.holds_due(integer) TO pamspec_write;
GRANT SELECT (scope_key, hold_id, undone, leased_until, released_at, done_seq) ON core.legal_hold TO pamspec_resolver;
GRANT SELECT (scope_key, last_seq) ON core.scope_head TO pamspec_resolver;
CREATE POLICY resolver ON core.legal_hold FOR SELECT TO pamspec_resolver USING (true);
CREATE POLICY resolver ON core.scope_head FOR SELECT TO pamspec_resolver USING (true);
