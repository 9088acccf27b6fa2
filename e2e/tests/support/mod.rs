//! What scenarios share.

pub mod credentials;
pub mod kubectl;
mod pair;
mod place;

pub use pair::{pair, until_ready};
pub use place::Place;

/// Returns the policy that taints a cluster that is not ready for so many seconds, until it has
/// been ready for so many.
pub fn taint_policy(add: u32, remove: u32) -> String {
    format!(
        r#"
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterTaintPolicy
metadata:
  name: failed-clusters
spec:
  matchConditions:
    - conditionType: Ready
      operator: NotIn
      statusValues: ["True"]
  taintsToAdd:
    - key: example.com/failed
      effect: NoExecute
      addOnMatchSeconds: {add}
      removeOnMismatchSeconds: {remove}
"#
    )
}
