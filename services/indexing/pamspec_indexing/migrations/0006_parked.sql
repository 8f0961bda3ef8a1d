-- What operators see of parked entries and ask for, and no other service: it reads and marks through these functions alone.

ALTER TABLE index_.parked
  ADD COLUMN asked text COLLATE "C" CHECK (asked IN ('replay', 'skip')),  -- what an operator wants done with it
  ADD COLUMN asked_at timestamptz;
CREATE INDEX parked_asked ON index_.parked (asked_at) WHERE asked IS NOT NULL;

-- Entries after a place in the order of (scope key, sequence); of a tenant, and of a scope of it, where they are named.
CREATE FUNCTION index_.parked_entries(tenant text, scope text, after_key bigint, after_sequence bigint, lim integer)
RETURNS TABLE (scope_key bigint, sequence bigint, tenant_id text, scope_id text, event_id text, event_type text,
               reason text, parked_at timestamptz, asked text, asked_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = index_, pg_temp AS $$
  SELECT p.scope_key, p.sequence, s.tenant_id, s.scope_id, p.event_id, p.event_type, p.reason, p.parked_at, p.asked,
         p.asked_at
  FROM index_.parked p JOIN core.scope s ON s.scope_key = p.scope_key
  WHERE (p.scope_key, p.sequence) > (after_key, after_sequence)
    AND (tenant IS NULL OR s.tenant_id = tenant) AND (scope IS NULL OR s.scope_id = scope)
  ORDER BY p.scope_key, p.sequence LIMIT lim
$$;

-- Ask for an entry of a scope, or for all of them, to be replayed or passed over; how many there are.
CREATE FUNCTION index_.ask_parked(key bigint, at bigint, wanted text) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = index_, pg_temp AS $$
  WITH marked AS (
    UPDATE index_.parked p SET asked = wanted, asked_at = clock_timestamp()
    WHERE p.scope_key = key AND (at IS NULL OR p.sequence = at) RETURNING 1)
  SELECT count(*) FROM marked
$$;

GRANT CREATE ON SCHEMA index_ TO pamspec_indexing;
ALTER FUNCTION index_.parked_entries(text, text, bigint, bigint, integer) OWNER TO pamspec_indexing;
ALTER FUNCTION index_.ask_parked(bigint, bigint, text) OWNER TO pamspec_indexing;
-- compatible: the right to create was given above, for the change of owner alone
REVOKE CREATE ON SCHEMA index_ FROM pamspec_indexing;
REVOKE ALL ON FUNCTION index_.parked_entries(text, text, bigint, bigint, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION index_.ask_parked(bigint, bigint, text) FROM PUBLIC;
GRANT USAGE ON SCHEMA index_ TO pamspec_write;
GRANT EXECUTE ON FUNCTION index_.parked_entries(text, text, bigint, bigint, integer),
  index_.ask_parked(bigint, bigint, text) TO pamspec_write;
