//! The commands, one module each.

mod cluster;
mod config;
mod dev;
mod drain;
mod files;
mod functions;
mod keys;
mod metrics;
mod moves;
mod netns;
mod nexmark;
mod nodes;
mod queries;
mod sql;
mod status;
mod tenants;

use savanna_node::config::Sources;
use savanna_node::{Config, Join, telemetry};

use crate::args::{Args, Command, ConfigCommand, Dev, NexmarkCommand, NodeArgs, Serving, Shared};
use crate::error::{CliError, Exit};

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<Exit, CliError> {
    let config = configuration(&args)?;
    let format = args.shared.output;
    start_logs(&args, &config)?;
    match args.command {
        Command::Dev(Dev { nodes: Some(nodes), netns, .. }) => cluster::run(&config, &args.shared, nodes, netns).await,
        Command::Dev(_) => Box::pin(dev::run(config, format)).await,
        Command::Node(node) => dev::join(config, &node.join, format, node.stop_with_stdin).await,
        Command::Status(of) => status::run(&config, format, &of).await,
        Command::Metrics(of) => metrics::run(&config, format, &of).await,
        Command::Config(ConfigCommand::Show(of)) => config::show(&config, format, &of).await,
        Command::Sql(sql) => sql::run(&config, format, sql).await,
        Command::Nexmark(NexmarkCommand::Run(run)) => nexmark::run(&config, format, &run).await,
        Command::Nexmark(NexmarkCommand::Generate(generate)) => nexmark::generate(&config, format, &generate).await,
        Command::Nexmark(NexmarkCommand::Demo(demo)) => nexmark::demo(&config, format, &demo).await,
        Command::Queries(command) => queries::run(&config, format, &command).await,
        Command::Tenants(command) => tenants::run(&config, format, &command).await,
        Command::Keys(command) => keys::run(&config, format, command).await,
        Command::Files(command) => files::run(&config, format, command).await,
        Command::Functions(command) => functions::run(&config, format, command).await,
        Command::Nodes(remote) => nodes::nodes(&config, format, &remote).await,
        Command::Shards(shards) => nodes::shards(&config, format, &shards).await,
        Command::Move(args) => moves::one(&config, format, &args).await,
        Command::Moves(args) => moves::list(&config, format, &args).await,
        Command::Drain(args) => drain::drain(&config, format, &args).await,
    }
}

/// The configuration: file, environment, `--set`, and the command's own flags last.
fn configuration(args: &Args) -> Result<Config, CliError> {
    let Shared { config, settings, log, .. } = &args.shared;
    let mut sources = Sources::process(config.clone());
    for (key, value) in settings {
        sources = sources.flag(key, value, "--set");
    }
    let mut own = vec![("log", log, "--log")];
    let serving = match &args.command {
        Command::Dev(Dev { data_dir, serving, .. }) => {
            own.push(("data_dir", data_dir, "--data-dir"));
            Some(serving)
        }
        Command::Node(NodeArgs { join, data_dir, name, serving, .. }) => {
            sources = sources.flag("node.name", name, "--name");
            match (join, data_dir) {
                (Join::Directory(directory), None) => {
                    sources = sources.flag("data_dir", &directory.display().to_string(), "--join");
                }
                (Join::Directory(_), Some(_)) => {
                    let message = "the data directory is the one that is joined; leave --data-dir out";
                    return Err(CliError::Usage(message.to_owned()));
                }
                _ => own.push(("data_dir", data_dir, "--data-dir")),
            }
            Some(serving)
        }
        _ => None,
    };
    if let Some(serving) = serving {
        let Serving {
            only,
            address,
            pgwire_port,
            http_port,
            keys_port,
            keys_cluster_port,
            tenants_port,
            files_port,
            files_data_port,
            files_http_port,
            functions_port,
            cluster_port,
            files,
        } = serving;
        own.extend([
            ("services", only, "--only"),
            ("address", address, "--address"),
            ("pgwire.port", pgwire_port, "--pgwire-port"),
            ("http.port", http_port, "--http-port"),
            ("keys.port", keys_port, "--keys-port"),
            ("keys.cluster_port", keys_cluster_port, "--keys-cluster-port"),
            ("tenants.port", tenants_port, "--tenants-port"),
            ("files.port", files_port, "--files-port"),
            ("files.data_port", files_data_port, "--files-data-port"),
            ("files.http_port", files_http_port, "--files-http-port"),
            ("functions.port", functions_port, "--functions-port"),
            ("cluster.port", cluster_port, "--cluster-port"),
        ]);
        if !files.is_empty() {
            sources = sources.flag("streams.files", &files.join(","), "--files");
        }
    }
    for (key, value, flag) in own {
        if let Some(value) = value {
            sources = sources.flag(key, value, flag);
        }
    }
    Ok(Config::load(&sources)?)
}

/// A node logs what it does; other commands only what is wrong, unless somebody asked for more.
fn start_logs(args: &Args, config: &Config) -> Result<(), CliError> {
    let asked = config.get("log").is_some_and(|log| log.source != savanna_node::config::Source::Default);
    let quiet = !asked && !matches!(args.command, Command::Dev(_) | Command::Node(_));
    let filter = if quiet { "warn" } else { &config.node().log };
    telemetry::start(filter).map_err(|error| CliError::Usage(format!("log: {error}")))
}
