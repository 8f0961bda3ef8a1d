-- The embedding spaces in which a scope has vectors, with how many: what an export tells of them.
CREATE FUNCTION index_.space_counts(key bigint) RETURNS TABLE (descriptor text, objects bigint, vectors bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = index_, public, pg_temp AS $$
  SELECT e.descriptor, c.objects, c.vectors
  FROM (SELECT v.space_key, count(*) FILTER (WHERE v.chunk = 0) AS objects, count(*) AS vectors
        FROM vectors v WHERE v.scope_key = key GROUP BY v.space_key) c
  JOIN core.embedding_space e USING (space_key)
  WHERE key = ANY (coalesce(nullif(current_setting('pamspec.scope_keys', true), ''), '{}')::bigint[])
  ORDER BY e.embedding_space_id
$$;

GRANT CREATE ON SCHEMA index_ TO pamspec_vectors;
ALTER FUNCTION index_.space_counts(bigint) OWNER TO pamspec_vectors;
-- compatible: the right to create was given above, for the change of owner alone
REVOKE CREATE ON SCHEMA index_ FROM pamspec_vectors;
REVOKE ALL ON FUNCTION index_.space_counts(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_.space_counts(bigint) TO pamspec_query;
