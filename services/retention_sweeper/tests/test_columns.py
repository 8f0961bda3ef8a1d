"""Every column that could hold content is named here: what the scans of an erasure look into, or why it holds none.

A column that somebody adds fails the test until it is classified: it is searched, emptied with the versions or with the
scope, or it holds names and states alone.
"""

from __future__ import annotations

import re

from services.retention_sweeper.tests.world import World

COLUMNS_SQL = """
SELECT n.nspname || '.' || c.relname AS "table", array_agg(a.attname::text) AS columns
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition
  AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
  AND coalesce(e.typcategory, t.typcategory) NOT IN ('N', 'B', 'D', 'T') AND coalesce(e.typname, t.typname) NOT IN
    ('char', 'xid8')
GROUP BY 1
"""
FUNCTION_SQL = "SELECT prosrc FROM pg_proc WHERE pronamespace = 'retention'::regnamespace AND proname = $1"

BY_IDS = {
    "core.version_private": "salt content private",
    "core.version_span": "content private",
    "core.operation_record": "salt fingerprint",
    "core.source_event": "salt fingerprint",
    "core.data_key": "wrapped",
}
"""Null, or gone, for every erased version: `retention.canonical_remains`."""
BY_VALUE = {
    "needles_beside": {"core.version": "metadata", "core.ledger": "event", "core.operation_record": "answer"},
    "needles_in_books": {
        "subscription.webhook_delivery": "outcome",
        "delegation.parked": "reason",
        "index_.parked": "reason",
        "core.scope_import": "answer",
        "core.snapshot": "document",
    },
}
"""The needles are looked for in them, by these functions."""
DERIVED = {
    "index_.lexical_document": "word_order digest",
    "index_.vectors": "embedding digest",
}
"""No row of them may belong to a removed object: `retention.derived_remains`, which finds the tables by itself."""
UNPUBLISHED = {"relay.outbox": "event_id subject message traceparent"}
"""No row of the scope may wait there: `retention.unpublished`; messages are entries of the ledger, searched as such."""
RULES = {
    "core.scope_policy": "policy policy_basis actor_id authenticated_as operation_id",
    "core.content_schema": "schema_id document digest actor_id authenticated_as operation_id",
    "core.access_rules": "tenant_id text policy_basis actor_id",
    "core.legal_hold": "hold_id object_type policy_basis actor_id authenticated_as operation_id release_basis"
    " released_by release_operation_id",
    "core.held_object": "object_id hold_id retention_state",
    "core.forget": "erasure_id token actor_id actor_kind policy_basis",
    "core.forget_item": "erasure_id object_id version_ids code",
    "core.role_binding": "tenant_id actor_id role bound_by",
}
"""Words of administrators about a scope, of no object: they are deleted with the scope."""
SEALED = {"core.erasure": "seal_salt needles"}
"""Taken away with the closing of the receipt."""
RECORD = {
    "core.administration": "tenant_id operation operation_id actor_id authenticated_as policy_basis subject detail"
    " outcome policy_version",
    "core.scope": "tenant_id scope_id tenant_token scope_token document ledger_id",
    "core.scope_deletion": "actor_id operation_id policy_basis",
    "core.quotas": "tenant_id quotas policy_basis actor_id authenticated_as operation_id",
    "core.embedding_space": "tenant_id embedding_space_id descriptor distance_metric authenticated_as operation_id",
    "subscription.subscription": "tenant_id subscription_id scope_id principal principal_id actor state channel filter"
    " delivery evaluation_run_id operation_id idempotency_key request_hash closed_reason lease_owner channel_kind"
    " delegation_id",
    "subscription.webhook": "tenant_id subscription_id url secrets outcome stands_at_event",
}
"""What administrators and subscribers said, kept as the record of it: of no object, and no answer about memory."""
NAMES = {
    "core.api_key": "key_id tenant_id key_hash actor_id actor_kind rights roles created_by request_key replaced_by",
    "core.data_key": "kid",
    "core.delegation": "delegation_id tenant_id grantor_id grantor_kind principal_id delegate_id delegate_kind"
    " operations object_types object_ids ancestors",
    "core.delegation_tally": "delegation_id operation",
    "core.erasure": "erasure_id tenant_id subject_id part_of operation_id actor_id surfaces",
    "core.key_encryption_key": "kid proof",
    "core.ledger": "event_id event_type subject_id entry_hash",
    "core.operation_record": "operation_hash key_hash operation operation_id actor_id",
    "core.page_relation": "relation",
    "core.page_rewrite": "relation",
    "core.replayed_erasure": "erasure_id",
    "core.scope_head": "last_hash",
    "core.scope_import": "digest ledger_id",
    "core.snapshot": "snapshot_id tenant_id evaluation_run_id",
    "core.source_event": "source_hash operation_hash",
    "core.tenant": "tenant_id state",
    "core.tenant_usage": "tenant_id",
    "core.version": "object_id version_id",
    "core.version_private": "operation_hash",
    "core.version_span": "object_id version_id object_type schema_id lifecycle_state availability_state retention_state"
    " validation_state actor_id provenance_id created_by source_object_id target_object_id target_scope_id"
    " directionality",
    "delegation.exercise": "delegation_id operation",
    "delegation.lease": "owner",
    "delegation.member": "owner",
    "delegation.parked": "event_id event_type asked",
    "index_.embedding_queue": "embedding_space_id",
    "index_.embedding_untold": "embedding_space_id",
    "index_.indexed_object": "object_id version_id",
    "index_.job": "index_id kind operation_id",
    "index_.lease": "owner",
    "index_.member": "owner",
    "index_.parked": "event_id event_type asked",
    "index_.scope_space": "embedding_space_id state",
    "index_.unready": "index_id state",
    "index_.watermark": "index_id",
    "public.pamspec_migration": "source name digest",
    "relay.checkpoint": "frontier document",
    "relay.erasure_stream": "created",
    "relay.lease": "owner",
    "relay.mark": "stream_created",
    "relay.member": "owner",
    "relay.position": "stream_created",
    "relay.tree_node": "hash",
    "retention.access": "object_id",
    "retention.due": "object_id action rule held_up claim",
    "retention.tally": "action rule",
    "subscription.webhook_delivery": "subscription_id",
}
"""Ids, states, names, codes of errors and digests that no value can be guessed from."""


def _named() -> list[tuple[str, str]]:
    groups = (BY_IDS, *BY_VALUE.values(), DERIVED, UNPUBLISHED, RULES, SEALED, RECORD, NAMES)
    return [(table, column) for group in groups for table, columns in group.items() for column in columns.split()]


async def test_every_column_that_could_hold_content_is_classified(world: World) -> None:
    named = _named()
    assert len(named) == len(set(named)), "each column has one class"
    rows = await world.writer.admin.fetch(COLUMNS_SQL)
    found = {(row["table"], column) for row in rows for column in row["columns"]}
    assert found - set(named) == set(), "say where an erasure looks for what they hold, or why they hold none"
    assert set(named) - found == set(), "they are gone"


async def test_what_is_said_to_be_searched_is_searched(world: World) -> None:
    """The functions of the scans read each column that is named for them."""
    for function, tables in {"canonical_remains": BY_IDS, **BY_VALUE}.items():
        source = await world.writer.admin.fetchval(FUNCTION_SQL, function)
        for table, columns in tables.items():
            # Tables of schema core are named without it: the functions look there first.
            alias = re.search(rf"\b{re.escape(table.removeprefix('core.'))} (\w+)\b", source)
            assert alias is not None, f"{function} does not read {table}"
            for column in columns.split() if table != "core.data_key" else ():
                assert re.search(rf"\b{alias[1]}\.{column}\b", source), f"{function} does not read {table}.{column}"
