//! The tables, and the statements on them.

/// The version of the tables. Other tables need another number.
pub(crate) const VERSION: i32 = 6;
/// The oldest version from which [`TABLES`] makes that of today.
pub(crate) const OLDEST: i32 = 1;

/// Says what the version is.
pub(crate) const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS files_version (version int PRIMARY KEY)";

/// Whether there is a marker.
pub(crate) const HAS_MARKER: &str = "SELECT to_regclass('marker') IS NOT NULL";
/// Whose the database is.
pub(crate) const POOL: &str = "SELECT pool FROM marker WHERE prefix = $1";

/// Makes the tables that are missing, and what earlier versions lack.
///
/// `marker` has one row: whose the database is, who owns it (an epoch, and a number of the process), and up to which change it has all. Children of a directory are next to each other by their
/// key. Blocks of a file are in its row, four numbers each: block, generation stamp, bytes, and 1 if its writer has ended it. `unfinished` is of a file that is being written how many bytes it has
/// if its writer does not come to its end, -1 if it goes then, and nothing if it has what there is. `more` is what few inodes have
/// ([`savanna_files::change::More`]). `answers` has a row for each batch of changes: the answers to calls that may come again, as bytes, because nobody looks for
/// one of them there. Earlier versions had a row of `retry_answer` for each.
pub(crate) const TABLES: [&str; 13] = [
    "CREATE TABLE IF NOT EXISTS marker (prefix bigint PRIMARY KEY, pool text NOT NULL, epoch bigint NOT NULL, txid bigint NOT NULL, \
     last_inode bigint NOT NULL, last_block bigint NOT NULL, last_stamp bigint NOT NULL)",
    "ALTER TABLE marker ADD COLUMN IF NOT EXISTS owner bigint NOT NULL DEFAULT 0",
    "CREATE TABLE IF NOT EXISTS inode (parent bigint NOT NULL, name bytea NOT NULL, id bigint NOT NULL, is_directory boolean NOT NULL, \
     owner text NOT NULL, group_name text NOT NULL, mode int NOT NULL, mtime bigint NOT NULL, atime bigint NOT NULL, \
     replication int NOT NULL, block_size bigint NOT NULL, length bigint NOT NULL, blocks bigint[] NOT NULL, client text, machine text, \
     children bigint NOT NULL, txid bigint NOT NULL, PRIMARY KEY (parent, name))",
    "ALTER TABLE inode ADD COLUMN IF NOT EXISTS more bytea",
    "ALTER TABLE inode ADD COLUMN IF NOT EXISTS unfinished bigint",
    "CREATE UNIQUE INDEX IF NOT EXISTS inode_id ON inode (id)",
    // Names of clients may be longer than what an index takes.
    "DROP INDEX IF EXISTS inode_client",
    "CREATE INDEX IF NOT EXISTS inode_written ON inode (id) WHERE client IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS block (id bigint PRIMARY KEY, inode bigint NOT NULL)",
    "CREATE INDEX IF NOT EXISTS block_inode ON block (inode)",
    "CREATE TABLE IF NOT EXISTS retry_answer (client bytea NOT NULL, call int NOT NULL, at bigint NOT NULL, txid bigint NOT NULL, \
     answer int NOT NULL, inode bigint NOT NULL, PRIMARY KEY (client, call))",
    "CREATE INDEX IF NOT EXISTS retry_answer_at ON retry_answer (at)",
    "CREATE TABLE IF NOT EXISTS answers (at bigint NOT NULL, txid bigint NOT NULL, answers bytea NOT NULL, PRIMARY KEY (at, txid))",
];

/// The columns of a row, as they are read; `i` is the row.
macro_rules! columns {
    () => {
        "i.parent, i.name, i.id, i.is_directory, i.owner, i.group_name, i.mode, i.mtime, i.atime, i.replication, i.block_size, i.blocks, \
         i.client, i.machine, i.children, i.txid, i.more, i.unfinished"
    };
}

/// What the marker says and rows of `i`, at one instant, and who owns the database; without any row one that is empty.
macro_rules! read {
    ($with:expr, $from:expr) => {
        concat!($with, "SELECT m.txid, ", columns!(), ", m.owner FROM marker m LEFT JOIN ", $from, " ON true")
    };
}

/// What is below a directory ($1) by names ($2), each in the one before it.
pub(crate) const PATH: &str = read!(
    "WITH RECURSIVE way AS (SELECT 1 AS depth, i.* FROM inode i WHERE i.parent = $1 AND i.name = ($2::bytea[])[1] \
     UNION ALL SELECT w.depth + 1, i.* FROM way w JOIN inode i ON i.parent = w.id AND i.name = ($2::bytea[])[w.depth + 1]) ",
    "way i"
);

/// Inodes ($1), with the directories above them.
pub(crate) const IDS: &str = read!(
    "WITH RECURSIVE up AS (SELECT * FROM inode WHERE id = ANY($1::bigint[]) UNION SELECT p.* FROM up u JOIN inode p ON p.id = u.parent) ",
    "up i"
);

/// Files that are being written, with the directories above them, and the root.
pub(crate) const WRITTEN: &str = read!(
    "WITH RECURSIVE up AS (SELECT * FROM inode WHERE client IS NOT NULL OR id = $1 UNION SELECT p.* FROM up u JOIN inode p ON p.id = u.parent) ",
    "up i"
);

/// The next of a directory ($1) behind a name ($2), so many ($3).
pub(crate) const CHILDREN: &str =
    read!("", "(SELECT * FROM inode WHERE parent = $1 AND name > $2 ORDER BY name LIMIT $3) i");

/// How much there is in a subtree ($1), who may do what with its directories, and who owns the database. What is more than a number takes is the largest.
pub(crate) const SUBTREE: &str = "WITH RECURSIVE all_of_it AS (\
     SELECT id, is_directory, owner, group_name, mode, length, replication, more FROM inode WHERE id = $1 UNION ALL \
     SELECT i.id, i.is_directory, i.owner, i.group_name, i.mode, i.length, i.replication, i.more FROM all_of_it a JOIN inode i ON i.parent = a.id \
     WHERE a.is_directory) \
     SELECT is_directory, CASE WHEN is_directory THEN owner END, CASE WHEN is_directory THEN group_name END, \
     CASE WHEN is_directory THEN mode END, count(*), least(coalesce(sum(length), 0), 9223372036854775807)::bigint, \
     least(coalesce(sum(length::numeric * replication), 0), 9223372036854775807)::bigint, (SELECT max(owner) FROM marker), \
     CASE WHEN is_directory THEN more END FROM all_of_it GROUP BY 1, 2, 3, 4, 9";

/// Which of these blocks ($1) have files, who owns the database, and how far it is; without any block a row that is empty.
pub(crate) const BLOCKS: &str = "SELECT b.id, m.owner, m.txid FROM marker m LEFT JOIN (SELECT id FROM block WHERE id = ANY($1::bigint[])) b ON true";

/// Answers that are not older than an instant ($1), and perhaps older ones beside them; of too many, the newest of so many bytes ($2), and perhaps a few more.
pub(crate) const ANSWERS: &str = "SELECT answers FROM (SELECT answers, txid, sum(length(answers)) OVER (ORDER BY txid DESC) - length(answers) AS later \
     FROM answers WHERE at >= $1) kept WHERE later < $2::bigint ORDER BY txid";
/// The same of earlier versions.
pub(crate) const RETRIES: &str =
    "SELECT client, call, at, txid, answer, inode FROM retry_answer WHERE at >= $1 ORDER BY txid";
/// Deletes answers of earlier versions that are older than an instant ($1).
pub(crate) const DELETE_RETRIES: &str = "DELETE FROM retry_answer WHERE at < $1";

/// The marker of the prefix $1, for the pool $2, if there is none: nobody owns it.
pub(crate) const BEGIN: &str = "INSERT INTO marker (prefix, pool, epoch, txid, last_inode, last_block, last_stamp, owner) \
     VALUES ($1, $2, -1, 0, 0, 0, 0, 0) ON CONFLICT (prefix) DO NOTHING";

/// Whose the database is, and how far it is.
pub(crate) const LOOK: &str =
    "SELECT pool, epoch, owner, txid, last_inode, last_block, last_stamp FROM marker WHERE prefix = $1";

/// Takes the database over: the owner is the process $3 of the epoch $2 from now on, unless a later one has it, or another one of that epoch, or it is
/// not as far as it was found ($4), or farther than the log ($5).
pub(crate) const CLAIM: &str = "UPDATE marker SET epoch = $2, owner = $3 WHERE prefix = $1 AND (epoch < $2 OR epoch = $2 AND owner = $3) \
     AND txid BETWEEN $4 AND $5";

/// The first statement of a batch from one change ($7) to another ($3). It divides by zero, so that nothing of the batch is done, if somebody else ($2)
/// owns the database, or it is not as far as its owner knows it to be, or farther: all statements are sent at once, and may arrive late.
pub(crate) const MARK: &str = "UPDATE marker SET txid = $3::bigint / (CASE WHEN owner = $2::bigint AND txid BETWEEN $7::bigint AND $3::bigint THEN 1 ELSE 0 END), \
     last_inode = $4::bigint, last_block = $5::bigint, last_stamp = $6::bigint WHERE prefix = $1::bigint";

/// Deletes the blocks of files ($1): of those that went, and of those whose rows are written.
pub(crate) const DELETE_BLOCKS: &str = "DELETE FROM block WHERE inode = ANY($1::bigint[])";

/// Deletes rows ($1).
pub(crate) const DELETE: &str = "DELETE FROM inode WHERE id = ANY($1::bigint[])";

/// Writes rows, a column each; the blocks of a row as the text of an array.
pub(crate) const WRITE: &str = "INSERT INTO inode (parent, name, id, is_directory, owner, group_name, mode, mtime, atime, replication, \
     block_size, length, blocks, client, machine, children, txid, more, unfinished) \
     SELECT parent, name, id, is_directory, owner, group_name, mode, mtime, atime, replication, block_size, length, blocks::bigint[], \
     client, machine, children, txid, more, unfinished FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::boolean[], $5::text[], $6::text[], $7::int[], \
     $8::bigint[], $9::bigint[], $10::int[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::bigint[], \
     $17::bigint[], $18::bytea[], $19::bigint[]) AS r (parent, name, id, is_directory, owner, group_name, mode, mtime, atime, replication, block_size, length, blocks, \
     client, machine, children, txid, more, unfinished) \
     ON CONFLICT (id) DO UPDATE SET parent = excluded.parent, name = excluded.name, owner = excluded.owner, \
     group_name = excluded.group_name, mode = excluded.mode, mtime = excluded.mtime, atime = excluded.atime, \
     replication = excluded.replication, block_size = excluded.block_size, length = excluded.length, blocks = excluded.blocks, \
     client = excluded.client, machine = excluded.machine, children = excluded.children, txid = excluded.txid, more = excluded.more, \
     unfinished = excluded.unfinished";

/// Writes blocks ($1) of files ($2).
pub(crate) const WRITE_BLOCKS: &str =
    "INSERT INTO block (id, inode) SELECT id, inode FROM unnest($1::bigint[], $2::bigint[]) AS b (id, inode)";

/// Keeps the answers of a batch ($3), if there are any; the newest is of an instant ($1) and a change ($2).
pub(crate) const WRITE_ANSWERS: &str = "INSERT INTO answers (at, txid, answers) SELECT $1::bigint, $2::bigint, $3::bytea WHERE length($3::bytea) > 0 ON CONFLICT (at, txid) DO NOTHING";

/// Deletes answers that are older than an instant ($1).
pub(crate) const DELETE_ANSWERS: &str = "DELETE FROM answers WHERE at < $1";

/// The database of this owner ($2) has nothing from now on. It is as far as its owner found it ($3), as all of it ($4), or has nothing already.
pub(crate) const FORGET: &str =
    "UPDATE marker SET txid = 0 WHERE prefix = $1 AND owner = $2 AND txid IN (0, $3::bigint, $4::bigint)";

/// Deletes some rows of each table.
pub(crate) const CLEAR_SOME: [&str; 4] = [
    "DELETE FROM block WHERE id IN (SELECT id FROM block LIMIT 1024)",
    "DELETE FROM inode WHERE id IN (SELECT id FROM inode LIMIT 1024)",
    "DELETE FROM retry_answer WHERE at <= (SELECT max(at) FROM (SELECT at FROM retry_answer ORDER BY at LIMIT 1024) AS old)",
    "DELETE FROM answers WHERE at <= (SELECT max(at) FROM (SELECT at FROM answers ORDER BY at LIMIT 1024) AS old)",
];
