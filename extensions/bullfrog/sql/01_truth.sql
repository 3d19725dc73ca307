\echo Use "CREATE EXTENSION bullfrog" to load this file. \quit

-- The truth -----------------------------------------------------------------------------------------------------------

CREATE TABLE bullfrog.migration (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    definition text NOT NULL,
    phase text NOT NULL DEFAULT 'moving' CHECK (phase IN ('moving', 'paused', 'finished', 'aborted')),
    started timestamptz NOT NULL DEFAULT statement_timestamp(),
    ended timestamptz
);
CREATE UNIQUE INDEX migration_under_way ON bullfrog.migration (name) WHERE phase IN ('moving', 'paused');
COMMENT ON TABLE bullfrog.migration IS 'Migrations, those under way and those that ended.';
COMMENT ON COLUMN bullfrog.migration.name IS 'Its name, unique among those under way.';
COMMENT ON COLUMN bullfrog.migration.definition IS 'The statements, as they were given to bullfrog.migrate.';
COMMENT ON COLUMN bullfrog.migration.phase IS 'moving, paused (rows move only when a statement needs them), finished or aborted.';
COMMENT ON COLUMN bullfrog.migration.started IS 'When the schema was switched.';
COMMENT ON COLUMN bullfrog.migration.ended IS 'When it was finished or aborted.';

CREATE TABLE bullfrog.old (
    old_table regclass PRIMARY KEY,
    migration int NOT NULL REFERENCES bullfrog.migration,
    live boolean NOT NULL,
    fingerprint text
);
COMMENT ON TABLE bullfrog.old IS 'Old tables whose rows are on the move. Nobody but bullfrog reads or writes them, unless they are live.';
COMMENT ON COLUMN bullfrog.old.migration IS 'The migration it belongs to.';
COMMENT ON COLUMN bullfrog.old.live IS 'It stays in use: new tables have its rows as they were at the switch.';
COMMENT ON COLUMN bullfrog.old.fingerprint IS 'Its form at the switch, which must not change.';

CREATE TABLE bullfrog.source (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    migration int NOT NULL REFERENCES bullfrog.migration,
    old_table regclass NOT NULL REFERENCES bullfrog.old,
    granule text NOT NULL CHECK (granule IN ('page', 'tuple', 'group')),
    inside boolean NOT NULL,
    lenient boolean NOT NULL,
    pages bigint NOT NULL,
    swept bigint NOT NULL DEFAULT 0,
    noted_for xid8
);
CREATE UNIQUE INDEX source_of_pages ON bullfrog.source (old_table) WHERE granule <> 'group';
COMMENT ON TABLE bullfrog.source IS 'What is moved granule by granule: the pages of an old table, or the groups of its rows.';
COMMENT ON COLUMN bullfrog.source.migration IS 'The migration it belongs to.';
COMMENT ON COLUMN bullfrog.source.old_table IS 'The old table, of a join the driving one.';
COMMENT ON COLUMN bullfrog.source.granule IS 'What is moved at a time: a page or a tuple of the old table, with all new rows that its rows '
    'are in; or a group, which is one new row.';
COMMENT ON COLUMN bullfrog.source.inside IS 'Whether rows may move inside of the transaction that needs them.';
COMMENT ON COLUMN bullfrog.source.lenient IS 'Whether rows that violate a constraint go to quarantine when they move.';
COMMENT ON COLUMN bullfrog.source.pages IS 'Pages that the table had at the switch.';
COMMENT ON COLUMN bullfrog.source.noted_for IS 'The transaction of the abort for which writes to its new tables are noted.';
COMMENT ON COLUMN bullfrog.source.swept IS 'Of tuples and groups: those with a row on the pages before this one were moved.';

CREATE TABLE bullfrog.target (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source int NOT NULL REFERENCES bullfrog.source,
    granule text NOT NULL,
    inside boolean NOT NULL,
    filled boolean NOT NULL DEFAULT false,
    old_tables oid[] NOT NULL,
    live_tables oid[] NOT NULL,
    readable boolean NOT NULL,
    new_table regclass NOT NULL UNIQUE,
    views oid[] NOT NULL,
    rows float8,
    pages float8,
    origins smallint[] NOT NULL,
    complete boolean NOT NULL,
    copy text NOT NULL,
    names text,
    fingerprint text
);
COMMENT ON TABLE bullfrog.target IS 'New tables that do not have all of their rows yet. Every query reads them with the rest from the old '
    'tables.';
COMMENT ON COLUMN bullfrog.target.source IS 'By what its rows move.';
COMMENT ON COLUMN bullfrog.target.granule IS 'The same as of the source.';
COMMENT ON COLUMN bullfrog.target.inside IS 'The same as of the source.';
COMMENT ON COLUMN bullfrog.target.filled IS 'It has all rows, in every snapshot of the server: statements no longer look for others.';
COMMENT ON COLUMN bullfrog.target.old_tables IS 'The old tables its rows come from, the driving one first.';
COMMENT ON COLUMN bullfrog.target.live_tables IS 'Those of them that stay in use.';
COMMENT ON COLUMN bullfrog.target.readable IS 'Whether clients may read the old tables as of the switch.';
COMMENT ON COLUMN bullfrog.target.new_table IS 'The new table.';
COMMENT ON COLUMN bullfrog.target.views IS 'Views over the old tables: transformed_N has all rows in the form of the new one, and where '
    'their granules lie; unmoved_N those that were not moved; candidates_N, of joins, the rows of the driving table where these can be; '
    'members_N, of groups, the rows that they are made of; all_N those in quarantine, too.';
COMMENT ON COLUMN bullfrog.target.rows IS 'How many rows it will have, as the planner estimates.';
COMMENT ON COLUMN bullfrog.target.pages IS 'How many pages it will have, as the planner estimates.';
COMMENT ON COLUMN bullfrog.target.origins IS 'Of each column, which column of the first old table it is; 0: more than that.';
COMMENT ON COLUMN bullfrog.target.complete IS 'Whether each row of its one old table gives a row.';
COMMENT ON COLUMN bullfrog.target.copy IS 'The statement that copies rows: by pages those from place $1 to before $2, else those of the '
    'places $1, or the groups that begin there.';
COMMENT ON COLUMN bullfrog.target.names IS 'Not by pages: the query that names the granules of rows from place $1 to before $2.';
COMMENT ON COLUMN bullfrog.target.fingerprint IS 'Its form at the switch, which must not change. NULL: the switch is under way.';

CREATE TABLE bullfrog.moved (
    source int NOT NULL,
    granule bigint NOT NULL,
    moved_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
    tuples int,
    PRIMARY KEY (source, granule)
);
COMMENT ON TABLE bullfrog.moved IS 'Granules whose rows are in the new tables: written by the transaction that moved them.';
COMMENT ON COLUMN bullfrog.moved.source IS 'What it is a granule of.';
COMMENT ON COLUMN bullfrog.moved.granule IS 'The number of the page, or the place of the tuple, or of the group''s first row; of tuples that the background '
    'moved with their page, the place before its first row.';
COMMENT ON COLUMN bullfrog.moved.moved_by IS 'The transaction that moved it.';
COMMENT ON COLUMN bullfrog.moved.tuples IS 'How many tuples moved with their page. NULL: it is one granule.';

CREATE TABLE bullfrog.released (
    migration int NOT NULL REFERENCES bullfrog.migration,
    relation regclass NOT NULL,
    name text NOT NULL,
    refers_to regclass NOT NULL,
    columns smallint[] NOT NULL,
    referred smallint[] NOT NULL,
    valid boolean NOT NULL,
    options text NOT NULL
);
COMMENT ON TABLE bullfrog.released IS 'Foreign keys from and to old tables, which ended at the switch. abort brings them back.';
COMMENT ON COLUMN bullfrog.released.migration IS 'The migration under way.';
COMMENT ON COLUMN bullfrog.released.relation IS 'The referring table.';
COMMENT ON COLUMN bullfrog.released.name IS 'The name of the foreign key.';
COMMENT ON COLUMN bullfrog.released.refers_to IS 'The table referred to.';
COMMENT ON COLUMN bullfrog.released.columns IS 'The referring columns.';
COMMENT ON COLUMN bullfrog.released.referred IS 'The columns referred to.';
COMMENT ON COLUMN bullfrog.released.valid IS 'Whether it held for all rows.';
COMMENT ON COLUMN bullfrog.released.options IS 'What follows the columns in its definition.';

CREATE TABLE bullfrog.quarantined (
    migration int NOT NULL REFERENCES bullfrog.migration,
    target int NOT NULL,
    place bigint NOT NULL,
    new_table text NOT NULL,
    violates text NOT NULL,
    content jsonb NOT NULL,
    owner oid NOT NULL,
    PRIMARY KEY (target, place)
);
COMMENT ON TABLE bullfrog.quarantined IS 'Rows that new tables do not have because they violate what these ask for. They stay here when '
    'the migration has ended.';
COMMENT ON COLUMN bullfrog.quarantined.migration IS 'The migration that left them out.';
COMMENT ON COLUMN bullfrog.quarantined.target IS 'The number of the new table in it.';
COMMENT ON COLUMN bullfrog.quarantined.place IS 'Where the old row, or the first row of a group, lay.';
COMMENT ON COLUMN bullfrog.quarantined.new_table IS 'The new table.';
COMMENT ON COLUMN bullfrog.quarantined.violates IS 'The constraint.';
COMMENT ON COLUMN bullfrog.quarantined.content IS 'The row, in the form of the new table.';
COMMENT ON COLUMN bullfrog.quarantined.owner IS 'The role that owns the new table.';
