-- The stream of the erasure log that everything with a logged_at is in: one that was made anew gets all of it again, whoever
-- made it, and whoever was killed after that.
CREATE TABLE relay.erasure_stream (
  one     boolean PRIMARY KEY DEFAULT true CHECK (one),
  created text NOT NULL
);
ALTER TABLE relay.erasure_stream ENABLE ROW LEVEL SECURITY;
ALTER TABLE relay.erasure_stream FORCE ROW LEVEL SECURITY;
CREATE POLICY relay_keeps ON relay.erasure_stream TO pamspec_relay USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON relay.erasure_stream TO pamspec_relay;
