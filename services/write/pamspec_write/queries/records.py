"""Operations that a look-up gives up."""

INSERT_ABANDONED_SQL = """
INSERT INTO core.operation_record
  (scope_key, operation_hash, key_hash, operation, operation_id, actor_id, state, status, created_at)
VALUES ($1, $2, $3, $4, $5, $6, 'a', 409, clock_timestamp())
"""

BUMP_REVISION_SQL = "UPDATE core.scope_head SET revision = revision + 1 WHERE scope_key = $1"
