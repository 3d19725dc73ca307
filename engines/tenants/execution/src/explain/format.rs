//! The steps of a plan as lines, and as JSON.

use savanna_tenants_values::value::json::write_string;

use super::{Count, Shown};

impl Count {
    /// The rows of one loop, on average.
    fn rows_per_loop(self) -> u64 {
        (self.rows + self.loops / 2).checked_div(self.loops).unwrap_or(0)
    }
}

/// A line for each step, indented below the one that it gives its rows to, and one for each of its details.
pub(super) fn text(step: &Shown) -> Vec<String> {
    let mut lines = Vec::new();
    add(step, 0, &mut lines);
    lines
}

fn add(step: &Shown, indent: usize, lines: &mut Vec<String>) {
    let mut indent = indent;
    if let Some(role) = &step.role {
        lines.push(format!("{:indent$}{role}", ""));
        indent += 2;
    }
    let mut line = " ".repeat(indent);
    if indent > 0 {
        line.push_str("->  ");
        indent += 4;
    }
    line.push_str(&step.kind);
    if let Some(indexes) = &step.indexes {
        line.push_str(&format!(" using {indexes}"));
    }
    match (&step.relation, &step.alias) {
        (Some(relation), Some(alias)) => line.push_str(&format!(" on {relation} {alias}")),
        (Some(name), None) | (None, Some(name)) => line.push_str(&format!(" on {name}")),
        (None, None) => {}
    }
    match step.actual {
        Some(Count { loops: 0, .. }) => line.push_str(" (never executed)"),
        Some(count) => line.push_str(&format!(" (actual rows={} loops={})", count.rows_per_loop(), count.loops)),
        None => {}
    }
    lines.push(line);
    for (name, text) in &step.details {
        lines.push(format!("{:width$}{name}: {text}", "", width = indent + 2));
    }
    for input in &step.inputs {
        add(input, indent + 2, lines);
    }
}

/// An array of one object, as PostgreSQL has it.
pub(super) fn json(step: &Shown) -> String {
    let mut out = "[\n  {\n    \"Plan\": ".to_owned();
    object(step, 4, &mut out);
    out.push_str("\n  }\n]");
    out
}

fn object(step: &Shown, indent: usize, out: &mut String) {
    let mut fields: Vec<(&str, String)> = vec![("Node Type", quoted(&step.kind))];
    let mut more = |name, text: &Option<String>| fields.extend(text.as_ref().map(|text| (name, quoted(text))));
    more("Subplan Name", &step.role);
    more("Index Name", &step.indexes);
    more("Relation Name", &step.relation);
    more("Alias", if step.alias.is_some() { &step.alias } else { &step.relation });
    if let Some(count) = step.actual {
        fields.push(("Actual Rows", count.rows_per_loop().to_string()));
        fields.push(("Actual Loops", count.loops.to_string()));
    }
    for (name, text) in &step.details {
        fields.push((name, if *name == "Rows Removed by Filter" { text.clone() } else { quoted(text) }));
    }
    out.push('{');
    for (at, (name, value)) in fields.iter().enumerate() {
        out.push_str(if at > 0 { ",\n" } else { "\n" });
        out.push_str(&format!("{:width$}\"{name}\": {value}", "", width = indent + 2));
    }
    if !step.inputs.is_empty() {
        out.push_str(&format!(",\n{:width$}\"Plans\": [\n", "", width = indent + 2));
        for (at, input) in step.inputs.iter().enumerate() {
            out.push_str(&format!("{}{:width$}", if at > 0 { ",\n" } else { "" }, "", width = indent + 4));
            object(input, indent + 4, out);
        }
        out.push_str(&format!("\n{:width$}]", "", width = indent + 2));
    }
    out.push_str(&format!("\n{:indent$}}}", ""));
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_string(text, &mut out);
    out
}
