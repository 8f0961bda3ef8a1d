-- No lease lasts ten minutes: one that ends later was written before the store's clock jumped back. And whether something of a
-- scope is due is the first row of an index, where EXISTS read the whole table.
CREATE OR REPLACE FUNCTION retention.scopes_due(ahead interval, lim integer)
RETURNS TABLE (scope_key bigint, tenant_id text, scope_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT r.scope_key, s.tenant_id, s.scope_id
  FROM retention.scope r JOIN core.scope s USING (scope_key) JOIN core.scope_head h USING (scope_key)
  WHERE (r.leased_until < clock_timestamp() OR r.leased_until > clock_timestamp() + interval '10 minutes')
    AND (r.wanted_version <> r.policy_version OR h.ledger_epoch <> r.ledger_epoch OR h.last_seq > r.followed_seq
      OR (SELECT min(d.look_at) FROM retention.due d WHERE d.scope_key = r.scope_key) <= clock_timestamp() + ahead)
    AND convert_from(s.document, 'UTF8') NOT LIKE '%"scope_kind":"evaluation"%'
    AND NOT EXISTS (SELECT FROM core.scope_deletion x WHERE x.scope_key = r.scope_key)
  ORDER BY r.leased_until, r.scope_key LIMIT lim
$$;
