"""Webhooks: subscriptions that are posted to an endpoint of their owner."""
