-- What an erased version has left, where it is sealed: the key of the version, and the private half that queries compare.
GRANT SELECT (scope_key, ledger_seq), DELETE ON core.data_key TO pamspec_verifier;
GRANT UPDATE (private) ON core.version_span TO pamspec_verifier;
CREATE OR REPLACE FUNCTION retention.canonical_remains(key bigint, ns integer[], ids text[], firsts integer[], lasts integer[])
RETURNS TABLE (n integer, contents bigint, privates bigint, records bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT k.n, count(*) FILTER (WHERE p.content IS NOT NULL OR s.content IS NOT NULL),
    count(*) FILTER (WHERE p.private IS NOT NULL OR p.salt IS NOT NULL OR s.private IS NOT NULL OR d.sealed),
    count(*) FILTER (WHERE r.salt IS NOT NULL OR r.fingerprint IS NOT NULL OR e.salt IS NOT NULL
      OR e.fingerprint IS NOT NULL)
  FROM unnest(ns, ids, firsts, lasts) AS k (n, id, first, last)
  CROSS JOIN LATERAL (
    SELECT v.scope_key, v.ledger_seq FROM version v
    WHERE v.object_id = k.id AND v.scope_key = key AND v.version_seq BETWEEN k.first AND k.last OFFSET 0) v
  JOIN version_private p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
  JOIN version_span s ON s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq
  LEFT JOIN operation_record r ON r.operation_hash = p.operation_hash AND r.scope_key = v.scope_key
  LEFT JOIN source_event e ON e.operation_hash = p.operation_hash AND e.scope_key = v.scope_key
  CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM data_key d WHERE d.scope_key = v.scope_key AND d.ledger_seq = v.ledger_seq) AS sealed) d
  GROUP BY k.n
$$;
CREATE OR REPLACE FUNCTION retention.remove_canonical(key bigint, ids text[], firsts integer[], lasts integer[]) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = core, pg_temp AS $$
  WITH target AS MATERIALIZED (
    SELECT v.ledger_seq, p.operation_hash FROM unnest(ids, firsts, lasts) AS k (id, first, last)
    CROSS JOIN LATERAL (
      SELECT v.ledger_seq FROM version v
      WHERE v.object_id = k.id AND v.scope_key = key AND v.version_seq BETWEEN k.first AND k.last OFFSET 0) v
    JOIN version_private p ON p.scope_key = key AND p.ledger_seq = v.ledger_seq),
  spans AS (
    UPDATE version_span s SET content = NULL, private = NULL FROM target t
    WHERE s.scope_key = key AND s.from_seq = t.ledger_seq),
  keys AS (DELETE FROM data_key d USING target t WHERE d.scope_key = key AND d.ledger_seq = t.ledger_seq),
  records AS (
    UPDATE operation_record r SET salt = NULL, fingerprint = NULL FROM target t
    WHERE r.operation_hash = t.operation_hash AND r.scope_key = key),
  sources AS (
    UPDATE source_event e SET salt = NULL, fingerprint = NULL FROM target t
    WHERE e.operation_hash = t.operation_hash AND e.scope_key = key),
  private AS (
    UPDATE version_private p SET salt = NULL, content = NULL, private = NULL FROM target t
    WHERE p.scope_key = key AND p.ledger_seq = t.ledger_seq RETURNING 1)
  SELECT count(*) FROM private
$$;
