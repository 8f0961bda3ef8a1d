-- compatible: the version before notes reads as it did, and what is taken back here was given here.
-- How often an object was read by its id, counted where a rule asks when it was. The query service gathers and shows it.

ALTER TABLE retention.access ADD COLUMN reads bigint NOT NULL DEFAULT 0;
GRANT SELECT ON retention.access TO pamspec_query;

CREATE FUNCTION retention.note_reads(
  keys bigint[], ids text[], times timestamptz[], lapsed boolean[], counts bigint[]
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = core, pg_temp AS $$
BEGIN
  PERFORM retention.note_reads(keys, ids, times, lapsed);
  UPDATE retention.access a SET reads = a.reads + k.n FROM (
    SELECT s.scope_key, u.id, u.n FROM unnest(keys, ids, counts) AS u (key, id, n)
    JOIN retention.scope s ON s.scope_key = u.key AND s.counts_reads) k
  WHERE a.scope_key = k.scope_key AND a.object_id = k.id;
END $$;
GRANT CREATE ON SCHEMA retention TO pamspec_retention_sweeper;
ALTER FUNCTION retention.note_reads(bigint[], text[], timestamptz[], boolean[], bigint[])
  OWNER TO pamspec_retention_sweeper;
REVOKE CREATE ON SCHEMA retention FROM pamspec_retention_sweeper;
REVOKE ALL ON FUNCTION retention.note_reads(bigint[], text[], timestamptz[], boolean[], bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION retention.note_reads(bigint[], text[], timestamptz[], boolean[], bigint[]) TO pamspec_query;
