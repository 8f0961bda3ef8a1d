-- Old bytes of erased values stay in pages of tables and indexes until their file is written anew. What erasures owe is
-- recorded in their own transaction, whoever erases; whole relations are rewritten by CLUSTER, which leaves out every row
-- version that nobody can see any more; and both are compared by transaction ids, never by clocks.

-- One row for each erasing statement and scope. The erasing entries of the ledger come after `after_seq` and, where there
-- are later rows of the scope, not after theirs.
CREATE TABLE core.page_debt (
  scope_key bigint NOT NULL,
  after_seq bigint NOT NULL,
  id        bigint GENERATED ALWAYS AS IDENTITY,
  owed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
  until_seq bigint,        -- where the scope stood at some time afterwards
  derived   xid8,          -- of a transaction that saw what is derived of the scope past that position
  PRIMARY KEY (scope_key, after_seq, id)
);
CREATE INDEX page_debt_xid ON core.page_debt (xid);
CREATE INDEX page_debt_underived ON core.page_debt (scope_key) WHERE derived IS NULL;
ALTER TABLE core.page_debt ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.page_debt FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON core.page_debt
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
CREATE POLICY resolver ON core.page_debt FOR SELECT TO pamspec_resolver USING (true);
CREATE POLICY resolver_notes ON core.page_debt FOR UPDATE TO pamspec_resolver USING (true);
GRANT SELECT ON core.page_debt TO pamspec_resolver, pamspec_query;
GRANT UPDATE (until_seq, derived) ON core.page_debt TO pamspec_resolver;
GRANT SELECT ON core.page_debt TO pamspec_write;

-- What was rewritten: what erasures of transactions before `horizon` owed for this relation is paid.
CREATE TABLE core.page_rewrite (
  relation     text COLLATE "C" NOT NULL,
  horizon      xid8 NOT NULL,
  started_at   timestamptz NOT NULL,
  finished_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  bytes_before bigint NOT NULL,
  bytes_after  bigint NOT NULL,
  PRIMARY KEY (relation, horizon)
);
GRANT SELECT ON core.page_rewrite TO pamspec_write, pamspec_query, pamspec_resolver;

-- Relations that held erasable values, keyed digests of them or their salts, beside those of derived indexes.
CREATE TABLE core.page_relation (relation text COLLATE "C" PRIMARY KEY);
INSERT INTO core.page_relation VALUES
  ('core.operation_record'), ('core.source_event'), ('core.version_private'), ('core.version_span');
GRANT SELECT ON core.page_relation TO pamspec_write, pamspec_query, pamspec_resolver;

CREATE FUNCTION core.owe_pages() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp AS $$
BEGIN
  INSERT INTO core.page_debt (scope_key, after_seq)
  SELECT h.scope_key, h.last_seq FROM core.scope_head h
  WHERE h.scope_key = ANY (ARRAY (SELECT DISTINCT g.scope_key FROM gone g));
  RETURN NULL;
END $$;
CREATE TRIGGER owe_pages AFTER UPDATE ON core.version_private REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION core.owe_pages();

-- Every relation that is rewritten: those above, and every leaf of the schema of derived indexes but its bookkeeping.
CREATE FUNCTION core.page_relations() RETURNS TABLE (relation text, id oid, derived boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT n.nspname || '.' || c.relname, c.oid, n.nspname = 'index_'
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind = 'r' AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AND (
    n.nspname || '.' || c.relname IN (SELECT r.relation FROM core.page_relation r)
    OR n.nspname = 'index_' AND c.relname NOT IN ('inbox', 'parked', 'lease', 'member', 'indexed_object', 'watermark'))
$$;

-- The oldest transaction whose changes, or the state before them, somebody may still see: rows that died earlier are left
-- out of a rewrite, younger ones are kept with their bytes.
CREATE FUNCTION core.page_horizon() RETURNS xid8
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
BEGIN
  IF NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN
    RAISE EXCEPTION 'the owner of schema core cannot see the transactions of others'
      USING HINT = format('GRANT pg_read_all_stats TO %I', current_user), ERRCODE = 'insufficient_privilege';
  END IF;
  -- Ids of transactions are 32 bits of a longer number; one that is not before `next` began after it was looked up.
  RETURN (SELECT (next - coalesce(max(x.before) FILTER (WHERE x.before < 2147483648), 0))::text::xid8 FROM (
    SELECT (next - o.old::text::bigint) & 4294967295 AS before FROM (
    SELECT unnest(ARRAY[a.backend_xid, a.backend_xmin]) AS old FROM pg_stat_activity a
    WHERE a.pid <> pg_backend_pid() AND (a.datname = current_database() OR a.datid IS NULL OR a.datid = 0)
    UNION ALL SELECT p.transaction FROM pg_prepared_xacts p
    UNION ALL SELECT s.xmin FROM pg_replication_slots s) o
    WHERE o.old IS NOT NULL) x);
END $$;

-- What erasures still owe: for each relation since when, and the youngest and the oldest transaction.
CREATE FUNCTION core.pages_due() RETURNS TABLE (relation text, owed_since timestamptz, oldest xid8, erasures bigint, bytes bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT r.relation, min(d.owed_at), min(CASE WHEN r.derived THEN d.derived ELSE d.xid END), count(*),
         pg_total_relation_size(r.id)
  FROM core.page_relations() r
  LEFT JOIN LATERAL (
    SELECT max(w.horizon) AS horizon FROM core.page_rewrite w WHERE w.relation = r.relation) w ON true
  JOIN core.page_debt d ON w.horizon IS NULL OR CASE WHEN r.derived THEN d.derived ELSE d.xid END IS NULL
    OR CASE WHEN r.derived THEN d.derived ELSE d.xid END >= w.horizon
  GROUP BY r.relation, r.id ORDER BY 2, 1
$$;

-- When the pages that held what an erasure of a scope removed were rewritten, for each relation; null while they are not.
-- No row says that nothing is owed. Without a sequence: of everything that was erased in the scope.
CREATE FUNCTION core.page_bytes(key bigint, seq bigint DEFAULT NULL)
RETURNS TABLE (relation text, owed_at timestamptz, rewritten_at timestamptz)
LANGUAGE sql STABLE SET search_path = core, pg_temp AS $$
  SELECT r.relation, max(d.owed_at), CASE WHEN bool_and(w.at IS NOT NULL) THEN max(w.at) END
  FROM core.page_debt d
  CROSS JOIN core.page_relations() r
  LEFT JOIN LATERAL (
    SELECT min(w.finished_at) AS at FROM core.page_rewrite w
    WHERE w.relation = r.relation AND w.horizon > CASE WHEN r.derived THEN d.derived ELSE d.xid END) w ON true
  WHERE d.scope_key = key AND (seq IS NULL OR d.after_seq = (
    SELECT max(o.after_seq) FROM core.page_debt o WHERE o.scope_key = key AND o.after_seq < seq))
  GROUP BY r.relation ORDER BY r.relation
$$;

-- Only who owns a relation can write it anew, so this function is the owner's; it takes names of that list alone. It
-- writes a relation, with its indexes, under a lock that nobody can read beside, and answers how long that took in
-- milliseconds; null where a transaction that may still see what was erased keeps it from being worth it. It waits a
-- second for the lock and then fails with lock_not_available; the caller turns its statement_timeout off.
CREATE FUNCTION core.rewrite_pages(name text) RETURNS double precision
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
  began timestamptz;
  before bigint;
  reached xid8;
  owed xid8;
  place regclass := (SELECT r.id FROM core.page_relations() r WHERE r.relation = name);
BEGIN
  IF place IS NULL THEN
    RAISE EXCEPTION 'no relation of that name is rewritten' USING ERRCODE = 'undefined_table';
  END IF;
  EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', place);
  began := clock_timestamp();
  reached := core.page_horizon();
  SELECT d.oldest INTO owed FROM core.pages_due() d WHERE d.relation = name;
  IF owed IS NULL OR owed >= reached THEN
    RETURN NULL;
  END IF;
  before := pg_total_relation_size(place);
  EXECUTE format('CLUSTER %s USING %I', place, (
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = place AND i.indisprimary));
  INSERT INTO core.page_rewrite (relation, horizon, started_at, bytes_before, bytes_after)
  VALUES (name, reached, began, before, pg_total_relation_size(place));
  RETURN extract(epoch FROM clock_timestamp() - began) * 1000;
END $$;

-- What is derived keeps its bytes until its own row is gone, which a consumer of the ledger sees to. First it is noted
-- where a scope stands that owes something; a later transaction that sees the consumer past that is noted as well.
CREATE FUNCTION core.debts_underived() RETURNS TABLE (scope_key bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT DISTINCT d.scope_key FROM core.page_debt d WHERE d.derived IS NULL
$$;
CREATE FUNCTION core.note_derived(keys bigint[], sequences bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = core, pg_temp AS $$
  UPDATE core.page_debt d SET derived = pg_current_xact_id()
  FROM unnest(keys, sequences) AS k (scope_key, seq)
  WHERE d.scope_key = k.scope_key AND d.derived IS NULL AND d.until_seq <= k.seq;
  UPDATE core.page_debt d SET until_seq = (SELECT h.last_seq FROM core.scope_head h WHERE h.scope_key = d.scope_key)
  WHERE d.until_seq IS NULL AND d.derived IS NULL;
$$;

GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.debts_underived() OWNER TO pamspec_resolver;
ALTER FUNCTION core.note_derived(bigint[], bigint[]) OWNER TO pamspec_resolver;
ALTER FUNCTION core.pages_due() OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.owe_pages(), core.page_relations(), core.page_horizon(), core.pages_due(), core.page_bytes(bigint, bigint),
  core.rewrite_pages(text), core.debts_underived(), core.note_derived(bigint[], bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.page_relations() TO pamspec_resolver, pamspec_write, pamspec_query;
GRANT EXECUTE ON FUNCTION core.page_bytes(bigint, bigint) TO pamspec_write, pamspec_query;
DO $$
BEGIN
  EXECUTE format('GRANT EXECUTE ON FUNCTION core.pages_due() TO %I', current_user);   -- rewrite_pages asks it
END $$;
