//! A node put together from its parts: the only place where engines, faces and kernels meet.
//!
//! ```text
//!   savanna.toml < SAVANNA_* < flags          config
//!                     |
//!   data directory: lease, coordinator        data_dir     at most one process serves it; a later one takes over
//!                     |
//!   streams engine -> pgwire, HTTP            services     each may fail alone; status says so
//!   keys engine -> RESP                       keys
//!   tenants engine -> pgwire                  tenants
//!                     |
//!   until Ctrl-C or the lease is lost         node
//! ```

mod board;
pub mod config;
mod data_dir;
mod error;
mod figures;
mod keys;
mod membership;
mod node;
mod places;
pub mod remote;
mod services;
pub mod streams;
mod supervisor;
pub mod telemetry;
mod tenants;

pub use config::{Config, NodeConfig};
pub use data_dir::Lost;
pub use error::NodeError;
pub use node::Node;
pub use savanna_streams::billing;
pub use services::StreamsService;
