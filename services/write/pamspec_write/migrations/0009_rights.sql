-- Who may do what: the roles of actors and the rules of tenants and scopes. A scope_key of 0 stands for the whole tenant.
-- Every change raises the authorization epoch of the scope or of the tenant in the same transaction, so that whatever was
-- decided on the state before it is decided again.

ALTER TABLE core.api_key ADD COLUMN roles text[] NOT NULL DEFAULT '{admin}';   -- keys made before roles existed
ALTER TABLE core.api_key ALTER COLUMN roles SET DEFAULT '{}';

CREATE TABLE core.role_binding (
  tenant_id  text COLLATE "C" NOT NULL REFERENCES core.tenant,
  scope_key  bigint NOT NULL DEFAULT 0,
  actor_id   text COLLATE "C" NOT NULL,
  role       text COLLATE "C" NOT NULL CHECK (role IN
    ('reader', 'contributor', 'editor', 'reviewer', 'curator', 'auditor', 'admin', 'platform')),
  bound_by   text COLLATE "C" NOT NULL,
  bound_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, actor_id, scope_key, role)
);

-- Each text is a version of its own; the highest of a scope or tenant is in force.
CREATE TABLE core.access_rules (
  tenant_id     text COLLATE "C" NOT NULL REFERENCES core.tenant,
  scope_key     bigint NOT NULL DEFAULT 0,
  rules_version bigint NOT NULL CHECK (rules_version >= 1),
  text          text NOT NULL,
  policy_basis  text NOT NULL,
  actor_id      text COLLATE "C" NOT NULL,
  changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, scope_key, rules_version)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.access_rules
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();

-- One row: the epochs; the roles of the actors as (actor, role) pairs; the rules in force as (key, text) pairs.
CREATE FUNCTION core.rights_of(tenant text, key bigint, actors text[])
RETURNS TABLE (scope_epoch bigint, tenant_epoch bigint, role_actors text[], roles text[], rule_keys text[], rule_texts text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT coalesce((SELECT h.epoch_authz FROM core.scope_head h WHERE h.scope_key = key), 0),
         t.epoch_authz, b.actors, b.roles, r.keys, r.texts
  FROM core.tenant t
  CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(actor_id ORDER BY actor_id, role), '{}') AS actors,
           coalesce(array_agg(role ORDER BY actor_id, role), '{}') AS roles
    FROM core.role_binding b
    WHERE b.tenant_id = tenant AND b.actor_id = ANY (actors) AND b.scope_key IN (0, key)) b
  CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(concat_ws('/', tenant, scope_key, rules_version) ORDER BY scope_key), '{}') AS keys,
           coalesce(array_agg(text ORDER BY scope_key), '{}') AS texts
    FROM (SELECT DISTINCT ON (scope_key) scope_key, rules_version, text FROM core.access_rules r
          WHERE r.tenant_id = tenant AND r.scope_key IN (0, key)
          ORDER BY scope_key, rules_version DESC) newest
    WHERE text <> '') r
  WHERE t.tenant_id = tenant
$$;

GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.rights_of(text, bigint, text[]) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.rights_of(text, bigint, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.rights_of(text, bigint, text[]) TO pamspec_write, pamspec_query, pamspec_subscription;
GRANT SELECT ON core.tenant, core.role_binding, core.access_rules TO pamspec_resolver;
GRANT SELECT (scope_key, epoch_authz) ON core.scope_head TO pamspec_resolver;
GRANT SELECT, INSERT, DELETE ON core.role_binding TO pamspec_write;
GRANT SELECT, INSERT ON core.access_rules TO pamspec_write;

DROP VIEW core.key_principal;
CREATE VIEW core.key_principal AS
  SELECT key_hash, key_id, tenant_id, actor_id, actor_kind, rights, roles, epoch, expires_at
  FROM core.api_key WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());
GRANT SELECT ON core.key_principal TO pamspec_gateway, pamspec_write;
