//! `savanna functions`.

mod connection;

use std::time::Duration;

use reqwest::Method;
use savanna_node::Config;
use serde_json::Value;

use self::connection::{Answer, Connection};
use crate::args::{Format, FunctionsCommand, InvokeFunction};
use crate::client::path_part;
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn run(config: &Config, format: Format, command: FunctionsCommand) -> Result<Exit, CliError> {
    let connect = |url: &Option<String>| Connection::new(url.as_deref(), config.node());
    match command {
        FunctionsCommand::List(of) => list(&connect(&of.url)?, format).await,
        FunctionsCommand::Top(top) => {
            let connection = connect(&top.of.url)?;
            for number in 0..top.count.unwrap_or(u32::MAX) {
                if number > 0 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                let used = usage(&connection).await?;
                let used = match &top.query {
                    Some(query) => used_by(&used, query)?,
                    None => used,
                };
                show_usage(&used, format)?;
            }
            Ok(Exit::Done)
        }
        FunctionsCommand::Invoke(invoke) => run_one(&connect(&invoke.of.url)?, format, &invoke).await,
        FunctionsCommand::Logs(one) => {
            let path = format!("/savanna/functions/{}/log", path_part(&one.function));
            output::write(&connect(&one.of.url)?.ask(Method::GET, &path, &[], Vec::new()).await?.body)?;
            Ok(Exit::Done)
        }
        FunctionsCommand::Delete(delete) => {
            let connection = connect(&delete.of.url)?;
            let names = match &delete.query {
                Some(query) => of_query(&usage(&connection).await?, query)?,
                None => delete.function.into_iter().collect(),
            };
            for name in names {
                let path = format!("/2015-03-31/functions/{}", path_part(&name));
                connection.ask(Method::DELETE, &path, &[], Vec::new()).await?;
                match format {
                    Format::Json => output::write_json(&serde_json::json!({ "deleted": name }))?,
                    Format::Table => output::write(format!("{name} is deleted\n").as_bytes())?,
                }
            }
            Ok(Exit::Done)
        }
    }
}

/// The functions of a query, which are called by its code, a stage and a member.
fn of_query(shown: &Value, query: &str) -> Result<Vec<String>, CliError> {
    let code = query.split('-').next().unwrap_or_default();
    let is_hash =
        |part: &str, digits: usize| part.len() == digits && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_hash(code, 12) {
        return Err(CliError::Usage(format!(
            "expected a query by its id, such as e8a2025be89d-1795990104616, got {query}"
        )));
    }
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    // CODE-STAGE-KIND, and CODE-STAGE-MEMBER-KIND.
    let is_of_query = |name: &str| match name.split('-').collect::<Vec<_>>().as_slice() {
        [of, numbers @ .., kind] => {
            *of == code && (1..=2).contains(&numbers.len()) && numbers.iter().all(is_number) && is_hash(kind, 8)
        }
        _ => false,
    };
    let names = shown["functions"].as_array().into_iter().flatten().filter_map(|row| row["name"].as_str());
    let names: Vec<String> = names.filter(|name| is_of_query(name)).map(str::to_owned).collect();
    if names.is_empty() {
        return Err(CliError::Refused(format!(
            "the node has no functions of query {code}; `savanna functions list` shows those that it has"
        )));
    }
    Ok(names)
}

/// What the functions of a query have used, each and together.
fn used_by(shown: &Value, query: &str) -> Result<Value, CliError> {
    let names = of_query(shown, query)?;
    let rows = shown["functions"].as_array().into_iter().flatten();
    let mut rows: Vec<Value> =
        rows.filter(|row| names.iter().any(|name| row["name"] == name.as_str())).cloned().collect();
    let mut all = serde_json::json!({ "name": "all" });
    for column in USED {
        let values = rows.iter().map(|row| &row[column]);
        all[column] = match rows.iter().any(|row| row[column].is_f64()) {
            true => values.filter_map(Value::as_f64).sum::<f64>().into(),
            false => values.filter_map(Value::as_u64).sum::<u64>().into(),
        };
    }
    rows.push(all);
    Ok(serde_json::json!({ "isolation": shown["isolation"], "functions": rows }))
}

async fn usage(connection: &Connection) -> Result<Value, CliError> {
    let Answer { body, .. } = connection.ask(Method::GET, "/savanna/functions", &[], Vec::new()).await?;
    serde_json::from_slice(&body)
        .map_err(|error| CliError::Refused(format!("the node answered with something else than expected: {error}")))
}

async fn list(connection: &Connection, format: Format) -> Result<Exit, CliError> {
    let shown = usage(connection).await?;
    show(&shown, format, &["name", "runtime", "memory_mb", "instances", "busy", "queued"])?;
    if format == Format::Table {
        let isolation = shown["isolation"].as_str().unwrap_or_default();
        output::write(format!("functions are kept apart by: {isolation}\n").as_bytes())?;
    }
    Ok(Exit::Done)
}

/// What is counted of each function.
const USED: [&str; 9] =
    ["busy", "queued", "requests", "errors", "throttles", "cold_starts", "billed_ms", "gb_seconds", "dollars"];

fn show_usage(shown: &Value, format: Format) -> Result<(), CliError> {
    let columns: Vec<&str> = ["name"].into_iter().chain(USED).collect();
    show(shown, format, &columns)
}

fn show(shown: &Value, format: Format, columns: &[&str]) -> Result<(), CliError> {
    if format == Format::Json {
        return output::write_json(shown);
    }
    let cell = |row: &Value, column: &&str| match &row[*column] {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.6}", number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    };
    let rows = shown["functions"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = rows.map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect();
    output::write(output::text_table(columns, &rows).as_bytes())
}

/// Runs a function: its answer goes to standard output, what it printed to standard error.
async fn run_one(connection: &Connection, format: Format, invoke: &InvokeFunction) -> Result<Exit, CliError> {
    let payload = match invoke.payload.as_deref() {
        None => b"{}".to_vec(),
        Some(text) => match text.strip_prefix('@') {
            Some(path) => std::fs::read(path).map_err(CliError::io(format!("reading {path}")))?,
            None => text.as_bytes().to_vec(),
        },
    };
    let mut path = format!("/2015-03-31/functions/{}/invocations", path_part(&invoke.function));
    if let Some(qualifier) = &invoke.qualifier {
        path += &format!("?Qualifier={}", path_part(qualifier));
    }
    let kind = if invoke.event { "Event" } else { "RequestResponse" };
    let headers = [("x-amz-invocation-type", kind), ("x-amz-log-type", if invoke.tail { "Tail" } else { "None" })];
    let answer = connection.ask(Method::POST, &path, &headers, payload).await?;
    if let Some(tail) = &answer.tail {
        eprint!("{}", String::from_utf8_lossy(tail));
    }
    match (invoke.event, format) {
        (true, Format::Table) => output::write(b"accepted\n")?,
        (true, Format::Json) => output::write_json(&serde_json::json!({ "accepted": invoke.function }))?,
        (false, _) => {
            output::write(&answer.body)?;
            output::write(b"\n")?;
        }
    }
    Ok(if answer.is_error { Exit::Failed } else { Exit::Done })
}
