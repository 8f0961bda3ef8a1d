-- The sweeper has pages rewritten that erasures made due: it may name relations of one list, and reads none of them.
GRANT EXECUTE ON FUNCTION core.pages_due(), core.rewrite_pages(text), core.debts_underived(),
  core.note_derived(bigint[], bigint[]), core.page_bytes(bigint, bigint), core.page_relations()
  TO pamspec_retention_sweeper;
GRANT SELECT ON core.page_debt, core.page_rewrite, core.page_relation TO pamspec_retention_sweeper;

-- How far the derived indexes are with these scopes, which the transaction names. A deleted scope is taken in once
-- nothing of it is left there, and where nothing was ever indexed there is nothing to take in.
CREATE FUNCTION index_.taken_in(keys bigint[]) RETURNS TABLE (scope_key bigint, last_seq bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = index_, pg_temp AS $$
  SELECT k, CASE
      WHEN NOT EXISTS (SELECT FROM index_.inbox) AND NOT EXISTS (SELECT FROM index_.member) THEN 9223372036854775807
      WHEN NOT EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = k) THEN coalesce(i.last_seq, 0)
      WHEN EXISTS (SELECT FROM index_.indexed_object o WHERE o.scope_key = k AND NOT o.removed) THEN 0
      ELSE 9223372036854775807 END
  FROM unnest(keys) k LEFT JOIN index_.inbox i ON i.scope_key = k
$$;
DO $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT pamspec_indexing TO %I', current_user);
  END IF;
END $$;
GRANT CREATE ON SCHEMA index_ TO pamspec_indexing;
ALTER FUNCTION index_.taken_in(bigint[]) OWNER TO pamspec_indexing;
REVOKE CREATE ON SCHEMA index_ FROM pamspec_indexing;
REVOKE ALL ON FUNCTION index_.taken_in(bigint[]) FROM PUBLIC;
GRANT USAGE ON SCHEMA index_ TO pamspec_retention_sweeper;
GRANT EXECUTE ON FUNCTION index_.taken_in(bigint[]) TO pamspec_retention_sweeper;
