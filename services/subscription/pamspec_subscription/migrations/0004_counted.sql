-- Subscriptions that are not closed are counted by tenant and by principal.
CREATE INDEX subscription_counted ON subscription.subscription (tenant_id, principal_id) WHERE state <> 'closed';
