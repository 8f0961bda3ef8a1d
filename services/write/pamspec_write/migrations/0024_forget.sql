-- Forgets: a set of objects, relationships and past versions that go together, worked off by a job, under one receipt.

CREATE TABLE core.forget (
  scope_key    bigint NOT NULL,
  erasure_id   text COLLATE "C" NOT NULL,
  token        text COLLATE "C" NOT NULL,     -- of the preview: the position and a digest of the set
  actor_id     text COLLATE "C" NOT NULL,
  actor_kind   text COLLATE "C" NOT NULL,
  policy_basis text NOT NULL,
  total        bigint NOT NULL,
  started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at  timestamptz,
  leased_until timestamptz NOT NULL DEFAULT '-infinity',
  PRIMARY KEY (scope_key, erasure_id),
  UNIQUE (scope_key, token)
);
CREATE INDEX forget_open ON core.forget (leased_until) WHERE finished_at IS NULL;

-- What is still to be done, and what became of the rest: p: pending, d: done, h: held, f: failed.
CREATE TABLE core.forget_item (
  scope_key   bigint NOT NULL,
  erasure_id  text COLLATE "C" NOT NULL,
  object_id   text COLLATE "C" NOT NULL,
  kind        "char" NOT NULL,
  version_ids text[],                         -- null: all of it
  state       "char" NOT NULL DEFAULT 'p' CHECK (state IN ('p', 'd', 'h', 'f')),
  code        text COLLATE "C",               -- of the error that refused it
  PRIMARY KEY (scope_key, erasure_id, object_id)
) WITH (fillfactor = 80);
CREATE INDEX forget_item_pending ON core.forget_item (scope_key, erasure_id, object_id) WHERE state = 'p';

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['forget', 'forget_item']
  LOOP
    EXECUTE format('ALTER TABLE core.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE core.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY by_scope_keys ON core.%I USING
      (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]))$p$, name);
  END LOOP;
END $$;
CREATE POLICY resolver ON core.forget FOR SELECT TO pamspec_resolver USING (true);
GRANT SELECT, INSERT ON core.forget, core.forget_item TO pamspec_write;
GRANT UPDATE (finished_at, leased_until) ON core.forget TO pamspec_write;
GRANT UPDATE (state, code) ON core.forget_item TO pamspec_write;
GRANT UPDATE (due_at) ON core.erasure TO pamspec_write;
GRANT SELECT (scope_key, erasure_id, token, total, finished_at) ON core.forget TO pamspec_query;
GRANT SELECT ON core.forget_item TO pamspec_query;
GRANT SELECT (scope_key, erasure_id, finished_at, leased_until) ON core.forget TO pamspec_resolver;

-- Which forgets have work, over all scopes: where they are, and nothing of what they say.
CREATE FUNCTION core.forgets_due(lim integer)
RETURNS TABLE (
  scope_key bigint, erasure_id text, tenant_id text, scope_id text, tenant_token text, scope_token text, partition smallint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT f.scope_key, f.erasure_id, s.tenant_id, s.scope_id, s.tenant_token, s.scope_token, s.partition
  FROM core.forget f JOIN core.scope s USING (scope_key)
  WHERE f.finished_at IS NULL AND f.leased_until < clock_timestamp() ORDER BY f.leased_until LIMIT lim
$$;
GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.forgets_due(integer) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.forgets_due(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.forgets_due(integer) TO pamspec_write;
