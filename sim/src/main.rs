//! `savanna-sim`: runs scenarios with many seeds and prints what reproduces a failure.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use savanna_sim::{SCENARIOS, Scenario, Variant, run, scenario, sweep};

/// Seeded simulation of Savanna's decision cores.
///
/// Example: savanna-sim --scenario pause_past_the_lease --seed 17 --trace
#[derive(Parser)]
struct Arguments {
    /// The scenario; all of them if not given.
    #[arg(long)]
    scenario: Option<String>,
    /// The seed, or the first of several.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds.
    #[arg(long, env = "SAVANNA_SIM_SEEDS", default_value_t = 1)]
    seeds: u64,
    /// Print the last events of the first seed, also if all is well.
    #[arg(long)]
    trace: bool,
    /// How many events a printed trace has.
    #[arg(long, default_value_t = 400)]
    trace_lines: usize,
    /// Break the product on purpose: replies do not wait for the reply gate.
    #[arg(long)]
    no_gate: bool,
    /// Break the product on purpose: replies to reads do not wait for the reply gate.
    #[arg(long)]
    reads_ungated: bool,
    /// Break the product on purpose: leases have no margin for clocks.
    #[arg(long)]
    no_margin: bool,
    /// Break the product on purpose: the journal does not see its fence.
    #[arg(long)]
    fence_ignored: bool,
}

fn main() -> ExitCode {
    match simulate(&Arguments::parse(), &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("savanna-sim: {error}");
            ExitCode::from(2)
        }
    }
}

fn simulate(arguments: &Arguments, out: &mut impl Write) -> io::Result<bool> {
    let scenarios: Vec<&'static Scenario> = match &arguments.scenario {
        None => SCENARIOS.iter().collect(),
        Some(name) => vec![scenario(name).ok_or_else(|| {
            let known: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("no scenario {name:?}; there are: {}", known.join(", ")),
            )
        })?],
    };
    let variant = Variant {
        no_gate: arguments.no_gate,
        reads_ungated: arguments.reads_ungated,
        no_margin: arguments.no_margin,
        fence_ignored: arguments.fence_ignored,
    };
    let mut all_well = true;
    for scenario in scenarios {
        if arguments.trace {
            writeln!(out, "{}", run(scenario, arguments.seed, variant, arguments.trace_lines))?;
        }
        let started = Instant::now();
        let (failed, events) = sweep(scenario, arguments.seed, arguments.seeds, variant);
        let seconds = started.elapsed().as_secs_f64();
        writeln!(
            out,
            "{:24} {} seeds from {}, {} failed, {events} events in {seconds:.1}s",
            scenario.name,
            arguments.seeds,
            arguments.seed,
            failed.len()
        )?;
        if let Some(first) = failed.first() {
            all_well = false;
            writeln!(out, "{}", run(scenario, first.seed, variant, arguments.trace_lines))?;
        }
    }
    Ok(all_well)
}
