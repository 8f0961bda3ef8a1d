-- When a subscription's state changed last: what was interrupted is found by it.

ALTER TABLE subscription.subscription ADD COLUMN changed_at timestamptz NOT NULL DEFAULT clock_timestamp();
DROP INDEX subscription.subscription_unfinished;
CREATE INDEX subscription_unfinished ON subscription.subscription (changed_at) WHERE state IN ('opening', 'closing');
