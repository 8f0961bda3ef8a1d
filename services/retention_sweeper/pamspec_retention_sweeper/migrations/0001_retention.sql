-- The retention sweeper: its role and its schema. What it knows of objects is when something is due, and no content.

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pamspec_retention_sweeper') THEN
    CREATE ROLE pamspec_retention_sweeper LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;

CREATE SCHEMA retention;
GRANT USAGE ON SCHEMA retention, core TO pamspec_retention_sweeper;

-- Scopes whose policy lets something go: how far their heads were looked at, under which policy, and who works on them.
CREATE TABLE retention.scope (
  scope_key      bigint PRIMARY KEY,
  ledger_epoch   integer NOT NULL,
  policy_version bigint NOT NULL,
  followed_seq   bigint NOT NULL DEFAULT 0,
  leased_until   timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

-- The next step of each object that has one: when it is due, and by which rule.
CREATE TABLE retention.due (
  scope_key  bigint NOT NULL,
  object_id  text COLLATE "C" NOT NULL,
  due_at     timestamptz NOT NULL,
  action     text COLLATE "C" NOT NULL,
  rule       text COLLATE "C" NOT NULL,
  held_up    text COLLATE "C",             -- the code of the error that a try met, never content
  PRIMARY KEY (scope_key, object_id)
);
CREATE INDEX due_next ON retention.due (scope_key, due_at);

-- What was done, counted by rule; each object's own history is in the ledger.
CREATE TABLE retention.tally (
  scope_key bigint NOT NULL,
  action    text COLLATE "C" NOT NULL,
  rule      text COLLATE "C" NOT NULL,
  objects   bigint NOT NULL,
  last_at   timestamptz NOT NULL,
  PRIMARY KEY (scope_key, action, rule)
) WITH (fillfactor = 50);

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['scope', 'due', 'tally']
  LOOP
    EXECUTE format('ALTER TABLE retention.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE retention.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY by_scope_keys ON retention.%I USING
      (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]))$p$, name);
  END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA retention TO pamspec_retention_sweeper;
GRANT EXECUTE ON FUNCTION core.resolve_scope(text, text), core.rights_of(text, bigint, text[]) TO pamspec_retention_sweeper;
