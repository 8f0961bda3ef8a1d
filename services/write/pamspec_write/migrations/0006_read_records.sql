-- Exports carry what idempotency needs, so that it holds in another store too.
GRANT SELECT ON core.operation_record, core.source_event TO pamspec_query;
