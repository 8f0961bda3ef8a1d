-- Which objects come from the same source session, and in which order: what is said next to something helps to find it.
-- Each step looks its rows up by key, also in a scope of many objects of which statistics say nothing yet.
CREATE INDEX indexed_object_session ON index_.indexed_object (scope_key, session_key, session_position)
  WHERE session_key IS NOT NULL;

-- Of these docs, each two of one session that are at most `reach` places apart: the earlier one, the later one, and the
-- distance. All objects of a session count as places, whoever may see them; nothing is told of others than these.
CREATE FUNCTION index_.neighbours(key bigint, docs bigint[], reach integer)
RETURNS TABLE (doc bigint, later bigint, distance integer)
LANGUAGE plpgsql STABLE ROWS 100
SET search_path = index_, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH near AS MATERIALIZED (
    SELECT i.doc, i.session_key, i.session_position, count(*) OVER (PARTITION BY i.session_key) AS many
    FROM unnest(docs) AS r(doc)
    CROSS JOIN LATERAL (
      SELECT x.doc, x.session_key, x.session_position FROM indexed_object x
      WHERE x.scope_key = key AND x.doc = r.doc AND x.session_key IS NOT NULL OFFSET 0) i
  )
  SELECT a.doc, b.doc, n.distance
  FROM near a
  CROSS JOIN LATERAL (
    SELECT y.doc, (row_number() OVER (ORDER BY y.session_position))::integer AS distance
    FROM (
      SELECT z.doc, z.session_position FROM indexed_object z
      WHERE z.scope_key = key AND z.session_key = a.session_key AND z.session_position > a.session_position
      ORDER BY z.session_position LIMIT reach
    ) y
    OFFSET 0
  ) n
  JOIN near b ON b.doc = n.doc
  WHERE a.many > 1;
END $$;
REVOKE ALL ON FUNCTION index_.neighbours(bigint, bigint[], integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_.neighbours(bigint, bigint[], integer) TO pamspec_query, pamspec_indexing;
