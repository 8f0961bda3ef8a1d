-- What keeps a page's cost apart from the size of its scope, whatever a query compares for equality.
--
-- Operators on arrays and jsonb are not leakproof, so under row-level security they would lose their index. The search
-- for candidates therefore runs in a function of a role that sees the columns that can be searched; it checks the scope
-- against the caller's scopes itself, and what it finds is only sequences: the rows are read under the caller's policy.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pamspec_search') THEN
    CREATE ROLE pamspec_search NOLOGIN NOSUPERUSER NOBYPASSRLS;
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
DO $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT pamspec_search TO %I', current_user);
  END IF;
END $$;
GRANT USAGE ON SCHEMA core, query TO pamspec_search;
GRANT SELECT (scope_key, from_seq, to_seq, kind, object_type, schema_id, lifecycle_state, availability_state,
  retention_state, validation_state, actor_id, content) ON core.version_span TO pamspec_search;
CREATE POLICY search ON core.version_span FOR SELECT TO pamspec_search USING (true);

-- The functions of the index have bodies that are parsed here: who writes a version needs no right in this schema.
--
-- A stretch of 131,072 positions of one scope: the entries of the index below belong to one stretch each, so that a
-- search looks at the newest first, and no scope's search meets another's entries.
CREATE FUNCTION query.stretch(key bigint, seq bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (key << 24) | (seq >> 17);

-- What can be searched of a version, as numbers: where it stands (8,192 positions), its kind, its type, its states, its
-- actor and its schema. Equal numbers of different values are possible, so what is found is compared again.
CREATE FUNCTION query.facts(key bigint, seq bigint, kind "char", object_type text, lifecycle_state text,
  availability_state text, retention_state text, validation_state text, actor_id text, schema_id text) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY[
  (key << 28) | (seq >> 13),
  hashtextextended(kind::text, query.stretch(key, seq) << 3),
  hashtextextended(kind::text || object_type, query.stretch(key, seq) << 3),
  hashtextextended(lifecycle_state || ' ' || availability_state || ' ' || retention_state || ' ' || validation_state,
    (query.stretch(key, seq) << 3) | 1),
  hashtextextended(actor_id, (query.stretch(key, seq) << 3) | 2),
  CASE WHEN schema_id IS NULL THEN (key << 28) | (seq >> 13)
       ELSE hashtextextended(schema_id, (query.stretch(key, seq) << 3) | 3) END];

-- The content under the name of its stretch.
CREATE FUNCTION query.placed(key bigint, seq bigint, content jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_set('{}', ARRAY[query.stretch(key, seq)::text], content);

CREATE INDEX version_span_search ON core.version_span USING gin (
  query.facts(scope_key, from_seq, kind, object_type, lifecycle_state, availability_state, retention_state,
    validation_state, actor_id, schema_id),
  query.placed(scope_key, from_seq, content) jsonb_path_ops)
  WITH (fastupdate = on, gin_pending_list_limit = 256) WHERE to_seq = 9223372036854775807;
DROP INDEX core.version_span_head_type;
DROP INDEX core.version_span_head_state;

-- What has one value a version. Each of the others costs only the heads that have the value.
CREATE INDEX version_span_head_provenance ON core.version_span (provenance_id, scope_key, from_seq)
  WHERE to_seq = 9223372036854775807;
CREATE INDEX version_span_head_relationships ON core.version_span (scope_key, from_seq)
  WHERE to_seq = 9223372036854775807 AND kind = 'r';
CREATE INDEX version_span_head_changed ON core.version_span (scope_key, version_seq, from_seq)
  WHERE to_seq = 9223372036854775807 AND version_seq > 1;
CREATE INDEX version_span_head_observed ON core.version_span (scope_key, observed_at, from_seq)
  WHERE to_seq = 9223372036854775807 AND observed_at IS NOT NULL;
CREATE INDEX version_span_head_asserted ON core.version_span (scope_key, asserted_at, from_seq)
  WHERE to_seq = 9223372036854775807 AND asserted_at IS NOT NULL;
CREATE INDEX version_span_head_valid_from ON core.version_span (scope_key, valid_from, from_seq)
  WHERE to_seq = 9223372036854775807 AND valid_from IS NOT NULL;
CREATE INDEX version_span_head_valid_until ON core.version_span (scope_key, valid_until, from_seq)
  WHERE to_seq = 9223372036854775807 AND valid_until IS NOT NULL;

-- One step of the search below: the index is asked for what is not null, and what it names is compared.
CREATE FUNCTION query.probe(key bigint, low bigint, top bigint, wanted integer, near bigint[], type_facts bigint[],
  state_facts bigint[], actor_facts bigint[], schema_facts bigint[], stretches bigint[], types text[], states text[],
  actors text[], schemas text[], docs jsonb[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = core, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_indexscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  -- A key that is not asked for repeats one that is, which costs nothing.
  facts bigint[] := coalesce(near, schema_facts, actor_facts, type_facts, state_facts);
BEGIN
  IF stretches IS NULL THEN
    RETURN ARRAY(
      SELECT s.from_seq FROM version_span s
      WHERE s.scope_key + 0 = key AND s.to_seq = 9223372036854775807 AND s.from_seq + 0 BETWEEN low AND top
        AND (types IS NULL OR s.kind::text || s.object_type = ANY (types) OR s.kind::text = ANY (types))
        AND (states IS NULL OR s.lifecycle_state || ' ' || s.availability_state || ' ' || s.retention_state || ' '
                               || s.validation_state = ANY (states))
        AND (actors IS NULL OR s.actor_id = ANY (actors))
        AND (schemas IS NULL OR s.schema_id = ANY (schemas))
        AND (docs IS NULL OR s.content @> ANY (docs))
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state, s.availability_state,
          s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(near, facts)
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state, s.availability_state,
          s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(type_facts, facts)
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state, s.availability_state,
          s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(state_facts, facts)
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state, s.availability_state,
          s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(actor_facts, facts)
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state, s.availability_state,
          s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(schema_facts, facts)
      ORDER BY s.from_seq DESC LIMIT wanted);
  ELSIF facts IS NULL THEN
    RETURN ARRAY(
      SELECT DISTINCT s.from_seq
      FROM unnest(stretches) n CROSS JOIN unnest(docs) d CROSS JOIN LATERAL (
        SELECT s.from_seq FROM version_span s
        WHERE query.placed(s.scope_key, s.from_seq, s.content) @> jsonb_build_object(n::text, d)
          AND s.scope_key + 0 = key AND s.to_seq = 9223372036854775807 AND s.from_seq + 0 BETWEEN low AND top
          AND (types IS NULL OR s.kind::text || s.object_type = ANY (types) OR s.kind::text = ANY (types))
          AND (states IS NULL OR s.lifecycle_state || ' ' || s.availability_state || ' ' || s.retention_state || ' '
                                 || s.validation_state = ANY (states))
          AND (actors IS NULL OR s.actor_id = ANY (actors))
          AND (schemas IS NULL OR s.schema_id = ANY (schemas))
        OFFSET 0) s
      ORDER BY s.from_seq DESC LIMIT wanted);
  END IF;
  RETURN ARRAY(
    SELECT DISTINCT s.from_seq
    FROM unnest(stretches) n CROSS JOIN unnest(docs) d CROSS JOIN LATERAL (
      SELECT s.from_seq FROM version_span s
      WHERE query.placed(s.scope_key, s.from_seq, s.content) @> jsonb_build_object(n::text, d)
        AND s.scope_key + 0 = key AND s.to_seq = 9223372036854775807 AND s.from_seq + 0 BETWEEN low AND top
        AND (types IS NULL OR s.kind::text || s.object_type = ANY (types) OR s.kind::text = ANY (types))
        AND (states IS NULL OR s.lifecycle_state || ' ' || s.availability_state || ' ' || s.retention_state || ' '
                               || s.validation_state = ANY (states))
        AND (actors IS NULL OR s.actor_id = ANY (actors))
        AND (schemas IS NULL OR s.schema_id = ANY (schemas))
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state,
          s.availability_state, s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(near, facts)
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state,
          s.availability_state, s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(type_facts, facts)
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state,
          s.availability_state, s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(state_facts, facts)
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state,
          s.availability_state, s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(actor_facts, facts)
        AND query.facts(s.scope_key, s.from_seq, s.kind, s.object_type, s.lifecycle_state,
          s.availability_state, s.retention_state, s.validation_state, s.actor_id,
            s.schema_id) && coalesce(schema_facts, facts)
      OFFSET 0) s
    ORDER BY s.from_seq DESC LIMIT wanted);
END $$;

-- The sequences of heads between two positions (neither included) that have one of the types, one of the states, one of
-- the actors, one of the schemas and one of the documents in their content, newest first, at most `wanted`. Null asks
-- for nothing. Fewer than `wanted` are all that there are. A type begins with its kind, which alone stands for all
-- types of it; states are four joined words.
--
-- It walks over the newest 512 heads, then asks the index about the 8,192 to 16,384 positions before, then about up to
-- two stretches, then about all others. A value that most of the newest heads share is not asked for beyond the second
-- step: it would cost more than comparing what is found.
CREATE FUNCTION query.find(key bigint, after bigint, before bigint, wanted integer, types text[], states text[],
  actors text[], schemas text[], docs jsonb[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = core, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  found bigint[];
  low bigint;
  top bigint;
  step integer;
  near bigint[];
  stretches bigint[];
  type_facts bigint[];
  state_facts bigint[];
  actor_facts bigint[];
  schema_facts bigint[];
  ask_types boolean := types IS NOT NULL;
  ask_states boolean := states IS NOT NULL;
  ask_actors boolean := actors IS NOT NULL;
  ask_schemas boolean := schemas IS NOT NULL;
  ask_docs boolean := docs IS NOT NULL;
  seen integer[];
  fewest integer;
BEGIN
  IF NOT key = ANY (coalesce(nullif(current_setting('pamspec.scope_keys', true), ''), '{}')::bigint[]) THEN
    RETURN '{}';
  END IF;
  found := ARRAY(
    SELECT s.from_seq FROM (
      SELECT w.from_seq, w.kind, w.object_type, w.schema_id, w.lifecycle_state, w.availability_state, w.retention_state,
             w.validation_state, w.actor_id, w.content FROM version_span w
      WHERE w.scope_key = key AND w.to_seq = 9223372036854775807 AND w.from_seq > after AND w.from_seq < before
      ORDER BY w.from_seq DESC LIMIT 512) s
    WHERE (types IS NULL OR s.kind::text || s.object_type = ANY (types) OR s.kind::text = ANY (types))
      AND (states IS NULL OR s.lifecycle_state || ' ' || s.availability_state || ' ' || s.retention_state || ' '
                             || s.validation_state = ANY (states))
      AND (actors IS NULL OR s.actor_id = ANY (actors))
      AND (schemas IS NULL OR s.schema_id = ANY (schemas))
      AND (docs IS NULL OR s.content @> ANY (docs))
    ORDER BY s.from_seq DESC LIMIT wanted);
  IF cardinality(found) >= wanted THEN
    RETURN found;
  END IF;
  SELECT min(s.from_seq), ARRAY[
      count(*),
      count(*) FILTER (WHERE s.kind::text || s.object_type = ANY (types) OR s.kind::text = ANY (types)),
      count(*) FILTER (WHERE s.lifecycle_state || ' ' || s.availability_state || ' ' || s.retention_state || ' '
                             || s.validation_state = ANY (states)),
      count(*) FILTER (WHERE s.actor_id = ANY (actors)),
      count(*) FILTER (WHERE s.schema_id = ANY (schemas)),
      count(*) FILTER (WHERE s.content @> ANY (docs))]
  INTO top, seen FROM (
    SELECT w.from_seq, w.kind, w.object_type, w.schema_id, w.lifecycle_state, w.availability_state, w.retention_state,
           w.validation_state, w.actor_id, w.content FROM version_span w
    WHERE w.scope_key = key AND w.to_seq = 9223372036854775807 AND w.from_seq > after AND w.from_seq < before
    ORDER BY w.from_seq DESC LIMIT 512) s;
  IF seen[1] < 512 THEN
    RETURN found;
  END IF;
  top := top - 1;
  FOREACH step IN ARRAY ARRAY[13, 17, 63] LOOP
    EXIT WHEN top <= after OR cardinality(found) >= wanted;
    low := CASE step WHEN 63 THEN after + 1 ELSE greatest(((top >> step) - 1) << step, after + 1) END;
    near := ARRAY(SELECT (key << 28) | n FROM generate_series(low >> 13, CASE step WHEN 13 THEN top >> 13 END) n);
    stretches := ARRAY(SELECT query.stretch(key, n << 17) FROM generate_series(low >> 17, top >> 17) n);
    IF step = 17 THEN
      fewest := least(CASE WHEN ask_types THEN seen[2] END, CASE WHEN ask_states THEN seen[3] END,
        CASE WHEN ask_actors THEN seen[4] END, CASE WHEN ask_schemas THEN seen[5] END,
        CASE WHEN ask_docs THEN seen[6] END);
      ask_types := ask_types AND seen[2] <= greatest(fewest, 256);
      ask_states := ask_states AND seen[3] <= greatest(fewest, 256);
      ask_actors := ask_actors AND seen[4] <= greatest(fewest, 256);
      ask_schemas := ask_schemas AND seen[5] <= greatest(fewest, 256);
      ask_docs := ask_docs AND seen[6] <= greatest(fewest, 256);
    END IF;
    type_facts := ARRAY(SELECT hashtextextended(v, n << 3) FROM unnest(types) v, unnest(stretches) n WHERE ask_types);
    state_facts := ARRAY(
      SELECT hashtextextended(v, (n << 3) | 1) FROM unnest(states) v, unnest(stretches) n WHERE ask_states);
    actor_facts := ARRAY(
      SELECT hashtextextended(v, (n << 3) | 2) FROM unnest(actors) v, unnest(stretches) n WHERE ask_actors);
    schema_facts := ARRAY(
      SELECT hashtextextended(v, (n << 3) | 3) FROM unnest(schemas) v, unnest(stretches) n WHERE ask_schemas);
    found := found || query.probe(key, low, top, wanted - cardinality(found), CASE step WHEN 13 THEN near END,
      CASE WHEN ask_types THEN type_facts END, CASE WHEN ask_states THEN state_facts END,
      CASE WHEN ask_actors THEN actor_facts END, CASE WHEN ask_schemas THEN schema_facts END,
      CASE WHEN ask_docs THEN stretches END, types, states, actors, schemas, docs);
    top := low - 1;
  END LOOP;
  RETURN found;
END $$;

GRANT CREATE ON SCHEMA query TO pamspec_search;
ALTER FUNCTION query.find(bigint, bigint, bigint, integer, text[], text[], text[], text[], jsonb[])
  OWNER TO pamspec_search;
REVOKE CREATE ON SCHEMA query FROM pamspec_search;
REVOKE ALL ON FUNCTION query.find(bigint, bigint, bigint, integer, text[], text[], text[], text[], jsonb[]),
  query.probe(bigint, bigint, bigint, integer, bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], text[],
    text[], text[], text[], jsonb[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION query.find(bigint, bigint, bigint, integer, text[], text[], text[], text[], jsonb[])
  TO pamspec_query;
GRANT EXECUTE ON FUNCTION query.probe(bigint, bigint, bigint, integer, bigint[], bigint[], bigint[], bigint[], bigint[],
  bigint[], text[], text[], text[], text[], jsonb[]) TO pamspec_search;
