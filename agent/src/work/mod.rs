//! Desired objects of the member, present objects, and the difference of both.
//!
//! | question | module |
//! |---|---|
//! | what of a Work is in memory, and how is it opened? | [`cached`], [`texts`], [`reader`] |
//! | which objects does a Work want? | [`manifests`], [`desired`] |
//! | which Work and fleet does an object belong to? | [`ownership`], [`takeover`] |
//! | does an object have to be applied? | [`drift`] |
//! | may the task of an object run again? | [`completed`] |
//! | when is a difference repaired? | [`repairs`] |
//! | how is one object applied or removed? | [`object`] |
//! | how is it read and written? | [`member`], [`raw`], [`partial`] |
//!
//! `apply` applies Works, and `reflect` watches and reports their objects. Both use this module,
//! and it uses neither.

pub mod cached;
pub(crate) mod completed;
pub(crate) mod dependents;
pub mod desired;
pub(crate) mod drift;
pub(crate) mod manifests;
pub(crate) mod member;
pub(crate) mod object;
pub(crate) mod ownership;
pub(crate) mod partial;
pub(crate) mod raw;
pub(crate) mod reader;
pub(crate) mod repairs;
pub(crate) mod takeover;
pub mod texts;

pub use self::cached::CachedWork;
