//! Tests of the house itself: dependency arrows point down, and nothing unknown has moved in.
//!
//! ```text
//!   cli -> node -> control, faces -> engines -> kernels
//! ```

#[cfg(test)]
mod arrows;
