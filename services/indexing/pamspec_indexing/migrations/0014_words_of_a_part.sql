-- Whoever may see a part of a scope is answered by that part alone: how rare a word is, and how long texts are, is a sum over
-- all of them, and would tell of words in what is hidden. With `flat` every word weighs the same; with `b` 0 lengths count for
-- nothing. And without a limit phrases no longer stop at the first thousand.

DROP FUNCTION index_.lexical_candidates(bigint, bigint[], integer[], integer[], text[], integer, integer,
  double precision, double precision, bigint[]);
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
GRANT CREATE ON SCHEMA index_ TO pamspec_indexing;
ALTER FUNCTION index_.lexical_candidates(bigint, bigint[], integer[], integer[], text[], integer, integer,
  double precision, double precision, bigint[], boolean) OWNER TO pamspec_indexing;
REVOKE CREATE ON SCHEMA index_ FROM pamspec_indexing;
REVOKE ALL ON FUNCTION index_.lexical_candidates(bigint, bigint[], integer[], integer[], text[], integer, integer,
  double precision, double precision, bigint[], boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_.lexical_candidates(bigint, bigint[], integer[], integer[], text[], integer, integer,
  double precision, double precision, bigint[], boolean) TO pamspec_query, pamspec_indexing;
