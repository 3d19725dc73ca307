//! A shard with one owner changes its node while it is in use: the decisions of both nodes, without I/O, clock or threads.
//!
//! ```text
//!  source                                                target
//!  Announcing   CAS Serving -> Moving
//!  Opening      ------------- Begin ------------------>  Opening     storage opened read-only
//!  Copying      ------------- Round{n} --------------->  Following   <- Synced{n}
//!  Freezing     nobody begins anything any more
//!  Draining     until nothing is in the way
//!  Finishing    ------------- Round{n} --------------->              what is left (not with Albatross)
//!  Preparing    ------------- Prepare ---------------->  Prepared    durable in its log; Ready
//!  Deciding     CAS Moving -> Serving{target}
//!  Released     ------------- Commit ----------------->  Serving     Saved: the storage is the target's
//! ```
//!
//! The move is decided by one compare-and-set of the source, and by nothing else: before it the source owns the shard, behind it the
//! target. Whoever asked for the move has no part in it. A source that does not know how its compare-and-set ended serves nothing until
//! it has read the record behind it.
//!
//! [`Source`] and [`Target`] take inputs and answer with actions, which an engine and its node carry out. Each action may be done twice,
//! each message may be lost, doubled and late: messages carry the move's number, and what is not answered is sent again.

mod arriving;
mod record;
mod source;
mod target;

pub use crate::{
    arriving::{Attempt, Hearing, PartLimits, Parts, hearing},
    record::{Answer, Change, Handover, MoveId, Record, ToSource, ToTarget, Why},
    source::{Action, Ending, Input, Limits, Obstacle, Source, Technique},
    target::{Target, TargetAction, TargetInput},
};
