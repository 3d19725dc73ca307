//! Connectors by name.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::names::near;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{ConnectorInfo, Connectors, Source};

use crate::blackhole::Blackhole;
use crate::connector::Connector;
use crate::datagen::Datagen;
use crate::delta::Delta;
use crate::file::FileConnector;
use crate::http::{Function, Webhook};
use crate::kafka::Kafka;
use crate::nexmark::Nexmark;
use crate::options::Presence;
use crate::postgres::{Postgres, PostgresChanges};
use crate::print::Print;
use crate::redis::Redis;
use crate::roots::Roots;
use crate::stdin::Stdin;

/// The connectors of this crate.
#[derive(Debug)]
pub struct BuiltinConnectors {
    connectors: Vec<Box<dyn Connector>>,
}

impl Default for BuiltinConnectors {
    fn default() -> Self {
        Self::new()
    }
}

impl BuiltinConnectors {
    /// With this process's standard input and output.
    pub fn new() -> Self {
        Self::with_streams(Box::new(std::io::stdin()), Arc::new(Mutex::new(std::io::stdout())))
    }

    /// With this process's standard input and output, and files below some folders only.
    pub fn with_roots(roots: Roots) -> Self {
        Self::with(Box::new(std::io::stdin()), Arc::new(Mutex::new(std::io::stdout())), roots)
    }

    /// With other streams for `stdin` to read and `print` to write. `input` can be read by one query, once.
    pub fn with_streams(input: Box<dyn Read + Send>, output: Arc<Mutex<dyn Write + Send>>) -> Self {
        Self::with(input, output, Roots::anywhere())
    }

    fn with(input: Box<dyn Read + Send>, output: Arc<Mutex<dyn Write + Send>>, roots: Roots) -> Self {
        Self {
            connectors: vec![
                Box::new(Nexmark),
                Box::new(Datagen),
                Box::new(FileConnector { roots: roots.clone() }),
                Box::<Kafka>::default(),
                Box::new(Postgres),
                Box::new(PostgresChanges),
                Box::new(Redis),
                Box::new(Delta { roots: roots.clone() }),
                Box::new(Webhook),
                Box::new(Function),
                Box::new(Stdin { input: Arc::new(Mutex::new(Some(input))), roots }),
                Box::new(Print { output }),
                Box::new(Blackhole),
            ],
        }
    }

    fn find(&self, table: &TableDef) -> Result<&dyn Connector> {
        let found = self.connectors.iter().find(|c| c.name() == table.connector());
        found.map(AsRef::as_ref).ok_or_else(|| {
            let known = self.names(|_| true);
            if table.options.contains_key("connector") {
                StreamError::Unknown {
                    kind: "connector".into(),
                    name: format!("'{}'", table.connector()),
                    position: None,
                    hint: match near(table.connector(), self.connectors.iter().map(|c| c.name())).first() {
                        Some(near) => format!("did you mean '{near}'?"),
                        None => format!("there are {known}"),
                    },
                }
            } else {
                StreamError::invalid(format!("table {} needs option 'connector': one of {known}", table.name))
            }
        })
    }

    fn find_writing(&self, table: &TableDef) -> Result<&dyn Connector> {
        let connector = self.find(table)?;
        if connector.promise().delivery.is_none() {
            return Err(StreamError::invalid(format!(
                "table {} cannot be written, because connector {} only reads; the connectors that write are {}",
                table.name,
                connector.name(),
                self.names(|c| c.promise().delivery.is_some())
            )));
        }
        Ok(connector)
    }

    fn names(&self, which: impl Fn(&dyn Connector) -> bool) -> String {
        let connectors = self.connectors.iter().filter(|c| which(c.as_ref()));
        connectors.map(|c| c.name()).collect::<Vec<_>>().join(", ")
    }

    /// The reference of all connectors and options in Markdown, for the documentation.
    pub fn reference(&self) -> String {
        let mut text = String::new();
        for connector in &self.connectors {
            let promise = connector.promise();
            text += &format!("## {}\n\n", connector.name());
            if let Some(replayable) = promise.replayable {
                text += if replayable { "Source; can be read again.\n\n" } else { "Source; can be read once.\n\n" };
            }
            text += match promise.delivery {
                Some(Delivery::ExactlyOnce) => "Sink; holds every row exactly once.\n\n",
                Some(Delivery::AtLeastOnce) => "Sink; may show rows of the last epoch again after a crash.\n\n",
                // No sink promises so little.
                Some(Delivery::AtMostOnce) | None => "",
            };
            if connector.options().is_empty() {
                text += "No options.\n\n";
                continue;
            }
            text += "| option | value | default | |\n|---|---|---|---|\n";
            for option in connector.options() {
                let default = match option.presence {
                    Presence::Required => "required".to_owned(),
                    Presence::Optional => String::new(),
                    Presence::Default(value) => format!("`{}`", value.replace('|', "\\|")),
                };
                text += &format!("| `{}` | {} | {default} | {} |\n", option.name, option.kind.describe(), option.help);
            }
            text.push('\n');
        }
        text
    }
}

impl Connectors for BuiltinConnectors {
    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        let connector = self.find(table)?;
        if connector.promise().replayable.is_none() {
            return Err(StreamError::invalid(format!(
                "table {} cannot be read, because connector {} only writes; the connectors that read are {}",
                table.name,
                connector.name(),
                self.names(|c| c.promise().replayable.is_some())
            )));
        }
        connector.source(table)
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        self.find_writing(table)?.sink(table, schema)
    }

    fn delivery(&self, table: &TableDef) -> Result<Delivery> {
        self.find_writing(table)?.delivery(table)
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        let connector = self.find(table)?;
        if !table.partitioned_by.is_empty() && connector.name() != crate::file::NAME {
            return Err(StreamError::Unsupported {
                what: format!("PARTITIONED BY with connector {}", connector.name()),
                position: None,
                instead: format!("only '{}' writes folders; leave it out", crate::file::NAME),
            });
        }
        connector.check(table)
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        let info = |connector: &dyn Connector| {
            let promise = connector.promise();
            let options = connector.options().iter().map(|option| match option.presence {
                Presence::Required => format!("{} (required)", option.name),
                Presence::Optional => option.name.to_owned(),
                Presence::Default(value) => format!("{} = {value}", option.name),
            });
            ConnectorInfo {
                name: connector.name().to_owned(),
                source: promise.replayable.is_some(),
                sink: promise.delivery.is_some(),
                replayable: promise.replayable.unwrap_or(false),
                delivery: promise.delivery,
                options: options.collect::<Vec<_>>().join(", "),
            }
        };
        self.connectors.iter().map(AsRef::as_ref).map(info).collect()
    }
}
