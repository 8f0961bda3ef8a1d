-- The trace context of the write that made an entry, so that the relay can put it on the message.

ALTER TABLE relay.outbox ADD COLUMN traceparent text;

-- As relay.read_outbox, which relays of the version before still call, and with the trace context.
CREATE FUNCTION relay.waiting_entries(
  of_partition smallint, under_way bigint[], row_limit integer, lease_epoch bigint, lease_owner text)
RETURNS TABLE (
  id bigint, subject text, event_id text, ledger_epoch integer, sequence bigint, message bytea, traceparent text)
LANGUAGE plpgsql STABLE
SET enable_sort = off SET enable_bitmapscan = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT o.id, o.subject, o.event_id, coalesce(h.ledger_epoch, o.ledger_epoch), o.sequence, o.message, o.traceparent
  FROM (
    SELECT * FROM relay.outbox w
    WHERE w.partition = of_partition AND w.id NOT IN (SELECT unnest(under_way))
      AND EXISTS (
        SELECT FROM relay.lease l
        WHERE l.partition = of_partition AND l.epoch = waiting_entries.lease_epoch AND l.owner = lease_owner)
    ORDER BY w.id LIMIT row_limit) o
  LEFT JOIN core.scope_head h ON h.scope_key = o.scope_key
  ORDER BY o.id;
END $$;
REVOKE ALL ON FUNCTION relay.waiting_entries(smallint, bigint[], integer, bigint, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION relay.waiting_entries(smallint, bigint[], integer, bigint, text) TO pamspec_relay;
