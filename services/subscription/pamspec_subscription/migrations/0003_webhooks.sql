-- Webhooks: where a subscription is posted to, since when that fails, and how the attempts went.

CREATE TABLE subscription.webhook (
  tenant_id        text COLLATE "C" NOT NULL,
  subscription_id  text COLLATE "C" NOT NULL,
  scope_key        bigint NOT NULL,
  url              text NOT NULL,
  secrets          bytea,                       -- JSON, sealed where a key is set; null until shown, and after the end
  resets           integer NOT NULL DEFAULT 0,  -- part of the message ids: what is sent again on purpose is new
  attempts         bigint NOT NULL DEFAULT 0,   -- numbers the log
  failures         integer NOT NULL DEFAULT 0,  -- in a row
  failing_since    timestamptz,
  next_attempt_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  parked           boolean NOT NULL DEFAULT false,
  outcome          text,                        -- of the last failure, and the event that it was about
  status           integer,
  stands_at        bigint,
  stands_at_event  text COLLATE "C",
  PRIMARY KEY (tenant_id, subscription_id),
  FOREIGN KEY (tenant_id, subscription_id) REFERENCES subscription.subscription ON DELETE CASCADE
) WITH (fillfactor = 60);
CREATE INDEX webhook_due ON subscription.webhook (next_attempt_at) WHERE secrets IS NOT NULL;

CREATE TABLE subscription.webhook_delivery (
  scope_key        bigint NOT NULL,
  subscription_id  text COLLATE "C" NOT NULL,
  attempt          bigint NOT NULL,
  at               timestamptz NOT NULL DEFAULT clock_timestamp(),
  outcome          text NOT NULL,
  status           integer,
  latency_ms       integer NOT NULL,
  events           integer NOT NULL,
  first_sequence   bigint NOT NULL,
  last_sequence    bigint NOT NULL,
  PRIMARY KEY (scope_key, subscription_id, attempt)
);
CREATE INDEX webhook_delivery_age ON subscription.webhook_delivery (at);

GRANT SELECT, INSERT, UPDATE, DELETE ON subscription.webhook, subscription.webhook_delivery TO pamspec_subscription;
