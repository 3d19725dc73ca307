//! The core under seeds: what may happen happens in any order, processes and the host die, and a checker looks at what came of it.

mod ages;
mod places;
mod simulation;
mod world;
