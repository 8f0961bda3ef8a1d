-- What tells a purge from expiry, and how several relays share the partitions.

-- Loss up to here has been repaired: removed from the front, and missing in between.
ALTER TABLE relay.position
  ADD COLUMN first_seq bigint NOT NULL DEFAULT 0,
  ADD COLUMN deleted   bigint NOT NULL DEFAULT 0;

-- At `marked_at` the stream had come to `stream_seq`: whatever lies beyond was stored later and can't have expired
-- before `marked_at` + max_age.
CREATE TABLE relay.mark (
  partition      smallint NOT NULL,
  marked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  stream_created text NOT NULL,
  stream_seq     bigint NOT NULL,
  PRIMARY KEY (partition, marked_at)
);

-- Relay processes that live, so that each takes its share of the partitions.
CREATE TABLE relay.member (
  owner      text PRIMARY KEY,
  expires_at timestamptz NOT NULL
);

GRANT SELECT, INSERT, UPDATE, DELETE ON relay.mark, relay.member TO pamspec_relay;
