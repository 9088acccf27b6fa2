//! Applies Works to the member: objects are applied while the Work exists, and deleted (or
//! released) when it is deleted.
//!
//! Nothing is deleted on the word of a cache. A Work that is deleted in the cache is read once more
//! from the API before its objects are deleted, and an object is deleted only if its annotations
//! name this Work.

mod controller;
mod outcome;

pub use self::controller::Applier;
