-- Keys that administrators make, replace and end: who made them, when they were used last, and what took their place.
-- Every change that lets a key open less or something else raises one number, so that gateways ask one row whether
-- what they remember still holds.

ALTER TABLE core.api_key
  ADD COLUMN created_by   text COLLATE "C",   -- null: an operator, at the database
  ADD COLUMN request_key  text COLLATE "C",   -- what makes a repetition of its request one
  ADD COLUMN last_used_at timestamptz,        -- noted once a minute at most
  ADD COLUMN replaced_by  text COLLATE "C";   -- the key that was made in its place
CREATE INDEX api_key_tenant ON core.api_key (tenant_id, key_id);
CREATE UNIQUE INDEX api_key_request ON core.api_key (tenant_id, request_key) WHERE request_key IS NOT NULL;

CREATE TABLE core.credential_epoch (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  epoch    bigint NOT NULL DEFAULT 1
);
INSERT INTO core.credential_epoch DEFAULT VALUES;

CREATE FUNCTION core.raise_credential_epoch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp AS $$
BEGIN
  UPDATE core.credential_epoch SET epoch = epoch + 1;
  RETURN NULL;
END $$;

-- For the gateway, which may do this to keys and nothing else.
CREATE FUNCTION core.note_key_use(hashes bytea[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = core, pg_temp AS $$
  UPDATE core.api_key SET last_used_at = clock_timestamp() WHERE key_id IN (
    SELECT k.key_id FROM core.api_key k
    WHERE k.key_hash = ANY (hashes)
      AND (k.last_used_at IS NULL OR k.last_used_at < clock_timestamp() - interval '1 minute')
    ORDER BY k.key_id FOR UPDATE SKIP LOCKED)
$$;

GRANT CREATE ON SCHEMA core TO pamspec_resolver;
ALTER FUNCTION core.raise_credential_epoch() OWNER TO pamspec_resolver;
ALTER FUNCTION core.note_key_use(bytea[]) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA core FROM pamspec_resolver;
REVOKE ALL ON FUNCTION core.raise_credential_epoch(), core.note_key_use(bytea[]) FROM PUBLIC;
GRANT SELECT, UPDATE ON core.credential_epoch TO pamspec_resolver;
GRANT SELECT (key_id, key_hash, last_used_at), UPDATE (last_used_at) ON core.api_key TO pamspec_resolver;
GRANT EXECUTE ON FUNCTION core.note_key_use(bytea[]) TO pamspec_gateway;
GRANT SELECT ON core.credential_epoch TO pamspec_gateway;

CREATE TRIGGER raise_epoch AFTER DELETE OR UPDATE OF key_hash, actor_id, actor_kind, rights, roles, expires_at, revoked_at
  ON core.api_key FOR EACH STATEMENT EXECUTE FUNCTION core.raise_credential_epoch();
