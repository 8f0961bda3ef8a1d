-- The schemas of a scope's content: one document for a schema_id, for good, since stored content rests on it.

CREATE TABLE core.content_schema (
  scope_key        bigint NOT NULL REFERENCES core.scope,
  schema_id        text COLLATE "C" NOT NULL,
  document         bytea NOT NULL,              -- JSON Schema 2020-12
  digest           bytea NOT NULL,              -- SHA-256 of the document
  actor_id         text COLLATE "C" NOT NULL,
  authenticated_as text COLLATE "C",
  operation_id     text COLLATE "C" NOT NULL,
  registered_at    timestamptz NOT NULL,
  PRIMARY KEY (scope_key, schema_id)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.content_schema
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();

ALTER TABLE core.content_schema ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.content_schema FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON core.content_schema
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));

GRANT SELECT, INSERT ON core.content_schema TO pamspec_write;
GRANT SELECT ON core.content_schema TO pamspec_query;
