-- Imports: what a scope was taken from.

-- An import into a scope that is empty gives it the ledger of the file.
GRANT UPDATE (document, ledger_id) ON core.scope TO pamspec_write;

-- What a scope was imported from: the same file again is the same answer.
CREATE TABLE core.scope_import (
  scope_key      bigint PRIMARY KEY REFERENCES core.scope,
  digest         bytea NOT NULL,      -- of the file
  ledger_id      bytea NOT NULL,      -- of the ledger in the file; the scope's own unless it was remapped
  remapped       boolean NOT NULL,
  last_seq       bigint NOT NULL,     -- the last entry that was imported
  answer         bytea NOT NULL,
  imported_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE core.scope_import ENABLE ROW LEVEL SECURITY;
ALTER TABLE core.scope_import FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON core.scope_import
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
GRANT SELECT, INSERT ON core.scope_import TO pamspec_write;
