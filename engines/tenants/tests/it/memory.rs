//! Memory of statements, which all tenants share.

use savanna_tenants_values::memory::Pool;

use crate::desk::{Desk, Seen};

/// About 5 MiB of rows.
const MUCH: &str = "SELECT repeat('x', 1000) FROM generate_series(1, 5000)";

#[test]
fn statements_beyond_the_memory_of_all_are_refused_until_others_were_told_of() {
    let mut desk = Desk::new();
    desk.tenant = desk.tenant.sharing(Pool::new(8 << 20));
    let (one, other) = (desk.client(), desk.client());
    assert!(matches!(desk.run(one, MUCH), Seen::Rows(_)));
    assert_eq!(desk.run(other, MUCH), Seen::Failed("53200"));
    assert_eq!(desk.query(other, "SELECT 1"), ["1"], "what is small goes on");
    desk.tenant.told(one);
    desk.tenant.told(other);
    assert!(matches!(desk.run(other, MUCH), Seen::Rows(_)));
    desk.tenant.close_session(other);
    assert!(matches!(desk.run(one, MUCH), Seen::Rows(_)));
}

#[test]
fn without_a_bound_nobody_is_refused() {
    let mut desk = Desk::new();
    for _ in 0..3 {
        let client = desk.client();
        assert!(matches!(desk.run(client, MUCH), Seen::Rows(_)));
    }
}

#[test]
fn exists_is_asked_for_each_row_if_there_is_no_memory_for_all() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE wide (id int PRIMARY KEY, w text)",
            "INSERT INTO wide SELECT g, repeat('x', 4000) || g % 7 FROM generate_series(1, 2000) g",
        ],
    );
    desk.tenant = desk.tenant.sharing(Pool::new(2 << 20));
    let client = desk.client();
    for (not, count) in [("", "1714"), ("NOT ", "286")] {
        let exists = "EXISTS (SELECT 1 FROM wide o WHERE o.id = w.id AND o.w = w.w AND o.id % 7 <> 3)";
        assert_eq!(desk.query(client, &format!("SELECT count(*) FROM wide w WHERE {not}{exists}")), [count]);
    }
}
