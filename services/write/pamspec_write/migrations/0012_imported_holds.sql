-- A scope that is imported keeps the ids of its holds: like those of objects they are unique in their scope.

DROP INDEX core.legal_hold_id;
CREATE UNIQUE INDEX legal_hold_id ON core.legal_hold (hold_id, scope_key);
DROP INDEX core.held_object_hold;
CREATE INDEX held_object_hold ON core.held_object (scope_key, hold_id, object_id);
GRANT SELECT ON core.held_object TO pamspec_query;
