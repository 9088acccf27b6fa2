//! To come.

pub mod apply;
pub mod kinds;
pub mod openapi;
pub mod patch;
pub mod schema;
pub mod table;
