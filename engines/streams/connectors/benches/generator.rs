//! How fast the nexmark source makes events.

fn main() {}
