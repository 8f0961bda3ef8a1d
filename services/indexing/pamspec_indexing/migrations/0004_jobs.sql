-- Jobs that rebuild, drop or verify an index of a scope, and the indexes that are not to be used: those that were dropped,
-- and those that are being built from nothing.

CREATE TABLE index_.job (
  scope_key    bigint NOT NULL,
  index_id     text COLLATE "C" NOT NULL,
  kind         text COLLATE "C" NOT NULL CHECK (kind IN ('rebuild', 'drop', 'verify')),
  operation_id text COLLATE "C" NOT NULL,         -- of the event that will tell of it
  open         boolean NOT NULL DEFAULT true,
  told         boolean NOT NULL DEFAULT false,    -- whether the ledger tells of it, where it has to
  below        bigint NOT NULL DEFAULT 9223372036854775807,   -- heads from this sequence on are done
  done         bigint NOT NULL DEFAULT 0,
  total        bigint NOT NULL DEFAULT 0,
  missing      bigint NOT NULL DEFAULT 0,         -- what a verification found, by kind
  stale        bigint NOT NULL DEFAULT 0,
  stray        bigint NOT NULL DEFAULT 0,
  watermark    bigint NOT NULL DEFAULT 0,         -- the index was complete up to here when the job ended
  requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at  timestamptz,
  PRIMARY KEY (scope_key, index_id)
) WITH (fillfactor = 50);
CREATE INDEX job_due ON index_.job (requested_at) WHERE open OR NOT told;

-- dropped: nothing is written. building: everything is written, and no watermark says that it is complete.
CREATE TABLE index_.unready (
  scope_key bigint NOT NULL,
  index_id  text COLLATE "C" NOT NULL,
  state     text COLLATE "C" NOT NULL CHECK (state IN ('dropped', 'building')),
  since     timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope_key, index_id)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON index_.job, index_.unready TO pamspec_indexing;

-- Rows of the lexical index that its documents do not account for: postings and terms without or beside their documents,
-- documents of what is not indexed, sums that are not those of the documents. 0 wherever nobody meddled.
CREATE FUNCTION index_.lexical_drift(key bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = index_, pg_temp AS $$
  WITH each AS (
    SELECT d.doc, t.term FROM lexical_document d CROSS JOIN LATERAL unnest(d.terms) AS t(term) WHERE d.scope_key = key
  )
  SELECT (SELECT count(*) FROM each e FULL JOIN (SELECT doc, term FROM lexical_posting WHERE scope_key = key) p
            USING (doc, term) WHERE e.doc IS NULL OR p.doc IS NULL)
       + (SELECT count(*) FROM (SELECT term, count(*) AS documents FROM each GROUP BY term) e
          FULL JOIN (SELECT term, documents FROM lexical_term WHERE scope_key = key) t USING (term)
          WHERE e.documents IS DISTINCT FROM t.documents)
       + (SELECT count(*) FROM (
            SELECT language, count(*) AS documents, sum(length) AS length FROM lexical_document
            WHERE scope_key = key GROUP BY language) d
          FULL JOIN (SELECT * FROM lexical_statistics WHERE scope_key = key AND documents <> 0) s USING (language)
          WHERE d.documents IS DISTINCT FROM s.documents OR d.length IS DISTINCT FROM s.length)
$$;

-- Make it 0: documents are what the rest is made of.
CREATE FUNCTION index_.lexical_repair(key bigint) RETURNS void
LANGUAGE sql SET search_path = index_, pg_temp AS $$
  DELETE FROM lexical_document d WHERE d.scope_key = key
    AND NOT EXISTS (SELECT FROM indexed_object x WHERE x.scope_key = key AND x.doc = d.doc AND NOT x.removed);
  DELETE FROM lexical_posting p WHERE p.scope_key = key AND NOT EXISTS (
    SELECT FROM lexical_document d WHERE d.scope_key = key AND d.doc = p.doc AND p.term = ANY (d.terms));
  DELETE FROM lexical_term WHERE scope_key = key;
  DELETE FROM lexical_statistics WHERE scope_key = key;
  INSERT INTO lexical_term (scope_key, term, documents)
    SELECT key, term, count(*) FROM lexical_posting WHERE scope_key = key GROUP BY term;
  INSERT INTO lexical_statistics (scope_key, language, documents, length)
    SELECT key, language, count(*), sum(length) FROM lexical_document WHERE scope_key = key GROUP BY language;
$$;
REVOKE ALL ON FUNCTION index_.lexical_drift(bigint), index_.lexical_repair(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_.lexical_drift(bigint), index_.lexical_repair(bigint) TO pamspec_indexing;
