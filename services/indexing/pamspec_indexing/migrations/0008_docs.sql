-- By doc first: beside a second index that begins with the scope, a new database, of whose rows statistics say nothing yet,
-- takes that one for ids too, and reads the whole scope for each of them.
CREATE UNIQUE INDEX indexed_object_by_doc ON index_.indexed_object (doc, scope_key);
-- compatible: the index above serves the same statements
DROP INDEX index_.indexed_object_doc;
