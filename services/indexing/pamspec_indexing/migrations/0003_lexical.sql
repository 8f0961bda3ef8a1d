-- The lexical index: postings by term, what of each object they are made of, and the statistics that BM25 needs. A term is
-- a number that stands for a stem in its language, a code, or a pair of characters (pamspec_common.analysis).
--
-- All rows of a scope are written by one transaction at a time, which holds the scope's row of index_.inbox; so statistics
-- are plain rows, exact at any moment and contended by nobody. Readers never wait for them.

-- What is indexed of an object: its terms, by which its postings are found again, and the order of its words.
CREATE TABLE index_.lexical_document (
  scope_key  bigint NOT NULL,
  doc        bigint NOT NULL,
  language   smallint NOT NULL,
  length     integer NOT NULL,             -- tokens
  terms      bigint[] NOT NULL,
  word_order text COLLATE "C" NOT NULL,    -- the words, five characters each, between spaces
  truncated  boolean NOT NULL,             -- the text was longer than what is indexed of one object
  digest     bytea NOT NULL,               -- of the content and the version of the analysis
  PRIMARY KEY (scope_key, doc)
) PARTITION BY HASH (scope_key);

CREATE TABLE index_.lexical_posting (
  scope_key bigint NOT NULL,
  term      bigint NOT NULL,
  doc       bigint NOT NULL,
  length    integer NOT NULL,              -- of the object, as in lexical_document
  times     smallint NOT NULL,
  PRIMARY KEY (scope_key, term, doc) INCLUDE (length, times)
) PARTITION BY HASH (scope_key);

-- In how many objects a term occurs.
CREATE TABLE index_.lexical_term (
  scope_key bigint NOT NULL,
  term      bigint NOT NULL,
  documents integer NOT NULL,
  PRIMARY KEY (scope_key, term)
) PARTITION BY HASH (scope_key);

-- How many objects are indexed, and how long they are together, by language.
CREATE TABLE index_.lexical_statistics (
  scope_key bigint NOT NULL,
  language  smallint NOT NULL,
  documents bigint NOT NULL,
  length    bigint NOT NULL,
  PRIMARY KEY (scope_key, language)
) WITH (fillfactor = 50);

-- The planner's statistics are samples of values, kept until the next ANALYZE: of what is derived from content there are
-- none. Readers of postings find rows that were just written marked as visible to all soon.
DO $$
DECLARE
  name text;
  n integer;
BEGIN
  FOREACH name IN ARRAY ARRAY['lexical_document', 'lexical_posting', 'lexical_term']
  LOOP
    FOR n IN 0..7 LOOP
      EXECUTE format('CREATE TABLE index_.%I PARTITION OF index_.%I FOR VALUES WITH (MODULUS 8, REMAINDER %s) WITH (%s)',
        name || '_' || n, name, n, CASE name WHEN 'lexical_posting' THEN 'autovacuum_vacuum_insert_scale_factor = 0.02'
          WHEN 'lexical_term' THEN 'fillfactor = 70' ELSE 'fillfactor = 90' END);
      EXECUTE format('ALTER TABLE index_.%I ENABLE ROW LEVEL SECURITY', name || '_' || n);
      EXECUTE format('ALTER TABLE index_.%I FORCE ROW LEVEL SECURITY', name || '_' || n);
      EXECUTE format($p$CREATE POLICY by_scope_keys ON index_.%I USING
        (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]))$p$,
        name || '_' || n);
      IF name = 'lexical_document' THEN
        EXECUTE format('ALTER TABLE index_.%I ALTER COLUMN terms SET STATISTICS 0, ALTER COLUMN word_order SET STATISTICS 0,
          ALTER COLUMN digest SET STATISTICS 0', name || '_' || n);
      ELSE
        EXECUTE format('ALTER TABLE index_.%I ALTER COLUMN term SET STATISTICS 0', name || '_' || n);
      END IF;
    END LOOP;
  END LOOP;
  FOREACH name IN ARRAY ARRAY['lexical_document', 'lexical_posting', 'lexical_term', 'lexical_statistics']
  LOOP
    EXECUTE format('ALTER TABLE index_.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE index_.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY by_scope_keys ON index_.%I USING
      (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]))$p$, name);
  END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON index_.lexical_document, index_.lexical_posting, index_.lexical_term,
  index_.lexical_statistics TO pamspec_indexing;

-- Take documents out of the lexical index, with their postings and their part in the statistics; how many were there.
CREATE FUNCTION index_.remove_lexical(keys bigint[], docs bigint[]) RETURNS integer
LANGUAGE plpgsql
SET search_path = index_, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
DECLARE
  removed integer;
  gone_keys bigint[];
  gone_terms bigint[];
BEGIN
  WITH old AS (
    DELETE FROM lexical_document d USING unnest(keys, docs) AS r(scope_key, doc)
    WHERE d.scope_key = r.scope_key AND d.doc = r.doc
    RETURNING d.scope_key, d.doc, d.language, d.length, d.terms
  ), each AS (
    SELECT o.scope_key, o.doc, t.term FROM old o CROSS JOIN LATERAL unnest(o.terms) AS t(term)
  ), postings AS (
    DELETE FROM lexical_posting p USING each e
    WHERE p.scope_key = e.scope_key AND p.term = e.term AND p.doc = e.doc
  ), sums AS (
    UPDATE lexical_statistics s SET documents = s.documents - o.documents, length = s.length - o.length
    FROM (SELECT scope_key, language, count(*) AS documents, sum(length) AS length FROM old GROUP BY 1, 2) o
    WHERE s.scope_key = o.scope_key AND s.language = o.language
  ), counted AS (
    UPDATE lexical_term t SET documents = t.documents - e.times
    FROM (SELECT scope_key, term, count(*) AS times FROM each GROUP BY 1, 2) e
    WHERE t.scope_key = e.scope_key AND t.term = e.term
    RETURNING t.scope_key, t.term, t.documents
  )
  SELECT (SELECT count(*) FROM old), array_agg(c.scope_key), array_agg(c.term) INTO removed, gone_keys, gone_terms
  FROM counted c WHERE c.documents <= 0;
  DELETE FROM lexical_term t USING unnest(gone_keys, gone_terms) AS r(scope_key, term)
  WHERE t.scope_key = r.scope_key AND t.term = r.term;
  RETURN removed;
END $$;

-- Put documents into the lexical index that are not there, over rows that nothing accounts for. The postings come as one
-- row for each term of each document.
CREATE FUNCTION index_.add_lexical(
  keys bigint[], docs bigint[], languages smallint[], lengths integer[], orders text[], cuts boolean[], digests bytea[],
  places integer[], terms bigint[], times smallint[]) RETURNS void
LANGUAGE plpgsql
SET search_path = index_, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
BEGIN
  INSERT INTO lexical_posting (scope_key, term, doc, length, times)
  SELECT keys[p.place], p.term, docs[p.place], lengths[p.place], p.times
  FROM unnest(places, terms, times) AS p(place, term, times) ORDER BY 1, 2, 3
  ON CONFLICT (scope_key, term, doc) DO UPDATE SET length = excluded.length, times = excluded.times;
  INSERT INTO lexical_document (scope_key, doc, language, length, terms, word_order, truncated, digest)
  SELECT d.scope_key, d.doc, d.language, d.length, coalesce(t.terms, '{}'), d.word_order, d.truncated, d.digest
  FROM unnest(keys, docs, languages, lengths, orders, cuts, digests) WITH ORDINALITY
    AS d(scope_key, doc, language, length, word_order, truncated, digest, place)
  LEFT JOIN (SELECT p.place, array_agg(p.term) AS terms FROM unnest(places, terms) AS p(place, term) GROUP BY 1) t
    ON t.place = d.place;
  INSERT INTO lexical_term AS t (scope_key, term, documents)
  SELECT keys[p.place], p.term, count(*) FROM unnest(places, terms) AS p(place, term) GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (scope_key, term) DO UPDATE SET documents = t.documents + excluded.documents;
  INSERT INTO lexical_statistics AS s (scope_key, language, documents, length)
  SELECT d.scope_key, d.language, count(*), sum(d.length)
  FROM unnest(keys, languages, lengths) AS d(scope_key, language, length) GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (scope_key, language) DO UPDATE
    SET documents = s.documents + excluded.documents, length = s.length + excluded.length;
END $$;
REVOKE ALL ON FUNCTION index_.remove_lexical(bigint[], bigint[]), index_.add_lexical(bigint[], bigint[], smallint[],
  integer[], text[], boolean[], bytea[], integer[], bigint[], smallint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_.remove_lexical(bigint[], bigint[]), index_.add_lexical(bigint[], bigint[], smallint[],
  integer[], text[], boolean[], bytea[], integer[], bigint[], smallint[]) TO pamspec_indexing;

-- Objects of a scope by BM25, the best first and of equals the newest. `terms` are those of pamspec_common.analysis.sought:
-- each belongs to a word and counts in texts of one language (-1: any); a word's terms are one word to the ranking. A
-- phrase that begins with + must occur, any other counts like a rare word. Sees a scope that pamspec.scope_keys names, and
-- nothing else.
--
-- `lim` null: every object that matches, exactly. With a limit a query whose words have more postings than `budget`
-- together finds its candidates by its rarest words, and counts the frequent ones for the best of them alone.
--
-- `among` names the docs to look at, where a filter leaves few: then nothing else is read or scored; null stands for all.
-- Whoever may see a part of a scope is answered by that part alone: how rare a word is, and how long texts are, is a sum
-- over all of them, and would tell of words in what is hidden. With `flat` every word weighs the same; with `b` 0 lengths
-- count for nothing.
CREATE FUNCTION index_.lexical_candidates(
  key bigint, terms bigint[], words integer[], languages integer[], phrases text[], lim integer,
  budget integer DEFAULT 40000, k1 double precision DEFAULT 0.9, b double precision DEFAULT 0.4,
  among bigint[] DEFAULT NULL, flat boolean DEFAULT false)
RETURNS TABLE (doc bigint, object_id text, version_id text, sequence bigint, score double precision)
LANGUAGE plpgsql STABLE ROWS 1000 SECURITY DEFINER
SET search_path = index_, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  total bigint;
  average double precision;
  spoken integer[];
  known integer;
  rare bigint[];
  rare_weights double precision[];
  often bigint[];
  often_weights double precision[];
  must text[] := ARRAY(SELECT substr(p, 2) FROM unnest(phrases) p WHERE left(p, 1) = '+');
  may text[] := ARRAY(SELECT p FROM unnest(phrases) p WHERE left(p, 1) <> '+');
  exact boolean := cardinality(must) > 0;
BEGIN
  SELECT sum(s.documents), greatest(1, sum(s.length)::double precision / nullif(sum(s.documents), 0)),
         array_agg(s.language::integer)
  INTO total, average, spoken FROM lexical_statistics s WHERE s.scope_key = key AND s.documents > 0;
  IF total IS NULL THEN
    RETURN;
  END IF;
  IF cardinality(terms) = 0 THEN
    -- Nothing but function words, of which no postings are kept.
    RETURN QUERY
    SELECT x.doc, x.object_id, x.version_id, x.sequence, 0::double precision
    FROM lexical_document d JOIN indexed_object x ON x.scope_key = key AND x.doc = d.doc
    WHERE d.scope_key = key AND exact AND (among IS NULL OR d.doc = ANY (among)) AND (SELECT bool_and(strpos(d.word_order, p) > 0) FROM unnest(must) p)
    ORDER BY x.doc DESC LIMIT lim;
    RETURN;
  END IF;
  -- Words from the rarest on; what is beyond the budget counts for the best alone. Where a phrase must occur, so must each
  -- of its words, and the rarest of them finds all there is.
  WITH held AS (
    SELECT q.term, q.word, t.documents, sum(t.documents) OVER (PARTITION BY q.word) AS frequency
    FROM unnest(terms, words, languages) AS q(term, word, language)
    JOIN lexical_term t ON t.scope_key = key AND t.term = q.term
    WHERE q.language = -1 OR q.language = ANY (spoken)
  ), ordered AS (
    SELECT h.*, CASE WHEN flat THEN 1
             ELSE ln(1 + (total - least(h.frequency, total) + 0.5) / (least(h.frequency, total) + 0.5)) END AS weight,
           sum(h.documents) OVER (ORDER BY h.frequency, h.word, h.term) AS reached,
           h.word = first_value(h.word) OVER (ORDER BY h.frequency, h.word, h.term) AS rarest
    FROM held h
  ), sorted AS (
    SELECT o.*, o.rarest OR (NOT exact AND (lim IS NULL OR o.reached <= budget)) AS seeking FROM ordered o
  )
  SELECT count(DISTINCT o.word),
         array_agg(o.term) FILTER (WHERE o.seeking), array_agg(o.weight) FILTER (WHERE o.seeking),
         array_agg(o.term) FILTER (WHERE NOT o.seeking), array_agg(o.weight) FILTER (WHERE NOT o.seeking)
  INTO known, rare, rare_weights, often, often_weights FROM sorted o;
  IF exact AND known < (SELECT count(DISTINCT w) FROM unnest(words) w) THEN
    RETURN;
  END IF;
  RETURN QUERY
  WITH found AS (
    SELECT p.doc, sum(w.weight * p.times * (k1 + 1) / (p.times + k1 * (1 - b + b * p.length / average))) AS score
    FROM unnest(rare, rare_weights) AS w(term, weight)
    CROSS JOIN LATERAL (
      (SELECT l.doc, l.length, l.times FROM lexical_posting l
       WHERE among IS NULL AND l.scope_key = key AND l.term = w.term
       ORDER BY l.doc DESC LIMIT CASE WHEN lim IS NOT NULL THEN 2 * budget END)
      UNION ALL
      (SELECT l.doc, l.length, l.times FROM lexical_posting l
       WHERE l.scope_key = key AND l.term = w.term AND l.doc = ANY (among))) p
    GROUP BY p.doc
  ), fitting AS (
    SELECT f.doc, f.score FROM found f
    WHERE NOT exact OR EXISTS (
      SELECT FROM lexical_document d WHERE d.scope_key = key AND d.doc = f.doc
        AND (SELECT bool_and(strpos(d.word_order, p) > 0) FROM unnest(must) p))
  ), best AS (
    SELECT f.doc, f.score FROM fitting f
    ORDER BY f.score DESC, f.doc DESC
    LIMIT CASE WHEN lim IS NULL OR (often IS NULL AND cardinality(may) = 0) THEN lim ELSE greatest(4 * lim, 1000) END
  ), whole AS (
    SELECT c.doc, c.score + coalesce((
      SELECT sum(w.weight * p.times * (k1 + 1) / (p.times + k1 * (1 - b + b * p.length / average)))
      FROM unnest(often, often_weights) AS w(term, weight)
      JOIN lexical_posting p ON p.scope_key = key AND p.term = w.term AND p.doc = c.doc), 0) AS score
    FROM best c
  ), said AS (
    -- A phrase is a word that occurs where its words stand like this.
    SELECT h.doc, sum(CASE WHEN flat THEN 1 ELSE ln(1 + (total - h.frequency + 0.5) / (h.frequency + 0.5)) END) AS score
    FROM (
      SELECT c.doc, p.phrase, count(*) OVER (PARTITION BY p.phrase) AS frequency
      FROM best c CROSS JOIN unnest(may) AS p(phrase)
      JOIN lexical_document d ON d.scope_key = key AND d.doc = c.doc
      WHERE strpos(d.word_order, p.phrase) > 0) h
    GROUP BY h.doc
  ), kept AS (
    SELECT c.doc, c.score + coalesce(s.score, 0) AS score FROM whole c LEFT JOIN said s ON s.doc = c.doc
    ORDER BY 2 DESC, c.doc DESC LIMIT lim
  )
  SELECT x.doc, x.object_id, x.version_id, x.sequence, c.score
  FROM kept c JOIN indexed_object x ON x.scope_key = key AND x.doc = c.doc
  ORDER BY c.score DESC, c.doc DESC;
END $$;

-- How many rows of the lexical index are left of these objects: documents, and postings of these terms. 0 once erased.
CREATE FUNCTION index_.lexical_remains(key bigint, ids text[], of_terms bigint[]) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = index_, pg_temp AS $$
  SELECT (SELECT count(*) FROM indexed_object x JOIN lexical_document d ON d.scope_key = key AND d.doc = x.doc
          WHERE x.scope_key = key AND x.object_id = ANY (ids))
       + (SELECT count(*) FROM indexed_object x
          JOIN lexical_posting p ON p.scope_key = key AND p.doc = x.doc AND p.term = ANY (of_terms)
          WHERE x.scope_key = key AND x.object_id = ANY (ids))
$$;

DO $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT pamspec_indexing TO %I', current_user);
  END IF;
END $$;
GRANT CREATE ON SCHEMA index_ TO pamspec_indexing;
ALTER FUNCTION index_.lexical_candidates(bigint, bigint[], integer[], integer[], text[], integer, integer,
  double precision, double precision, bigint[], boolean) OWNER TO pamspec_indexing;
ALTER FUNCTION index_.lexical_remains(bigint, text[], bigint[]) OWNER TO pamspec_indexing;
REVOKE CREATE ON SCHEMA index_ FROM pamspec_indexing;
REVOKE ALL ON FUNCTION index_.lexical_candidates(bigint, bigint[], integer[], integer[], text[], integer, integer,
  double precision, double precision, bigint[], boolean), index_.lexical_remains(bigint, text[], bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_.lexical_candidates(bigint, bigint[], integer[], integer[], text[], integer, integer,
  double precision, double precision, bigint[], boolean), index_.lexical_remains(bigint, text[], bigint[]) TO pamspec_query, pamspec_indexing;

-- Scopes that were deleted and of which nothing is indexed any more.
CREATE TABLE index_.cleared (
  scope_key  bigint PRIMARY KEY,
  cleared_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT, INSERT ON index_.cleared TO pamspec_indexing;
