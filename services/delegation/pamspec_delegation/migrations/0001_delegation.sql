-- The delegation service: its role, what its consumer of the ledger keeps, and what was done under each grant.

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pamspec_delegation') THEN
    CREATE ROLE pamspec_delegation LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;

CREATE SCHEMA delegation;
GRANT USAGE ON SCHEMA delegation, core TO pamspec_delegation;

-- Up to where each scope's entries have taken effect. Effect and row change in one transaction: the row is the fence.
CREATE TABLE delegation.inbox (
  scope_key    bigint PRIMARY KEY,
  last_seq     bigint NOT NULL,
  ledger_epoch integer NOT NULL
) WITH (fillfactor = 50);

-- Entries that the effect could not take; it goes on without them until somebody replays them.
CREATE TABLE delegation.parked (
  scope_key  bigint NOT NULL,
  sequence   bigint NOT NULL,
  event_id   text COLLATE "C" NOT NULL,
  event_type text COLLATE "C" NOT NULL,
  reason     text NOT NULL,               -- never content
  parked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope_key, sequence)
);

-- Which process works on which partition. Two that believe they do cost work, never an effect.
CREATE TABLE delegation.lease (
  partition  smallint PRIMARY KEY,
  owner      text NOT NULL,
  expires_at timestamptz NOT NULL
);

-- Processes that live, so that each takes its share.
CREATE TABLE delegation.member (
  owner      text PRIMARY KEY,
  expires_at timestamptz NOT NULL
);

-- What was done under each grant, counted from the ledger: it can always be counted again.
CREATE TABLE delegation.exercise (
  scope_key     bigint NOT NULL,           -- where it was done
  delegation_id text COLLATE "C" NOT NULL,
  operation     text COLLATE "C" NOT NULL,
  times         bigint NOT NULL,
  last_seq      bigint NOT NULL,
  PRIMARY KEY (delegation_id, scope_key, operation)
);
CREATE INDEX exercise_of_scope ON delegation.exercise (scope_key);

GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA delegation TO pamspec_delegation;

-- The consumer finds the scopes of its partitions, by the tokens in subjects too, and reads events; no content.
CREATE INDEX scope_by_token ON core.scope (scope_token);
GRANT SELECT (scope_key, tenant_id, scope_id, tenant_token, scope_token, partition) ON core.scope TO pamspec_delegation;
GRANT SELECT ON core.scope_head, core.ledger, core.tenant TO pamspec_delegation;
CREATE POLICY delegation_reads ON core.scope FOR SELECT TO pamspec_delegation USING (true);
CREATE POLICY delegation_reads ON core.scope_head FOR SELECT TO pamspec_delegation USING (true);
CREATE POLICY delegation_reads ON core.ledger FOR SELECT TO pamspec_delegation USING (true);
GRANT EXECUTE ON FUNCTION core.resolve_scope(text, text), core.rights_of(text, bigint, text[]) TO pamspec_delegation;
