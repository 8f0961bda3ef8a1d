"""Every metric of every service; docs/operations/metrics.md says what each is good for."""

from __future__ import annotations

from pamspec_common.telemetry.instruments import OPEN, SERVICES, SIZES, Distribution, Tally, counter, gauge, level

_CONSUMERS = ("delegation", "indexing")
_CHANNELS = ("sse", "websocket", "nats", "webhook")
_DENYING = ("write", "query", "subscription")
_LIMITS = ("principal.requests_per_s", "tenant.requests_per_s", "tenant.concurrency", "tenant.channels")
_STEPS = ("delete", "mark_for_deletion", "expire", "redact_versions", "archive", "retain")
_ATTEMPTS = (
    "delivered",
    "failed",
    "gone",
    "redirected",
    "refused",
    "no_address",
    "timed_out",
    "tls_failed",
    "unreachable",
)
_ALARMS = (
    "loss",
    "stream_drift",
    "halted",
    "outbox",
    "checkpoint_anchor_lost",
    "checkpoint_bucket_lost",
    "checkpoint_refused",
    "erasure_log",
)
_ENDS = ("gone", "replaced", "shutdown", "too_slow", "idle", "outdated", "closed")
_CLOSES = ("unsubscribed", "authorization_revoked", "scope_deleted", "unacknowledged", "endpoint_gone")

# The door
REQUESTS = counter(
    "pamspec_gateway_requests", "Requests, by operation and status", "gateway", operation=OPEN, status=OPEN
)
REQUEST_SECONDS = Distribution(
    "pamspec_gateway_request_seconds", "From a request's arrival to its answer", "gateway", operation=OPEN
)
UNDER_WAY = gauge(
    "pamspec_gateway_under_way", "Under way now, by kind", "gateway", kind=("requests", "waiting", "body_bytes")
)
LIMITED = counter("pamspec_gateway_limited", "Requests refused by a limit, by its name", "gateway", limit=_LIMITS)
BUDGET_LEFT = gauge(
    "pamspec_gateway_budget_left", "Smallest share left of a rate's burst", "gateway", of=("tenant", "principal")
)
LIMITS_SHARED = gauge("pamspec_gateway_limits_shared", "1 while gateways share their limits", "gateway")
DENIALS = Tally(
    "pamspec_denials",
    "Refusals of access, by what became of their entries",
    *_DENYING,
    service=OPEN,
    outcome=("recorded", "lost"),
)

# Writing
COMMANDS = Tally("pamspec_write_commands", "Commands answered, by outcome", "write", operation=OPEN, outcome=OPEN)
BATCHES = counter("pamspec_write_batches", "Group commits, by result", "write", result=("committed", "lost", "failed"))
BATCH_SECONDS = Distribution("pamspec_write_batch_seconds", "Time of a group commit", "write")
BATCH_COMMANDS = Distribution(
    "pamspec_write_batch_commands", "Commands that one group commit carried", "write", bounds=SIZES
)
LEDGER_ENTRIES = Tally("pamspec_write_ledger_entries", "Ledger entries committed", "write", partition=OPEN)
VERSION_CONFLICTS = counter("memory_version_conflicts", "Commands refused as stale", "write", operation=OPEN)
WRITE_OUTBOX_DEPTH = gauge("pamspec_write_outbox_depth", "Rows waiting for the bus, counted to the bound", "write")
WRITE_OUTBOX_AGE = gauge("pamspec_write_outbox_age_seconds", "Age of the oldest row that waits for the bus", "write")
HOLDS_UNDER_WAY = gauge("pamspec_holds_under_way", "Holds whose objects are still moved, counted to 16", "write")
HOLD_OBJECTS = counter(
    "pamspec_hold_objects",
    "Objects that the job of holds moved, or was refused",
    "write",
    move=("hold_object", "let_go"),
    outcome=("done", "refused"),
)

# From the outbox to the bus
OUTBOX_DEPTH = gauge("pamspec_outbox_depth", "Rows waiting for the bus", "relay", partition=OPEN)
OUTBOX_AGE = gauge("pamspec_outbox_age_seconds", "Age of the oldest waiting row", "relay", partition=OPEN)
RELAYED = counter("pamspec_relay_events", "Events stored in the stream", "relay", partition=OPEN)
RELAY_BATCH_EVENTS = Distribution("pamspec_relay_batch_events", "Events that one batch carried", "relay", bounds=SIZES)
RELAY_BATCH_SECONDS = Distribution(
    "pamspec_relay_batch_seconds", "From sending a batch to its acknowledgement", "relay"
)
RELAY_RESYNCS = counter("pamspec_relay_resyncs", "Windows dropped and read back", "relay", partition=OPEN)
RELAY_REPAIRED = counter("pamspec_relay_repaired", "Events refilled from the ledger", "relay", partition=OPEN)
RELAY_ALARMS = counter("pamspec_relay_alarms", "What an operator should look at", "relay", kind=_ALARMS)
RELAY_OWNED = gauge("pamspec_relay_owned", "1 where this process owns the partition", "relay", partition=OPEN)
RELAY_LEASE_EPOCH = gauge(
    "pamspec_relay_lease_epoch", "Epoch of the lease under which the partition was taken last", "relay", partition=OPEN
)
STREAM_SEQUENCE = gauge("pamspec_relay_stream_sequence", "Up to where the stream is settled", "relay", partition=OPEN)
CHECKPOINTS = counter("pamspec_checkpoints", "Signed checkpoints of ledgers", "relay", partition=OPEN)

# Services that consume the ledger
CONSUMED = counter("pamspec_consumer_events", "Ledger entries that took effect", *_CONSUMERS, service=OPEN)
CONSUMER_DROPPED = counter("pamspec_consumer_dropped", "Messages of the bus without news", *_CONSUMERS, service=OPEN)
CONSUMER_REFILLED = counter("pamspec_consumer_refilled", "Entries read from the ledger", *_CONSUMERS, service=OPEN)
CONSUMER_PARKED = counter("pamspec_consumer_parked", "Entries that an effect could not take", *_CONSUMERS, service=OPEN)
CONSUMER_PARKED_NOW = gauge("pamspec_consumer_parked_entries", "Entries parked now", *_CONSUMERS, service=OPEN)
CONSUMER_LAG = gauge(
    "pamspec_consumer_lag",
    "Entries not yet taken in, at the last comparison",
    *_CONSUMERS,
    service=OPEN,
    partition=OPEN,
)
CONSUMER_OWNED = gauge(
    "pamspec_consumer_owned", "1 where this process owns the partition", *_CONSUMERS, service=OPEN, partition=OPEN
)
CONSUMER_SEQUENCE = gauge(
    "pamspec_consumer_stream_sequence", "Up to where the stream took effect", *_CONSUMERS, service=OPEN, partition=OPEN
)

# Indexes
INDEX_LAG = gauge("pamspec_index_lag_seconds", "Age of the oldest entry beyond a watermark", "indexing")
INDEX_LAG_EVENTS = gauge("pamspec_index_lag_events", "Entries that are not indexed yet", "indexing")
_INDEXES = ("index:lexical", "index:vectors")
INDEXED = counter("pamspec_index_objects", "Objects indexed or removed", "indexing", index=_INDEXES)
INDEX_TRUNCATED = counter("pamspec_index_truncated", "Objects of which a part is indexed", "indexing", index=_INDEXES)
INDEX_UNREADABLE = counter("pamspec_index_unreadable", "Contents that could not be read", "indexing")
INDEX_JOB_OBJECTS = counter(
    "pamspec_index_job_objects",
    "Objects that jobs went through",
    "indexing",
    index=_INDEXES,
    kind=("rebuild", "verify"),
)

# Delegation
DELEGATION_CHECKS = Tally(
    "pamspec_delegation_checks",
    "Checks of grants: repeated from what is kept, decided, or refused",
    "delegation",
    result=("kept", "decided", "consumed", "refused"),
)
DELEGATION_CHECK_SECONDS = Distribution("pamspec_delegation_check_seconds", "Time of a check", "delegation")
DELEGATION_PROPAGATION = Distribution(
    "pamspec_delegation_propagation_seconds",
    "From the commit of a grant or a revocation until kept permissions are looked at again",
    "delegation",
)

# Retention and erasure
RETENTION_DUE = gauge("pamspec_retention_due", "Objects whose step is due and not done", "retention_sweeper")
RETENTION_LAG = gauge("pamspec_retention_lag_seconds", "Age of the oldest step that is due", "retention_sweeper")
RETENTION_STEPS = counter(
    "pamspec_retention_steps",
    "Steps, by action and outcome",
    "retention_sweeper",
    action=_STEPS,
    outcome=("done", "changed", "refused"),
)
ERASURES_OPEN = gauge("pamspec_erasures_open", "Erasures whose receipt is still open", "retention_sweeper")
ERASURES_FAILING = gauge("pamspec_erasures_failing", "Erasures with something left", "retention_sweeper")
ERASURE_CHECKS = counter(
    "pamspec_erasure_checks", "Verifications of erasures", "retention_sweeper", result=("closed", "open")
)

# Subscriptions
CHANNELS = level("pamspec_subscription_channels", "Open channels", "subscription", channel=_CHANNELS)
CHANNEL_ENDS = counter(
    "pamspec_subscription_channel_ends", "Channels that ended", "subscription", channel=_CHANNELS, reason=_ENDS
)
SUBSCRIPTION_CLOSES = counter(
    "pamspec_subscription_closes", "Subscriptions closed for good", "subscription", reason=_CLOSES
)
DELIVERED = counter("pamspec_subscription_events", "Events delivered", "subscription", channel=(*_CHANNELS, "poll"))
DELIVERY_SECONDS = Distribution(
    "pamspec_event_delivery_seconds",
    "From the commit of an event to its delivery while it was followed live: the oldest of each flush",
    "subscription",
    channel=(*_CHANNELS, "poll"),
)
SUBSCRIPTION_LAG = gauge("pamspec_subscription_lag", "Largest distance of a followed scope", "subscription")
WEBHOOK_ATTEMPTS = counter(
    "pamspec_webhook_attempts", "Webhook deliveries, by outcome", "subscription", outcome=_ATTEMPTS
)
WEBHOOKS_PARKED = counter("pamspec_webhook_parked", "Events parked after too many failures", "subscription")

# Every service
TASK_FAILURES = counter(
    "pamspec_background_failures", "Background tasks that failed and began again", *SERVICES, task=OPEN
)
