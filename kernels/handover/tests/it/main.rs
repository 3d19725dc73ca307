//! A move of one shard with everything that may go wrong: by hand, row by row, and at random.

mod simulation;
mod steps;
