//! The Lua side: states, their sandbox, and the way of values in and out.

pub(crate) mod convert;
mod date;
mod pattern;
mod sandbox;
pub(crate) mod state;
mod text;
