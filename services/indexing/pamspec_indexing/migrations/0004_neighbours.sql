-- Neighbours are asked for by versions, which is what a query ranks; and each step looks its rows up by key, also in a
-- scope of many objects of which statistics say nothing yet.

DROP FUNCTION index_.neighbours(bigint, bigint[], integer);

-- Of these versions, by their ledger sequences, each two of one session that are at most `reach` places apart: the earlier
-- one, the later one, and the distance. A version that is not what is indexed has no neighbours. All objects of a session
-- count as places, whoever may see them; nothing is told of others than these.
CREATE FUNCTION index_.neighbours(key bigint, sequences bigint[], reach integer)
RETURNS TABLE (earlier bigint, later bigint, distance integer)
LANGUAGE plpgsql STABLE ROWS 100
SET search_path = index_, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH near AS MATERIALIZED (
    SELECT i.doc, i.sequence, i.session_key, i.session_position, count(*) OVER (PARTITION BY i.session_key) AS many
    FROM unnest(sequences) AS r(sequence)
    CROSS JOIN LATERAL (
      SELECT s.object_id FROM core.version_span s WHERE s.scope_key = key AND s.from_seq = r.sequence OFFSET 0) s
    CROSS JOIN LATERAL (
      SELECT x.doc, x.sequence, x.session_key, x.session_position FROM indexed_object x
      WHERE x.scope_key = key AND x.object_id = s.object_id AND x.sequence = r.sequence AND x.session_key IS NOT NULL
      OFFSET 0) i
  )
  SELECT a.sequence, b.sequence, n.distance
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
