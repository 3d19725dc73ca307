//! `savanna metrics`.

use savanna_node::Config;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::{Format, OfNode};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn run(config: &Config, format: Format, of: &OfNode) -> Result<Exit, CliError> {
    let client = Client::new(of.remote.url.as_deref(), &of.remote.trust, config.node())?;
    let text = client.metrics(of.node.as_deref()).await.map_err(|error| client.explain(error))?;
    match format {
        Format::Table => output::write(text.as_bytes())?,
        Format::Json => text.lines().filter_map(sample).try_for_each(|sample| output::write_json(&sample))?,
    }
    Ok(Exit::Done)
}

/// A line of a metric's.
#[derive(Debug, PartialEq, Serialize)]
struct Sample {
    metric: String,
    labels: Map<String, Value>,
    value: f64,
}

/// A sample in a line of OpenMetrics text: `name{label="value",..} 1.5`. What is told of families is no sample.
fn sample(line: &str) -> Option<Sample> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (metric, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Map::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { metric: metric.to_owned(), labels, value })
}

/// Labels up to the closing bracket, and what is behind it.
fn labels(mut rest: &str) -> Option<(Map<String, Value>, &str)> {
    let mut labels = Map::new();
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, behind) = quoted_value(quoted)?;
        labels.insert(name.to_owned(), Value::String(value));
        rest = behind;
    }
}

/// A value up to its closing quote, with what was escaped as it was meant, and what is behind it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn samples_are_read_with_their_labels_whatever_is_in_these() {
        let read = |line| sample(line).map(|sample| json!([sample.metric, sample.labels, sample.value]));
        assert_eq!(read("savanna_node_uptime_seconds 1.5"), Some(json!(["savanna_node_uptime_seconds", {}, 1.5])));
        let labelled = r#"hot{key="a \"b\", {c}\\\n",le="+Inf"} 7"#;
        assert_eq!(read(labelled), Some(json!(["hot", { "key": "a \"b\", {c}\\\n", "le": "+Inf" }, 7.0])));
        for line in ["# TYPE hot counter", "# EOF", "", "name", "name{a=\"b} 1", "name{a} 1", "name one"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
