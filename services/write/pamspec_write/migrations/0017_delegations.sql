-- Grants: their terms, which never change, and how they stand. A row here is what is enforced; the versions of a
-- delegation are the record of it (a grant that came with an import is a record only, and in force nowhere).
-- Everything changes under the lock of the scope in which it was granted. What is done under a grant also locks the
-- scope in which it works, and those of the grants above it.

CREATE TABLE core.delegation (
  scope_key          bigint NOT NULL REFERENCES core.scope,   -- where it was granted
  delegation_id      text COLLATE "C" NOT NULL,
  tenant_id          text COLLATE "C" NOT NULL REFERENCES core.tenant,
  target_key         bigint NOT NULL REFERENCES core.scope,   -- where it works
  grantor_id         text COLLATE "C" NOT NULL,
  grantor_kind       text NOT NULL,
  principal_id       text COLLATE "C" NOT NULL,               -- who granted it, for the grantor
  delegate_id        text COLLATE "C" NOT NULL,
  delegate_kind      text NOT NULL,
  operations         text[] NOT NULL,
  object_types       text[],                                  -- null: every type
  object_ids         text[],                                  -- null: every object
  not_before         timestamptz NOT NULL,
  not_after          timestamptz NOT NULL,
  usage_limit        bigint CHECK (usage_limit >= 1),
  redelegation_depth smallint NOT NULL,
  revocable          boolean NOT NULL,
  ancestors          text[] NOT NULL,                         -- the grants that it was passed on under, the first one first
  granted_at         timestamptz NOT NULL,
  revoked_at         timestamptz,
  used               bigint NOT NULL DEFAULT 0 CHECK (used <= usage_limit),
  PRIMARY KEY (scope_key, delegation_id)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX delegation_id_unique ON core.delegation (tenant_id, delegation_id);
CREATE INDEX delegation_grantor ON core.delegation (tenant_id, grantor_id, delegation_id);
CREATE INDEX delegation_delegate ON core.delegation (tenant_id, delegate_id, delegation_id);
CREATE INDEX delegation_target ON core.delegation (target_key, delegation_id);

-- Uses of grants without a limit by reads: the minute of the last event that told of them, and those since then.
CREATE TABLE core.delegation_tally (
  scope_key     bigint NOT NULL,
  delegation_id text COLLATE "C" NOT NULL,
  operation     text COLLATE "C" NOT NULL,
  told_at       timestamptz NOT NULL,
  untold        bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (scope_key, delegation_id, operation)
) WITH (fillfactor = 50);

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['delegation', 'delegation_tally']
  LOOP
    EXECUTE format('ALTER TABLE core.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE core.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY by_scope_keys ON core.%I USING
      (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]))$p$, name);
  END LOOP;
END $$;
CREATE POLICY resolver ON core.delegation FOR SELECT TO pamspec_resolver USING (true);

CREATE INDEX api_key_actor ON core.api_key (tenant_id, actor_id) WHERE revoked_at IS NULL;

-- A grant of a tenant behind those above it, the first one first, as they stand now. `credential_roles` are those that
-- the live keys of its first grantor's principal carry, and empty for the others.
CREATE FUNCTION core.delegation_chain(tenant text, delegation text)
RETURNS TABLE (
  place bigint, delegation_id text, scope_key bigint, scope_id text, target_key bigint, target_scope_id text,
  grantor_id text, grantor_kind text, principal_id text, credential_roles text[], delegate_id text, delegate_kind text,
  operations text[], object_types text[], object_ids text[], not_before timestamptz, not_after timestamptz,
  usage_limit bigint, used bigint, redelegation_depth smallint, revocable boolean, revoked_at timestamptz,
  granted_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT k.place, d.delegation_id, d.scope_key, s.scope_id, d.target_key, t.scope_id, d.grantor_id, d.grantor_kind,
    d.principal_id,
    CASE WHEN k.place = 1 THEN coalesce((
      SELECT array_agg(DISTINCT role) FROM core.api_key a CROSS JOIN unnest(a.roles) AS role
      WHERE a.tenant_id = tenant AND a.actor_id = d.principal_id AND a.revoked_at IS NULL
        AND (a.expires_at IS NULL OR a.expires_at > clock_timestamp())), '{}') ELSE '{}' END,
    d.delegate_id, d.delegate_kind, d.operations, d.object_types, d.object_ids, d.not_before, d.not_after, d.usage_limit,
    d.used, d.redelegation_depth, d.revocable, d.revoked_at, d.granted_at
  FROM core.delegation l
  CROSS JOIN LATERAL unnest(l.ancestors || l.delegation_id) WITH ORDINALITY AS k (id, place)
  JOIN core.delegation d ON d.tenant_id = tenant AND d.delegation_id = k.id
  JOIN core.scope s ON s.scope_key = d.scope_key
  JOIN core.scope t ON t.scope_key = d.target_key
  WHERE l.tenant_id = tenant AND l.delegation_id = delegation
  ORDER BY k.place
$$;
GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.delegation_chain(text, text) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.delegation_chain(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.delegation_chain(text, text) TO pamspec_write, pamspec_query, pamspec_subscription;
GRANT SELECT ON core.delegation TO pamspec_resolver;
GRANT SELECT (tenant_id, actor_id, roles, revoked_at, expires_at) ON core.api_key TO pamspec_resolver;

GRANT SELECT, INSERT ON core.delegation TO pamspec_write;
GRANT UPDATE (revoked_at, used) ON core.delegation TO pamspec_write;
GRANT SELECT, INSERT, UPDATE ON core.delegation_tally TO pamspec_write;
