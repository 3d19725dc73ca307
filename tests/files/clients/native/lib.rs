//! Nothing: its dependency is what is wanted.
