//! Bindings from templates and policies.
//!
//! A template is any object of the fleet API that a policy selects. The policy claims it (labels and annotations on the template), and the
//! pair becomes a binding: what is to be placed, by which rules. `select` says which policy, `claim` how it is marked, `build`
//! what the binding says; `controller` and `policies` gather, call and write.

mod bind;
pub mod build;
pub mod claim;
mod claims;
mod controller;
mod dependencies;
mod policies;
pub mod policy;
pub mod preempt;
pub mod scope;
pub mod select;
mod template;
mod templates;

#[cfg(test)]
mod conformance;

pub use build::binding_name;
pub use claim::Claim;
pub use controller::start;
pub use template::{Kind, Template, TemplateKey};
pub use templates::{Lookup, News, TemplateEvent, Templates};
