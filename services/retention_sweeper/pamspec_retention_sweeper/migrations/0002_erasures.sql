-- The scans behind the receipts of erasures. They run with the rights of a role that nobody logs in as: it reads what an
-- erasure reaches into, within the scopes that the transaction names like everybody, and answers which erasures still
-- have something somewhere, never what.

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pamspec_verifier') THEN
    CREATE ROLE pamspec_verifier NOLOGIN NOSUPERUSER NOBYPASSRLS;
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
DO $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT pamspec_verifier TO %I', current_user);
  END IF;
END $$;
GRANT USAGE ON SCHEMA core, relay, subscription, delegation, index_, retention TO pamspec_verifier;
GRANT SELECT ON core.version, core.version_private, core.version_span, core.ledger, core.operation_record,
  core.source_event, core.snapshot, core.scope_import TO pamspec_verifier;
GRANT SELECT ON relay.outbox, subscription.webhook_delivery, delegation.parked TO pamspec_verifier;
-- Whatever is derived, tables to come included.
GRANT SELECT, DELETE ON ALL TABLES IN SCHEMA index_ TO pamspec_verifier;
ALTER DEFAULT PRIVILEGES IN SCHEMA index_ GRANT SELECT, DELETE ON TABLES TO pamspec_verifier;
-- Repairs take values away, and nothing else.
GRANT UPDATE (salt, content, private) ON core.version_private TO pamspec_verifier;
GRANT UPDATE (content) ON core.version_span TO pamspec_verifier;
GRANT UPDATE (salt, fingerprint, answer) ON core.operation_record TO pamspec_verifier;
GRANT UPDATE (salt, fingerprint) ON core.source_event TO pamspec_verifier;

-- The sweeper keeps the receipts. A row's lock is the lease: it ends with the process that holds it.
ALTER TABLE core.erasure DROP COLUMN leased_until;
GRANT SELECT, UPDATE (surfaces, attempts, due_at, closed_at, seal_salt, needles)
  ON core.erasure TO pamspec_retention_sweeper;

-- Which scopes have erasures to look after, over all tenants: where they are, and nothing of what they hold.
CREATE FUNCTION core.erasures_due(lim integer) RETURNS TABLE (scope_key bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT e.scope_key FROM core.erasure e
  WHERE e.closed_at IS NULL AND e.due_at <= clock_timestamp()
  GROUP BY e.scope_key ORDER BY min(e.due_at) LIMIT lim
$$;
-- How many are open, since when, and how many of them have met something.
CREATE FUNCTION core.erasures_open() RETURNS TABLE (open bigint, failing bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT count(*), count(*) FILTER (WHERE e.surfaces @? '$.* ? (@.state == "open" && @.repairs > 0)'), min(e.opened_at)
  FROM core.erasure e WHERE e.closed_at IS NULL
$$;
GRANT SELECT (closed_at, due_at, opened_at, surfaces) ON core.erasure TO pamspec_resolver;

-- The versions that erasures took: $2-$5 name each erasure by a number, its object, and version sequences.
CREATE FUNCTION retention.canonical_remains(key bigint, ns integer[], ids text[], firsts integer[], lasts integer[])
RETURNS TABLE (n integer, contents bigint, privates bigint, records bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT k.n, count(*) FILTER (WHERE p.content IS NOT NULL OR s.content IS NOT NULL),
    count(*) FILTER (WHERE p.private IS NOT NULL OR p.salt IS NOT NULL),
    count(*) FILTER (WHERE r.salt IS NOT NULL OR r.fingerprint IS NOT NULL OR e.salt IS NOT NULL
      OR e.fingerprint IS NOT NULL)
  FROM unnest(ns, ids, firsts, lasts) AS k (n, id, first, last)
  CROSS JOIN LATERAL (
    SELECT v.scope_key, v.ledger_seq FROM version v
    WHERE v.object_id = k.id AND v.scope_key = key AND v.version_seq BETWEEN k.first AND k.last OFFSET 0) v
  JOIN version_private p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
  JOIN version_span s ON s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq
  LEFT JOIN operation_record r ON r.operation_hash = p.operation_hash AND r.scope_key = v.scope_key
  LEFT JOIN source_event e ON e.operation_hash = p.operation_hash AND e.scope_key = v.scope_key
  GROUP BY k.n
$$;

-- The erasures of $2-$4 (number, object, position) whose needles ($5-$6: number, text) stand in what is never erased and
-- holds no values: metadata, ledger, the answers of the operations that made the versions. An id is none's value.
CREATE FUNCTION retention.needles_beside(key bigint, ns integer[], ids text[], positions bigint[], owners integer[],
  needles text[]) RETURNS TABLE (n integer, place text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  WITH needle AS MATERIALIZED (
    SELECT o.owner, o.text FROM unnest(owners, needles) AS o (owner, text)
    WHERE NOT EXISTS (SELECT FROM version v WHERE v.object_id = o.text AND v.scope_key = key)
      AND NOT EXISTS (SELECT FROM version v WHERE v.version_id = o.text AND v.scope_key = key))
  SELECT DISTINCT k.n, f.place FROM unnest(ns, ids, positions) AS k (n, id, position)
  CROSS JOIN LATERAL (
    SELECT 'canonical_content' AS place, v.metadata AS bytes FROM version v
    WHERE v.object_id = k.id AND v.scope_key = key AND v.ledger_seq <= k.position
    UNION ALL
    SELECT 'streams', l.event FROM ledger l
    WHERE l.subject_id = k.id AND l.scope_key = key AND l.sequence <= k.position
    UNION ALL
    SELECT 'operation_outcomes', r.answer FROM version v
    JOIN version_private p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
    JOIN operation_record r ON r.operation_hash = p.operation_hash AND r.scope_key = key
    WHERE v.object_id = k.id AND v.scope_key = key AND v.ledger_seq <= k.position AND r.answer IS NOT NULL) f
  JOIN needle o ON o.owner = k.n
  WHERE strpos(convert_from(f.bytes, 'UTF8'), o.text) > 0
    OR strpos(convert_from(f.bytes, 'UTF8'), trim(BOTH '"' FROM to_json(o.text)::text)) > 0
$$;

-- The needles that stand in the books of a whole scope: log of webhooks, parked entries, imports, snapshots.
CREATE FUNCTION retention.needles_in_books(key bigint, owners integer[], needles text[])
RETURNS TABLE (n integer, place text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  WITH needle AS MATERIALIZED (
    SELECT o.owner, o.text FROM unnest(owners, needles) AS o (owner, text)
    WHERE NOT EXISTS (SELECT FROM version v WHERE v.object_id = o.text AND v.scope_key = key)
      AND NOT EXISTS (SELECT FROM version v WHERE v.version_id = o.text AND v.scope_key = key)
      AND NOT EXISTS (SELECT FROM ledger l WHERE l.subject_id = o.text AND l.scope_key = key))
  SELECT DISTINCT o.owner, f.place FROM (
    SELECT 'webhook_log' AS place, d.outcome AS text FROM subscription.webhook_delivery d WHERE d.scope_key = key
    UNION
    SELECT 'parked_messages', p.reason FROM delegation.parked p WHERE p.scope_key = key
    UNION
    SELECT 'parked_messages', p.reason FROM index_.parked p WHERE p.scope_key = key
    UNION
    SELECT 'import_staging', convert_from(i.answer, 'UTF8') FROM scope_import i WHERE i.scope_key = key
    UNION
    SELECT 'snapshots', convert_from(s.document, 'UTF8') FROM snapshot s WHERE s.scope_key = key) f
  JOIN needle o ON strpos(f.text, o.text) > 0
$$;

-- Whether entries of the scope up to a position still wait for the bus: consumers do not know of the erasure then.
CREATE FUNCTION retention.unpublished(key bigint) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT min(o.sequence) FROM relay.outbox o WHERE o.scope_key = key
$$;

-- How far each index of the scope is; no row at all where nothing was ever indexed in this deployment.
CREATE FUNCTION retention.index_positions(key bigint) RETURNS TABLE (index_id text, sequence bigint, deployed boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT d.index_id, w.sequence, EXISTS (SELECT FROM index_.inbox) OR EXISTS (SELECT FROM index_.member)
  FROM (SELECT 'index:lexical' AS index_id
        UNION SELECT w.index_id FROM index_.watermark w WHERE w.scope_key = key) d
  LEFT JOIN index_.watermark w ON w.scope_key = key AND w.index_id = d.index_id
$$;

-- The objects of which a table of the schema index_ still holds rows although they are removed, or whose indexed version
-- is older than the erasure ($2-$3: object, position). Found in the catalogue, so a table that somebody adds is scanned; what
-- stands by something else than its object first is found too: vectors by their space.
CREATE FUNCTION retention.derived_remains(key bigint, ids text[], positions bigint[])
RETURNS TABLE (object_id text, place text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE part record;
BEGIN
  RETURN QUERY SELECT x.object_id, 'indexed_object'::text FROM index_.indexed_object x
    JOIN unnest(ids, positions) AS k (id, position) ON k.id = x.object_id
    WHERE x.scope_key = key AND x.sequence < k.position;
  FOR part IN
    -- What is found by its object, at once or after one column with few values: partitions through their parents.
    SELECT DISTINCT ON (c.relname) c.relname::text AS name, o.attname::text AS found_by,
      CASE WHEN o.attnum = i.indkey[2] THEN b.attname::text END AS behind FROM pg_class c
    JOIN pg_index i ON i.indrelid = c.oid AND i.indnkeyatts >= 2
    JOIN pg_attribute k ON k.attrelid = c.oid AND k.attname = 'scope_key' AND k.attnum = i.indkey[0]
    JOIN pg_attribute b ON b.attrelid = c.oid AND b.attnum = i.indkey[1]
    JOIN pg_attribute o ON o.attrelid = c.oid AND o.attname IN ('doc', 'object_id')
      AND (o.attnum = i.indkey[1] OR (i.indnkeyatts >= 3 AND o.attnum = i.indkey[2] AND b.attname <> 'term'))
    WHERE c.relnamespace = 'index_'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND c.relname <> 'indexed_object'
    ORDER BY c.relname, o.attnum = i.indkey[1] DESC
  LOOP
    RETURN QUERY EXECUTE format('SELECT x.object_id, %L FROM index_.indexed_object x WHERE x.scope_key = $1
      AND x.object_id = ANY ($2) AND x.removed AND EXISTS (
        SELECT FROM index_.%I t WHERE t.scope_key = $1 AND t.%I = x.%I %s)', part.name, part.name, part.found_by, part.found_by,
      CASE WHEN part.behind IS NOT NULL THEN format(
        'AND t.%I = ANY (ARRAY (SELECT DISTINCT u.%I FROM index_.%I u WHERE u.scope_key = $1))',
        part.behind, part.behind, part.name) END)
    USING key, ids;
  END LOOP;
END $$;

-- Takes what derived_remains found of removed objects.
CREATE FUNCTION retention.remove_derived(key bigint, ids text[], place text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  taken bigint;
  by_doc boolean := EXISTS (SELECT FROM pg_attribute WHERE attname = 'doc' AND NOT attisdropped
    AND attrelid = (SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'index_'::regnamespace AND c.relname = place));
BEGIN
  IF by_doc THEN
    EXECUTE format('DELETE FROM index_.%I t USING index_.indexed_object x WHERE t.scope_key = $1 AND t.doc = x.doc
      AND x.scope_key = $1 AND x.object_id = ANY ($2) AND x.removed', place) USING key, ids;
  ELSE
    EXECUTE format('DELETE FROM index_.%I t USING index_.indexed_object x WHERE t.scope_key = $1
      AND t.object_id = x.object_id AND x.scope_key = $1 AND x.object_id = ANY ($2) AND x.removed', place)
    USING key, ids;
  END IF;
  GET DIAGNOSTICS taken = ROW_COUNT;
  RETURN taken;
END $$;

-- The removed objects ($2, with one term each in $3) that still have a posting of a term of what was erased:
-- a posting is looked for by the terms of the needles, which is the value itself.
CREATE FUNCTION retention.postings_remain(key bigint, ids text[], terms bigint[]) RETURNS TABLE (object_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = index_, pg_temp AS $$
  SELECT DISTINCT x.object_id FROM unnest(ids, terms) AS k (id, term)
  JOIN indexed_object x ON x.scope_key = key AND x.object_id = k.id AND x.removed
  WHERE EXISTS (SELECT FROM lexical_posting t WHERE t.scope_key = key AND t.term = k.term AND t.doc = x.doc)
$$;
CREATE FUNCTION retention.remove_postings(key bigint, ids text[], terms bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = index_, pg_temp AS $$
  DELETE FROM lexical_posting t USING unnest(ids, terms) AS k (id, term), indexed_object x
  WHERE x.scope_key = key AND x.object_id = k.id AND x.removed
    AND t.scope_key = key AND t.term = k.term AND t.doc = x.doc
$$;

-- Takes what canonical_remains found.
CREATE FUNCTION retention.remove_canonical(key bigint, ids text[], firsts integer[], lasts integer[]) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = core, pg_temp AS $$
  WITH target AS MATERIALIZED (
    SELECT v.ledger_seq, p.operation_hash FROM unnest(ids, firsts, lasts) AS k (id, first, last)
    CROSS JOIN LATERAL (
      SELECT v.ledger_seq FROM version v
      WHERE v.object_id = k.id AND v.scope_key = key AND v.version_seq BETWEEN k.first AND k.last OFFSET 0) v
    JOIN version_private p ON p.scope_key = key AND p.ledger_seq = v.ledger_seq),
  spans AS (UPDATE version_span s SET content = NULL FROM target t WHERE s.scope_key = key AND s.from_seq = t.ledger_seq),
  records AS (
    UPDATE operation_record r SET salt = NULL, fingerprint = NULL FROM target t
    WHERE r.operation_hash = t.operation_hash AND r.scope_key = key),
  sources AS (
    UPDATE source_event e SET salt = NULL, fingerprint = NULL FROM target t
    WHERE e.operation_hash = t.operation_hash AND e.scope_key = key),
  private AS (
    UPDATE version_private p SET salt = NULL, content = NULL, private = NULL FROM target t
    WHERE p.scope_key = key AND p.ledger_seq = t.ledger_seq RETURNING 1)
  SELECT count(*) FROM private
$$;

-- The standbys of this server, how many have not replayed what was written up to a mark, and of how many nothing is seen:
-- it takes pg_read_all_stats, which the operator of a server with standbys gives to pamspec_verifier.
CREATE FUNCTION retention.standbys(mark pg_lsn) RETURNS TABLE (found bigint, behind bigint, unseen bigint, here pg_lsn)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*), count(*) FILTER (WHERE r.replay_lsn < mark),
    count(*) FILTER (WHERE r.replay_lsn IS NULL), pg_current_wal_lsn()
  FROM pg_stat_replication r
$$;

DO $$
DECLARE name text;
BEGIN
  GRANT CREATE ON SCHEMA core TO pamspec_resolver;
  FOREACH name IN ARRAY ARRAY['core.erasures_due(integer)', 'core.erasures_open()'] LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO pamspec_resolver', name);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', name);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO pamspec_retention_sweeper', name);
  END LOOP;
  REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
  GRANT CREATE ON SCHEMA retention TO pamspec_verifier;
  FOR name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'retention'::regnamespace
    AND p.prosecdef AND p.proname IN ('canonical_remains', 'needles_beside', 'needles_in_books', 'unpublished',
      'index_positions', 'derived_remains', 'remove_derived', 'postings_remain', 'remove_postings', 'remove_canonical',
      'standbys')
  LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO pamspec_verifier', name);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', name);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO pamspec_retention_sweeper', name);
  END LOOP;
  REVOKE CREATE ON SCHEMA retention FROM pamspec_verifier;
END $$;
