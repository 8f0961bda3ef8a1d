-- What administrators did, in order, for good. A scope_key of 0 stands for the whole tenant.
CREATE TABLE core.administration (
  id               bigint GENERATED ALWAYS AS IDENTITY,
  tenant_id        text COLLATE "C" NOT NULL REFERENCES core.tenant,
  scope_key        bigint NOT NULL,
  done_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  operation        text COLLATE "C" NOT NULL,
  operation_id     text COLLATE "C" NOT NULL,
  actor_id         text COLLATE "C" NOT NULL,
  authenticated_as text COLLATE "C",
  policy_basis     text NOT NULL,
  subject          text COLLATE "C",          -- the actor whose role it was
  detail           text COLLATE "C" NOT NULL, -- the role, or the version of the rules
  PRIMARY KEY (tenant_id, scope_key, id)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.administration
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();
GRANT SELECT, INSERT ON core.administration TO pamspec_write;
