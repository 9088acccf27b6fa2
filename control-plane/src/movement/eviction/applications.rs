//! Questions of an eviction to the controller that follows failing applications.

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::PurgeMode;

use serde_json::Value;

use super::reason::EvictionReason;
use crate::fleet::binding::BindingKey;

/// Way in which a failing application leaves a cluster.
pub struct Failure {
    /// Reason that its eviction task gives.
    pub reason: EvictionReason<'static>,
    /// Treatment of the old copy.
    pub purge_mode: PurgeMode,
    /// Annotation of the binding after the move, from the names of the new clusters.
    pub annotation: Box<dyn Fn(String) -> (&'static str, Value) + Send + Sync>,
}

/// The controller that follows failing applications.
pub trait Applications: Send + Sync {
    /// Judges an application once more in the moment in which it is to leave a cluster. `None`
    /// means that it does not have to leave that any more, or not yet. The spec is that of the
    /// binding, with the settings that protect as the policy has them now.
    fn judge(
        &self,
        binding: &AnyBinding,
        spec: &ResourceBindingSpec,
        cluster: &str,
        now: Timestamp,
    ) -> Option<Failure>;

    /// Takes in the binding of an application that has left a cluster.
    fn moved(&self, binding: &AnyBinding);

    /// Takes in that the state of an application in the queue has changed.
    fn changed(&self, key: &BindingKey);
}
