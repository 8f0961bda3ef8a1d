-- Scans of derived tables that stand by something else than their object first: vectors by their space, postings by their
-- term. A posting is looked for by the terms of the needles, which is the value itself.

CREATE OR REPLACE FUNCTION retention.derived_remains(key bigint, ids text[], positions bigint[])
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

-- The removed objects ($2, with one term each in $3) that still have a posting of a term of what was erased.
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
GRANT CREATE ON SCHEMA retention TO pamspec_verifier;
ALTER FUNCTION retention.postings_remain(bigint, text[], bigint[]) OWNER TO pamspec_verifier;
ALTER FUNCTION retention.remove_postings(bigint, text[], bigint[]) OWNER TO pamspec_verifier;
REVOKE CREATE ON SCHEMA retention FROM pamspec_verifier;
REVOKE ALL ON FUNCTION retention.postings_remain(bigint, text[], bigint[]),
  retention.remove_postings(bigint, text[], bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION retention.postings_remain(bigint, text[], bigint[]),
  retention.remove_postings(bigint, text[], bigint[]) TO pamspec_retention_sweeper;
GRANT SELECT, DELETE ON ALL TABLES IN SCHEMA index_ TO pamspec_verifier;
