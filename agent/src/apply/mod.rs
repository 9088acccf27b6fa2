//! From Works to objects in the member: applied as long as the Work is there, removed (or left to
//! the member) when it goes.
//!
//! The safety rule is that nothing is removed on old knowledge. A Work that our cache shows as
//! deleted is read once more before its objects go; and an object goes only if it still says that
//! it is this Work's.

mod cached;
mod controller;
pub mod desired;
pub mod echo;
pub mod inventory;
pub mod marks;
pub mod member;
pub mod object;
mod outcome;
mod pods;
mod raw;
pub mod repairs;
pub mod settled;
mod takeover;
pub mod work;

pub use self::cached::CachedWork;
pub use self::controller::Applier;
