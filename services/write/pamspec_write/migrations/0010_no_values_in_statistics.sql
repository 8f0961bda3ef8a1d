-- The planner's statistics are samples of values, kept until the next ANALYZE: of what can be erased there are none.
-- Nothing is planned by them either: these columns are found by the keys of their rows.

ALTER TABLE core.version_private
  ALTER COLUMN salt SET STATISTICS 0, ALTER COLUMN content SET STATISTICS 0, ALTER COLUMN private SET STATISTICS 0;
ALTER TABLE core.version_span ALTER COLUMN content SET STATISTICS 0;
ALTER TABLE core.operation_record ALTER COLUMN salt SET STATISTICS 0, ALTER COLUMN fingerprint SET STATISTICS 0;
ALTER TABLE core.source_event ALTER COLUMN salt SET STATISTICS 0, ALTER COLUMN fingerprint SET STATISTICS 0;
