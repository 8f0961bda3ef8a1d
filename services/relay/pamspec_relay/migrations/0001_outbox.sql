-- The outbox that write fills and relay drains, and what the relay knows of its partitions.

CREATE SCHEMA relay;
GRANT USAGE ON SCHEMA relay TO pamspec_relay, pamspec_write;

CREATE TABLE relay.outbox (
  id           bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
  partition    smallint NOT NULL,
  scope_key    bigint NOT NULL,
  sequence     bigint NOT NULL,
  event_id     text COLLATE "C" NOT NULL,
  ledger_epoch integer NOT NULL,
  subject      text NOT NULL,
  message      bytea NOT NULL,     -- ready to publish: the event's one byte form
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (partition, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, fillfactor = 100);

-- One owner per partition; every statement of an owner carries the epoch of its lease.
CREATE TABLE relay.lease (
  partition  smallint PRIMARY KEY,
  owner      text NOT NULL,
  epoch      bigint NOT NULL,
  expires_at timestamptz NOT NULL
);

-- Up to where the stream is known to hold what the outbox no longer does.
CREATE TABLE relay.position (
  partition      smallint PRIMARY KEY,
  lease_epoch    bigint NOT NULL,
  stream_created text NOT NULL,
  stream_seq     bigint NOT NULL,
  updated_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

GRANT SELECT, DELETE ON relay.outbox TO pamspec_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON relay.lease, relay.position TO pamspec_relay;
GRANT INSERT ON relay.outbox TO pamspec_write;
-- For the bound on the outbox and for readiness: how much waits, no message.
GRANT SELECT (partition, id, created_at) ON relay.outbox TO pamspec_write, pamspec_subscription;
