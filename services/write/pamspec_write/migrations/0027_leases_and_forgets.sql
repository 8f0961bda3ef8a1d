-- No lease of a job lasts ten minutes: one that ends later was written before the store's clock jumped back, and counts for
-- nothing. Who wrote it has renewed it by now if it lives.
CREATE OR REPLACE FUNCTION core.holds_due(lim integer)
RETURNS TABLE (
  scope_key bigint, hold_id text, tenant_id text, scope_id text, tenant_token text, scope_token text, partition smallint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT l.scope_key, l.hold_id, s.tenant_id, s.scope_id, s.tenant_token, s.scope_token, s.partition
  FROM core.legal_hold l JOIN core.scope s USING (scope_key) JOIN core.scope_head h USING (scope_key)
  WHERE NOT l.undone
    AND (l.leased_until < clock_timestamp() OR l.leased_until > clock_timestamp() + interval '10 minutes')
    AND (l.released_at IS NOT NULL OR l.done_seq < h.last_seq)
  ORDER BY l.leased_until, l.hold_id LIMIT lim
$$;
CREATE OR REPLACE FUNCTION core.deletions_due(lim integer) RETURNS TABLE (scope_key bigint, tenant_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT d.scope_key, s.tenant_id FROM core.scope_deletion d JOIN core.scope s USING (scope_key)
  WHERE d.finished_at IS NULL
    AND (d.leased_until < clock_timestamp() OR d.leased_until > clock_timestamp() + interval '10 minutes')
  ORDER BY d.leased_until, d.scope_key LIMIT lim
$$;
CREATE OR REPLACE FUNCTION core.forgets_due(lim integer)
RETURNS TABLE (
  scope_key bigint, erasure_id text, tenant_id text, scope_id text, tenant_token text, scope_token text, partition smallint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT f.scope_key, f.erasure_id, s.tenant_id, s.scope_id, s.tenant_token, s.scope_token, s.partition
  FROM core.forget f JOIN core.scope s USING (scope_key)
  WHERE f.finished_at IS NULL
    AND (f.leased_until < clock_timestamp() OR f.leased_until > clock_timestamp() + interval '10 minutes')
  ORDER BY f.leased_until LIMIT lim
$$;

-- A deleted scope keeps no note of who forgot what in it.
GRANT DELETE ON core.forget, core.forget_item TO pamspec_write;
