//! The list of settings in the guide is that of the table.

use std::fmt::Write as _;

use savanna_node::config::SETTINGS;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating.md");
const BEGIN: &str = "<!-- settings: begin, written by `UPDATE_SNAPSHOTS=1 cargo test -p savanna-node` -->\n";
const END: &str = "<!-- settings: end -->\n";

fn list() -> String {
    let mut list = "\n| setting | default | |\n|---|---|---|\n".to_owned();
    for spec in SETTINGS {
        let default = if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) };
        writeln!(list, "| `{}` | {default} | {} |", spec.key, spec.help).unwrap();
    }
    list.push('\n');
    list
}

#[test]
fn the_page_lists_the_settings_of_the_table() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the list begins");
    let (_, after) = rest.split_once(END).expect("where the list ends");
    let expected = format!("{before}{BEGIN}{}{END}{after}", list());
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(PAGE, expected).unwrap();
    } else {
        assert!(page == expected, "docs/operating.md differs from the table; run with UPDATE_SNAPSHOTS=1");
    }
}
