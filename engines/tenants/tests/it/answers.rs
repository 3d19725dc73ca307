//! The files of `tests/sql`: statements with the answers that PostgreSQL 15 gives. `tests/tenants/test_answers.py` compares them with a
//! PostgreSQL, and writes them.
//!
//! A statement ends with `;` at the end of a line. Lines that begin with `> ` are its rows, sorted unless it says `ORDER BY`; with
//! `! ` its SQLSTATE; with `= ` its tag if it has no rows.

use savanna_tenants_store::large::Limits;

use crate::desk::{Desk, Seen};

/// The statements of a file, each with its answer.
fn statements(file: &str) -> Vec<(String, Vec<String>)> {
    let mut statements: Vec<(String, Vec<String>)> = Vec::new();
    let mut statement = String::new();
    for line in file.lines() {
        if line.starts_with("> ") || line.starts_with("! ") || line.starts_with("= ") {
            let (_, answer) = statements.last_mut().expect("an answer follows a statement");
            answer.push(line.to_owned());
        } else if !line.starts_with("--") && !line.is_empty() {
            statement.push_str(line);
            if let Some(whole) = statement.strip_suffix(';') {
                statements.push((whole.to_owned(), Vec::new()));
                statement.clear();
            } else {
                statement.push('\n');
            }
        }
    }
    statements
}

fn answer(seen: Seen, statement: &str) -> Vec<String> {
    match seen {
        Seen::Rows(mut rows) => {
            if !statement.to_uppercase().contains("ORDER BY") {
                rows.sort();
            }
            rows.into_iter().map(|row| format!("> {row}")).collect()
        }
        Seen::Done(tag) => vec![format!("= {tag}")],
        Seen::Failed(state) => vec![format!("! {state}")],
        Seen::Waits => vec!["waits".to_owned()],
    }
}

#[test]
fn statements_have_postgresqls_answers() {
    answer_all(Desk::new);
}

#[test]
fn statements_have_the_same_answers_if_each_step_keeps_few_rows() {
    for rows_max in [1, 3, 10, 1_000] {
        let mut folders = Vec::new();
        answer_all(|| {
            let (desk, _, folder) = Desk::new().spilling(rows_max);
            folders.push(folder);
            desk
        });
    }
}

#[test]
fn statements_have_the_same_answers_if_no_transaction_is_in_the_log() {
    answer_all(|| Desk::stored(1 << 20).in_parts(Limits { parts_from: 0, most: 1 << 30 }));
}

/// Asks everything of a desk for each file.
fn answer_all(mut desk: impl FnMut() -> Desk) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sql");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there are files");
    let mut wrong = Vec::new();
    for path in files {
        let file = std::fs::read_to_string(&path).expect("a text");
        let mut desk = desk();
        let client = desk.client();
        for (statement, expected) in statements(&file) {
            let seen = answer(desk.run(client, &statement), &statement);
            if seen != expected {
                wrong.push(format!("{}: {statement}\n  expected {expected:?}\n  came     {seen:?}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
