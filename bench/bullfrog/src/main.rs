//! TPC-C while the schema changes. `bench/bullfrog/run.py` starts the server, calls this, and keeps what it prints.
//!
//! ```text
//!  random        TPC-C's random values
//!  load          fills the tables
//!  statements    what the application says to each schema
//!  transactions  its five transactions over one connection
//!  application   its terminals under load, and their switch to the new version
//!  migration     the ways to change the schema
//!  processor     processor time, of the cores and of the server
//!  report        throughput and latency over time
//!  check         whether the tables agree afterwards
//!  single        what one statement costs
//! ```

mod application;
mod check;
mod load;
mod migration;
mod processor;
mod random;
mod report;
mod single;
mod statements;
mod transactions;

use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use serde::Serialize;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep_until};
use tokio_postgres::{Client, NoTls};

use crate::application::{Application, Arrivals};
use crate::migration::{Arm, Change, Wishes};
use crate::processor::Usage;
use crate::report::Report;
use crate::statements::Schema;
use crate::transactions::Session;

/// TPC-C while the schema changes.
#[derive(Parser)]
struct Options {
    /// How to connect to the server.
    #[arg(long)]
    server: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Creates and fills the tables of TPC-C.
    Load {
        #[arg(long, default_value_t = 4)]
        warehouses: i32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Runs the application, changes the schema meanwhile, and prints what was seen as JSON.
    Run(Run),
    /// Fails if the tables do not agree with each other.
    Check {
        /// The new schema; TPC-C's own if none is given.
        #[arg(long)]
        change: Option<Change>,
    },
    /// Prints how long first touches take while customers are being split, and what they are made of.
    Touch {
        #[arg(long, default_value_t = 2000)]
        pages: usize,
    },
    /// Prints the server's processor time per statement over the split customers.
    Cost {
        #[arg(long, default_value_t = 100_000)]
        statements: u32,
    },
}

#[derive(clap::Args)]
struct Run {
    #[arg(long, default_value_t = 4)]
    warehouses: i32,
    /// Connections of the application.
    #[arg(long, default_value_t = 16)]
    terminals: u64,
    /// Transactions that arrive per second; if it is not given, terminals do one after the other.
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds before the switch.
    #[arg(long, default_value_t = 5)]
    before: u64,
    /// Seconds from the switch to the end.
    #[arg(long, default_value_t = 120)]
    window: u64,
    /// The new schema; if none is given, nothing changes.
    #[arg(long, value_enum, requires = "arm")]
    change: Option<Change>,
    /// The way to it.
    #[arg(long, value_enum, requires = "change")]
    arm: Option<Arm>,
    #[command(flatten)]
    wishes: Wishes,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        match options.command {
            Command::Load { warehouses, seed } => {
                load::load(&connect(&options.server).await?, warehouses, seed).await?
            }
            Command::Run(run) => print(&measure(&options.server, &run).await?)?,
            Command::Touch { pages } => print(&single::touch(&connect(&options.server).await?, pages).await?)?,
            Command::Cost { statements } => print(&single::cost(&connect(&options.server).await?, statements).await?)?,
            Command::Check { change } => {
                let schema = change.map_or(Schema::Original, Change::schema);
                let violations = check::violations(&connect(&options.server).await?, schema).await?;
                if !violations.is_empty() {
                    return Err(format!("does not hold: {}", violations.join("; ")).into());
                }
            }
        }
        Ok(())
    })
}

fn print(report: &impl Serialize) -> Result<(), Box<dyn Error>> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}

async fn connect(server: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await?;
    // An error of the connection is one of the client's next call, too.
    spawn_local(async move { connection.await.ok() });
    Ok(client)
}

async fn measure(server: &str, run: &Run) -> Result<Report, Box<dyn Error>> {
    let migrator = connect(server).await?;
    let postmaster: String =
        migrator.query_one("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)", &[]).await?.get(0);
    let postmaster = postmaster.parse()?;
    let mut sessions = Vec::new();
    for _ in 0..run.terminals {
        sessions.push(Session::new(connect(server).await?, Schema::Original));
    }
    let window = Duration::from_secs(run.window);
    let switch = Instant::now() + Duration::from_secs(run.before);
    let application = Rc::new(Application::new(run.warehouses, Arrivals::new(run.rate, run.seed), switch, window));
    let terminals: Vec<_> = (1..)
        .zip(sessions)
        .map(|(number, session)| spawn_local(Rc::clone(&application).terminal(session, run.seed << 32 | number)))
        .collect();

    let (switch, end) = application.window();
    sleep_until(switch).await;
    let before = Usage::now(postmaster);
    let migration = run.change.zip(run.arm).map(|(change, arm)| {
        let (application, wishes) = (Rc::clone(&application), run.wishes.clone());
        spawn_local(async move { migration::migrate(&application, &migrator, change, arm, &wishes).await })
    });
    sleep_until(end).await;
    let processor = before.until(&Usage::now(postmaster));
    match migration {
        Some(migration) if migration.is_finished() => migration.await??,
        Some(migration) => {
            application.note("not finished");
            migration.abort();
        }
        None => {}
    }
    for terminal in terminals {
        terminal.await??;
    }
    Ok(Report::of(&application, window, processor))
}
