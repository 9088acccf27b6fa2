//! The objects of a server at one moment, from which another server starts: what an operator does
//! with a snapshot of etcd.

use std::sync::Arc;

use crate::auth::identity::Authority;
use crate::context::Server;
use crate::registry::collection_name;
use crate::store::{Draft, Expect, Object, Store};

/// Objects of all resources, and the authority that signs for the server.
#[derive(Debug, Clone)]
pub struct Snapshot {
    authority: Arc<Authority>,
    objects: Vec<(Box<str>, Arc<Object>)>,
}

impl Snapshot {
    /// Takes the objects of a store.
    pub(crate) fn take(store: &Store, authority: &Arc<Authority>) -> Self {
        let mut objects = Vec::new();
        for (name, collection) in store.all() {
            let found = collection.present("").into_iter();
            objects.extend(found.map(|object| (name.clone(), object)));
        }
        // Owners come first: what has none is collected.
        objects.sort_by_key(|(_, object)| !object.head.owners.is_empty());
        Self {
            authority: Arc::clone(authority),
            objects,
        }
    }

    pub(crate) fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority)
    }

    /// Writes the objects into a server that has begun, in place of those of the same names, and
    /// notifies its controllers, as if they had listed them.
    pub(crate) fn restore(&self, server: &Server) -> Result<(), serde_json::Error> {
        use serde::ser::Error as _;
        let mut restored = Vec::new();
        for (name, object) in &self.objects {
            let collection = server.store.collection(name);
            loop {
                let there = collection.get(&object.head.key);
                let expected = there.map_or(Expect::Absent, |it| Expect::Version(it.version));
                let draft = Draft::new(object.head.clone(), &object.value())?;
                match collection.put(draft, expected) {
                    Ok(written) => {
                        restored.push((name, written));
                        break;
                    }
                    // A controller of the new server was faster.
                    Err(lost) if lost.0.is_some() => {}
                    Err(_) => {
                        let problem = format!("{name} is not served");
                        return Err(serde_json::Error::custom(problem));
                    }
                }
            }
        }
        for resource in &*server.registry.all() {
            let own = collection_name(&resource.group, &resource.plural);
            let objects = restored.iter().filter(|(name, _)| ***name == *own);
            objects.for_each(|(_, object)| server.written(resource, object));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, DeleteParams, PostParams};
    use kube::runtime::wait::{await_condition, conditions};
    use serde_json::json;

    use crate::{ApiServer, Options};

    #[tokio::test]
    async fn what_was_restored_goes_with_its_owner() {
        muster_shared::tls::install_provider();
        let first = ApiServer::for_test().await;
        let maps: Api<ConfigMap> = Api::default_namespaced(first.client().await.unwrap());
        let map = |name: &str, owners: serde_json::Value| -> ConfigMap {
            let metadata = json!({"name": name, "ownerReferences": owners});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let make = PostParams::default();
        let owner = maps.create(&make, &map("owner", json!([]))).await.unwrap();
        let uid = owner.metadata.uid.unwrap();
        let owners =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
        let dependent = maps.create(&make, &map("dependent", owners)).await.unwrap();

        let snapshot = first.snapshot();
        let restored = ApiServer::restore(Options::default(), &snapshot).await;
        let second = restored.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(second.client().await.unwrap());
        maps.delete("owner", &DeleteParams::default())
            .await
            .unwrap();
        let uid = dependent.metadata.uid.unwrap();
        let gone = await_condition(maps, "dependent", conditions::is_deleted(&uid));
        let within = tokio::time::timeout(Duration::from_secs(30), gone).await;
        within.unwrap().unwrap();
    }
}
