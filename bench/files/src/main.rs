//! Calls of Hadoop's clients, as many as a name node takes. `bench/files/run.py` starts the name node, calls this, and keeps what it prints.
//!
//! ```text
//!  messages    what clients say, as in Hadoop's definitions
//!  connection  a connection with so many calls under way
//! ```

mod connection;
mod messages;

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use crate::connection::Connection;

/// Calls of Hadoop's clients, as many as a name node takes. Prints how many there were, and how long they took, as JSON.
#[derive(Clone, Parser)]
#[command(after_help = "Example: files_load --address 127.0.0.1:8020 --operation create --count 100000")]
struct Options {
    /// Where the name node listens.
    #[arg(long)]
    address: SocketAddr,
    /// What is called.
    #[arg(long)]
    operation: Operation,
    /// How many files or directories.
    #[arg(long)]
    count: usize,
    /// The number of the first of them.
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// Connections, each of which has a thread.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Calls under way on each connection.
    #[arg(long, default_value_t = 16)]
    in_flight: usize,
    /// Files of a directory.
    #[arg(long, default_value_t = 1_000)]
    per_directory: usize,
    /// Calls are for files at random: most for one of so many, from the first on.
    #[arg(long, requires = "others")]
    hot: Option<usize>,
    /// And some for one of all behind those.
    #[arg(long)]
    others: Option<usize>,
    /// How many of a hundred are for those.
    #[arg(long, default_value_t = 10)]
    percent: u32,
    /// The directory of all of them.
    #[arg(long, default_value = "/bench")]
    directory: String,
}

/// What is called. Files are those that `create` or `fill` made, under the same numbers.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Operation {
    /// Makes files, which stay open.
    Create,
    /// Makes files and closes them, two calls each.
    Fill,
    /// Makes directories.
    Mkdirs,
    /// Asks where the blocks of files are.
    Open,
    /// Asks for what is known of files.
    Status,
    /// Gives files another name.
    Rename,
    /// Deletes files.
    Delete,
    /// Deletes the directory of all of them, with one call for each that is asked for.
    Clear,
}

impl Options {
    fn directory_of(&self, number: usize) -> String {
        format!("{}/d{}", self.directory, number / self.per_directory)
    }

    fn file(&self, number: usize) -> String {
        format!("{}/f{number}", self.directory_of(number))
    }

    /// The calls for one file, one behind the other: the method, and its request.
    fn calls(&self, number: usize) -> Vec<(&'static str, Vec<u8>)> {
        let file = || self.file(number);
        match self.operation {
            Operation::Create => vec![("create", messages::create(file()))],
            Operation::Fill => vec![("create", messages::create(file())), ("complete", messages::complete(file()))],
            Operation::Mkdirs => {
                vec![("mkdirs", messages::mkdirs(format!("{}/sub{number}", self.directory_of(number))))]
            }
            Operation::Open => vec![("getBlockLocations", messages::locations(file()))],
            Operation::Status => vec![("getFileInfo", messages::status(file()))],
            Operation::Rename => vec![("rename", messages::rename(file(), format!("{}r", file())))],
            Operation::Delete => vec![("delete", messages::delete(file(), false))],
            Operation::Clear => vec![("delete", messages::delete(self.directory.clone(), true))],
        }
    }
}

#[derive(Serialize)]
struct Report {
    calls: usize,
    seconds: f64,
    /// Microseconds of a call: the middle one, one of a hundred, one of a thousand, and the longest.
    p50: u128,
    p99: u128,
    p999: u128,
    longest: u128,
}

impl Report {
    fn of(mut took: Vec<Duration>, seconds: f64) -> Self {
        took.sort_unstable();
        let at = |thousandth: usize| took.get((took.len() * thousandth / 1_000).min(took.len().saturating_sub(1)));
        let at = |thousandth| at(thousandth).map_or(0, Duration::as_micros);
        Self { calls: took.len(), seconds, p50: at(500), p99: at(990), p999: at(999), longest: at(1_000) }
    }
}

/// The numbers of one connection: its share of all, which are next to each other, or as many at random.
fn numbers(options: &Options, at: usize) -> Box<dyn Iterator<Item = usize>> {
    let edge = |at: usize| options.first + options.count * at / options.connections;
    let all = edge(at)..edge(at + 1);
    let (Some(hot), Some(others)) = (options.hot, options.others) else { return Box::new(all) };
    let (first, percent) = (options.first, options.percent);
    let mut random = SmallRng::seed_from_u64(at as u64);
    Box::new(all.map(move |_| {
        let is_other = random.random_range(0..100) < percent;
        first + if is_other { hot + random.random_range(0..others) } else { random.random_range(0..hot) }
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    if options.hot == Some(0)
        || options.others == Some(0)
        || options.connections == 0
        || options.in_flight == 0
        || options.per_directory == 0
    {
        return Err("expected at least one connection, one call under way, and one file of each kind".into());
    }
    let begun = Instant::now();
    let threads: Vec<_> = (0..options.connections)
        .map(|at| {
            let options = options.clone();
            thread::spawn(move || -> Result<Vec<Duration>, String> {
                let mut connection = Connection::open(options.address).map_err(|error| error.to_string())?;
                connection.run(numbers(&options, at), options.in_flight, |number| options.calls(number))
            })
        })
        .collect();
    let mut took = Vec::new();
    for thread in threads {
        took.extend(thread.join().map_err(|_| "a connection's thread ended early")??);
    }
    println!("{}", serde_json::to_string(&Report::of(took, begun.elapsed().as_secs_f64()))?);
    Ok(())
}
