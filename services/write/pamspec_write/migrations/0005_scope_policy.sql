-- What a scope's policy was and is. Every change is a new version; the current one is the highest.
-- scope_head.rules_version grows with every change of what decides besides a scope's objects: policy, holds, schemas.
-- 0 stands for a scope that never had any of them, so that such a scope costs no look-up.

ALTER TABLE core.scope_head ADD COLUMN rules_version bigint NOT NULL DEFAULT 0;

CREATE TABLE core.scope_policy (
  scope_key        bigint NOT NULL REFERENCES core.scope,
  policy_version   bigint NOT NULL CHECK (policy_version >= 1),
  policy           bytea NOT NULL,              -- JSON, as pamspec:schema:scope-policy
  policy_basis     text,                        -- null for the policy that a scope was made with
  actor_id         text COLLATE "C" NOT NULL,
  authenticated_as text COLLATE "C",            -- the principal that acted for that actor
  operation_id     text COLLATE "C" NOT NULL,
  changed_at       timestamptz NOT NULL,
  PRIMARY KEY (scope_key, policy_version)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.scope_policy
  FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change();

ALTER TABLE core.scope_policy ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.scope_policy FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON core.scope_policy
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));

GRANT SELECT, INSERT ON core.scope_policy TO pamspec_write;
GRANT SELECT ON core.scope_policy TO pamspec_query, pamspec_subscription;
