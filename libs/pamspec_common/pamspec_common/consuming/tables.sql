-- What a consumer of the ledger keeps in the schema of its service; a migration of the service carries a copy.

-- Up to where each scope's entries have taken effect. Effect and row change in one transaction: the row is the fence.
CREATE TABLE inbox (
  scope_key    bigint PRIMARY KEY,
  last_seq     bigint NOT NULL,
  ledger_epoch integer NOT NULL
) WITH (fillfactor = 50);

-- Entries that the effect could not take; it goes on without them until somebody replays them, or passes over them.
CREATE TABLE parked (
  scope_key  bigint NOT NULL,
  sequence   bigint NOT NULL,
  event_id   text COLLATE "C" NOT NULL,
  event_type text COLLATE "C" NOT NULL,
  reason     text NOT NULL,               -- never content
  parked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  asked      text COLLATE "C" CHECK (asked IN ('replay', 'skip')),  -- what an operator wants done with it
  asked_at   timestamptz,
  PRIMARY KEY (scope_key, sequence)
);
CREATE INDEX parked_asked ON parked (asked_at) WHERE asked IS NOT NULL;

-- Which process works on which partition. Two that believe they do cost work, never an effect.
CREATE TABLE lease (
  partition  smallint PRIMARY KEY,
  owner      text NOT NULL,
  expires_at timestamptz NOT NULL
);

-- Processes that live, so that each takes its share.
CREATE TABLE member (
  owner      text PRIMARY KEY,
  expires_at timestamptz NOT NULL
);
