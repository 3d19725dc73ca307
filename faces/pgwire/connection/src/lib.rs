//! One client of the PostgreSQL protocol after its login, the same for every face that speaks it.
//!
//! ```text
//!   socket ─► Wire: messages ─► serve ─► Connection (the face: its engine's session)
//!      ▲                                      │
//!      └──── gate ◄──────── Output ◄──────────┘
//! ```
//!
//! [`serve`] reads messages, keeps their order and the protocol's rules (after an error, nothing is done up to Sync), and sends
//! answers when the client waits for them. What a message comes to is the face's business: its [`Connection`].

mod output;
mod report;
mod serve;
mod wire;

pub use output::{OUTPUT_BYTES, Output, Status, format};
pub use report::Report;
pub use serve::{Connection, Dismissal, Done, End, serve};
pub use wire::Wire;
