//! Errors while the Works of a binding are reconciled.

use serde_json::Value;

use crate::fleet::api_error::ApiError;
use crate::propagation::overrides;

/// Reason why the Works of a binding are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("render the works: {0}")]
    Render(#[from] muster_interpreter::Error),
    /// What somebody wrote does not allow it: an override policy that cannot be applied, a manifest
    /// that does not fit into a Work, a Work that is not ours. The Works that exist stay as they
    /// are.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("another replica leads: nothing is written any more")]
    Deposed,
    #[error("{failed} of {of} works failed; the first: {first}")]
    Some {
        failed: usize,
        of: usize,
        first: Box<Self>,
    },
}

/// Refuses a resource that is too deep to be put into a Work.
///
/// # Errors
/// A text for [`Error::Refused`].
pub fn fits(template: &Value) -> Result<(), String> {
    overrides::shallow(template).map_err(|excess| {
        format!("the resource is {excess}: it is neither made nor updated in members")
    })
}

/// Refuses a manifest that is too deep or too large to be put into a Work.
///
/// # Errors
/// A text for [`Error::Refused`].
pub fn manifest_fits(manifest: &Value, cluster: &str) -> Result<(), String> {
    overrides::check(manifest)
        .map_err(|excess| format!("the manifest for cluster {cluster} is {excess}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::works::CachedWork;
    use crate::propagation::overrides::DEEPEST_MANIFEST;

    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }))
    }

    #[test]
    fn what_fits_into_a_work_can_be_read_back() {
        for levels in 90..130 {
            let manifest = nested(levels);
            let work = json!({
                "metadata": { "name": "web", "namespace": "karmada-es-m1" },
                "spec": { "workload": { "manifests": [manifest] } },
            });
            let readable = serde_json::from_str::<CachedWork>(&work.to_string()).is_ok();
            assert_eq!(
                fits(&manifest).is_ok(),
                manifest_fits(&manifest, "m1").is_ok()
            );
            match fits(&manifest) {
                Ok(()) => assert!(readable, "{levels} levels"),
                Err(error) => assert!(error.contains(&format!("{levels} levels"))),
            }
        }
        assert!(fits(&nested(DEEPEST_MANIFEST)).is_ok());
        assert!(fits(&nested(DEEPEST_MANIFEST + 1)).is_err());
        let deep = manifest_fits(&nested(DEEPEST_MANIFEST + 1), "m1").unwrap_err();
        assert!(deep.contains("cluster m1 is 101 levels deep"), "{deep}");
        let text = |bytes: usize| json!({ "a": "x".repeat(bytes) });
        assert!(manifest_fits(&text(1_500_000), "m1").is_ok());
        let large = manifest_fits(&text(1_600_000), "m1").unwrap_err();
        assert!(large.contains("bytes large"), "{large}");
    }
}
