-- Subscriptions under a grant are looked at now and then whether somebody receives from them or not.

ALTER TABLE subscription.subscription ADD COLUMN delegation_id text COLLATE "C";
CREATE INDEX subscription_delegated ON subscription.subscription (subscription_id)
  WHERE state = 'open' AND delegation_id IS NOT NULL;
