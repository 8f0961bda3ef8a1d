"""How much waits for the bus."""

# Rows of the outbox, counted no further than the bound, with the age of the oldest.
OUTBOX_DEPTH_SQL = """
SELECT count(*) AS depth, coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS age
FROM (SELECT created_at FROM relay.outbox LIMIT $1) o
"""
