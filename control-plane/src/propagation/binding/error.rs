//! Errors while the Works of a binding are reconciled.

use muster_shared::work_status;
use serde_json::Value;

use crate::fleet::api_error::ApiError;
use crate::propagation::overrides::{self, DEEPEST_MANIFEST, Excess};

/// Reason why the Works of a binding are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("render the works: {0}")]
    Render(#[from] muster_interpreter::Error),
    /// An override policy cannot be applied. The Works that exist stay as they are.
    #[error("{reason}")]
    Overrides { reason: String },
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Two resources share the name of their Works.
    #[error(
        "{work} {owner}, and is left as it is: the names of works end in a hash that two namespaces may share; rename the resource, or its namespace"
    )]
    Foreign { work: String, owner: String },
    #[error(
        "the resource is {levels} levels deep, more than the {DEEPEST_MANIFEST} that fit into a work: it is neither made nor updated in members"
    )]
    Deep { levels: usize },
    /// The manifest for a cluster does not fit into a Work.
    #[error("the manifest for cluster {cluster} is {excess}")]
    Manifest { cluster: String, excess: Excess },
    #[error("{0} is there and cannot be read, so that it is neither updated nor replaced")]
    Unreadable(String),
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
/// [`Error::Deep`].
pub fn fits(template: &Value) -> Result<(), Error> {
    match work_status::depth(template) {
        levels if levels > DEEPEST_MANIFEST => Err(Error::Deep { levels }),
        _ => Ok(()),
    }
}

/// Refuses a manifest that is too deep or too large to be put into a Work.
///
/// # Errors
/// [`Error::Manifest`].
pub fn manifest_fits(manifest: &Value, cluster: &str) -> Result<(), Error> {
    overrides::check(manifest).map_err(|excess| Error::Manifest {
        cluster: cluster.to_owned(),
        excess,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::works::CachedWork;

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
                Err(error) => assert!(error.to_string().contains(&format!("{levels} levels"))),
            }
        }
        assert!(fits(&nested(DEEPEST_MANIFEST)).is_ok());
        assert!(fits(&nested(DEEPEST_MANIFEST + 1)).is_err());
        let deep = manifest_fits(&nested(DEEPEST_MANIFEST + 1), "m1").unwrap_err();
        assert!(
            deep.to_string().contains("cluster m1 is 101 levels deep"),
            "{deep}"
        );
        let text = |bytes: usize| json!({ "a": "x".repeat(bytes) });
        assert!(manifest_fits(&text(1_500_000), "m1").is_ok());
        let large = manifest_fits(&text(1_600_000), "m1").unwrap_err();
        assert!(large.to_string().contains("bytes large"), "{large}");
    }
}
