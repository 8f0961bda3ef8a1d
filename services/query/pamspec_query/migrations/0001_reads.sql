-- What reads need beside the tables: indexes for structured queries, and functions that answer a group of reads by id
-- in one statement. Each index on version_span costs every create; these are the fewest that keep a page's cost apart
-- from the size of the scope.

-- Heads of one type, in the default order.
CREATE INDEX version_span_head_type ON core.version_span (scope_key, object_type, from_seq DESC)
  WHERE to_seq = 9223372036854775807;

-- Heads in rarer states, in the default order; an object in the states of a plain create costs nothing here.
CREATE INDEX version_span_head_state ON core.version_span
  (scope_key, lifecycle_state, availability_state, retention_state, validation_state, from_seq DESC)
  WHERE to_seq = 9223372036854775807
    AND (lifecycle_state <> 'active' OR availability_state <> 'available'
         OR retention_state <> 'retained' OR validation_state <> 'unverified');

-- What stopped being a head, by when: the second and later pages of a query add these to the heads of now.
CREATE INDEX version_span_closed ON core.version_span (scope_key, to_seq) WHERE to_seq <> 9223372036854775807;

CREATE SCHEMA query;
GRANT USAGE ON SCHEMA query TO pamspec_query;

-- The head of each (scope, id) pair, in the order of the arguments, with its scope's position. It sets the scopes that
-- row-level security shows, so a group is one round trip. Beyond `max_bytes` a row comes without its halves.
CREATE FUNCTION query.read_heads(keys bigint[], ids text[], visible text, max_bytes bigint)
RETURNS TABLE (
  last_seq bigint, ledger_epoch integer, epoch_authz bigint, kind "char", held_back boolean,
  metadata bytea, content bytea, private bytea)
LANGUAGE plpgsql ROWS 64
SET search_path = core, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
BEGIN
  PERFORM set_config('pamspec.scope_keys', visible, true);
  RETURN QUERY
  SELECT f.last_seq, f.ledger_epoch, f.epoch_authz, f.kind, f.bytes_before >= max_bytes,
         CASE WHEN f.bytes_before < max_bytes THEN f.metadata END,
         CASE WHEN f.bytes_before < max_bytes THEN f.content END,
         CASE WHEN f.bytes_before < max_bytes THEN f.private END
  FROM (
    SELECT r.n, h.last_seq, h.ledger_epoch, h.epoch_authz, v.kind, v.metadata, p.content, p.private,
           coalesce(sum(octet_length(v.metadata) + coalesce(octet_length(p.content), 0)
                        + coalesce(octet_length(p.private), 0))
                    OVER (ORDER BY r.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS bytes_before
    FROM unnest(keys, ids) WITH ORDINALITY AS r (scope_key, object_id, n)
    LEFT JOIN core.scope_head h ON h.scope_key = r.scope_key
    LEFT JOIN LATERAL (
      SELECT newest.kind, newest.metadata, newest.scope_key, newest.ledger_seq FROM core.version newest
      WHERE newest.scope_key = r.scope_key AND newest.object_id = r.object_id
      ORDER BY newest.version_seq DESC LIMIT 1) v ON true
    LEFT JOIN core.version_private p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
  ) f ORDER BY f.n;
END $$;

-- The last ledger sequence of a scope that was recorded at or before an instant; 0 before the first. Recorded times
-- never fall along the ledger, so a few probes of the primary key find it.
CREATE FUNCTION query.position_at(key bigint, instant timestamptz, last_seq bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = core, pg_temp AS $$
DECLARE
  low bigint := 0;
  high bigint := last_seq;
  middle bigint;
BEGIN
  WHILE low < high LOOP
    middle := (low + high + 1) / 2;
    IF (SELECT l.recorded_at <= instant FROM core.ledger l WHERE l.scope_key = key AND l.sequence = middle) THEN
      low := middle;
    ELSE
      high := middle - 1;
    END IF;
  END LOOP;
  RETURN low;
END $$;

-- Whether bytes of our own JSON can be jsonb, which holds no NUL; then the value.
CREATE FUNCTION query.as_jsonb(document bytea) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT CASE WHEN position('\x5c7530303030'::bytea IN document) = 0 THEN convert_from(document, 'UTF8')::jsonb END
$$;

REVOKE ALL ON FUNCTION query.read_heads(bigint[], text[], text, bigint), query.position_at(bigint, timestamptz, bigint),
  query.as_jsonb(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION query.read_heads(bigint[], text[], text, bigint),
  query.position_at(bigint, timestamptz, bigint), query.as_jsonb(bytea) TO pamspec_query;
