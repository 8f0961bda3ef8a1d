-- A query over a space that its scope has no vectors of waits for no watermark of it: it looks whether the scope has any.
GRANT SELECT ON index_.scope_space TO pamspec_query;
