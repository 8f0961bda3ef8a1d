-- Encryption at rest (docs/adr/0014-encryption-at-rest.md): the key of each version, wrapped by a key that the database
-- never sees. Where a version has one, its salt, content and private half are sealed. Nothing changes where it has none.

-- Which key-encryption keys sealed something, each with a proof by which it is known again.
CREATE TABLE core.key_encryption_key (
  kid        text COLLATE "C" PRIMARY KEY,
  proof      bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT ON core.key_encryption_key TO pamspec_query, pamspec_subscription;
GRANT SELECT, INSERT ON core.key_encryption_key TO pamspec_write;

CREATE TABLE core.data_key (
  scope_key  bigint NOT NULL,
  ledger_seq bigint NOT NULL,
  kid        text COLLATE "C" NOT NULL REFERENCES core.key_encryption_key,
  wrapped    bytea NOT NULL,
  PRIMARY KEY (scope_key, ledger_seq)
);
CREATE INDEX data_key_kid ON core.data_key (kid);
ALTER TABLE core.data_key ALTER COLUMN wrapped SET STATISTICS 0;
ALTER TABLE core.data_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.data_key FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON core.data_key
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
GRANT SELECT, INSERT, DELETE ON core.data_key TO pamspec_write;
GRANT SELECT ON core.data_key TO pamspec_query, pamspec_subscription;
INSERT INTO core.page_relation VALUES ('core.data_key');

-- The private half of a sealed version, which queries compare; of others they read it where it is stored.
ALTER TABLE core.version_span ADD COLUMN private jsonb;
ALTER TABLE core.version_span ALTER COLUMN private SET STATISTICS 0;

-- A stored value with all that opens it; pamspec_common.sealing reads it. Without its key it says that one is missing.
CREATE FUNCTION core.carried(part text, key bigint, seq bigint, kid text, wrapped bytea, value bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN kid IS NOT NULL THEN '\x0250414d5345414c'::bytea || convert_to(part, 'UTF8') || int8send(key) || int8send(seq)
      || int4send(octet_length(convert_to(kid, 'UTF8'))) || convert_to(kid, 'UTF8') || wrapped || value
    WHEN part <> 's' AND substring(value FROM 1 FOR 1) = '\x01' THEN
      '\x0250414d5345414c'::bytea || convert_to(part, 'UTF8') || int8send(key) || int8send(seq) || int4send(0)
    ELSE value END
$$;
CREATE VIEW core.version_value WITH (security_invoker = true) AS
  SELECT p.scope_key, p.ledger_seq, p.operation_hash, k.kid IS NOT NULL AS sealed,
    core.carried('s', p.scope_key, p.ledger_seq, k.kid, k.wrapped, p.salt) AS salt,
    core.carried('c', p.scope_key, p.ledger_seq, k.kid, k.wrapped, p.content) AS content,
    core.carried('p', p.scope_key, p.ledger_seq, k.kid, k.wrapped, p.private) AS private
  FROM core.version_private p
  LEFT JOIN core.data_key k ON k.scope_key = p.scope_key AND k.ledger_seq = p.ledger_seq;
GRANT SELECT ON core.version_value TO pamspec_write, pamspec_query, pamspec_subscription;

-- How many bytes of content a stored value stands for.
CREATE FUNCTION core.value_bytes(value bytea) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT octet_length(value) - CASE WHEN substring(value FROM 1 FOR 1) = '\x01' THEN 17 ELSE 0 END
$$;

-- An erasure destroys the version's key, and what queries compared of it, whoever erases.
DROP TRIGGER owe_pages ON core.version_private;
CREATE OR REPLACE FUNCTION core.owe_pages() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp AS $$
BEGIN
  INSERT INTO core.page_debt (scope_key, after_seq)
  SELECT h.scope_key, h.last_seq FROM core.scope_head h
  WHERE h.scope_key = ANY (ARRAY (SELECT DISTINCT g.scope_key FROM gone g));
  IF EXISTS (SELECT FROM core.key_encryption_key) THEN
    DELETE FROM core.data_key k USING kept n
    WHERE n.salt IS NULL AND k.scope_key = n.scope_key AND k.ledger_seq = n.ledger_seq;
    UPDATE core.version_span s SET private = NULL FROM kept n
    WHERE n.salt IS NULL AND s.scope_key = n.scope_key AND s.from_seq = n.ledger_seq AND s.private IS NOT NULL;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER owe_pages AFTER UPDATE ON core.version_private REFERENCING OLD TABLE AS gone NEW TABLE AS kept
  FOR EACH STATEMENT EXECUTE FUNCTION core.owe_pages();
