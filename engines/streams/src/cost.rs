//! What a query would cost by the hour in each mode: the advice at the end of `EXPLAIN`.
//!
//! ```text
//! serverless(r)  = price of E * n requests of 1 ms each and of r * 3600 * CPU_PER_EVENT seconds on MB_PER_CORE of memory
//! provisioned(r) = cores * USD_PER_CORE_HOUR,  cores = r * CPU_PER_EVENT rounded up
//! ```
//!
//! r: events per second; E: epochs in an hour; n: invocations per epoch: one for each source partition and each member where functions of
//! a host are called, else one for each source partition and each payload.

use savanna_price::FunctionPrice;
use savanna_streams_model::graph::{Exchange, Operator, Stage, StageGraph};
use savanna_streams_runtime::RuntimeOptions;

/// US dollars per hour of a core that is always there, of the processor that the prices of functions are of, in us-east-1, on demand: AWS
/// c7g.medium (arm64), or half of c7i.large (x86).
const USD_PER_CORE_HOUR: f64 = if cfg!(target_arch = "aarch64") { 0.0363 } else { 0.0446 };
/// The memory with which a function gets a whole core (AWS Lambda); with less it gets a share, and takes longer.
const MB_PER_CORE: f64 = 1769.0;
/// Seconds of CPU for each event: between a filter and an aggregate with many keys.
const CPU_PER_EVENT: f64 = 0.5e-6;
/// The rate for which the figures are given.
const EVENTS_PER_SECOND: f64 = 100_000.0;
const HOUR: f64 = 3600.0;

/// Both figures with their formulas, and the cheaper mode.
pub(crate) fn advice(graph: &StageGraph, options: &RuntimeOptions, price: FunctionPrice) -> String {
    let estimate = Estimate { price, invocations: invocations_per_hour(graph, options) };
    let (requests, billed_ms) = estimate.billed(EVENTS_PER_SECOND);
    let (serverless, cores) = (estimate.serverless(EVENTS_PER_SECOND), cores(EVENTS_PER_SECOND));
    let provisioned = cores * USD_PER_CORE_HOUR;
    let mode = if serverless <= provisioned { "serverless" } else { "provisioned" };
    let turn = match estimate.turn() {
        Some(rate) => format!("provisioned is the cheaper one from {rate:.0} events/s on"),
        None => "provisioned is the cheaper one at any rate".to_owned(),
    };
    format!(
        "cost per hour at {EVENTS_PER_SECOND:.0} events/s of {} us CPU each:\n  \
         serverless: {}\n  provisioned: {cores:.0} cores * ${USD_PER_CORE_HOUR} = ${provisioned:.8}\n\
         mode: {mode}; {turn}\n",
        CPU_PER_EVENT * 1e6,
        estimate.price.formula(requests, billed_ms),
    )
}

struct Estimate {
    price: FunctionPrice,
    /// In an hour.
    invocations: f64,
}

impl Estimate {
    /// Requests and milliseconds in an hour at a rate.
    fn billed(&self, events_per_second: f64) -> (u64, u64) {
        let share = (f64::from(self.price.memory_mb) / MB_PER_CORE).min(1.0);
        let computing_ms = events_per_second * HOUR * CPU_PER_EVENT * 1e3 / share;
        (self.invocations as u64, (self.invocations + computing_ms) as u64)
    }

    fn serverless(&self, events_per_second: f64) -> f64 {
        let (requests, billed_ms) = self.billed(events_per_second);
        self.price.dollars(requests, billed_ms)
    }

    /// The lowest rate at which one provisioned core is cheaper; none if it always is.
    fn turn(&self) -> Option<f64> {
        let idle = self.serverless(0.0);
        let per_event = (self.serverless(EVENTS_PER_SECOND) - idle) / EVENTS_PER_SECOND;
        (idle < USD_PER_CORE_HOUR).then(|| (USD_PER_CORE_HOUR - idle) / per_event)
    }
}

fn cores(events_per_second: f64) -> f64 {
    (events_per_second * CPU_PER_EVENT).ceil().max(1.0)
}

fn invocations_per_hour(graph: &StageGraph, options: &RuntimeOptions) -> f64 {
    let epochs = HOUR / options.epoch.target.as_secs_f64().max(1e-3);
    let per_epoch: usize = graph.stages.iter().map(|stage| invocations(graph, stage, options)).sum();
    epochs * per_epoch as f64
}

/// Invocations of a stage in each epoch.
fn invocations(graph: &StageGraph, stage: &Stage, options: &RuntimeOptions) -> usize {
    match stage.operator {
        Operator::Scan(_) => instances(graph, stage, options),
        // A member gets all payloads of an epoch in one call; rows are written by whoever calls.
        Operator::Sink(_) if options.cloud.is_some() => 0,
        _ if options.cloud.is_some() => instances(graph, stage, options),
        _ => {
            inputs(graph, stage).map(|i| instances(graph, i, options)).sum::<usize>() * instances(graph, stage, options)
        }
    }
}

fn instances(graph: &StageGraph, stage: &Stage, options: &RuntimeOptions) -> usize {
    match stage.operator {
        Operator::Scan(_) => options.source_partitions,
        _ if inputs(graph, stage).any(|i| matches!(i.exchange, Exchange::KeyGroup { .. })) => {
            usize::from(options.members)
        }
        _ => 1,
    }
}

fn inputs<'g>(graph: &'g StageGraph, stage: &'g Stage) -> impl Iterator<Item = &'g Stage> {
    graph.stages.iter().filter(|input| input.next == Some(stage.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_events_are_cheaper_on_functions_and_many_on_a_core() {
        let estimate = Estimate { price: FunctionPrice::default(), invocations: 72_000.0 };
        let turn = estimate.turn().expect("some rate is low enough");
        assert!(estimate.serverless(turn * 0.9) < USD_PER_CORE_HOUR);
        assert!(estimate.serverless(turn * 1.1) > USD_PER_CORE_HOUR);
    }

    #[test]
    fn many_small_epochs_make_functions_dear_at_any_rate() {
        assert_eq!(Estimate { price: FunctionPrice::default(), invocations: 1e6 }.turn(), None);
    }
}
