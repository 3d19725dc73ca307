//! The command line.

use std::path::PathBuf;

use savanna_node::Join;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};

/// An elastic cloud data platform in one binary.
#[derive(Debug, Parser)]
#[command(
    name = "savanna",
    version,
    arg_required_else_help = true,
    after_help = "Example:\n  savanna sql -c \"SHOW CONNECTORS\"\n\n\
        Exit codes:\n  \
        0    done\n  \
        1    a statement or query failed\n  \
        2    the command line or the configuration is wrong\n  \
        3    a node does not answer, could not start, or lost its data directory\n  \
        130  ended by Ctrl-C"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Arguments)]
pub(crate) struct Shared {
    /// How results are written: a table for people, JSON for programs (one object per row and line)
    #[arg(long, value_enum, default_value = "table", global = true)]
    pub(crate) output: Format,
    /// The configuration file; without it SAVANNA_CONFIG, then ./savanna.toml
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Sets a setting, such as --set http.max_body=4MiB; see `savanna config show`
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value, global = true)]
    pub(crate) settings: Vec<(String, String)>,
    /// What is logged to stderr: error, warn, info, debug, or directives
    #[arg(long, value_name = "FILTER", global = true)]
    pub(crate) log: Option<String>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| format!("expected KEY=VALUE, came {text:?}"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a node on this machine, everything embedded, until Ctrl-C
    #[command(
        after_help = "Examples:\n  savanna dev --data-dir /tmp/savanna --http-port 0\n  savanna dev --nodes 3 --data-dir /tmp/cluster\n\n\
        A second `savanna dev` on the same directory takes over within one lease; the first exits with code 3."
    )]
    Dev(Dev),
    /// Runs a node of a cluster, until Ctrl-C; all nodes share a data directory, or etcd and a store
    #[command(
        after_help = "Examples:\n  savanna node --join /tmp/savanna --name n4 --http-port 0 --pgwire-port 0 --keys-port 0 --tenants-port 0 --cluster-port 0\n\n\
        On several machines, with settings cluster.store, cluster.secret_file and cluster.address:\n  \
        savanna node --join etcd://10.0.0.9:2379 --name n1\n\n\
        The first node on a directory makes it a cluster's. A second process of the same name takes the name over."
    )]
    Node(NodeArgs),
    /// Shows a running node: services, ports, version, lease
    #[command(after_help = "Examples:\n  savanna status --url http://127.0.0.1:8080 --output json\n  \
        savanna status --url https://node.example:8080 --ca-file ca.pem --token-file token\n  \
        SAVANNA_TOKEN=.. savanna status --url https://node.example:8080\n  \
        SAVANNA_PASSWORD=.. savanna status --url https://node.example:8080 --user ann\n  \
        savanna status --node n2")]
    Status(OfNode),
    /// Prints the metrics of a running node, as Prometheus reads them
    #[command(after_help = "Examples:\n  savanna metrics | grep savanna_lease\n  savanna metrics --node n2\n\n\
        With --output json each sample is one object, {\"metric\":\"..\", \"labels\":{..}, \"value\":..}.")]
    Metrics(OfNode),
    /// Shows the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Runs SQL, in this process or on a running node; without -c and -f interactively
    #[command(after_help = "Examples:\n  \
        savanna sql -c \"CREATE TABLE t (id BIGINT) WITH ('connector' = 'stdin', 'format' = 'csv'); SELECT * FROM t\" < ids.csv\n  \
        savanna sql -f job.sql --output json > rows.ndjson 2> log\n  \
        savanna sql -f job.sql --url https://node.example:8080 --ca-file ca.pem --token-file token\n  \
        savanna sql -f job.sql --on functions\n  \
        savanna sql -f job.sql --on aws --region eu-central-1 --role arn:aws:iam::123456789012:role/stages\n\n\
        With --output json each row is one object on stdout, {\"op\":\"+I\", ..}, and the last line of stderr is a summary\n\
        object. Queries of INSERT INTO run beside the statements that follow; in this process the command waits for them\n\
        at its end, on a running node they live on. Ctrl-C cancels what runs, prints the summary and exits with code 130;\n\
        at the prompt it cancels the statement and the prompt comes back.")]
    Sql(Sql),
    /// Measures, shows or writes the events of the Nexmark benchmark
    #[command(subcommand)]
    Nexmark(NexmarkCommand),
    /// Lists, stops, resumes and drops the queries of a running node
    #[command(subcommand)]
    Queries(QueriesCommand),
    /// Lists, makes and removes the tenants of a running node, and shows which are busy
    #[command(subcommand)]
    Tenants(TenantsCommand),
    /// Brings keys from elsewhere to a running node, and to a file
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Shows the files of a running node: what is where, how much that is, and who writes
    #[command(subcommand)]
    Files(FilesCommand),
    /// Lists, runs and removes the functions of a running node, and shows what they use
    #[command(subcommand)]
    Functions(FunctionsCommand),
    /// Lists the nodes of a running node's cluster
    #[command(after_help = "Example:\n  savanna nodes --url http://127.0.0.1:8090")]
    Nodes(Remote),
    /// Lists what the nodes of a cluster own
    #[command(after_help = "Example:\n  savanna shards keys --output json")]
    Shards(Shards),
    /// Moves a database, or a virtual node of keys, to another node; clients stay connected
    #[command(
        after_help = "Examples:\n  savanna move shop --to n2\n  savanna move tenants/7 --to n3 --output json\n  savanna move shop --to n2 --technique flush-and-move\n  savanna move keys/v/7 --to n2"
    )]
    Move(MoveArgs),
    /// Lists the last moves of databases, and how long nobody was served
    #[command(after_help = "Examples:\n  savanna moves --output json\n  savanna moves --explain")]
    Moves(MovesArgs),
    /// Moves all databases away from a node, so that it can be stopped
    #[command(after_help = "Examples:\n  savanna drain n1 --url http://127.0.0.1:8090\n  savanna drain n1 --undo\n\n\
        The node gets nothing new until --undo, or until it starts again; `savanna nodes` shows that it is drained.")]
    Drain(DrainArgs),
}

#[derive(Debug, Arguments)]
pub(crate) struct MoveArgs {
    /// The database's name, or its shard
    #[arg(value_name = "DATABASE|SHARD")]
    pub(crate) shard: String,
    /// The node that is to have it
    #[arg(long, value_name = "NODE")]
    pub(crate) to: String,
    /// How it is carried
    #[arg(long, value_enum, default_value_t = Technique::Albatross)]
    pub(crate) technique: Technique,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Arguments)]
pub(crate) struct MovesArgs {
    /// Lists instead why databases have moved by themselves, or why none does, where cluster.balance is on
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Arguments)]
pub(crate) struct DrainArgs {
    /// The node that is to have no databases
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// The node gets databases again; those that have left it stay where they are
    #[arg(long)]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Arguments)]
pub(crate) struct Dev {
    /// Where data is kept [default: savanna-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// Runs so many nodes of a cluster, each in a process of its own; the ports of each are 10 above those of the one before
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) nodes: Option<u16>,
    /// Runs each of these nodes in a network namespace of its own, whose link can be cut (`ip link set .. down`) and made slow (`tc`); needs
    /// root
    #[arg(long, requires = "nodes")]
    pub(crate) netns: bool,
    #[command(flatten)]
    pub(crate) serving: Serving,
}

#[derive(Debug, Arguments)]
pub(crate) struct NodeArgs {
    /// What to join: the data directory of a cluster on this machine, etcd://HOST:PORT[,HOST:PORT..][/NAME] for one on several (etcds:// over TLS), or HOST:PORT
    /// of one of their nodes
    #[arg(long, value_name = "DIR|etcd://..|HOST:PORT", required = true)]
    pub(crate) join: Join,
    /// What the node keeps for itself, where the cluster is no directory [default: savanna-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// The node's name, unique in the cluster: a process that has it already ends
    #[arg(long, value_name = "NAME", required = true)]
    pub(crate) name: String,
    /// Stops when standard input ends
    #[arg(long, hide = true)]
    pub(crate) stop_with_stdin: bool,
    #[command(flatten)]
    pub(crate) serving: Serving,
}

/// What a node runs, and where.
#[derive(Debug, Arguments)]
pub(crate) struct Serving {
    /// What to run, with commas between: streams, keys, tenants, files, functions (with all their faces), pgwire, http
    /// [default: streams,keys,tenants]
    #[arg(long, value_name = "SERVICE,..")]
    pub(crate) only: Option<String>,
    /// The IP address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<String>,
    /// Port of the PostgreSQL protocol of streams, 0 for any [default: 5434]
    #[arg(long, value_name = "PORT")]
    pub(crate) pgwire_port: Option<String>,
    /// Port of control API, metrics and health, 0 for any [default: 8080]
    #[arg(long, value_name = "PORT")]
    pub(crate) http_port: Option<String>,
    /// Port of the Redis protocol, 0 for any [default: 6380]
    #[arg(long, value_name = "PORT")]
    pub(crate) keys_port: Option<String>,
    /// Port of the Redis protocol for clients of clusters, 0 for any [default: none]
    #[arg(long, value_name = "PORT")]
    pub(crate) keys_cluster_port: Option<String>,
    /// Port of the PostgreSQL protocol of tenants, 0 for any [default: 5433]
    #[arg(long, value_name = "PORT")]
    pub(crate) tenants_port: Option<String>,
    /// Port of Hadoop's calls for files, 0 for any [default: 8020]
    #[arg(long, value_name = "PORT")]
    pub(crate) files_port: Option<String>,
    /// Port on which clients of files read and write blocks, 0 for any [default: 9866]
    #[arg(long, value_name = "PORT")]
    pub(crate) files_data_port: Option<String>,
    /// Port of WebHDFS, which is files over HTTP, 0 for any [default: 9870]
    #[arg(long, value_name = "PORT")]
    pub(crate) files_http_port: Option<String>,
    /// Port of Lambda's API for functions, 0 for any [default: 9001]
    #[arg(long, value_name = "PORT")]
    pub(crate) functions_port: Option<String>,
    /// Port for other nodes of the cluster, 0 for any [default: 7400]
    #[arg(long, value_name = "PORT")]
    pub(crate) cluster_port: Option<String>,
    /// A folder that tables of files and dead letters may use; may be given several times. `files` in the data directory is
    /// always one [default: the folder that savanna was started in]
    #[arg(long, value_name = "DIR")]
    pub(crate) files: Vec<String>,
}

/// Which node to ask.
#[derive(Clone, Debug, Arguments)]
pub(crate) struct Remote {
    /// The control API of the node [default: http://127.0.0.1:8080, as configured by address, http.port and http.tls_cert]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) trust: Trust,
}

/// Which files to ask for.
#[derive(Clone, Debug, Arguments)]
pub(crate) struct OfFiles {
    /// The name node [default: hdfs://127.0.0.1:8020, as configured by address and files.port]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// Lists what is in a directory
    #[command(
        after_help = "Examples:\n  savanna files ls /logs\n  HADOOP_USER_NAME=ann savanna files ls / --url hdfs://127.0.0.1:8020 --output json\n\n\
        The command asks as the user that runs it, or as HADOOP_USER_NAME says. With --output json each file is one object."
    )]
    Ls(ListFiles),
    /// Shows a directory with all that is below it
    #[command(after_help = "Examples:\n  savanna files tree /logs --depth 2\n  savanna files tree / --output json")]
    Tree(TreeOfFiles),
    /// Shows how much is in each file and directory of a directory, the largest first
    #[command(
        after_help = "Example:\n  savanna files du /logs\n\nWith --output json each is one object, in the order of names."
    )]
    Du(ListFiles),
    /// Shows all that is known of a file or directory
    #[command(after_help = "Example:\n  savanna files stat /logs/today --output json")]
    Stat(ListFiles),
    /// Shows the disk, and which files are being written by whom, each second; for the superuser
    #[command(after_help = "Example:\n  savanna files top --count 1 --output json")]
    Top(TopFiles),
}

#[derive(Debug, Arguments)]
pub(crate) struct ListFiles {
    /// The file or directory
    #[arg(default_value = "/")]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) of: OfFiles,
}

#[derive(Debug, Arguments)]
pub(crate) struct TreeOfFiles {
    /// The directory
    #[arg(default_value = "/")]
    pub(crate) path: String,
    /// So many levels below it [default: all]
    #[arg(long, value_name = "LEVELS")]
    pub(crate) depth: Option<u32>,
    #[command(flatten)]
    pub(crate) of: OfFiles,
}

#[derive(Debug, Arguments)]
pub(crate) struct TopFiles {
    /// So many times [default: until Ctrl-C]
    #[arg(long, value_name = "COUNT")]
    pub(crate) count: Option<u32>,
    #[command(flatten)]
    pub(crate) of: OfFiles,
}

/// Which functions to ask for.
#[derive(Clone, Debug, Arguments)]
pub(crate) struct OfFunctions {
    /// Lambda's API of the node [default: http://127.0.0.1:9001, as configured by address and functions.port]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FunctionsCommand {
    /// Lists functions, what they run, and what they are kept from
    #[command(after_help = "Example:\n  savanna functions list --output json")]
    List(OfFunctions),
    /// Runs a function: its answer goes to stdout, and the exit code is 1 if it failed
    #[command(
        after_help = "Examples:\n  savanna functions invoke hello --payload '{\"name\": \"Ann\"}' --tail\n  savanna functions invoke hello --payload @event.json --event"
    )]
    Invoke(InvokeFunction),
    /// Prints the last that a function has printed
    #[command(after_help = "Example:\n  savanna functions logs hello")]
    Logs(OneFunction),
    /// Shows what functions have used since the node began, each second
    #[command(
        after_help = "Examples:\n  savanna functions top --count 1 --output json\n  savanna functions top --query e8a2025be89d"
    )]
    Top(TopFunctions),
    /// Deletes a function with all its versions and aliases, or all functions of a query
    #[command(
        after_help = "Examples:\n  savanna functions delete hello\n  savanna functions delete --query e8a2025be89d"
    )]
    Delete(DeleteFunctions),
}

#[derive(Debug, Arguments)]
pub(crate) struct InvokeFunction {
    /// The function's name or ARN
    pub(crate) function: String,
    /// What it gets: JSON, or @FILE [default: {}]
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) payload: Option<String>,
    /// A version or an alias
    #[arg(long, value_name = "VERSION|ALIAS")]
    pub(crate) qualifier: Option<String>,
    /// Sends an event, and does not wait for what comes of it
    #[arg(long)]
    pub(crate) event: bool,
    /// Prints the last that the function has printed to stderr
    #[arg(long, conflicts_with = "event")]
    pub(crate) tail: bool,
    #[command(flatten)]
    pub(crate) of: OfFunctions,
}

#[derive(Debug, Arguments)]
pub(crate) struct OneFunction {
    /// The function's name or ARN
    pub(crate) function: String,
    #[command(flatten)]
    pub(crate) of: OfFunctions,
}

#[derive(Debug, Arguments)]
pub(crate) struct DeleteFunctions {
    /// The function's name or ARN
    #[arg(required_unless_present = "query")]
    pub(crate) function: Option<String>,
    /// Deletes those that `savanna sql --on functions` has made for this query, by its id or what is before the job in it
    #[arg(long, value_name = "QUERY", conflicts_with = "function")]
    pub(crate) query: Option<String>,
    #[command(flatten)]
    pub(crate) of: OfFunctions,
}

#[derive(Debug, Arguments)]
pub(crate) struct TopFunctions {
    /// So many times [default: until Ctrl-C]
    #[arg(long, value_name = "COUNT")]
    pub(crate) count: Option<u32>,
    /// Shows the functions of this query, by its id or what is before the job in it, and what they have used together
    #[arg(long, value_name = "QUERY")]
    pub(crate) query: Option<String>,
    #[command(flatten)]
    pub(crate) of: OfFunctions,
}

/// Which node to ask, and of which it is to tell.
#[derive(Clone, Debug, Arguments)]
pub(crate) struct OfNode {
    /// Another node of the cluster, which the one that is reached asks for it [default: the one that is reached]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Whom the command trusts, and what it shows.
#[derive(Clone, Debug, Default, Arguments)]
pub(crate) struct Trust {
    /// A PEM file with the certificate that the node's is signed with, for https; without it http.tls_cert, as configured, and
    /// those that this machine trusts
    #[arg(long, value_name = "FILE", env = "SAVANNA_CA_FILE", hide_env_values = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// The token that the node asks for; other users of this machine can see a command's arguments, so rather set
    /// SAVANNA_TOKEN, or name a file
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    pub(crate) token: Option<String>,
    /// A file (mode 600) with the token; without it SAVANNA_TOKEN, then auth.token, as configured
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A user of the node, instead of a token; without it SAVANNA_USER, and without --url the first one in auth.users, as configured
    #[arg(long, value_name = "NAME", conflicts_with_all = ["token", "token_file"])]
    pub(crate) user: Option<String>,
    /// A file (mode 600) with the password of that user in its first line; without it SAVANNA_PASSWORD, then auth.users, as
    /// configured
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Prints each setting in force and where it came from: of this command, or of a running node
    #[command(
        after_help = "Examples:\n  SAVANNA_HTTP_PORT=0 savanna config show --output json\n  savanna config show --node n2\n  \
        savanna config show --url http://127.0.0.1:8090\n\n\
        With --node or --url a running node tells its own; without, no node is asked."
    )]
    Show(OfNode),
}

#[derive(Debug, Arguments)]
pub(crate) struct Sql {
    /// Runs this text; may be given several times
    #[arg(short, long, value_name = "SQL", conflicts_with = "file", allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
    /// Runs this file; - is stdin
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Runs it on the node with this control API instead of in this process
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) trust: Trust,
    /// How much each query may hold before it fails, such as 512MiB [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,
    #[command(flatten)]
    pub(crate) on: OnFunctions,
}

/// Where the stages of queries run as functions.
#[derive(Debug, Arguments)]
pub(crate) struct OnFunctions {
    /// Runs the stages of queries as functions, and this process reads, writes, and calls them
    #[arg(long, value_enum, value_name = "HOST", conflicts_with = "url")]
    pub(crate) on: Option<FunctionHost>,
    /// The host of functions [default: that of the configured node, or AWS Lambda in the region]
    #[arg(long, value_name = "URL", requires = "on")]
    pub(crate) functions_url: Option<String>,
    /// With --on aws: where functions are made [default: AWS_REGION, then AWS_DEFAULT_REGION]
    #[arg(long, value_name = "REGION", requires = "on")]
    pub(crate) region: Option<String>,
    /// With --on aws: the execution role of the functions
    #[arg(long, value_name = "ARN", requires = "on")]
    pub(crate) role: Option<String>,
    /// The program of stages [default: savanna-stage beside this program]
    #[arg(long, value_name = "FILE", requires = "on")]
    pub(crate) stage: Option<PathBuf>,
    /// Memory of each function, in MB
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..=10_240))]
    pub(crate) function_memory: u32,
}

/// A host of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FunctionHost {
    /// A node that serves functions
    Functions,
    /// AWS Lambda, with the key of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    Aws,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NexmarkCommand {
    /// Runs a query over generated events at full speed, in this process, and reports what it took
    #[command(
        after_help = "Example:\n  savanna nexmark run --query q5 --events 10000000 --parallelism 2 --output json"
    )]
    Run(NexmarkRun),
    /// Writes exactly the events that `nexmark run` sees with the same --events and --seed
    #[command(
        after_help = "Example:\n  savanna nexmark generate --events 100000 --seed 1 --format parquet --out /tmp/nexmark"
    )]
    Generate(NexmarkGenerate),
    /// Prints the hottest auctions of each second as its window closes, over a paced stream
    #[command(after_help = "Example:\n  savanna nexmark demo --seconds 10")]
    Demo(NexmarkDemo),
}

#[derive(Clone, Debug, Arguments)]
pub(crate) struct NexmarkRun {
    /// The query
    #[arg(long, value_enum)]
    pub(crate) query: NexmarkQuery,
    /// How many events
    #[arg(long, default_value = "1000000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) events: u64,
    /// Another seed gives other events
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: u64,
    /// Partitions of the source [default: as configured]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) parallelism: Option<u16>,
    /// Members of the function group of each keyed stage [default: as configured]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) group_size: Option<u16>,
    /// How the query runs
    #[arg(long, value_enum, default_value = "serverless")]
    pub(crate) mode: Mode,
    /// How much the query may hold before it fails, such as 512MiB [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,
}

/// How a database is carried to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Technique {
    /// Most is written down while it is served; open transactions, cursors, temporary tables and advisory locks go along.
    Albatross,
    /// Most is written down while it is served; what is open keeps it for 5 s, and then ends.
    FlushAndMove,
    /// Nobody is served while all is written down; what is open keeps it for 5 s, and then ends.
    StopAndCopy,
}

/// How a query runs; its answer is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Partial aggregates are merged each epoch.
    Serverless,
    /// Partial aggregates are merged once per window.
    Provisioned,
}

impl Mode {
    /// The value of setting `mode`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Serverless => "serverless",
            Self::Provisioned => "provisioned",
        }
    }
}

/// The queries that are there, by the benchmark's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NexmarkQuery {
    /// Pass through.
    Q0,
    /// Currency conversion.
    Q1,
    /// Selection.
    Q2,
    /// Hot items.
    Q5,
    /// Highest bid.
    Q7,
    /// New users.
    Q8,
    /// Log to files.
    Q10,
    /// User sessions.
    Q11,
    /// Processing time.
    Q12,
    /// Side input.
    Q13,
    /// Calculation.
    Q14,
    /// Channel ids.
    Q21,
    /// Directories.
    Q22,
}

#[derive(Clone, Debug, Arguments)]
pub(crate) struct NexmarkGenerate {
    /// How many events
    #[arg(long, default_value = "1000000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) events: u64,
    /// Another seed gives other events
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: u64,
    /// How they are written
    #[arg(long, value_enum, default_value = "parquet")]
    pub(crate) format: EventFormat,
    /// The directory that gets them
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventFormat {
    /// Parquet.
    Parquet,
    /// One JSON object per line.
    Ndjson,
}

#[derive(Clone, Debug, Arguments)]
pub(crate) struct NexmarkDemo {
    /// How long
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Events per second
    #[arg(long, default_value = "50000", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueriesCommand {
    /// Lists running queries and those that have lately ended
    #[command(after_help = "Examples:\n  savanna queries list --output json\n  \
        savanna queries list --url https://node.example:8080 --ca-file ca.pem --token-file token")]
    List(Remote),
    /// Shows one query with all its counters
    #[command(after_help = "Example:\n  savanna queries show 0123456789ab-1")]
    Show(OneQuery),
    /// Stops a query; its open windows are not fired
    #[command(after_help = "Examples:\n  savanna queries stop 0123456789ab-1\n  \
        savanna queries stop hot-items --with-savepoint /backup/hot-items")]
    Stop(StopQuery),
    /// Goes on with a query that was stopped or has failed, from where its sink is
    #[command(after_help = "Examples:\n  savanna queries resume hot-items\n  \
        savanna queries resume --from-savepoint /backup/hot-items")]
    Resume(ResumeQuery),
    /// Stops a query and forgets it; what it wrote stays
    #[command(after_help = "Example:\n  savanna queries drop hot-items")]
    Drop(OneQuery),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantsCommand {
    /// Lists all tenants, with their sessions and transactions since the node began
    #[command(after_help = "Examples:\n  savanna tenants list --output json\n  \
        savanna tenants list --url https://node.example:8080 --ca-file ca.pem --token-file token")]
    List(Remote),
    /// Shows what tenants do, the busiest first
    #[command(after_help = "Example:\n  savanna tenants top --seconds 5 --count 20")]
    Top(Top),
    /// Makes a tenant
    #[command(
        after_help = "Example:\n  savanna tenants create shop\n\nThen: psql -h 127.0.0.1 -p 5433 -U postgres shop"
    )]
    Create(OneTenant),
    /// Removes a tenant and all that is in it, if nobody is connected to it
    #[command(after_help = "Example:\n  savanna tenants drop shop")]
    Drop(OneTenant),
    /// Writes a tenant as it is now into a new file or S3 object; it goes on meanwhile
    #[command(after_help = "Examples:\n  savanna tenants backup shop shop.backup\n  \
        savanna tenants backup shop s3://backups/shop/monday\n\n\
        Credentials of S3 come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,\n\
        AWS_ENDPOINT_URL (and AWS_ALLOW_HTTP=true) for a store that is not Amazon's.")]
    Backup(BackupOf),
    /// Makes a new tenant of a backup
    #[command(after_help = "Example:\n  savanna tenants restore shop2 shop.backup")]
    Restore(BackupOf),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Brings all keys of a Redis here, from its file (dump.rdb) or from the running server
    #[command(after_help = "Examples:\n  savanna keys import /var/lib/redis/dump.rdb\n  \
        savanna keys import redis://:secret@old.example:6379 --follow\n  \
        savanna keys import dump.rdb --to rediss://me:secret@node.example:6380 --ca-file ca.pem\n\n\
        Other users of this machine can see the arguments of a command: rather give the password to a user that you remove\n\
        afterwards. The Redis is asked as by a replica (PSYNC): a user needs +psync +replconf +ping +info there.")]
    Import(Import),
    /// Writes all keys and libraries of functions of a running node to a file that Redis reads (RDB)
    #[command(after_help = "Examples:\n  savanna keys export dump.rdb\n  \
        savanna keys export dump.rdb --from rediss://me:secret@node.example:6380 --ca-file ca.pem\n\n\
        Each key is written as it is when it is read: of keys that are written meanwhile, some are as before that, and some as after it.")]
    Export(Export),
}

#[derive(Debug, Arguments)]
pub(crate) struct Export {
    /// The file, which is not there yet
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Whose keys they are [default: those of a node on this machine]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<String>,
    /// A PEM file with the certificate that that of the server is signed with, for rediss
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

#[derive(Debug, Arguments)]
pub(crate) struct Import {
    /// The file, or redis://[[USER]:PASSWORD@]HOST[:PORT] of a running Redis (rediss:// with TLS)
    #[arg(value_name = "FILE|URL")]
    pub(crate) source: String,
    /// Where the keys go [default: the keys of a node on this machine]
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// Goes on with what the Redis does after that, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    /// Takes the place of keys that are there
    #[arg(long)]
    pub(crate) replace: bool,
    /// A PEM file with the certificate that those of the servers are signed with, for rediss
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

#[derive(Debug, Arguments)]
pub(crate) struct Shards {
    /// Only those whose name begins so
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Arguments)]
pub(crate) struct Top {
    /// How long to look
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// How many to show
    #[arg(long, default_value = "20")]
    pub(crate) count: usize,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Arguments)]
pub(crate) struct BackupOf {
    #[command(flatten)]
    pub(crate) tenant: OneTenant,
    /// The file, or s3://BUCKET/PATH
    #[arg(value_name = "FILE|URL")]
    pub(crate) place: String,
}

#[derive(Debug, Arguments)]
pub(crate) struct OneTenant {
    /// The name of its database
    #[arg(value_name = "TENANT")]
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Arguments)]
pub(crate) struct OneQuery {
    /// The query's id or name, as `queries list` shows them
    #[arg(value_name = "QUERY")]
    pub(crate) query: String,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Arguments)]
pub(crate) struct StopQuery {
    #[command(flatten)]
    pub(crate) one: OneQuery,
    /// A directory of the node's machine, empty or not there yet, to which the query is written, so that it can go on in another node; it
    /// must have a name
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) with_savepoint: Option<String>,
}

#[derive(Debug, Arguments)]
pub(crate) struct ResumeQuery {
    /// The query's id or name, as `queries list` shows them
    #[arg(value_name = "QUERY", required_unless_present = "from_savepoint", conflicts_with = "from_savepoint")]
    pub(crate) query: Option<String>,
    /// A directory of the node's machine to which a query was written; it goes on under the same name and id
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) from_savepoint: Option<String>,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command, path: &str) {
            if command.get_subcommands().next().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example") && help.contains("savanna "), "{path} has no example");
            }
            for inner in command.get_subcommands() {
                check(inner, &format!("{path} {}", inner.get_name()));
            }
        }
        check(&Args::command(), "savanna");
    }
}
