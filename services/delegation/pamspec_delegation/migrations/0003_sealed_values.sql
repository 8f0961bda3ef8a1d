-- Records of grants take their private halves from where sealed ones come with what opens them.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['delegation.facts(text,text,text)', 'delegation.records(bigint[],text[])']
  LOOP
    EXECUTE replace(pg_get_functiondef(name::regprocedure), 'core.version_private p ', 'core.version_value p ');
  END LOOP;
END $$;
GRANT SELECT ON core.key_encryption_key TO pamspec_delegation;
