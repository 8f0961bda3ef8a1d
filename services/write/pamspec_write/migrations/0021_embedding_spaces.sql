-- What vectors of a tenant may be compared: one descriptor for an id, for good, since stored vectors rest on it. The
-- short number stands for it wherever vectors are stored.
CREATE TABLE core.embedding_space (
  space_key          integer GENERATED ALWAYS AS IDENTITY UNIQUE,
  tenant_id          text COLLATE "C" NOT NULL REFERENCES core.tenant,
  embedding_space_id text COLLATE "C" NOT NULL,
  descriptor         text NOT NULL,               -- JSON, contracts/schemas/embedding-space.json
  dimensions         integer NOT NULL CHECK (dimensions BETWEEN 1 AND 16000),
  distance_metric    text COLLATE "C" NOT NULL CHECK (distance_metric IN ('cosine', 'l2', 'inner_product')),
  authenticated_as   text COLLATE "C",
  operation_id       text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, embedding_space_id)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.embedding_space
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();

ALTER TABLE core.embedding_space ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.embedding_space FORCE ROW LEVEL SECURITY;
CREATE POLICY by_tenant ON core.embedding_space
  USING (tenant_id = (SELECT current_setting('pamspec.tenant_id', true))) WITH CHECK (true);
GRANT SELECT, INSERT ON core.embedding_space TO pamspec_write;
GRANT SELECT ON core.embedding_space TO pamspec_query;
