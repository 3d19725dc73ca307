//! `savanna queries`.

use savanna_http::types::{Queries, Query, Savepoint};
use savanna_node::Config;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{Format, OneQuery, QueriesCommand, Remote, ResumeQuery, StopQuery};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::output;

/// How much of a statement a list shows.
const STATEMENT_CHARS: usize = 60;

pub(crate) async fn run(config: &Config, format: Format, command: &QueriesCommand) -> Result<Exit, CliError> {
    match command {
        QueriesCommand::List(remote) => list(&client(config, remote)?, format).await,
        QueriesCommand::Show(one) => show(&client(config, &one.remote)?, format, one).await,
        QueriesCommand::Stop(stop) => self::stop(&client(config, &stop.one.remote)?, format, stop).await,
        QueriesCommand::Resume(resume) => self::resume(&client(config, &resume.remote)?, format, resume).await,
        QueriesCommand::Drop(one) => {
            tell(&client(config, &one.remote)?, format, &one.query, "drop", &json!({}), "is gone").await
        }
    }
}

fn client(config: &Config, remote: &Remote) -> Result<Client, CliError> {
    Client::new(remote.url.as_deref(), &remote.trust, config.node())
}

async fn list(client: &Client, format: Format) -> Result<Exit, CliError> {
    let listed: Queries = client.get("queries").await.map_err(|error| client.explain(error))?;
    if format == Format::Json {
        output::write_json(&listed)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = listed.queries.iter().map(row).collect();
    let headers =
        ["query", "name", "state", "events", "rows", "late", "skipped", "epoch", "state bytes", "seconds", "statement"];
    output::write(output::text_table(&headers, &rows).as_bytes())?;
    Ok(Exit::Done)
}

fn row(query: &Query) -> Vec<String> {
    let one_line = query.statement.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut statement: String = one_line.chars().take(STATEMENT_CHARS).collect();
    if statement.len() < one_line.len() {
        statement.push_str("..");
    }
    vec![
        query.query.clone(),
        query.name.clone().unwrap_or_default(),
        state(query),
        query.events.to_string(),
        query.result_rows.to_string(),
        query.late_rows.to_string(),
        query.skipped_rows.to_string(),
        query.epoch.to_string(),
        query.state_bytes.to_string(),
        format!("{:.1}", query.seconds),
        statement,
    ]
}

/// As JSON writes it.
fn state(query: &Query) -> String {
    json!(query.state).as_str().unwrap_or_default().to_owned()
}

async fn show(client: &Client, format: Format, one: &OneQuery) -> Result<Exit, CliError> {
    let path = format!("queries/{}", path_part(&one.query)?);
    let query: Query = client.get(&path).await.map_err(|error| client.explain(error))?;
    if format == Format::Json {
        output::write_json(&query)?;
        return Ok(Exit::Done);
    }
    let Value::Object(fields) = json!(query) else {
        return Ok(Exit::Done);
    };
    let plain = |value: Value| match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> = fields.into_iter().map(|(name, value)| vec![name, plain(value)]).collect();
    output::write(output::text_table(&["field", "value"], &rows).as_bytes())?;
    Ok(Exit::Done)
}

async fn stop(client: &Client, format: Format, stop: &StopQuery) -> Result<Exit, CliError> {
    let query = &stop.one.query;
    if let Some(directory) = &stop.with_savepoint {
        let savepoint = Savepoint { directory: directory.clone() };
        let done = format!("is stopped, and is in {directory}");
        return tell(client, format, query, "savepoint", &savepoint, &done).await;
    }
    let path = format!("queries/{}", path_part(query)?);
    client.delete(&path).await.map_err(|error| client.explain(error))?;
    match format {
        Format::Json => output::write_json(&json!({ "query": query, "stopped": true }))?,
        Format::Table => output::write(format!("query {query} stops\n").as_bytes())?,
    }
    Ok(Exit::Done)
}

async fn resume(client: &Client, format: Format, resume: &ResumeQuery) -> Result<Exit, CliError> {
    if let Some(query) = &resume.query {
        return tell(client, format, query, "resume", &json!({}), "goes on").await;
    }
    let directory = resume.from_savepoint.clone().unwrap_or_default();
    let savepoint = Savepoint { directory };
    client.create_long("queries", &savepoint).await.map_err(|error| client.explain(error))?;
    match format {
        Format::Json => output::write_json(&json!({ "savepoint": savepoint.directory, "done": "resume" }))?,
        Format::Table => output::write(format!("the query of {} goes on\n", savepoint.directory).as_bytes())?,
    }
    Ok(Exit::Done)
}

/// Has the node do something with a query of which there is no more to say than that it was done.
async fn tell(
    client: &Client,
    format: Format,
    query: &str,
    verb: &str,
    body: &impl Serialize,
    done: &str,
) -> Result<Exit, CliError> {
    let path = format!("queries/{}/{verb}", path_part(query)?);
    client.create_long(&path, body).await.map_err(|error| client.explain(error))?;
    match format {
        Format::Json => output::write_json(&json!({ "query": query, "done": verb }))?,
        Format::Table => output::write(format!("query {query} {done}\n").as_bytes())?,
    }
    Ok(Exit::Done)
}

/// An id or a name goes into a path; anything else would ask for something else.
fn path_part(query: &str) -> Result<&str, CliError> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if query.chars().all(harmless) && !query.is_empty() {
        return Ok(query);
    }
    Err(CliError::Usage(format!("expected a query's id or name, as `savanna queries list` shows it, came {query:?}")))
}
