-- Vectors of current versions: what waits to be embedded, what is stored, and the search over it.
--
-- A vector hangs on a doc of indexed_object. It is stored only while that row, locked, still names the version that it was
-- made of, and the effect that moves the row on takes the vectors of what was before away in the same transaction. So the
-- vectors of a doc are always those of the version in indexed_object.
CREATE EXTENSION IF NOT EXISTS vector;

-- Who searches. It logs in nowhere.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pamspec_vectors') THEN
    CREATE ROLE pamspec_vectors NOLOGIN NOSUPERUSER NOBYPASSRLS;
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
DO $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT pamspec_vectors TO %I', current_user);
  END IF;
END $$;
GRANT USAGE ON SCHEMA index_, core TO pamspec_vectors;

GRANT SELECT ON core.embedding_space TO pamspec_indexing, pamspec_vectors;
CREATE POLICY vectors_read ON core.embedding_space FOR SELECT TO pamspec_indexing, pamspec_vectors USING (true);

-- The spaces of a scope. automatic: its objects are embedded into it. backfill: the last doc that was put into the queue
-- because the space is new here, or is to be made again; null once all were. shadow: becomes current once it is complete,
-- and the space that was current is let go.
CREATE TABLE index_.scope_space (
  scope_key          bigint NOT NULL,
  embedding_space_id text COLLATE "C" NOT NULL,
  automatic          boolean NOT NULL,
  state              text COLLATE "C" NOT NULL CHECK (state IN ('current', 'shadow', 'retired')),
  backfill           bigint,
  since              timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope_key, embedding_space_id)
);
CREATE INDEX scope_space_backfill ON index_.scope_space (scope_key) WHERE backfill IS NOT NULL OR state <> 'current';

-- What waits to be embedded: names and positions, no content.
CREATE TABLE index_.embedding_queue (
  scope_key          bigint NOT NULL,
  embedding_space_id text COLLATE "C" NOT NULL,
  doc                bigint NOT NULL,
  sequence           bigint NOT NULL,               -- of the version
  attempts           smallint NOT NULL DEFAULT 0,
  due_at             timestamptz NOT NULL DEFAULT clock_timestamp(),  -- taken by somebody, or put off, until then
  PRIMARY KEY (scope_key, embedding_space_id, doc)
) WITH (fillfactor = 70);
CREATE INDEX embedding_queue_order ON index_.embedding_queue (embedding_space_id, scope_key, sequence);

-- Vectors that no entry of the ledger tells of yet.
CREATE TABLE index_.embedding_untold (
  id                 bigint GENERATED ALWAYS AS IDENTITY,
  scope_key          bigint NOT NULL,
  embedding_space_id text COLLATE "C" NOT NULL,
  doc                bigint NOT NULL,
  batch              bigint,                        -- the entry that is to tell of it
  PRIMARY KEY (scope_key, id)
);

CREATE TABLE index_.vectors (
  scope_key  bigint NOT NULL,
  space_key  integer NOT NULL,
  doc        bigint NOT NULL,
  chunk      smallint NOT NULL,
  dimensions smallint NOT NULL,                     -- of the space
  metric     "char" NOT NULL,                       -- c: cosine, l: l2, i: inner product
  embedding  vector NOT NULL,
  digest     bytea NOT NULL,                        -- of the content that it was made of, or that a client brought it for
  truncated  boolean NOT NULL DEFAULT false,        -- whether the text went on after the last chunk
  PRIMARY KEY (scope_key, space_key, doc, chunk)
) PARTITION BY HASH (scope_key);
DO $$
BEGIN
  FOR part IN 0..7 LOOP
    EXECUTE format('CREATE TABLE index_.vectors_%s PARTITION OF index_.vectors FOR VALUES WITH (MODULUS 8, REMAINDER %s)',
      part, part);
  END LOOP;
END $$;

-- One graph for each partition and number of dimensions that models in use have: spaces of other tenants and other scopes
-- share it, and the search passes their vectors by. So a new space needs no statement that changes the schema, and no
-- role of a service one that may. Other dimensions and metrics are compared one by one.
DO $$
DECLARE size integer;
BEGIN
  FOREACH size IN ARRAY ARRAY[256, 384, 512, 768, 1024, 1536, 3072] LOOP
    EXECUTE format($i$CREATE INDEX vectors_near_%s ON index_.vectors USING hnsw
      ((embedding::halfvec(%s)) halfvec_cosine_ops) WITH (m = 16, ef_construction = 100)
      WHERE dimensions = %s AND metric = 'c'$i$, size, size, size);
  END LOOP;
END $$;

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['vectors', 'vectors_0', 'vectors_1', 'vectors_2', 'vectors_3', 'vectors_4', 'vectors_5',
    'vectors_6', 'vectors_7']
  LOOP
    EXECUTE format('ALTER TABLE index_.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE index_.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY by_scope_keys ON index_.%I USING
      (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]))$p$, name);
    EXECUTE format('CREATE POLICY search ON index_.%I FOR SELECT TO pamspec_vectors USING (true)', name);
    EXECUTE format('GRANT SELECT ON index_.%I TO pamspec_vectors', name);
  END LOOP;
END $$;
-- The query service looks whether a scope has vectors of a space: those of the scopes that its transaction names.
ALTER TABLE index_.scope_space ENABLE ROW LEVEL SECURITY;
ALTER TABLE index_.scope_space FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON index_.scope_space USING
  (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
CREATE POLICY finds_work ON index_.scope_space TO pamspec_indexing USING (true);
GRANT SELECT ON index_.scope_space TO pamspec_query;
GRANT SELECT, INSERT, UPDATE, DELETE ON index_.scope_space, index_.embedding_queue, index_.embedding_untold, index_.vectors
  TO pamspec_indexing;
GRANT SELECT ON index_.indexed_object TO pamspec_vectors;
CREATE POLICY search ON index_.indexed_object FOR SELECT TO pamspec_vectors USING (true);

-- The nearest objects to a vector in one scope and space, nearest first: at most `wanted`, each once, by its nearest
-- chunk. `among` names the docs to look at; null stands for all. The search is exact where that is asked for, where there
-- is no graph, and where comparing all that is in question costs less than the walk: with n vectors in question among r
-- in the graph, the walk passes by some r / n for each that it finds. Else it walks the graph and goes on until enough of
-- the scope, the space and `among` are found. `score` grows with likeness: the cosine, the inner product, or the negative
-- distance, in single precision either way.
CREATE FUNCTION index_.vector_candidates(key bigint, space text, asked real[], wanted integer,
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

-- How many vectors of these objects remain, over all spaces: what a verification scan asks.
CREATE FUNCTION index_.vectors_remain(key bigint, object_ids text[]) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = index_, public, pg_temp AS $$
  SELECT count(*) FROM indexed_object x JOIN vectors v ON v.scope_key = x.scope_key AND v.doc = x.doc
  WHERE x.scope_key = key AND x.object_id = ANY (object_ids)
    AND key = ANY (coalesce(nullif(current_setting('pamspec.scope_keys', true), ''), '{}')::bigint[])
$$;

GRANT SELECT (scope_key, tenant_id) ON core.scope TO pamspec_vectors;
CREATE POLICY vectors_read ON core.scope FOR SELECT TO pamspec_vectors USING (true);
GRANT CREATE ON SCHEMA index_ TO pamspec_vectors;
ALTER FUNCTION index_.vector_candidates(bigint, text, real[], integer, boolean, bigint[]) OWNER TO pamspec_vectors;
ALTER FUNCTION index_.vectors_remain(bigint, text[]) OWNER TO pamspec_vectors;
REVOKE CREATE ON SCHEMA index_ FROM pamspec_vectors;
REVOKE ALL ON FUNCTION index_.vector_candidates(bigint, text, real[], integer, boolean, bigint[]),
  index_.vectors_remain(bigint, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_.vector_candidates(bigint, text, real[], integer, boolean, bigint[])
  TO pamspec_query, pamspec_indexing;
GRANT EXECUTE ON FUNCTION index_.vectors_remain(bigint, text[]) TO pamspec_indexing;
