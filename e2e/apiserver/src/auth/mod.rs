//! Who asks, and what they may do.

pub mod authenticate;
pub mod authorize;
pub mod bootstrap_tokens;
pub mod certificates;
pub mod escalation;
pub mod identity;
pub mod impersonation;
pub mod rbac;
pub mod tokens;
