-- Durable subscriptions: a filter, a cursor in the ledger of a scope, and who delivers it.

CREATE SCHEMA subscription;
GRANT USAGE ON SCHEMA subscription TO pamspec_subscription;

CREATE TABLE subscription.subscription (
  tenant_id        text COLLATE "C" NOT NULL,
  subscription_id  text COLLATE "C" NOT NULL,
  scope_key        bigint NOT NULL,
  scope_id         text COLLATE "C" NOT NULL,
  principal        bytea NOT NULL,              -- who owns it, with the rights it subscribed with (JSON)
  principal_id     text COLLATE "C" NOT NULL,
  actor            bytea NOT NULL,              -- for whom it was opened: ids alone (JSON)
  state            text NOT NULL CHECK (state IN ('opening', 'open', 'closing', 'closed')),
  channel          text NOT NULL,
  filter           bytea NOT NULL,              -- JSON
  delivery         bytea NOT NULL,              -- JSON, with every default resolved
  include_content  boolean NOT NULL,
  evaluation_run_id text COLLATE "C",
  operation_id     text COLLATE "C" NOT NULL,   -- of the subscribe, for its replay
  idempotency_key  text COLLATE "C" NOT NULL,   -- the operation_id where none was sent
  request_hash     bytea NOT NULL,
  ledger_epoch     integer NOT NULL,            -- when it was opened
  after_sequence   bigint,                      -- as asked for; null: after its own subscription_opened
  start_sequence   bigint NOT NULL DEFAULT 0,
  cursor_sequence  bigint NOT NULL DEFAULT 0,   -- acknowledged: everything up to here
  delivered_sequence bigint NOT NULL DEFAULT 0, -- answered by polls
  channel_sequence bigint NOT NULL DEFAULT 0,   -- sent over a channel; written now and then
  acked_ahead      bigint[] NOT NULL DEFAULT '{}',  -- single acknowledgements beyond the cursor
  opened_sequence  bigint,                      -- of its own subscription_opened
  closed_sequence  bigint,
  closed_reason    text,
  last_delivered_sequence bigint,               -- when it was closed
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  progressed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),  -- of the last acknowledgement, or of a healthy stream
  lease_owner      text,
  lease_expires_at timestamptz,
  channel_epoch    bigint NOT NULL DEFAULT 0,   -- grows when a newer poller or channel takes over
  channel_kind     text,                        -- who holds it under that epoch; null: nobody
  PRIMARY KEY (tenant_id, subscription_id)
) WITH (fillfactor = 60);
CREATE UNIQUE INDEX subscription_operation ON subscription.subscription (scope_key, principal_id, operation_id);
CREATE UNIQUE INDEX subscription_key ON subscription.subscription (scope_key, principal_id, idempotency_key);
CREATE INDEX subscription_by_scope ON subscription.subscription (scope_key) WHERE state <> 'closed';
CREATE INDEX subscription_unfinished ON subscription.subscription (created_at) WHERE state IN ('opening', 'closing');
CREATE INDEX subscription_pushed ON subscription.subscription (created_at)
  WHERE state IN ('open', 'closing') AND channel IN ('nats', 'webhook');

GRANT SELECT, INSERT, UPDATE, DELETE ON subscription.subscription TO pamspec_subscription;

-- One query a second compares the heads of all followed scopes; a head holds positions and epochs, no content.
CREATE POLICY subscription_heads ON core.scope_head FOR SELECT TO pamspec_subscription USING (true);
