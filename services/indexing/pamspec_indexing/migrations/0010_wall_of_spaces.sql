-- The query service looks into it too, so it sees the spaces of the scopes that its transaction names, and no others.
ALTER TABLE index_.scope_space ENABLE ROW LEVEL SECURITY;
ALTER TABLE index_.scope_space FORCE ROW LEVEL SECURITY;
CREATE POLICY by_scope_keys ON index_.scope_space USING
  (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
CREATE POLICY finds_work ON index_.scope_space TO pamspec_indexing USING (true);
