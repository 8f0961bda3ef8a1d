-- What a score is made of is taken from where sealed values come with what opens them.
DO $$
BEGIN
  EXECUTE replace(pg_get_functiondef('retention.facts(bigint,text[],text[],boolean)'::regprocedure),
    'SELECT x.private FROM core.version_private x', 'SELECT x.private FROM core.version_value x');
END $$;
GRANT SELECT ON core.key_encryption_key TO pamspec_retention_sweeper;
