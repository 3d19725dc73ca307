//! The runtime as a whole, over stage graphs made by hand.

mod failures;
mod graphs;
mod memory;
mod oracle;
mod sessions;
mod shapes;
mod state;
mod windows;
