//! The engine through its handle, as a face uses it: files of SQL and the rows or the error that they give.

mod costs;
mod delivery;
mod depth;
mod files;
mod first_rows;
mod frames;
mod fuzz;
mod largest;
mod places;
mod processing_time;
mod session;
mod splits;
mod unasked;
mod user_functions;
mod values;
