-- Of these scopes those whose rules ask when something was read.
CREATE FUNCTION retention.counting(keys bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = core, pg_temp AS $$
  SELECT array_agg(s.scope_key) FROM retention.scope s WHERE s.scope_key = ANY (keys) AND s.counts_reads
$$;
GRANT CREATE ON SCHEMA retention TO pamspec_resolver;
ALTER FUNCTION retention.counting(bigint[]) OWNER TO pamspec_resolver;
REVOKE CREATE ON SCHEMA retention FROM pamspec_resolver;
REVOKE ALL ON FUNCTION retention.counting(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION retention.counting(bigint[]) TO pamspec_query;
