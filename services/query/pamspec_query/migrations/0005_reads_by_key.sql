-- A read by id looks rows up by key, whatever the statistics say. A connection keeps its plan for good, and one that is
-- made while the tables are small, without statistics, found it cheaper by a hair to read the whole scope and sort it.
-- The ends of a relationship are looked up the same way. Values come from where sealed ones come with what opens them.
CREATE OR REPLACE FUNCTION query.read_heads(keys bigint[], ids text[], visible text, max_bytes bigint)
RETURNS TABLE (
  last_seq bigint, ledger_epoch integer, epoch_authz bigint, tenant_authz bigint, kind "char", held_back boolean,
  metadata bytea, content bytea, private bytea, memory text[], ends text[])
LANGUAGE plpgsql ROWS 64
SET search_path = core, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off
AS $$
BEGIN
  PERFORM set_config('pamspec.scope_keys', visible, true);
  RETURN QUERY
  SELECT f.last_seq, f.ledger_epoch, f.epoch_authz, f.tenant_authz, f.kind, f.bytes_before >= max_bytes,
         CASE WHEN f.bytes_before < max_bytes THEN f.metadata END,
         CASE WHEN f.bytes_before < max_bytes THEN f.content END,
         CASE WHEN f.bytes_before < max_bytes THEN f.private END,
         f.memory, f.ends
  FROM (
    SELECT r.n, h.last_seq, h.ledger_epoch, h.epoch_authz, t.epoch_authz AS tenant_authz, v.kind, v.metadata,
           p.content, p.private, far.ends,
           ARRAY[s.object_type, s.lifecycle_state, s.availability_state, s.retention_state, s.validation_state,
                 s.created_by] AS memory,
           coalesce(sum(octet_length(v.metadata) + coalesce(octet_length(p.content), 0)
                        + coalesce(octet_length(p.private), 0))
                    OVER (ORDER BY r.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS bytes_before
    FROM unnest(keys, ids) WITH ORDINALITY AS r (scope_key, object_id, n)
    LEFT JOIN core.scope_head h ON h.scope_key = r.scope_key
    LEFT JOIN core.scope c ON c.scope_key = r.scope_key
    LEFT JOIN core.tenant t ON t.tenant_id = c.tenant_id
    LEFT JOIN LATERAL (
      SELECT newest.kind, newest.metadata, newest.scope_key, newest.ledger_seq FROM core.version newest
      WHERE newest.scope_key = r.scope_key AND newest.object_id = r.object_id
      ORDER BY newest.version_seq DESC LIMIT 1) v ON true
    LEFT JOIN core.version_value p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
    LEFT JOIN core.version_span s ON s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq
    LEFT JOIN LATERAL (
      SELECT array_agg(ARRAY[e.object_type, e.lifecycle_state, e.availability_state, e.retention_state,
                             e.validation_state, e.created_by]) AS ends
      FROM unnest(ARRAY[s.source_object_id, CASE WHEN s.target_scope_id IS NULL THEN s.target_object_id END]) AS n (id)
      CROSS JOIN LATERAL (
        SELECT newest.ledger_seq FROM core.version newest
        WHERE newest.scope_key = s.scope_key AND newest.object_id = n.id
        ORDER BY newest.version_seq DESC LIMIT 1) w
      CROSS JOIN LATERAL (
        SELECT one.* FROM core.version_span one
        WHERE one.scope_key = s.scope_key AND one.from_seq = w.ledger_seq LIMIT 1) e
      WHERE s.kind = 'r'
    ) far ON true
  ) f ORDER BY f.n;
END $$;
