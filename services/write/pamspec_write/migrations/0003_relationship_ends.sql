-- What a relationship joins, beside the states of its versions: filterable, and followed from either end. These columns are
-- null for every version that is no relationship's, and such a version has no entry in any of these indexes.
--
-- The target lies in the relationship's own scope where target_scope_id is null.

ALTER TABLE core.version_span
  ADD COLUMN source_object_id text COLLATE "C",
  ADD COLUMN target_object_id text COLLATE "C",
  ADD COLUMN target_scope_id  text COLLATE "C",
  ADD COLUMN directionality   text COLLATE "C";   -- directed, bidirectional or undirected

CREATE INDEX version_span_source ON core.version_span (source_object_id, scope_key, from_seq)
  WHERE source_object_id IS NOT NULL;
CREATE INDEX version_span_target ON core.version_span (target_object_id, scope_key, from_seq)
  WHERE target_object_id IS NOT NULL;

-- At most one active relationship of a type joins two objects; the write service refuses the second, this is the alarm.
CREATE UNIQUE INDEX version_span_active_edge ON core.version_span
  (source_object_id, target_object_id, object_type, (coalesce(target_scope_id, '')), scope_key)
  WHERE source_object_id IS NOT NULL AND to_seq = 9223372036854775807
    AND lifecycle_state = 'active' AND availability_state <> 'deleted';

CREATE OR REPLACE VIEW core.object_head WITH (security_invoker = true) AS
  SELECT * FROM core.version_span WHERE to_seq = 9223372036854775807;
