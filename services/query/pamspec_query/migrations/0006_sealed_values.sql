-- A read by id takes values from where sealed ones come with what opens them.
DO $$
DECLARE
  text text := pg_get_functiondef('query.read_heads(bigint[],text[],text,bigint)'::regprocedure);
BEGIN
  IF text NOT LIKE '%core.version_private p %' THEN
    RAISE EXCEPTION 'query.read_heads reads values in another way';
  END IF;
  EXECUTE replace(text, 'core.version_private p ', 'core.version_value p ');
END $$;
