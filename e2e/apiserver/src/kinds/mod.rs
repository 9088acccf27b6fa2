//! What single kinds do: the table of the built-in ones, and the strategies by which they are
//! created, changed and deleted.

pub mod catalog;
