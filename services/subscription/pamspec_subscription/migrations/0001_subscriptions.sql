-- Durable subscriptions: a filter, a cursor in the ledger of a scope, and who delivers it.

CREATE SCHEMA subscription;
GRANT USAGE ON SCHEMA subscription TO pamspec_subscription;

CREATE TABLE subscription.subscription (
  tenant_id        text COLLATE "C" NOT NULL,
  subscription_id  text COLLATE "C" NOT NULL,
  scope_key        bigint NOT NULL,
  scope_id         text COLLATE "C" NOT NULL,
  principal_id     text COLLATE "C" NOT NULL,   -- the principal that owns it
  state            text NOT NULL CHECK (state IN ('opening', 'open', 'closing', 'closed')),
  channel          text NOT NULL,
  descriptor       bytea NOT NULL,              -- the subscription as answered (JSON of the subscription schema)
  options          bytea NOT NULL,              -- include_content, webhook, limits (JSON)
  operation_id     text COLLATE "C" NOT NULL,   -- of the subscribe, for its replay
  request_hash     bytea NOT NULL,
  ledger_epoch     integer NOT NULL,
  start_sequence   bigint NOT NULL,
  cursor_sequence  bigint NOT NULL,             -- acknowledged: everything up to here
  delivered_sequence bigint NOT NULL,
  acked_ahead      bigint[] NOT NULL DEFAULT '{}',  -- single acknowledgements beyond the cursor
  opened_sequence  bigint,                      -- of its own subscription_opened
  closed_sequence  bigint,
  closed_reason    text,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  progressed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),  -- of the last acknowledgement
  lease_owner      text,
  lease_expires_at timestamptz,
  channel_epoch    bigint NOT NULL DEFAULT 0,   -- grows when a newer poller or channel takes over
  PRIMARY KEY (tenant_id, subscription_id)
);
CREATE INDEX subscription_by_scope ON subscription.subscription (scope_key) WHERE state <> 'closed';
CREATE INDEX subscription_unfinished ON subscription.subscription (created_at) WHERE state IN ('opening', 'closing');
CREATE INDEX subscription_pushed ON subscription.subscription (channel) WHERE state = 'open' AND channel IN ('nats', 'webhook');

GRANT SELECT, INSERT, UPDATE ON subscription.subscription TO pamspec_subscription;
