//! Keys compare as values do, are read as they were written, and have the bytes that older versions wrote.

mod format;
mod order;
mod row;
