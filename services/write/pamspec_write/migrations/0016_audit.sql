-- Refusals beside what was done, and under which version of the rules: an administrator's change names the authorization
-- epochs of tenant and scope that it brought into force, a refusal has none.
ALTER TABLE core.administration
  ADD COLUMN outcome        text COLLATE "C" NOT NULL DEFAULT 'done' CHECK (outcome IN ('done', 'denied')),
  ADD COLUMN occurrences    bigint NOT NULL DEFAULT 1 CHECK (occurrences >= 1),
  ADD COLUMN policy_version text COLLATE "C";   -- <tenant epoch>.<scope epoch>
CREATE INDEX administration_by_actor ON core.administration (tenant_id, scope_key, actor_id, id);
