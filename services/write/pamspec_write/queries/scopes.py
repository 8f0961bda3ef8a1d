"""Scopes: finding one by its name, making one."""

RESOLVE_SCOPE_SQL = """
SELECT scope_key, tenant_token, scope_token, partition, document FROM core.resolve_scope($1, $2)
"""

NEXT_SCOPE_KEY_SQL = "SELECT nextval('core.scope_key'), clock_timestamp()"

INSERT_SCOPE_SQL = """
INSERT INTO core.scope
  (scope_key, tenant_id, scope_id, tenant_token, scope_token, partition, document, ledger_id, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (tenant_id, scope_id) DO NOTHING
"""

INSERT_SCOPE_HEAD_SQL = """
INSERT INTO core.scope_head (scope_key, last_hash, last_at, rules_version) VALUES ($1, $2, $3, $4)
"""
