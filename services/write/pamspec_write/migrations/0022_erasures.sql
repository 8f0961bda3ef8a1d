-- Erasures, each with a receipt for every place where what it erased might be. A row is written in the transaction of
-- the erasure itself; who looks after it afterwards notes in `surfaces` what is verified, and how.

CREATE TABLE core.erasure (
  scope_key     bigint NOT NULL,
  erasure_id    text COLLATE "C" NOT NULL,
  tenant_id     text COLLATE "C" NOT NULL,
  kind          "char" NOT NULL CHECK (kind IN ('d', 'r', 'f')),   -- delete, redact, forget
  subject_kind  "char" CHECK (subject_kind IN ('o', 'r')),
  subject_id    text COLLATE "C",          -- the object or relationship; null for a forget
  part_of       text COLLATE "C",          -- the forget that it belongs to
  operation_id  text COLLATE "C" NOT NULL,
  actor_id      text COLLATE "C" NOT NULL,
  position      bigint NOT NULL,           -- the ledger sequence that every surface must have reached
  erased_from   integer[] NOT NULL,        -- ranges of version sequences that lost their values, both ends included
  erased_to     integer[] NOT NULL,
  seal_salt     bytea,                     -- together with a key outside the database it opens the needles
  needles       bytea,                     -- what the scans look for, sealed; both go when the erasure closes
  surfaces      jsonb NOT NULL DEFAULT '{}',
  attempts      integer NOT NULL DEFAULT 0,
  opened_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  leased_until  timestamptz NOT NULL DEFAULT '-infinity',
  closed_at     timestamptz,
  PRIMARY KEY (erasure_id, scope_key)
) WITH (fillfactor = 70);
CREATE INDEX erasure_due ON core.erasure (due_at) WHERE closed_at IS NULL;
CREATE INDEX erasure_of_scope ON core.erasure (scope_key, position DESC, erasure_id DESC);
CREATE INDEX erasure_parts ON core.erasure (part_of, scope_key) WHERE part_of IS NOT NULL;
ALTER TABLE core.erasure ALTER COLUMN seal_salt SET STATISTICS 0, ALTER COLUMN needles SET STATISTICS 0;

ALTER TABLE core.erasure ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.erasure FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON core.erasure
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
CREATE POLICY resolver ON core.erasure FOR SELECT TO pamspec_resolver USING (true);
GRANT SELECT, INSERT ON core.erasure TO pamspec_write;
GRANT SELECT (scope_key, erasure_id, tenant_id, kind, subject_kind, subject_id, part_of, operation_id, actor_id,
  position, erased_from, erased_to, surfaces, attempts, opened_at, due_at, closed_at) ON core.erasure TO pamspec_query;
GRANT SELECT (scope_key, erasure_id, tenant_id) ON core.erasure TO pamspec_resolver;

-- (tenant, erasure id) -> where it is, for a caller that has authenticated the tenant.
CREATE FUNCTION core.resolve_erasure(tenant text, erasure text) RETURNS TABLE (scope_key bigint, scope_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT e.scope_key, s.scope_id FROM core.erasure e JOIN core.scope s USING (scope_key)
  WHERE e.erasure_id = erasure AND s.tenant_id = tenant
$$;
GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.resolve_erasure(text, text) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.resolve_erasure(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.resolve_erasure(text, text) TO pamspec_query, pamspec_write;
