//! A node put together from its parts: the only place where engines, faces and kernels meet.
//!
//! ```text
//!   savanna.toml < SAVANNA_* < flags          config
//!                     |
//!   data directory: lease, coordinator        data_dir     one process serves it alone; a later one takes over
//!                   or a cluster of nodes     cluster      one of them runs the coordinator; services have owners
//!                     |
//!   streams engine -> pgwire, HTTP            services     each may fail alone; status says so
//!   keys engine -> RESP                       keys
//!   tenants engine -> pgwire                  tenants
//!   files, functions -> Hadoop, Lambda        files, functions
//!                     |
//!   until Ctrl-C or a lease is lost           node
//! ```

mod board;
mod cluster;
pub mod config;
mod data_dir;
mod error;
mod figures;
mod files;
pub mod functions;
mod keys;
mod membership;
mod node;
mod own_database;
mod places;
pub mod remote;
mod roles;
mod services;
pub mod streams;
mod supervisor;
pub mod telemetry;
mod tenants;

pub use cluster::{
    ClusterFileError, ClusterRecordError, EtcdAccessError, EtcdPlace, Join, JoinError, NameLost, NoJoin, StoreUrl,
};
pub use config::{Config, NodeConfig};
pub use data_dir::DirectoryLost;
pub use error::NodeError;
pub use node::{Lost, Node};
pub use savanna_price as price;
pub use savanna_resp::ClusterPort;
pub use services::StreamsService;
