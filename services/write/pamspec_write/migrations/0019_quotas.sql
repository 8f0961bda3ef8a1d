-- What tenants may take. Each document is a version of its own; the one that the tenant names is in force. Setting one
-- raises the tenant's authorization epoch, so that whatever was decided under the one before it is decided again.
CREATE TABLE core.quotas (
  tenant_id        text COLLATE "C" NOT NULL REFERENCES core.tenant,
  quotas_version   bigint NOT NULL CHECK (quotas_version >= 1),
  quotas           text NOT NULL,               -- JSON, contracts/schemas/quotas.json
  policy_basis     text NOT NULL,
  actor_id         text COLLATE "C" NOT NULL,
  authenticated_as text COLLATE "C",
  operation_id     text COLLATE "C" NOT NULL,
  changed_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, quotas_version)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.quotas
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();

ALTER TABLE core.tenant ADD COLUMN quotas_version bigint NOT NULL DEFAULT 0;

CREATE VIEW core.quotas_in_force AS
  SELECT q.tenant_id, q.quotas_version, q.quotas FROM core.tenant t JOIN core.quotas q USING (tenant_id, quotas_version);

GRANT SELECT, INSERT ON core.quotas TO pamspec_write;
GRANT SELECT ON core.quotas_in_force TO pamspec_gateway, pamspec_write, pamspec_subscription;

-- What a scope has stored: objects and relationships that are not deleted, versions, bytes of content that is not erased.
-- Changed under the scope's lock, with what it counts.
ALTER TABLE core.scope_head
  ADD COLUMN objects       bigint NOT NULL DEFAULT 0,
  ADD COLUMN versions      bigint NOT NULL DEFAULT 0,
  ADD COLUMN content_bytes bigint NOT NULL DEFAULT 0;

-- What a tenant has stored: the sum of its rows. Several, so that commits of one tenant do not wait for one another;
-- who decides by the sum locks them all. A commit that rests on other quotas than the row names finds no row.
CREATE TABLE core.tenant_usage (
  tenant_id      text COLLATE "C" NOT NULL REFERENCES core.tenant,
  shard          smallint NOT NULL CHECK (shard BETWEEN 0 AND 7),
  quotas_version bigint NOT NULL DEFAULT 0,
  objects        bigint NOT NULL DEFAULT 0,
  versions       bigint NOT NULL DEFAULT 0,
  content_bytes  bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, shard)
) WITH (fillfactor = 50);
GRANT SELECT, UPDATE ON core.tenant_usage TO pamspec_write;

CREATE FUNCTION core.begin_usage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp AS $$
BEGIN
  INSERT INTO core.tenant_usage (tenant_id, shard) SELECT NEW.tenant_id, generate_series(0, 7);
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION core.begin_usage() FROM PUBLIC;
CREATE TRIGGER begin_usage AFTER INSERT ON core.tenant FOR EACH ROW EXECUTE FUNCTION core.begin_usage();

-- What is there already; the owner of the tables sees all of it for this long.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['scope', 'scope_head', 'version', 'version_private', 'version_span'] LOOP
    EXECUTE format('ALTER TABLE core.%I NO FORCE ROW LEVEL SECURITY', name);
  END LOOP;
  UPDATE core.scope_head h SET
    objects = (SELECT count(*) FROM core.version_span s
               WHERE s.scope_key = h.scope_key AND s.to_seq = 9223372036854775807 AND s.availability_state <> 'deleted'),
    versions = (SELECT count(*) FROM core.version v WHERE v.scope_key = h.scope_key),
    content_bytes = (SELECT coalesce(sum(octet_length(p.content)), 0) FROM core.version_private p
                     WHERE p.scope_key = h.scope_key)
  WHERE h.last_seq > 0;
  INSERT INTO core.tenant_usage (tenant_id, shard) SELECT tenant_id, generate_series(0, 7) FROM core.tenant;
  UPDATE core.tenant_usage u SET objects = k.objects, versions = k.versions, content_bytes = k.content_bytes
  FROM (SELECT s.tenant_id, sum(h.objects) AS objects, sum(h.versions) AS versions, sum(h.content_bytes) AS content_bytes
        FROM core.scope_head h JOIN core.scope s USING (scope_key) GROUP BY s.tenant_id) k
  WHERE u.tenant_id = k.tenant_id AND u.shard = 0;
  FOREACH name IN ARRAY ARRAY['scope', 'scope_head', 'version', 'version_private', 'version_span'] LOOP
    EXECUTE format('ALTER TABLE core.%I FORCE ROW LEVEL SECURITY', name);
  END LOOP;
END $$;
