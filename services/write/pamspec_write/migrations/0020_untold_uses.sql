-- Uses of grants without a limit that no event tells of yet, though the minute of the last one is over: over all scopes,
-- where they are and nothing else.
CREATE INDEX delegation_tally_untold ON core.delegation_tally (told_at) WHERE untold > 0;

CREATE FUNCTION core.untold_uses(lim integer)
RETURNS TABLE (tenant_id text, scope_id text, delegation_id text, operation text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT s.tenant_id, s.scope_id, t.delegation_id, t.operation
  FROM core.delegation_tally t JOIN core.scope s USING (scope_key)
  WHERE t.untold > 0 AND t.told_at < date_trunc('minute', clock_timestamp())
    AND NOT EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = t.scope_key)
  ORDER BY t.told_at, t.delegation_id, t.operation LIMIT lim
$$;
GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.untold_uses(integer) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.untold_uses(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.untold_uses(integer) TO pamspec_write;
GRANT SELECT ON core.delegation_tally TO pamspec_resolver;
CREATE POLICY resolver ON core.delegation_tally FOR SELECT TO pamspec_resolver USING (true);
