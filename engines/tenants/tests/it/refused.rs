//! What there is not is refused, and never taken without effect.

use crate::desk::{Desk, Seen};

#[test]
fn what_is_not_supported_is_refused_and_never_taken_without_effect() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY)"]);
    let statements = include_str!("../refused.sql").split(";\n").filter(|text| !text.trim().is_empty());
    let taken: Vec<(&str, Seen)> = statements
        .map(|text| (text.trim(), desk.run(client, text)))
        // 42601 is what the parser does not know.
        .filter(|(_, seen)| !matches!(seen, Seen::Failed("0A000" | "42601")))
        .collect();
    assert!(taken.is_empty(), "{taken:#?}");
}
