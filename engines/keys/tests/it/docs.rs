//! The list of commands in the user guide is that of the table.

use std::fmt::Write as _;

use savanna_keys::command::{Group, TABLE};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/keys.md");
const BEGIN: &str = "<!-- commands: begin, written by `UPDATE_SNAPSHOTS=1 cargo test -p savanna-keys` -->\n";
const END: &str = "<!-- commands: end -->\n";

const GROUPS: [(Group, &str); 16] = [
    (Group::String, "Strings"),
    (Group::Bitmap, "Bitmaps"),
    (Group::HyperLogLog, "HyperLogLogs"),
    (Group::Hash, "Hashes"),
    (Group::List, "Lists"),
    (Group::Set, "Sets"),
    (Group::SortedSet, "Sorted sets"),
    (Group::Stream, "Streams"),
    (Group::Geo, "Places"),
    (Group::Generic, "Keys of any type"),
    (Group::Transactions, "Transactions"),
    (Group::Scripting, "Scripts"),
    (Group::PubSub, "Messages"),
    (Group::Connection, "Connection"),
    (Group::Server, "Server"),
    (Group::Cluster, "Cluster"),
];

fn list() -> String {
    let mut list = String::new();
    for (group, title) in GROUPS {
        let commands = TABLE.iter().filter(|command| command.group == group);
        write!(list, "\n### {title}\n\n| command | class | |\n|---|---|---|\n").expect("writes");
        for command in commands {
            let (name, class) = (command.name.to_uppercase(), command.class.name());
            writeln!(list, "| `{name}` | {class} | {} |", command.summary).expect("writes");
        }
    }
    list.push('\n');
    list
}

#[test]
fn the_page_lists_the_commands_of_the_table() {
    assert!(TABLE.iter().all(|command| GROUPS.iter().any(|(group, _)| *group == command.group)));
    let page = std::fs::read_to_string(PAGE).expect("docs/keys.md");
    let (before, rest) = page.split_once(BEGIN).expect("where the list begins");
    let (_, after) = rest.split_once(END).expect("where the list ends");
    let expected = format!("{before}{BEGIN}{}{END}{after}", list());
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(PAGE, expected).expect("writes docs/keys.md");
    } else {
        assert!(page == expected, "docs/keys.md differs from the table; run with UPDATE_SNAPSHOTS=1");
    }
}
