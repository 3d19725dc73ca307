//! Seeded simulation of the decision cores that the product runs.
//!
//! One thread holds a small cluster: a coordinator, owners of shards, clients. What decides is the product's own code:
//!
//! | actor | cores of the product | simulated around them |
//! |---|---|---|
//! | coordinator | `savanna_ownership::core::CoordinatorCore`, the journal's core and local back end | disk, network, clock |
//! | owner | `LeaseHolder`, the journal's core, its reply gate and fence, recovery | disk, network, clock |
//! | client | `savanna_rpc::RouterCore` | network, clock |
//! | all | `savanna_rpc::SessionCore` | lossy packets in the place of TCP |
//!
//! The registers that clients write and read ([`protocol`]) stand for an engine; they are the simulation's own.
//!
//! A [`Scenario`] says in data which faults happen when; the seed draws victims, instants and message fates. [`checker`]
//! judges the history. One seed and one commit give one run: [`Report::trace_hash`] repeats.
//!
//! [`tenants`] are simulated apart from these: their owners, logs and place in the store, on one node and on several. So are [`candidates`] for the
//! coordinator, the names of [`files`], and [`streams`] that outlive their process.
//!
//! ```text
//! cargo run -p savanna-sim -- --scenario pause_past_the_lease --seed 17
//! cargo run -p savanna-sim -- --seeds 2000            # all scenarios
//! SAVANNA_SIM_SEEDS=2000 cargo test -p savanna-sim    # the same, as a test
//! ```

mod actor;
pub mod candidates;
pub mod checker;
mod clock;
mod fence_blind;
pub mod files;
mod history;
pub mod protocol;
mod scenario;
pub mod streams;
pub mod tenants;
mod world;

pub use self::{
    history::{Event, History, OpId, OpKind, Outcome, Told, What},
    scenario::{Fault, Happening, SCENARIOS, Scenario, Variant, scenario},
    world::{Report, run, sweep},
};
