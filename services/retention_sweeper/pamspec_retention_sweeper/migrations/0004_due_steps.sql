-- What the sweeper looks at: which scopes have rules, the facts that a rule asks for, and when objects were read.

ALTER TABLE retention.scope
  ADD COLUMN wanted_version bigint NOT NULL DEFAULT 0,          -- the newest policy that speaks of retention
  ADD COLUMN counts_reads boolean NOT NULL DEFAULT false;       -- whether a rule asks when something was read
ALTER TABLE retention.scope ALTER COLUMN ledger_epoch SET DEFAULT 0, ALTER COLUMN policy_version SET DEFAULT 0;

ALTER TABLE retention.due
  ADD COLUMN look_at timestamptz NOT NULL DEFAULT '-infinity',  -- when to look at it: when it is due, or a retry later
  ADD COLUMN tries integer NOT NULL DEFAULT 0,                  -- how often its step was refused
  ADD COLUMN claim text;                                        -- the command that is under way, as JSON; no content
DROP INDEX retention.due_next;
CREATE INDEX due_next ON retention.due (scope_key, look_at);
CREATE INDEX due_claimed ON retention.due (scope_key, object_id) WHERE claim IS NOT NULL;
CREATE INDEX due_held_up ON retention.due (scope_key, due_at) WHERE held_up IS NOT NULL;

-- When an object was last read by its id. The query service gathers reads and notes them together.
CREATE TABLE retention.access (
  scope_key bigint NOT NULL,
  object_id text COLLATE "C" NOT NULL,
  read_at   timestamptz NOT NULL,
  PRIMARY KEY (scope_key, object_id)
) WITH (fillfactor = 70);
ALTER TABLE retention.access ENABLE ROW LEVEL SECURITY;
ALTER TABLE retention.access FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON retention.access USING
  (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
GRANT SELECT, INSERT, UPDATE, DELETE ON retention.access TO pamspec_retention_sweeper;
GRANT USAGE ON SCHEMA retention TO pamspec_query, pamspec_resolver;
GRANT SELECT ON retention.scope TO pamspec_query;

DO $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT pamspec_query, pamspec_resolver, pamspec_retention_sweeper TO %I', current_user);
  END IF;
END $$;

-- A policy that speaks of retention is known here with its commit, and so is one that no longer does.
CREATE POLICY resolver ON retention.scope TO pamspec_resolver USING (true);
GRANT SELECT, INSERT, UPDATE ON retention.scope TO pamspec_resolver;
GRANT SELECT ON retention.due TO pamspec_resolver;
GRANT SELECT (ledger_epoch) ON core.scope_head TO pamspec_resolver;
CREATE POLICY resolver ON retention.due FOR SELECT TO pamspec_resolver USING (true);
CREATE FUNCTION retention.note_policy() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp AS $$
BEGIN
  IF position('"retention"' IN convert_from(NEW.policy, 'UTF8')) > 0 THEN
    INSERT INTO retention.scope AS s (scope_key, wanted_version) VALUES (NEW.scope_key, NEW.policy_version)
    ON CONFLICT (scope_key) DO UPDATE SET wanted_version = greatest(s.wanted_version, excluded.wanted_version);
  ELSE
    UPDATE retention.scope SET wanted_version = greatest(wanted_version, NEW.policy_version)
    WHERE scope_key = NEW.scope_key;
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION retention.adopt_policies() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = core, pg_temp AS $$
  INSERT INTO retention.scope (scope_key, wanted_version)
  SELECT p.scope_key, max(p.policy_version) FROM core.scope_policy p
  GROUP BY p.scope_key HAVING bool_or(position('"retention"' IN convert_from(p.policy, 'UTF8')) > 0)
$$;
CREATE POLICY resolver ON core.scope_policy FOR SELECT TO pamspec_resolver USING (true);
GRANT SELECT (scope_key, policy_version, policy) ON core.scope_policy TO pamspec_resolver;

-- Scopes with something to do, those that waited longest first. `ahead` moves the clock, for tests.
CREATE FUNCTION retention.scopes_due(ahead interval, lim integer)
RETURNS TABLE (scope_key bigint, tenant_id text, scope_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT r.scope_key, s.tenant_id, s.scope_id
  FROM retention.scope r JOIN core.scope s USING (scope_key) JOIN core.scope_head h USING (scope_key)
  WHERE r.leased_until < clock_timestamp()
    AND (r.wanted_version <> r.policy_version OR h.ledger_epoch <> r.ledger_epoch OR h.last_seq > r.followed_seq
      OR EXISTS (SELECT FROM retention.due d
                 WHERE d.scope_key = r.scope_key AND d.look_at <= clock_timestamp() + ahead))
    AND convert_from(s.document, 'UTF8') NOT LIKE '%"scope_kind":"evaluation"%'
    AND NOT EXISTS (SELECT FROM core.scope_deletion x WHERE x.scope_key = r.scope_key)
  ORDER BY r.leased_until, r.scope_key LIMIT lim
$$;
-- How much waits over all scopes, and since when: for metrics and readiness.
CREATE FUNCTION retention.backlog(ahead interval, most integer)
RETURNS TABLE (objects bigint, oldest timestamptz, scopes_behind bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT count(*), min(w.due_at),
    (SELECT count(*) FROM retention.scope r JOIN core.scope_head h USING (scope_key)
     WHERE (r.wanted_version <> r.policy_version OR h.last_seq > r.followed_seq)
       AND NOT EXISTS (SELECT FROM core.scope_deletion x WHERE x.scope_key = r.scope_key))
  FROM (SELECT d.due_at FROM retention.scope r CROSS JOIN LATERAL (
          SELECT d.due_at FROM retention.due d
          WHERE d.scope_key = r.scope_key AND d.look_at <= clock_timestamp() + ahead ORDER BY d.look_at LIMIT most) d
        LIMIT most) w
$$;
GRANT CREATE ON SCHEMA retention TO pamspec_resolver;
ALTER FUNCTION retention.note_policy() OWNER TO pamspec_resolver;
ALTER FUNCTION retention.adopt_policies() OWNER TO pamspec_resolver;
ALTER FUNCTION retention.scopes_due(interval, integer) OWNER TO pamspec_resolver;
ALTER FUNCTION retention.backlog(interval, integer) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA retention FROM pamspec_resolver;
REVOKE ALL ON FUNCTION retention.note_policy(), retention.adopt_policies(), retention.scopes_due(interval, integer),
  retention.backlog(interval, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION retention.scopes_due(interval, integer), retention.backlog(interval, integer)
  TO pamspec_retention_sweeper;
CREATE TRIGGER retention_noted AFTER INSERT ON core.scope_policy FOR EACH ROW EXECUTE FUNCTION retention.note_policy();
SELECT retention.adopt_policies();
DROP FUNCTION retention.adopt_policies();

-- How far a scope is, and its policy as it is now.
CREATE FUNCTION retention.rules(key bigint)
RETURNS TABLE (policy_version bigint, policy bytea, last_seq bigint, ledger_epoch integer, evaluation boolean,
  last_at timestamptz, now timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('pamspec.scope_keys', '{' || key || '}', true);
  RETURN QUERY
  SELECT coalesce(p.policy_version, 0), p.policy, h.last_seq, h.ledger_epoch,
    convert_from(s.document, 'UTF8') LIKE '%"scope_kind":"evaluation"%', h.last_at, clock_timestamp()
  FROM core.scope s JOIN core.scope_head h USING (scope_key)
  LEFT JOIN LATERAL (SELECT q.policy_version, q.policy FROM core.scope_policy q WHERE q.scope_key = key
                     ORDER BY q.policy_version DESC LIMIT 1) p ON true
  WHERE s.scope_key = key;
END $$;
-- The objects whose current versions follow a ledger sequence, in its order.
CREATE FUNCTION retention.heads(key bigint, after_seq bigint, lim integer)
RETURNS TABLE (object_id text, from_seq bigint, kind "char")
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_sort = off AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('pamspec.scope_keys', '{' || key || '}', true);
  RETURN QUERY
  SELECT s.object_id, s.from_seq, s.kind FROM core.version_span s
  WHERE s.scope_key = key AND s.from_seq > after_seq AND s.to_seq = 9223372036854775807 ORDER BY s.from_seq LIMIT lim;
END $$;
-- What the rules ask of objects; what is erasable comes only when a rule asks for it. Versions are looked up by object in
-- their order, and nothing is sorted: on a young table an index that begins with the scope would look as cheap.
CREATE FUNCTION retention.facts(key bigint, ids text[], jobs text[], scored boolean)
RETURNS TABLE (object_id text, version_id text, from_seq bigint, object_type text, lifecycle_state text,
  availability_state text, retention_state text, created_at timestamptz, changed_at timestamptz,
  state_since timestamptz, state_by text, valid_until timestamptz, kept text[], content text, private bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('pamspec.scope_keys', '{' || key || '}', true);
  RETURN QUERY
  SELECT h.object_id, h.version_id, h.from_seq, h.object_type, h.lifecycle_state, h.availability_state,
    h.retention_state, past.created_at, coalesce(past.changed_at, past.created_at),
    run.committed_at, run.actor_id, h.valid_until, past.kept,
    CASE WHEN scored THEN h.content::text END, CASE WHEN scored THEN mine.private END
  FROM unnest(ids) AS i (id)
  CROSS JOIN LATERAL (
    SELECT v.ledger_seq FROM core.version v WHERE v.object_id = i.id AND v.scope_key = key AND v.kind = 'o'
    ORDER BY v.version_seq DESC LIMIT 1) newest
  CROSS JOIN LATERAL (
    SELECT * FROM core.version_span x WHERE x.scope_key = key AND x.from_seq = newest.ledger_seq LIMIT 1) h
  CROSS JOIN LATERAL (
    SELECT min(s.committed_at) AS created_at,
      max(s.committed_at) FILTER (WHERE s.actor_id <> ALL (jobs)) AS changed_at,
      coalesce(array_agg(v.version_id ORDER BY v.version_seq)
        FILTER (WHERE p.has_content AND v.ledger_seq <> newest.ledger_seq), '{}') AS kept,
      coalesce(max(v.version_seq) FILTER (WHERE CASE WHEN h.availability_state = 'deleted'
        THEN s.availability_state <> 'deleted' ELSE s.retention_state <> h.retention_state END), 0) AS before
    FROM (SELECT o.version_id, o.version_seq, o.ledger_seq FROM core.version o
          WHERE o.object_id = i.id AND o.scope_key = key ORDER BY o.version_seq OFFSET 0) v
    CROSS JOIN LATERAL (
      SELECT x.committed_at, x.actor_id, x.availability_state, x.retention_state FROM core.version_span x
      WHERE x.scope_key = key AND x.from_seq = v.ledger_seq LIMIT 1) s
    CROSS JOIN LATERAL (
      SELECT x.content IS NOT NULL AS has_content FROM core.version_private x
      WHERE x.scope_key = key AND x.ledger_seq = v.ledger_seq LIMIT 1) p) past
  CROSS JOIN LATERAL (
    SELECT x.ledger_seq FROM core.version x
    WHERE x.object_id = i.id AND x.scope_key = key AND x.version_seq > past.before ORDER BY x.version_seq LIMIT 1) begun
  CROSS JOIN LATERAL (
    SELECT x.committed_at, x.actor_id FROM core.version_span x
    WHERE x.scope_key = key AND x.from_seq = begun.ledger_seq LIMIT 1) run
  LEFT JOIN LATERAL (
    SELECT x.private FROM core.version_value x
    WHERE scored AND x.scope_key = key AND x.ledger_seq = newest.ledger_seq LIMIT 1) mine ON true;
END $$;
GRANT CREATE ON SCHEMA retention TO pamspec_query;
ALTER FUNCTION retention.rules(bigint) OWNER TO pamspec_query;
ALTER FUNCTION retention.heads(bigint, bigint, integer) OWNER TO pamspec_query;
ALTER FUNCTION retention.facts(bigint, text[], text[], boolean) OWNER TO pamspec_query;
REVOKE CREATE ON SCHEMA retention FROM pamspec_query;
REVOKE ALL ON FUNCTION retention.rules(bigint), retention.heads(bigint, bigint, integer),
  retention.facts(bigint, text[], text[], boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION retention.rules(bigint), retention.heads(bigint, bigint, integer),
  retention.facts(bigint, text[], text[], boolean) TO pamspec_retention_sweeper;

-- Reads of objects, gathered by the query service; of scopes whose rules do not ask, nothing is kept. An object that had
-- expired is looked at again soon.
CREATE FUNCTION retention.note_reads(keys bigint[], ids text[], times timestamptz[], lapsed boolean[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp AS $$
BEGIN
  PERFORM set_config('pamspec.scope_keys', keys::text, true);
  INSERT INTO retention.access AS a (scope_key, object_id, read_at)
  SELECT k.key, k.id, k.at FROM unnest(keys, ids, times) AS k (key, id, at)
  JOIN retention.scope s ON s.scope_key = k.key AND s.counts_reads
  ORDER BY k.key, k.id
  ON CONFLICT (scope_key, object_id) DO UPDATE SET read_at = greatest(a.read_at, excluded.read_at);
  INSERT INTO retention.due AS d (scope_key, object_id, due_at, look_at, action, rule)
  SELECT k.key, k.id, k.at, k.at, 'look', '.' FROM unnest(keys, ids, times, lapsed) AS k (key, id, at, gone)
  JOIN retention.scope s ON s.scope_key = k.key AND s.counts_reads
  WHERE k.gone ORDER BY k.key, k.id
  ON CONFLICT (scope_key, object_id) DO UPDATE SET look_at = least(d.look_at, excluded.look_at);
END $$;
GRANT CREATE ON SCHEMA retention TO pamspec_retention_sweeper;
ALTER FUNCTION retention.note_reads(bigint[], text[], timestamptz[], boolean[]) OWNER TO pamspec_retention_sweeper;
REVOKE CREATE ON SCHEMA retention FROM pamspec_retention_sweeper;
REVOKE ALL ON FUNCTION retention.note_reads(bigint[], text[], timestamptz[], boolean[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION retention.note_reads(bigint[], text[], timestamptz[], boolean[]) TO pamspec_query;
-- What a score is made of is taken from where sealed values come with what opens them.
GRANT SELECT ON core.key_encryption_key TO pamspec_retention_sweeper;
