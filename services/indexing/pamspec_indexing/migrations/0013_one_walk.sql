-- A walk through the graph visits as much as its first pass keeps: once for objects of one chunk, and once more, wider,
-- only where several chunks of an object left too few objects.
CREATE OR REPLACE FUNCTION index_.vector_candidates(key bigint, space text, asked real[], wanted integer,
  exactly boolean DEFAULT false, among bigint[] DEFAULT NULL)
RETURNS TABLE (doc bigint, object_id text, version_id text, score double precision, approximate boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = index_, public, pg_temp
SET hnsw.iterative_scan = 'strict_order' SET hnsw.ef_search = 200 SET hnsw.max_scan_tuples = 200000
SET enable_seqscan = off SET enable_sort = on SET jit = off SET max_parallel_workers_per_gather = 0
AS $$
#variable_conflict use_column
DECLARE
  described record;
  part regclass;
  rows real;
  few bigint;
  many bigint;
  near text;
  shown text;
  q vector;
  chunks integer;
  docs bigint[];
  distances double precision[];
  seen bigint;
BEGIN
  IF NOT key = ANY (coalesce(nullif(current_setting('pamspec.scope_keys', true), ''), '{}')::bigint[]) THEN
    RETURN;
  END IF;
  SELECT s.space_key, s.dimensions, s.distance_metric INTO described
  FROM core.embedding_space s JOIN core.scope t ON t.tenant_id = s.tenant_id AND t.scope_key = key
  WHERE s.embedding_space_id = space;
  IF described IS NULL OR cardinality(asked) <> described.dimensions THEN
    RETURN;
  END IF;
  q := asked::vector;
  SELECT v.tableoid::regclass INTO part FROM vectors v
  WHERE v.scope_key = key AND v.space_key = described.space_key LIMIT 1;
  IF part IS NULL THEN
    RETURN;
  END IF;
  near := CASE described.distance_metric WHEN 'cosine' THEN '<=>' WHEN 'l2' THEN '<->' ELSE '<#>' END;
  shown := CASE described.distance_metric WHEN 'cosine' THEN '1 - n.far' ELSE '- n.far' END;
  exactly := exactly OR described.distance_metric <> 'cosine'
    OR described.dimensions <> ALL (ARRAY[256, 384, 512, 768, 1024, 1536, 3072]);
  IF NOT exactly THEN
    SELECT greatest(c.reltuples, 0) INTO rows FROM pg_class c WHERE c.oid = part;
    few := greatest(1000, ceil(sqrt(16.0 * wanted * rows)));
    many := cardinality(among);
    IF many IS NULL OR many > few THEN
      SELECT least(coalesce(many, count(*)), count(*)) INTO many FROM (SELECT 1 FROM vectors v
        WHERE v.scope_key = key AND v.space_key = described.space_key LIMIT few + 1) c;
    END IF;
    exactly := many <= few;
  END IF;
  IF exactly AND among IS NOT NULL THEN
    RETURN QUERY EXECUTE format($q$
      SELECT x.doc, x.object_id, x.version_id, %s, false FROM (
        SELECT v.doc, min(v.embedding %s $1) AS far FROM (SELECT DISTINCT unnest($4) AS doc) o
        JOIN %s v ON v.scope_key = $2 AND v.space_key = %s AND v.doc = o.doc GROUP BY v.doc
        ORDER BY far, v.doc LIMIT $3) n
      JOIN indexed_object x ON x.scope_key = $2 AND x.doc = n.doc AND NOT x.removed
      ORDER BY n.far, x.object_id$q$, shown, near, part, described.space_key) USING q, key, wanted, among;
  ELSIF exactly THEN
    RETURN QUERY EXECUTE format($q$
      SELECT x.doc, x.object_id, x.version_id, %s, false FROM (
        SELECT v.doc, min(v.embedding %s $1) AS far FROM %s v WHERE v.scope_key = $2 AND v.space_key = %s
        GROUP BY v.doc ORDER BY far, v.doc LIMIT $3) n
      JOIN indexed_object x ON x.scope_key = $2 AND x.doc = n.doc AND NOT x.removed
      ORDER BY n.far, x.object_id$q$, shown, near, part, described.space_key) USING q, key, wanted;
  ELSE
    PERFORM set_config('enable_sort', 'off', true);
    chunks := wanted + wanted / 4 + 16;
    LOOP
      PERFORM set_config('hnsw.ef_search', least(1000, greatest(200, chunks))::text, true);
      EXECUTE format($q$
        SELECT array_agg(n.doc), array_agg(n.far), sum(n.chunks) FROM (
          SELECT f.doc, min(f.far) AS far, count(*) AS chunks FROM (
            SELECT v.doc, v.embedding <=> $1 AS far FROM %1$s v
            WHERE v.scope_key = $2 AND v.space_key = %2$s AND v.dimensions = %3$s AND v.metric = 'c'
              AND ($4 IS NULL OR v.doc = ANY ($4))
            ORDER BY v.embedding::halfvec(%3$s) <=> $1::halfvec(%3$s) LIMIT $3) f
          GROUP BY f.doc) n$q$, part, described.space_key, described.dimensions)
        INTO docs, distances, seen USING q, key, chunks, among;
      EXIT WHEN seen IS NULL OR seen < chunks OR cardinality(docs) >= wanted OR chunks > 4 * wanted;
      chunks := 4 * wanted + 16;
    END LOOP;
    RETURN QUERY
      SELECT x.doc, x.object_id, x.version_id, 1 - n.far, true FROM unnest(docs, distances) n (doc, far)
      CROSS JOIN LATERAL (SELECT i.doc, i.object_id, i.version_id FROM indexed_object i
        WHERE i.scope_key = key AND i.doc = n.doc AND NOT i.removed OFFSET 0) x
      ORDER BY n.far, x.object_id LIMIT wanted;
  END IF;
END $$;
