-- Checkpoints of the scopes' ledgers: how far each tree has grown, the newest signed checkpoint, and the nodes of every
-- eighth level, from which proofs are made. All of it follows from the ledger; the anchors outside tell when it does not.

CREATE TABLE relay.checkpoint (
  scope_key    bigint PRIMARY KEY,
  partition    smallint NOT NULL,
  size         bigint NOT NULL,       -- entries in the tree
  frontier     bytea NOT NULL,        -- the roots of the complete subtrees at its right edge, lowest first
  ledger_epoch integer NOT NULL,
  document     bytea NOT NULL,        -- the signed checkpoint of this size, as it is anchored and served
  anchored_at  bigint NOT NULL,       -- the sequence of the bucket's message that holds it; not above 0: the bucket has
                                      -- not got it yet, and holds an older one at -anchored_at, or none
  made_at      timestamptz NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE relay.tree_node (
  scope_key bigint NOT NULL,
  height    smallint NOT NULL,        -- 8, 16, 24, ...
  position  bigint NOT NULL,          -- over the entries from position * 2^height + 1 on
  hash      bytea NOT NULL,
  PRIMARY KEY (scope_key, height, position)
);

ALTER TABLE relay.checkpoint ENABLE ROW LEVEL SECURITY;
ALTER TABLE relay.checkpoint FORCE ROW LEVEL SECURITY;
ALTER TABLE relay.tree_node ENABLE ROW LEVEL SECURITY;
ALTER TABLE relay.tree_node FORCE ROW LEVEL SECURITY;
CREATE POLICY relay_keeps ON relay.checkpoint TO pamspec_relay USING (true) WITH CHECK (true);
CREATE POLICY relay_keeps ON relay.tree_node TO pamspec_relay USING (true) WITH CHECK (true);
CREATE POLICY by_scope_keys ON relay.checkpoint FOR SELECT TO pamspec_query
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));
CREATE POLICY by_scope_keys ON relay.tree_node FOR SELECT TO pamspec_query
  USING (scope_key = ANY (((SELECT nullif(current_setting('pamspec.scope_keys', true), '')::bigint[]))::bigint[]));

GRANT SELECT, INSERT, UPDATE, DELETE ON relay.checkpoint, relay.tree_node TO pamspec_relay;
GRANT USAGE ON SCHEMA relay TO pamspec_query;
GRANT SELECT ON relay.checkpoint, relay.tree_node TO pamspec_query;
GRANT SELECT (scope_id, ledger_id) ON core.scope TO pamspec_relay;
