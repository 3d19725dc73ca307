//! Root, descendant and global tables: what their definitions have to be like, now and after every change.

use savanna_tenants_store::database::SessionId;

use crate::desk::{Desk, Seen, done};

const TREE: [&str; 4] = [
    "CREATE TABLE warehouse (w int PRIMARY KEY, name text) WITH (root)",
    "CREATE TABLE district (w int REFERENCES warehouse, d int, name text, PRIMARY KEY (w, d)) \
     WITH (root = warehouse, key = w)",
    "CREATE TABLE customer (w int REFERENCES warehouse, d int, c int, name text, PRIMARY KEY (w, d, c), \
     FOREIGN KEY (w, d) REFERENCES district) WITH (root = public.warehouse, key = (w))",
    "CREATE TABLE item (i int PRIMARY KEY, name text UNIQUE) WITH (global)",
];

fn tree() -> (Desk, SessionId) {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &TREE);
    (desk, client)
}

fn options(desk: &mut Desk, client: SessionId) -> Vec<String> {
    let text = "SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL ORDER BY relname";
    desk.query(client, text)
}

fn all_fail(desk: &mut Desk, client: SessionId, texts: &[(&str, &'static str)]) {
    for (text, state) in texts {
        assert_eq!(desk.run(client, text), Seen::Failed(state), "{text}");
    }
}

#[test]
fn a_placement_is_shown_and_survives_a_crash() {
    let (mut desk, client) = tree();
    desk.setup(
        client,
        &[
            "CREATE TABLE plain (n int PRIMARY KEY) WITH (fillfactor = 70)",
            "ALTER TABLE warehouse RENAME TO \"Warehouse\"",
            "ALTER TABLE district RENAME COLUMN w TO of",
            "TRUNCATE \"Warehouse\" CASCADE",
        ],
    );
    let shown = [
        "Warehouse|{root=true}",
        "customer|{\"root=\\\"Warehouse\\\"\",key=w}",
        "district|{\"root=\\\"Warehouse\\\"\",key=of}",
        "item|{global=true}",
    ];
    assert_eq!(options(&mut desk, client), shown);
    let (records, _) = desk.paper.records();
    let mut again = Desk::after(&records);
    let client = again.client();
    assert_eq!(options(&mut again, client), shown);
    let more = "CREATE TABLE other (n int PRIMARY KEY) WITH (root = true)";
    all_fail(&mut again, client, &[(more, "42P16")]);
}

#[test]
fn a_root_key_may_have_several_columns() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE r (a text, b uuid, PRIMARY KEY (a, b)) WITH (root)",
            "CREATE TABLE t (x text, y uuid, n int, PRIMARY KEY (x, y, n), FOREIGN KEY (x, y) REFERENCES r, \
             UNIQUE (x, y)) WITH (root = r, key = (x, y))",
        ],
    );
    assert_eq!(options(&mut desk, client), ["r|{root=true}", "t|{root=r,\"key=(x, y)\"}"]);
    let swapped = "CREATE TABLE u (x text, y uuid, PRIMARY KEY (y, x), FOREIGN KEY (y, x) REFERENCES r (b, a)) \
                   WITH (root = r, key = (y, x))";
    all_fail(&mut desk, client, &[(swapped, "42P16"), ("CREATE INDEX ON t (x)", "0A000")]);
}

#[test]
fn what_a_partition_could_not_check_alone_is_refused() {
    let (mut desk, client) = tree();
    let table = |columns: &str| format!("CREATE TABLE t ({columns}) WITH (root = warehouse, key = w)");
    let w = "w int REFERENCES warehouse";
    let refused = [
        (table("w int PRIMARY KEY"), "42P16"),
        (table("v int REFERENCES warehouse, PRIMARY KEY (v)"), "42P16"),
        (table(w), "42P16"),
        (table(&format!("{w}, n int, PRIMARY KEY (n, w)")), "42P16"),
        (table("w bigint REFERENCES warehouse, n int, PRIMARY KEY (w, n)"), "42P16"),
        (table(&format!("{w}, n int UNIQUE, PRIMARY KEY (w, n)")), "0A000"),
        (table(&format!("{w}, n int REFERENCES item, PRIMARY KEY (w, n)")), "0A000"),
        (table(&format!("{w}, n int, m int, PRIMARY KEY (w, n), FOREIGN KEY (m, n) REFERENCES district")), "0A000"),
        (table(&format!("{w}, n int, up int, PRIMARY KEY (w, n), FOREIGN KEY (up, n) REFERENCES t")), "0A000"),
        ("CREATE TABLE g (w int REFERENCES warehouse) WITH (global)".to_owned(), "0A000"),
    ];
    for (text, state) in &refused {
        assert_eq!(desk.run(client, text), Seen::Failed(state), "{text}");
    }
    let together = format!("{w}, n int, up int, PRIMARY KEY (w, n), FOREIGN KEY (w, up) REFERENCES t, UNIQUE (w, up)");
    desk.setup(
        client,
        &[
            &table(&together),
            "CREATE TABLE g (i int REFERENCES item) WITH (global)",
            "CREATE TABLE p (w int REFERENCES warehouse, i int REFERENCES item)",
        ],
    );
}

#[test]
fn options_that_say_nothing_are_refused() {
    let (mut desk, client) = tree();
    let table = |options: &str| format!("CREATE TABLE t (w int PRIMARY KEY REFERENCES warehouse) WITH ({options})");
    let refused = [
        ("root, global", "22023"),
        ("root, root", "22023"),
        ("key = w", "22023"),
        ("root = warehouse", "22023"),
        ("root, key = w", "22023"),
        ("root = 'warehouse', key = w", "22023"),
        ("root = warehouse, key = 1", "22023"),
        ("root = warehouse, key = (w, 1)", "22023"),
        ("root = nothing, key = w", "42P01"),
        ("root = district, key = w", "42809"),
        ("root = item, key = w", "42809"),
        ("root = warehouse, key = nothing", "42P16"),
        ("global = 3", "0A000"),
        ("autovacuum_enabled = false", "0A000"),
    ];
    for (options, state) in refused {
        assert_eq!(desk.run(client, &table(options)), Seen::Failed(state), "{options}");
    }
    assert_eq!(desk.run(client, &table("root = warehouse, key = w, fillfactor = 90")), done("CREATE TABLE"));
    let without = [
        ("CREATE TABLE u (n int) WITH (root)", "42P16"),
        ("CREATE TEMP TABLE u (n int PRIMARY KEY) WITH (global)", "42P16"),
    ];
    all_fail(&mut desk, client, &without);
    desk.setup(client, &["CREATE TABLE IF NOT EXISTS warehouse (n int) WITH (root)"]);
}

#[test]
fn what_is_placed_stays_as_its_placement_wants_it() {
    let (mut desk, client) = tree();
    let refused = [
        ("CREATE INDEX ON warehouse (name)", "0A000"),
        ("CREATE UNIQUE INDEX ON district (name, w)", "0A000"),
        ("CREATE INDEX ON district (w DESC, name)", "0A000"),
        ("ALTER TABLE district ADD UNIQUE (d)", "0A000"),
        ("ALTER TABLE customer ADD COLUMN up int REFERENCES item", "0A000"),
        ("ALTER TABLE warehouse DROP CONSTRAINT warehouse_pkey CASCADE", "2BP01"),
        ("ALTER TABLE warehouse ALTER w TYPE bigint", "42P16"),
        ("ALTER TABLE district ALTER w TYPE bigint", "42P16"),
        ("ALTER TABLE district DROP CONSTRAINT district_pkey CASCADE", "42P16"),
        ("ALTER TABLE district DROP CONSTRAINT district_w_fkey", "2BP01"),
        ("ALTER TABLE district DROP COLUMN w CASCADE", "2BP01"),
        ("DROP TABLE warehouse", "2BP01"),
        ("DROP TABLE warehouse CASCADE", "2BP01"),
    ];
    all_fail(&mut desk, client, &refused);
    desk.setup(
        client,
        &[
            "CREATE UNIQUE INDEX ON district (w, name) WHERE d > 1",
            "ALTER TABLE customer DROP CONSTRAINT customer_w_d_fkey",
            "ALTER TABLE customer DROP CONSTRAINT customer_pkey, ADD PRIMARY KEY (w, c)",
            "INSERT INTO warehouse VALUES (1, 'one')",
            "INSERT INTO customer VALUES (1, 2, 3, 'c')",
            "DROP TABLE warehouse, district, customer",
            "CREATE TABLE warehouse (w int PRIMARY KEY) WITH (root)",
        ],
    );
}

#[test]
fn two_transactions_do_not_make_two_roots() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["BEGIN", "CREATE TABLE one (n int PRIMARY KEY) WITH (root)"]);
    let other = "CREATE TABLE two (n int PRIMARY KEY) WITH (root)";
    assert_eq!(desk.run(b, other), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.run(b, other), Seen::Failed("42P16"));
}
