//! Dependencies of an object: what must be propagated together with it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::{Error, kind::Kind, pod};
use crate::Dependency;
use crate::read::{list, text};

/// Prefix of the names of Services that stand for an imported one.
const DERIVED: &str = "derived-";

/// Returns the dependencies of an object in a stable order: ConfigMaps, Secrets, service accounts,
/// volume claims, each sorted by name. `None` for kinds without a rule.
pub fn dependencies(object: &Value) -> Result<Option<Vec<Dependency>>, Error> {
    let namespace = text(object, &["metadata", "namespace"])?;
    let named = |api_version: &str, kind: &str, name: &str| Dependency {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        label_selector: None,
    };
    let found = match Kind::of(object) {
        Some(Kind::Ingress) => {
            let mut secrets = Vec::new();
            for tls in list(object, &["spec", "tls"])? {
                // Without a name the default certificate is served, or another program brings one.
                let name = text(tls, &["secretName"])?;
                if let Some(name) = name.filter(|name| !name.is_empty()) {
                    secrets.push(named("v1", "Secret", name));
                }
            }
            secrets
        }
        Some(Kind::ServiceImport) => {
            let service = format!(
                "{DERIVED}{}",
                text(object, &["metadata", "name"])?.unwrap_or_default()
            );
            let labels =
                BTreeMap::from([("kubernetes.io/service-name".to_owned(), service.clone())]);
            let slices = Dependency {
                name: None,
                label_selector: Some(LabelSelector {
                    match_labels: Some(labels),
                    match_expressions: None,
                }),
                ..named("discovery.k8s.io/v1", "EndpointSlice", "")
            };
            vec![named("v1", "Service", &service), slices]
        }
        _ => {
            let Some(pod) = pod::spec(object) else {
                return Ok(None);
            };
            let mut needs = crate::pod::references(pod)?;
            // Claims made from a template belong to the member that made them.
            for template in list(object, &["spec", "volumeClaimTemplates"])? {
                needs
                    .claims
                    .remove(text(template, &["metadata", "name"])?.unwrap_or_default());
            }
            needs.dependencies(namespace)
        }
    };
    Ok(Some(found))
}
