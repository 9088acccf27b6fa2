//! Follows the users' interpreters, which are objects of the fleet API, and updates
//! [`Interpreters`](crate::Interpreters).

mod confirmed;
mod follower;
mod kinds;
mod readable;

use muster_shared::api::interpreter::ResourceInterpreterCustomization;
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;

pub use follower::{FAILED, Follower};
pub use kinds::Holder;

/// The customizations of the fleet API.
pub type Customizations = Follower<ResourceInterpreterCustomization>;
/// The configurations of interpreter webhooks of the fleet API.
pub type InterpreterWebhooks = Follower<ResourceInterpreterWebhookConfiguration>;
