-- Content is read from where sealed values come with what opens them.
GRANT SELECT ON core.version_value, core.data_key, core.key_encryption_key TO pamspec_indexing;
