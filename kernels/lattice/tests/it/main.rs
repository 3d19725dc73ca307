//! The laws of every type and composition over random histories, the encoded form, and what goes wrong without the laws.

mod broken;
mod causal_pair;
mod form;
mod histories;
mod laws;
mod subjects;
