//! The flow from a Work of the fleet API to the objects in the member, and back to its status.
//!
//! A Work is cached, and says what is *desired*. Watches in the member show what is *observed*.
//! *Drift* is the difference of both, and an *apply* removes it. What was observed is *reported* in
//! the status of the Work.
//!
//! | step | module |
//! |---|---|
//! | what of a Work is in memory, and how is it opened? | [`cached`], [`texts`], [`works`] |
//! | desired: which objects does a Work want? | [`manifests`], [`desired`] |
//! | how is an object read and written? | [`member`], [`raw`], [`partial`] |
//! | who owns the fields of an object? | [`managed_fields`] |
//! | which Work and fleet does an object belong to? | [`ownership`], [`takeover`] |
//! | drift: does an object have to be applied? | [`drift`] |
//! | may the task of an object run again? | [`completed`] |
//! | when is a difference repaired, and which Works wait? | [`waits`] |
//! | how is one object applied or removed? | [`object`] |
//! | observed: which state was seen last? | [`observed`] |
//! | what do the tasks share? | [`store`] |
//! | which objects are stopped while the member is cut off? | [`fencing`], [`dependents`] |
//! | which objects have no Work since a promotion? | [`orphans`] |
//! | what do the watches show? | [`watch`] |
//! | apply: how is a whole Work applied or removed? | [`apply`] |
//! | report: what is written into the status of a Work? | [`report`] |
//!
//! Each module uses those above it. [`orphans`], [`watch`], [`apply`] and [`report`] are tasks, and
//! use none of each other.

pub(crate) mod apply;
pub mod cached;
pub(crate) mod completed;
pub(crate) mod dependents;
pub mod desired;
pub(crate) mod drift;
pub(crate) mod fencing;
pub(crate) mod managed_fields;
pub(crate) mod manifests;
pub(crate) mod member;
pub(crate) mod object;
pub mod observed;
pub(crate) mod orphans;
pub(crate) mod ownership;
pub(crate) mod partial;
pub(crate) mod raw;
pub(crate) mod report;
pub(crate) mod store;
pub(crate) mod takeover;
pub mod texts;
pub(crate) mod waits;
pub(crate) mod watch;
pub(crate) mod works;

pub use self::cached::CachedWork;
