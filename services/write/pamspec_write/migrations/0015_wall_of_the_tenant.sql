-- The second wall for what belongs to a whole tenant: roles, rules and the record of administration are read for the
-- tenant that the transaction names. Rows are written with the tenant in them, so only reading asks.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['role_binding', 'access_rules', 'administration']
  LOOP
    EXECUTE format('ALTER TABLE core.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE core.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY by_tenant ON core.%I
      USING (tenant_id = (SELECT current_setting('pamspec.tenant_id', true))) WITH CHECK (true)$p$, name);
  END LOOP;
END $$;
CREATE POLICY resolver ON core.role_binding FOR SELECT TO pamspec_resolver USING (true);
CREATE POLICY resolver ON core.access_rules FOR SELECT TO pamspec_resolver USING (true);
