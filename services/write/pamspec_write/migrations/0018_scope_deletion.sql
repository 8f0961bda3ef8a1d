-- Scopes that were deleted and tenants that were suspended or taken off. What was decided stands in one row from its
-- commit on; a job then erases, in bounded steps, and the row says how far it is.

ALTER TABLE core.tenant
  ADD COLUMN state text COLLATE "C" NOT NULL DEFAULT 'active'
    CHECK (state IN ('active', 'suspended', 'offboarding', 'offboarded')),
  ADD COLUMN state_at timestamptz NOT NULL DEFAULT clock_timestamp();

CREATE TABLE core.scope_deletion (
  scope_key        bigint PRIMARY KEY REFERENCES core.scope,
  actor_id         text COLLATE "C" NOT NULL,
  operation_id     text COLLATE "C" NOT NULL,
  policy_basis     text NOT NULL,
  requested_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  done_seq         bigint NOT NULL DEFAULT 0,   -- versions up to this ledger sequence are erased
  erased_versions  bigint NOT NULL DEFAULT 0,
  finished_at      timestamptz,
  leased_until     timestamptz NOT NULL DEFAULT '-infinity'
);
CREATE INDEX scope_deletion_open ON core.scope_deletion (leased_until) WHERE finished_at IS NULL;

ALTER TABLE core.scope_deletion ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.scope_deletion FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON core.scope_deletion
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
CREATE POLICY resolver ON core.scope_deletion FOR SELECT TO pamspec_resolver USING (true);
CREATE POLICY subscription_sees ON core.scope_deletion FOR SELECT TO pamspec_subscription USING (true);
GRANT SELECT, INSERT ON core.scope_deletion TO pamspec_write;
GRANT UPDATE (done_seq, erased_versions, finished_at, leased_until) ON core.scope_deletion TO pamspec_write;
GRANT SELECT ON core.scope_deletion TO pamspec_resolver, pamspec_query;
GRANT SELECT (scope_key) ON core.scope_deletion TO pamspec_subscription;

-- What a hold covers is found without reading the scope; what made no version, without reading every record.
CREATE INDEX version_span_on_hold ON core.version_span (scope_key)
  WHERE retention_state = 'legal_hold' AND to_seq = 9223372036854775807;
CREATE INDEX operation_record_unversioned ON core.operation_record (scope_key) WHERE ledger_seq IS NULL;

-- Rules, policies and schemas are for good, until their scope or tenant is gone.
CREATE FUNCTION core.refuse_unless_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = OLD.scope_key) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION '% accepts INSERT only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE FUNCTION core.refuse_unless_off() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = OLD.scope_key)
    OR EXISTS (SELECT FROM core.tenant t WHERE t.tenant_id = OLD.tenant_id AND t.state IN ('offboarding', 'offboarded'))
  THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION '% accepts INSERT only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['scope_policy', 'content_schema', 'access_rules']
  LOOP
    EXECUTE format('DROP TRIGGER insert_only ON core.%I', name);
    EXECUTE format('CREATE TRIGGER insert_only BEFORE UPDATE OR TRUNCATE ON core.%I
      FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change()', name);
    EXECUTE format('CREATE TRIGGER kept BEFORE DELETE ON core.%I FOR EACH ROW EXECUTE FUNCTION core.%I()', name,
      CASE name WHEN 'access_rules' THEN 'refuse_unless_off' ELSE 'refuse_unless_deleted' END);
  END LOOP;
END $$;
GRANT DELETE ON core.scope_policy, core.content_schema, core.access_rules, core.legal_hold TO pamspec_write;

-- In a deleted scope everything is forbidden but to verify what is left of the ledger, to those who administer or audit;
-- in a tenant that is not active everything.
CREATE OR REPLACE FUNCTION core.rights_of(tenant text, key bigint, actors text[])
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
    SELECT coalesce(array_agg(name ORDER BY scope_key), '{}') AS keys,
           coalesce(array_agg(text ORDER BY scope_key), '{}') AS texts
    FROM (
      SELECT scope_key, concat_ws('/', tenant, scope_key, rules_version) AS name, text FROM (
        SELECT DISTINCT ON (scope_key) scope_key, rules_version, text FROM core.access_rules r
        WHERE r.tenant_id = tenant AND r.scope_key IN (0, key)
        ORDER BY scope_key, rules_version DESC) newest
      WHERE text <> ''
      UNION ALL
      SELECT -1, 'tenant-not-active', '@id("tenant-not-active") forbid (principal, action, resource);'
      WHERE t.state <> 'active'
      UNION ALL
      SELECT -2, 'scope-deleted', '@id("scope-deleted") forbid (principal, action, resource) unless '
        || '{ action == Action::"verify" && principal.roles.containsAny(["admin", "auditor"]) };'
      WHERE EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = key)) inforce) r
  WHERE t.tenant_id = tenant
$$;

CREATE OR REPLACE VIEW core.key_principal AS
  SELECT k.key_hash, k.key_id, k.tenant_id, k.actor_id, k.actor_kind, k.rights, k.roles, k.epoch, k.expires_at
  FROM core.api_key k JOIN core.tenant t ON t.tenant_id = k.tenant_id AND t.state = 'active'
  WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());
CREATE TRIGGER raise_epoch AFTER UPDATE OF state ON core.tenant
  FOR EACH STATEMENT EXECUTE FUNCTION core.raise_credential_epoch();

-- Which scopes the job has to erase, over all tenants: where they are, and nothing of what they hold.
CREATE FUNCTION core.deletions_due(lim integer) RETURNS TABLE (scope_key bigint, tenant_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT d.scope_key, s.tenant_id FROM core.scope_deletion d JOIN core.scope s USING (scope_key)
  WHERE d.finished_at IS NULL AND d.leased_until < clock_timestamp() ORDER BY d.leased_until, d.scope_key LIMIT lim
$$;
-- Scopes of tenants on their way out that are not deleted yet.
CREATE FUNCTION core.offboarding_due(tenant text, after_key bigint, lim integer) RETURNS TABLE (scope_key bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT s.scope_key FROM core.scope s
  WHERE s.tenant_id = tenant AND s.scope_key > after_key
    AND NOT EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = s.scope_key)
  ORDER BY s.scope_key LIMIT lim
$$;
CREATE FUNCTION core.tenant_counts(tenant text)
RETURNS TABLE (scopes bigint, scopes_deleted bigint, scopes_erased bigint, scopes_on_hold bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT count(*), count(d.scope_key), count(d.finished_at), count(*) FILTER (WHERE
      EXISTS (SELECT FROM core.legal_hold l WHERE l.scope_key = s.scope_key AND NOT l.undone)
      OR EXISTS (SELECT FROM core.version_span v WHERE v.scope_key = s.scope_key
        AND v.retention_state = 'legal_hold' AND v.to_seq = 9223372036854775807))
  FROM core.scope s LEFT JOIN core.scope_deletion d USING (scope_key) WHERE s.tenant_id = tenant
$$;
GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.deletions_due(integer) OWNER TO pamspec_resolver;
ALTER FUNCTION core.offboarding_due(text, bigint, integer) OWNER TO pamspec_resolver;
ALTER FUNCTION core.tenant_counts(text) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.deletions_due(integer), core.offboarding_due(text, bigint, integer), core.tenant_counts(text)
  FROM PUBLIC;
GRANT EXECUTE ON FUNCTION core.deletions_due(integer), core.offboarding_due(text, bigint, integer), core.tenant_counts(text)
  TO pamspec_write;
GRANT SELECT (scope_key, to_seq, retention_state) ON core.version_span TO pamspec_resolver;
CREATE POLICY resolver ON core.version_span FOR SELECT TO pamspec_resolver USING (true);
