//! What requests and answers are made of: paths and queries, media types, JSON and protobuf,
//! selectors, names, errors.

pub mod clock;
pub mod conditions;
pub mod field_error;
pub mod json;
pub mod media;
pub mod metadata;
pub mod names;
pub mod protobuf;
pub mod request;
pub mod selectors;
pub mod signing_request;
pub mod status_error;
pub mod versions;
pub mod x509;
