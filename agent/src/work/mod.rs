//! What the fleet wants of the member, what the member has, and how the two differ.
//!
//! | question | module |
//! |---|---|
//! | which objects does a Work want? | [`cached`], [`manifests`], [`desired`] |
//! | whose is an object in the member? | [`ownership`], [`takeover`] |
//! | does it differ from what is wanted? | [`object`], [`settled`], [`normalized`], [`pods`] |
//! | what is believed to be there? | [`inventory`], [`repairs`] |
//! | how is it read and written? | [`member`], [`raw`] |
//!
//! `apply` carries differences out, `reflect` reports what is there; both use this and it uses
//! neither.

pub mod cached;
pub mod desired;
pub mod inventory;
pub mod manifests;
pub mod member;
pub mod normalized;
pub mod object;
pub mod ownership;
pub mod pods;
pub mod raw;
pub mod repairs;
pub mod settled;
pub mod takeover;

pub use self::cached::CachedWork;
