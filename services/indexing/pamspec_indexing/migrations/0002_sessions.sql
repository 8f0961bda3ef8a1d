-- Which objects come from the same source session, and in which order: what is said next to something helps to find it.
-- A session is known by a number made of provenance.source_ref; whatever is removed has none.

ALTER TABLE index_.indexed_object
  ADD COLUMN session_key      bigint,
  ADD COLUMN session_position bigint;     -- the ledger sequence of the object's first version

CREATE INDEX indexed_object_session ON index_.indexed_object (scope_key, session_key, session_position)
  WHERE session_key IS NOT NULL;

-- Of these objects, each two of one session that are at most p_reach places apart: the earlier one, the later one, and
-- the distance. All objects of the session count as places, whoever may see them; nothing is told of others than these.
CREATE FUNCTION index_.neighbours(p_scope_key bigint, p_docs bigint[], p_reach integer)
RETURNS TABLE (doc bigint, later bigint, distance integer)
LANGUAGE sql STABLE ROWS 100 AS $$
  SELECT x.doc, n.doc, n.distance
  FROM index_.indexed_object x
  CROSS JOIN LATERAL (
    SELECT y.doc, (row_number() OVER (ORDER BY y.session_position))::integer AS distance
    FROM (
      SELECT z.doc, z.session_position FROM index_.indexed_object z
      WHERE z.scope_key = p_scope_key AND z.session_key = x.session_key AND z.session_position > x.session_position
      ORDER BY z.session_position LIMIT p_reach
    ) y
  ) n
  WHERE x.scope_key = p_scope_key AND x.doc = ANY (p_docs) AND n.doc = ANY (p_docs)
$$;
REVOKE ALL ON FUNCTION index_.neighbours(bigint, bigint[], integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_.neighbours(bigint, bigint[], integer) TO pamspec_query, pamspec_indexing;
