-- Roles, tenants, keys and scopes. One login role per service; what a role may see of a scope's rows is decided by
-- row-level security on pamspec.scope_keys, which a transaction sets before it reads or writes.

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['pamspec_write', 'pamspec_relay', 'pamspec_query', 'pamspec_subscription', 'pamspec_gateway']
  LOOP
    BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
        EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', name);
      END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
  END LOOP;
  BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pamspec_resolver') THEN
      CREATE ROLE pamspec_resolver NOLOGIN NOSUPERUSER NOBYPASSRLS;
    END IF;
  EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
  END;
END $$;

CREATE SCHEMA core;
GRANT USAGE ON SCHEMA core TO pamspec_write, pamspec_relay, pamspec_query, pamspec_subscription, pamspec_gateway, pamspec_resolver;

CREATE TABLE core.tenant (
  tenant_id   text COLLATE "C" PRIMARY KEY,
  epoch_authz bigint NOT NULL DEFAULT 1,
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE core.api_key (
  key_id     text COLLATE "C" PRIMARY KEY,
  tenant_id  text COLLATE "C" NOT NULL REFERENCES core.tenant,
  key_hash   bytea NOT NULL UNIQUE,
  actor_id   text NOT NULL,
  actor_kind text NOT NULL,
  rights     text[] NOT NULL DEFAULT '{}',
  epoch      bigint NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz
);

-- All that the public door may know of keys.
CREATE VIEW core.key_principal AS
  SELECT key_hash, key_id, tenant_id, actor_id, actor_kind, rights, epoch, expires_at
  FROM core.api_key WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());

CREATE SEQUENCE core.scope_key;

CREATE TABLE core.scope (
  scope_key    bigint PRIMARY KEY,
  tenant_id    text COLLATE "C" NOT NULL REFERENCES core.tenant,
  scope_id     text COLLATE "C" NOT NULL,
  tenant_token text NOT NULL,
  scope_token  text NOT NULL,
  partition    smallint NOT NULL,   -- stored for good: never recomputed when the number of partitions changes
  document     bytea NOT NULL,      -- the scope as every door answers it (JSON)
  ledger_id    bytea NOT NULL,      -- 16 random bytes: the root of the hash chain
  created_at   timestamptz NOT NULL,
  UNIQUE (tenant_id, scope_id)
);

CREATE TABLE core.scope_head (
  scope_key    bigint PRIMARY KEY REFERENCES core.scope,
  revision     bigint NOT NULL DEFAULT 0,   -- grows with every transaction that writes anything of the scope
  last_seq     bigint NOT NULL DEFAULT 0,
  last_hash    bytea NOT NULL,
  last_at      timestamptz NOT NULL,
  ledger_epoch integer NOT NULL DEFAULT 1,
  epoch_authz  bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 50);

-- (tenant, scope id) -> scope, for a caller that has authenticated the tenant; the only way around the scope policy.
CREATE FUNCTION core.resolve_scope(tenant text, scope text)
RETURNS TABLE (scope_key bigint, tenant_token text, scope_token text, partition smallint, ledger_id bytea, document bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT s.scope_key, s.tenant_token, s.scope_token, s.partition, s.ledger_id, s.document
  FROM core.scope s WHERE s.tenant_id = tenant AND s.scope_id = scope
$$;

-- A tenant's scopes in order of their ids, after a given id; `lim` rows at most.
CREATE FUNCTION core.list_scopes(tenant text, after_id text, lim integer)
RETURNS TABLE (scope_key bigint, scope_id text, document bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT s.scope_key, s.scope_id, s.document
  FROM core.scope s WHERE s.tenant_id = tenant AND s.scope_id > after_id ORDER BY s.scope_id LIMIT lim
$$;

DO $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT pamspec_resolver TO %I', current_user);
  END IF;
END $$;
GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.resolve_scope(text, text) OWNER TO pamspec_resolver;
ALTER FUNCTION core.list_scopes(text, text, integer) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.resolve_scope(text, text), core.list_scopes(text, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.resolve_scope(text, text), core.list_scopes(text, text, integer)
  TO pamspec_write, pamspec_query, pamspec_subscription;

ALTER TABLE core.scope ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.scope FORCE ROW LEVEL SECURITY;
ALTER TABLE core.scope_head ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.scope_head FORCE ROW LEVEL SECURITY;

-- The sub-select is evaluated once per statement instead of once per row.
CREATE POLICY by_scope_keys ON core.scope
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
CREATE POLICY resolver ON core.scope FOR SELECT TO pamspec_resolver USING (true);
CREATE POLICY by_scope_keys ON core.scope_head
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));

GRANT SELECT ON core.scope TO pamspec_resolver;
GRANT SELECT ON core.key_principal TO pamspec_gateway, pamspec_write;
GRANT SELECT, INSERT, UPDATE ON core.tenant, core.api_key TO pamspec_write;
GRANT SELECT ON core.tenant TO pamspec_query, pamspec_subscription;
GRANT USAGE ON SEQUENCE core.scope_key TO pamspec_write;
GRANT SELECT, INSERT ON core.scope TO pamspec_write;
GRANT SELECT, INSERT, UPDATE ON core.scope_head TO pamspec_write;
GRANT SELECT ON core.scope, core.scope_head TO pamspec_query, pamspec_subscription;
