//! Holds no code: its manifest is the point.
