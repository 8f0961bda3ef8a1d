-- The planner's statistics are samples of values, kept until the next ANALYZE: of content, which can be erased, there are
-- none. The search that uses this index does not plan by them.
ALTER INDEX core.version_span_search ALTER COLUMN 2 SET STATISTICS 0;
