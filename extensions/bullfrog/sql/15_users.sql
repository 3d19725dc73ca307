-- What users call ---------------------------------------------------------------------------------------------------------

-- Each calls the function perform_.. of this schema, with all rights, for who asks.
CREATE FUNCTION bullfrog.plan(name text, definition text, live text[] DEFAULT '{}', driving text[] DEFAULT '{}', checks text DEFAULT 'before')
    RETURNS TABLE (new_table text, old_tables regclass[], kind text, note text)
    LANGUAGE c AS 'MODULE_PATHNAME', 'bullfrog_ask';
COMMENT ON FUNCTION bullfrog.plan(text, text, text[], text[], text) IS
    'What bullfrog.migrate would do: each new table, the old tables its rows come from (the first one drives), how they relate, and what '
        'stands in the way or takes time; by a choice of checks, what becomes of rows that violate a constraint.';

CREATE FUNCTION bullfrog.migrate(name text, definition text, checks text DEFAULT 'before', compatible boolean DEFAULT false,
    granularity text DEFAULT 'auto', moves text DEFAULT 'auto', live text[] DEFAULT '{}', driving text[] DEFAULT '{}',
    like boolean DEFAULT false)
    RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'bullfrog_ask';
COMMENT ON FUNCTION bullfrog.migrate(text, text, text, boolean, text, text, text[], text[], boolean) IS
    'Switches to a new schema: from the commit on the new tables answer every query, and the old ones are closed (compatible: to writes; '
        'live: those stay in use, and new tables have their rows as of the switch). '
        'Rows move later. '
    'The text is CREATE TABLE new AS SELECT .. FROM old [JOIN ..] [WHERE ..] [GROUP BY ..], and what constrains the new tables. '
    'Rows that violate a constraint stop it (checks before), or are left out: at once (quarantine), or when they move (warn). '
    'Rows move by pages or by tuples (granularity), in transactions of their own (moves worker) or of who needs them (transaction), or as it is '
        'best for each old table (auto); '
    'those of joins by the tables that are named as driving, where these can, else by the one that makes moves smallest. '
    'New tables take over what the old ones declare of their columns, and rights, if told to (like).';

CREATE FUNCTION bullfrog.pause(name text) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'bullfrog_ask';
COMMENT ON FUNCTION bullfrog.pause(text) IS 'Stops moving rows in the background. Statements that need a row still move its page.';

CREATE FUNCTION bullfrog.resume(name text) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'bullfrog_ask';
COMMENT ON FUNCTION bullfrog.resume(text) IS 'Goes on moving rows in the background.';

CREATE FUNCTION bullfrog.finish(name text, keep_old boolean DEFAULT false) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'bullfrog_ask';
COMMENT ON FUNCTION bullfrog.finish(text, boolean) IS
    'Moves the rows that are left, drops the old tables (or keeps them, with the rows they had at the switch), and leaves the new tables '
        'as ordinary ones.';

CREATE FUNCTION bullfrog.abort(name text, discard_writes boolean DEFAULT false) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'bullfrog_ask';
COMMENT ON FUNCTION bullfrog.abort(text, boolean) IS
    'Brings the old schema back and drops the new tables. What was written to them since the switch is carried back; refused if it cannot '
        'be, unless it may be given up.';
