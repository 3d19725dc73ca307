-- Who waits for the lock of a table that all migrations use keeps everybody waiting: rather fail, and be tried again.
SELECT pg_catalog.set_config('lock_timeout', '1s', true);
ALTER TABLE bullfrog.quarantined ADD COLUMN owner oid;
-- Rows of tables that are gone, or were renamed, are the superuser's.
UPDATE bullfrog.quarantined q SET owner = COALESCE((SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass(q.new_table)), 10);
ALTER TABLE bullfrog.quarantined ALTER COLUMN owner SET NOT NULL;
COMMENT ON COLUMN bullfrog.quarantined.owner IS 'The role that owns the new table.';
ALTER TABLE bullfrog.moved ADD COLUMN tuples int;
COMMENT ON COLUMN bullfrog.moved.granule IS 'The number of the page, or the place of the tuple, or of the group''s first row; of tuples that the background '
    'moved with their page, the place before its first row.';
COMMENT ON COLUMN bullfrog.moved.tuples IS 'How many tuples moved with their page. NULL: it is one granule.';
-- They have other results or arguments, or are gone.
DROP FUNCTION bullfrog.compare_ahead(int);
DROP FUNCTION bullfrog.carry_back(int, boolean);
DROP FUNCTION bullfrog.left_to_carry(int, boolean);
DROP FUNCTION bullfrog.same_key(bullfrog.target, smallint[]);
DROP FUNCTION bullfrog.key_names(bullfrog.target, smallint[]);
DROP FUNCTION bullfrog.plan(text, text, text[], text[]);
DROP FUNCTION bullfrog.demands(text);
DROP FUNCTION bullfrog.change(oid, text);
DROP FUNCTION bullfrog.verify();
DROP FUNCTION bullfrog.fingerprint(oid);
DROP FUNCTION bullfrog.check_rows(bullfrog.target, text, boolean[], oid[], text[]);
DROP FUNCTION bullfrog.advance_identities(bullfrog.target);
DROP FUNCTION bullfrog.obstacles(oid, boolean);
DROP FUNCTION bullfrog.reads_of(text[], oid[]);
DROP FUNCTION bullfrog.carry_over(record, text[], oid[], text[]);
DROP FUNCTION bullfrog.lock_tables(oid[], oid[], text);
DROP FUNCTION bullfrog.close(int, oid[], oid[]);
DROP FUNCTION bullfrog.check_foreign_keys(int, text);
