//! `savanna move` and `savanna moves`: databases go from node to node.

use savanna_http::types::{Decision, Decisions, Move, MoveTechnique, Moves, NewMove, NewMovesAsleep};
use savanna_node::Config;

use crate::args::{Format, MoveArgs, MovesArgs, Technique};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn one(config: &Config, format: Format, args: &MoveArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let moved = ask(&client, &args.shard, &args.to, args.technique.into()).await?;
    show(format, std::slice::from_ref(&moved))?;
    Ok(exit(&moved))
}

pub(crate) async fn list(config: &Config, format: Format, args: &MovesArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    if args.explain {
        return explain(&client, format).await;
    }
    let Moves { moves } = client.get("moves").await.map_err(|error| client.explain(error))?;
    show(format, &moves)?;
    Ok(Exit::Done)
}

/// Why databases have moved by themselves, or stay.
async fn explain(client: &Client, format: Format) -> Result<Exit, CliError> {
    let told: Decisions = client.get("moves/decisions").await.map_err(|error| client.explain(error))?;
    match format {
        Format::Json => told.decisions.iter().try_for_each(output::write_json)?,
        Format::Table => {
            let rows: Vec<_> = told.decisions.iter().map(decision_row).collect();
            let titles = ["by", "shard", "database", "from", "to", "what came of it", "why"];
            output::write(output::text_table(&titles, &rows).as_bytes())?;
        }
    }
    if !told.is_on {
        eprintln!("cluster.balance is off at the node that was asked: it moves no database by itself");
    }
    Ok(Exit::Done)
}

fn decision_row(decision: &Decision) -> Vec<String> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let outcome = match (&decision.shard, &decision.outcome) {
        (None, _) => "all stays".to_owned(),
        (Some(_), None) => "it moves".to_owned(),
        (Some(_), Some(outcome)) => outcome.clone(),
    };
    let Decision { by, shard, database, from, to, why, .. } = decision;
    vec![by.clone(), or_none(shard), or_none(database), or_none(from), or_none(to), outcome, why.clone()]
}

/// Asks for moves of those of some databases that sleep, and waits for their end. What is awake stays.
pub(super) async fn ask_asleep(client: &Client, shards: Vec<String>, to: &str) -> Result<Vec<Move>, CliError> {
    let body = NewMovesAsleep { shards, to: to.to_owned() };
    let moved: Result<Moves, _> = client.post_long("moves/asleep", &body).await;
    Ok(moved.map_err(|error| client.explain(error))?.moves)
}

/// Asks for a move, and waits for its end.
pub(super) async fn ask(client: &Client, shard: &str, to: &str, technique: MoveTechnique) -> Result<Move, CliError> {
    let body = NewMove { shard: shard.to_owned(), to: to.to_owned(), technique: Some(technique) };
    client.post_long("moves", &body).await.map_err(|error| client.explain(error))
}

impl From<Technique> for MoveTechnique {
    fn from(technique: Technique) -> Self {
        match technique {
            Technique::Albatross => Self::Albatross,
            Technique::FlushAndMove => Self::FlushAndMove,
            Technique::StopAndCopy => Self::StopAndCopy,
        }
    }
}

fn exit(moved: &Move) -> Exit {
    if moved.stayed.is_none() { Exit::Done } else { Exit::Failed }
}

pub(super) fn show(format: Format, moves: &[Move]) -> Result<(), CliError> {
    match format {
        Format::Json => moves.iter().try_for_each(output::write_json),
        Format::Table => {
            let rows: Vec<_> = moves.iter().map(row).collect();
            let titles = [
                "shard",
                "database",
                "from",
                "to",
                "technique",
                "window",
                "took",
                "rounds",
                "along",
                "cache",
                "waited",
                "p50",
                "max",
                "failed",
                "what came of it",
            ];
            output::write(output::text_table(&titles, &rows).as_bytes())
        }
    }
}

fn row(moved: &Move) -> Vec<String> {
    let technique = match moved.technique {
        MoveTechnique::StopAndCopy => "stop-and-copy",
        MoveTechnique::FlushAndMove => "flush-and-move",
        MoveTechnique::Albatross => "albatross",
        MoveTechnique::Asleep => "asleep",
    };
    let millis = |millis: f64| format!("{millis:.1} ms");
    let outcome = moved.stayed.as_ref().map_or_else(|| "moved".to_owned(), |why| format!("stayed: {why}"));
    let database = moved.database.clone().unwrap_or_else(|| "-".to_owned());
    let parts = [&moved.shard, &database, &moved.from, &moved.to].map(Clone::clone);
    let costs = [
        technique.to_owned(),
        millis(moved.window_ms),
        millis(moved.took_ms),
        moved.rounds.to_string(),
        kibibytes(moved.log_bytes + moved.open_bytes),
        kibibytes(moved.block_bytes),
        moved.waited.to_string(),
        millis(moved.wait_p50_ms),
        millis(moved.wait_max_ms),
        moved.failed.to_string(),
        outcome,
    ];
    parts.into_iter().chain(costs).collect()
}

fn kibibytes(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1_024))
}
