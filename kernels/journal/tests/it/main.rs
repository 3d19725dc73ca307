//! What the journal promises, on the simulated disk, on a real directory and in an object store.

mod beside;
mod crash;
mod damage;
mod faults;
mod fencing;
mod full;
mod high_water;
mod history;
mod interposed;
mod log;
mod power_cut;
mod sealed;
mod staged;
mod store;
