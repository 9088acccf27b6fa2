//! Objects of which only the metadata is read.

use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, GetParams, ListParams, Request};
use kube::core::ObjectList;
use kube::{Error, Resource};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::if_there;

/// An object of a kind, of which only the metadata is read, without `managedFields`.
///
/// It can be read whatever else its writers have put in: the API takes times that cannot be decoded
/// here, in the status of a custom resource and in `managedFields`. An answer that cannot be
/// decoded would pass for a write that failed, and a list would fail for one odd object in it.
/// `Api<Head<K>>` patches and deletes objects whose answers do not matter.
#[derive(Clone)]
pub struct Head<K> {
    /// The metadata.
    pub metadata: ObjectMeta,
    kind: PhantomData<fn() -> K>,
}

impl<K> Debug for Head<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.metadata.fmt(f)
    }
}

#[derive(Deserialize)]
struct Whole {
    #[serde(default)]
    metadata: Value,
}

impl<'de, K> Deserialize<'de> for Head<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Whole { mut metadata } = Whole::deserialize(deserializer)?;
        let Some(fields) = metadata.as_object_mut() else {
            return Err(D::Error::missing_field("metadata"));
        };
        fields.remove("managedFields");
        Ok(Self {
            metadata: serde_json::from_value(metadata).map_err(D::Error::custom)?,
            kind: PhantomData,
        })
    }
}

crate::resource_as!(Head<K> as K, K);

impl<K: Resource<DynamicType = ()> + Clone> Head<K> {
    /// Reads the metadata of an object; `None` if the API says that it does not have it.
    ///
    /// # Errors
    /// Those of the API.
    pub async fn get_opt(api: &Api<Self>, name: &str) -> Result<Option<Self>, Error> {
        let request = Request::new(api.resource_url()).get_metadata(name, &GetParams::default());
        let request = request.map_err(Error::BuildRequest)?;
        if_there(api.clone().into_client().request(request).await, name)
    }

    /// Lists the metadata of objects.
    ///
    /// # Errors
    /// Those of the API.
    pub async fn list(api: &Api<Self>, params: &ListParams) -> Result<ObjectList<Self>, Error> {
        let request = Request::new(api.resource_url()).list_metadata(params);
        let request = request.map_err(Error::BuildRequest)?;
        api.clone().into_client().request(request).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::work::Work;

    #[test]
    fn an_object_is_named_whatever_else_its_writers_put_in() {
        let time = "9999-12-31T23:59:59Z";
        let object = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {
                "namespace": "karmada-es-m1", "name": "w", "uid": "u", "resourceVersion": "7",
                "labels": {"a": "b"}, "finalizers": ["f"],
                "managedFields": [{"manager": "x", "operation": "Update", "time": time}],
            },
            "status": {"conditions": [{"lastTransitionTime": time}]},
        });
        let head: Head<Work> = serde_json::from_value(object).unwrap();
        let metadata = &head.metadata;
        assert_eq!(metadata.name.as_deref(), Some("w"));
        assert_eq!(metadata.uid.as_deref(), Some("u"));
        assert_eq!(metadata.finalizers, Some(vec!["f".to_owned()]));
        assert_eq!(metadata.managed_fields, None);
        assert!(serde_json::from_value::<Head<Work>>(json!({"kind": "Status"})).is_err());
    }
}
