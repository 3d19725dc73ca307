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
                show_usage(&usage(&connection).await?, format)?;
            }
            Ok(Exit::Done)
        }
        FunctionsCommand::Invoke(invoke) => run_one(&connect(&invoke.of.url)?, format, &invoke).await,
        FunctionsCommand::Logs(one) => {
            let path = format!("/savanna/functions/{}/log", path_part(&one.function));
            output::write(&connect(&one.of.url)?.ask(Method::GET, &path, &[], Vec::new()).await?.body)?;
            Ok(Exit::Done)
        }
        FunctionsCommand::Delete(one) => {
            let path = format!("/2015-03-31/functions/{}", path_part(&one.function));
            connect(&one.of.url)?.ask(Method::DELETE, &path, &[], Vec::new()).await?;
            match format {
                Format::Json => output::write_json(&serde_json::json!({ "deleted": one.function }))?,
                Format::Table => output::write(format!("{} is deleted\n", one.function).as_bytes())?,
            }
            Ok(Exit::Done)
        }
    }
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

fn show_usage(shown: &Value, format: Format) -> Result<(), CliError> {
    show(
        shown,
        format,
        &[
            "name",
            "busy",
            "queued",
            "requests",
            "errors",
            "throttles",
            "cold_starts",
            "billed_ms",
            "gb_seconds",
            "dollars",
        ],
    )
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
