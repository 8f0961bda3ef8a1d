-- The lowest waiting rows of a partition but those that are under way, with the ledger epoch of now; nothing for a
-- caller without the lease. A function, because its plan must follow the key and stop at the limit whatever statistics
-- say: right after a backlog has come up they know nothing of it, and a sort of the whole backlog for each batch is
-- quadratic.
CREATE FUNCTION relay.read_outbox(
  of_partition smallint, under_way bigint[], row_limit integer, lease_epoch bigint, lease_owner text)
RETURNS TABLE (id bigint, subject text, event_id text, ledger_epoch integer, sequence bigint, message bytea)
LANGUAGE plpgsql STABLE
SET enable_sort = off SET enable_bitmapscan = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT o.id, o.subject, o.event_id, coalesce(h.ledger_epoch, o.ledger_epoch), o.sequence, o.message
  FROM (
    SELECT * FROM relay.outbox w
    WHERE w.partition = of_partition AND w.id NOT IN (SELECT unnest(under_way))
      AND EXISTS (
        SELECT FROM relay.lease l
        WHERE l.partition = of_partition AND l.epoch = read_outbox.lease_epoch AND l.owner = lease_owner)
    ORDER BY w.id LIMIT row_limit) o
  LEFT JOIN core.scope_head h ON h.scope_key = o.scope_key
  ORDER BY o.id;
END $$;
REVOKE ALL ON FUNCTION relay.read_outbox(smallint, bigint[], integer, bigint, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION relay.read_outbox(smallint, bigint[], integer, bigint, text) TO pamspec_relay;
