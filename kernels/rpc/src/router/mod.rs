//! From a shard to the node that owns it, over moves and failures.
//!
//! ```text
//!                 +--------- Frozen: until its retry_after ----------+
//!                 v                                                  |
//!  Call ---> [ parked ] --- route known, not frozen ---> [ sent ] ---+--> Complete
//!                 ^                                        |  |
//!                 |   route unknown or doubted: Resolve    |  +-- Moved to a higher epoch: send there
//!                 +---- after a pause: may be repeated ----+
//! ```
//!
//! The decisions are in [`RouterCore`], which does no input or output; [`Router`] drives it over a [`crate::Transport`]
//! and a [`Directory`].

mod core;
mod driver;

pub use self::{
    core::{Route, RouterAction, RouterCore, RouterInput, RouterLimits},
    driver::{Directory, Router},
};
