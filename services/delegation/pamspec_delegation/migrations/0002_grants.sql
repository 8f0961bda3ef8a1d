-- What a check looks at, in one statement; and the grants of a tenant by their parties and scopes.

-- This service sees the events of all scopes, so it has no right to versions. What it shows of grants comes from functions
-- with the rights of the query service, which set the scopes that they look into and return records of grants alone.
DO $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT pamspec_query TO %I', current_user);
  END IF;
END $$;
GRANT EXECUTE ON FUNCTION core.delegation_chain(text, text) TO pamspec_delegation;

-- A grant behind those above it; beside each the clock, the epochs that the rights in its scopes rest on, and of the last
-- one the version that is its record and what the object is that somebody asks about.
CREATE FUNCTION delegation.facts(tenant text, delegation text, object text)
RETURNS TABLE (
  place bigint, delegation_id text, scope_key bigint, scope_id text, target_key bigint, target_scope_id text,
  grantor_id text, grantor_kind text, principal_id text, credential_roles text[], delegate_id text, delegate_kind text,
  operations text[], object_types text[], object_ids text[], not_before timestamptz, not_after timestamptz,
  usage_limit bigint, used bigint, redelegation_depth smallint, revocable boolean, revoked_at timestamptz,
  granted_at timestamptz,
  now timestamptz, tenant_epoch bigint, home_epoch bigint, target_epoch bigint, ledger_epoch integer,
  metadata bytea, private bytea, object_kind "char", object_type text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = core, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('pamspec.scope_keys', coalesce((
    SELECT '{' || string_agg(DISTINCT k.key::text, ',') || '}'
    FROM core.delegation_chain(tenant, delegation) c CROSS JOIN LATERAL unnest(ARRAY[c.scope_key, c.target_key]) AS k (key)
  ), '{}'), true);
  RETURN QUERY
  SELECT c.*, clock_timestamp(), t.epoch_authz, home.epoch_authz, target.epoch_authz, home.ledger_epoch,
         v.metadata, p.private, o.kind, o.object_type
  FROM core.delegation_chain(tenant, delegation) c
  JOIN core.tenant t ON t.tenant_id = tenant
  JOIN core.scope_head home ON home.scope_key = c.scope_key
  JOIN core.scope_head target ON target.scope_key = c.target_key
  LEFT JOIN LATERAL (
    SELECT newest.metadata, newest.ledger_seq FROM core.version newest
    WHERE c.delegation_id = delegation AND newest.scope_key = c.scope_key AND newest.object_id = c.delegation_id
      AND newest.kind = 'd'
    ORDER BY newest.version_seq DESC LIMIT 1) v ON true
  LEFT JOIN core.version_private p ON p.scope_key = c.scope_key AND p.ledger_seq = v.ledger_seq
  LEFT JOIN core.version_span o ON c.delegation_id = delegation AND o.scope_key = c.target_key AND o.object_id = object
    AND o.to_seq = 9223372036854775807
  ORDER BY c.place;
END $$;

-- The newest records of grants, each with what is erasable of it.
CREATE FUNCTION delegation.records(keys bigint[], ids text[])
RETURNS TABLE (delegation_id text, metadata bytea, private bytea)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = core, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
BEGIN
  PERFORM set_config('pamspec.scope_keys', keys::text, true);
  RETURN QUERY
  SELECT k.id, v.metadata, p.private
  FROM unnest(keys, ids) AS k (key, id)
  CROSS JOIN LATERAL (
    SELECT newest.metadata, newest.scope_key, newest.ledger_seq FROM core.version newest
    WHERE newest.scope_key = k.key AND newest.object_id = k.id AND newest.kind = 'd'
    ORDER BY newest.version_seq DESC LIMIT 1) v
  LEFT JOIN core.version_private p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq;
END $$;
GRANT CREATE, USAGE ON SCHEMA delegation TO pamspec_query;
ALTER FUNCTION delegation.facts(text, text, text) OWNER TO pamspec_query;
ALTER FUNCTION delegation.records(bigint[], text[]) OWNER TO pamspec_query;
REVOKE CREATE ON SCHEMA delegation FROM pamspec_query;
REVOKE ALL ON FUNCTION delegation.facts(text, text, text), delegation.records(bigint[], text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION delegation.facts(text, text, text), delegation.records(bigint[], text[]) TO pamspec_delegation;

-- Grants of a tenant in the order of their ids: those that fit, of which `viewer` is a party, or all when it is null.
CREATE FUNCTION delegation.listed(
  tenant text, viewer text, grantor text, delegate text, key bigint, standing boolean, after_id text, lim integer)
RETURNS TABLE (delegation_id text, scope_key bigint, usage_limit bigint, used bigint, redelegation_depth smallint, in_force boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT d.delegation_id, d.scope_key, d.usage_limit, d.used, d.redelegation_depth, s.in_force
  FROM core.delegation d
  CROSS JOIN LATERAL (
    SELECT coalesce(bool_and(a.revoked_at IS NULL AND clock_timestamp() BETWEEN a.not_before AND a.not_after
                             AND (a.usage_limit IS NULL OR a.used < a.usage_limit)), false) AS in_force,
           coalesce(bool_or(a.grantor_id = viewer), false) AS given
    FROM core.delegation a
    WHERE a.tenant_id = tenant AND a.delegation_id = ANY (d.ancestors || d.delegation_id)) s
  WHERE d.tenant_id = tenant AND d.delegation_id > after_id
    AND (grantor IS NULL OR d.grantor_id = grantor)
    AND (delegate IS NULL OR d.delegate_id = delegate)
    AND (key IS NULL OR d.scope_key = key OR d.target_key = key)
    AND (standing IS NULL OR s.in_force = standing)
    AND (viewer IS NULL OR d.delegate_id = viewer OR s.given)
  ORDER BY d.delegation_id LIMIT lim
$$;
GRANT CREATE, USAGE ON SCHEMA delegation TO pamspec_resolver;
ALTER FUNCTION delegation.listed(text, text, text, text, bigint, boolean, text, integer) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA delegation FROM pamspec_resolver;
REVOKE ALL ON FUNCTION delegation.listed(text, text, text, text, bigint, boolean, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION delegation.listed(text, text, text, text, bigint, boolean, text, integer) TO pamspec_delegation;
