-- Sealed snapshots: a scope's position, and which of its objects belong. A row is written once and never changed.
-- Ids and runs are unique in a tenant, so whoever names one need not name its scope.

CREATE TABLE core.snapshot (
  scope_key         bigint NOT NULL,
  snapshot_id       text COLLATE "C" NOT NULL,
  tenant_id         text COLLATE "C" NOT NULL,
  evaluation_run_id text COLLATE "C",
  gives_clock       boolean NOT NULL,       -- whether it gives its run a clock or a seed
  ledger_epoch      integer NOT NULL,
  watermark         bigint NOT NULL,        -- the last ledger sequence that it shows
  document          bytea NOT NULL,         -- the descriptor as every door answers it (JSON)
  created_at        timestamptz NOT NULL,
  PRIMARY KEY (scope_key, snapshot_id)
);
CREATE UNIQUE INDEX snapshot_id_unique ON core.snapshot (tenant_id, snapshot_id);
CREATE UNIQUE INDEX snapshot_run_unique ON core.snapshot (tenant_id, evaluation_run_id) WHERE gives_clock;

CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.snapshot
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();

ALTER TABLE core.snapshot ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.snapshot FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON core.snapshot
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
CREATE POLICY resolver ON core.snapshot FOR SELECT TO pamspec_resolver USING (true);

-- (tenant, snapshot id) -> where it is, for a caller that has authenticated the tenant.
CREATE FUNCTION core.resolve_snapshot(tenant text, snapshot text) RETURNS TABLE (scope_key bigint, scope_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT s.scope_key, c.scope_id FROM core.snapshot s JOIN core.scope c USING (scope_key)
  WHERE s.tenant_id = tenant AND s.snapshot_id = snapshot
$$;

-- The snapshot that gave an evaluation run of a tenant its clock or its seed.
CREATE FUNCTION core.evaluation_run(tenant text, run text) RETURNS TABLE (document bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT s.document FROM core.snapshot s WHERE s.tenant_id = tenant AND s.evaluation_run_id = run AND s.gives_clock
$$;

GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.resolve_snapshot(text, text) OWNER TO pamspec_resolver;
ALTER FUNCTION core.evaluation_run(text, text) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.resolve_snapshot(text, text), core.evaluation_run(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.resolve_snapshot(text, text) TO pamspec_write, pamspec_query;
GRANT EXECUTE ON FUNCTION core.evaluation_run(text, text) TO pamspec_write;
GRANT SELECT ON core.snapshot TO pamspec_resolver, pamspec_query;
GRANT SELECT, INSERT ON core.snapshot TO pamspec_write;
