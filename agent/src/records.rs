//! Records that the agent keeps in the member for its next process, each in a ConfigMap.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use muster_shared::client;
use muster_shared::k8s::{Api, Client, ConfigMap, Namespace, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

/// Deadline for reading or writing a record.
pub const DEADLINE: Duration = Duration::from_secs(3);
/// Key of the record in its ConfigMap.
const KEY: &str = "record";

/// The place of one record in the member.
#[derive(Clone)]
pub struct Records<R> {
    client: Client,
    namespace: String,
    name: String,
    manager: &'static str,
    record: PhantomData<fn() -> R>,
}

impl<R: Serialize + DeserializeOwned> Records<R> {
    /// Names the ConfigMap of a record, and its field manager.
    pub fn new(client: Client, namespace: &str, name: String, manager: &'static str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name,
            manager,
            record: PhantomData,
        }
    }

    /// Reads the record; `None` when there is none that can be read.
    pub async fn read(&self) -> Result<Option<R>, String> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = within(api.get_opt(&self.name)).await?;
        let text = found.and_then(|found| found.data?.remove(KEY));
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Writes the record, and its namespace if there is none.
    pub async fn write(&self, record: &R) -> Result<(), String> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let data = BTreeMap::from([(KEY, json!(record).to_string())]);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": self.name, "namespace": self.namespace }, "data": data,
        });
        let params = PatchParams {
            force: true,
            ..PatchParams::apply(self.manager)
        };
        let write = async || api.patch(&self.name, &params, &Patch::Apply(&map)).await;
        let written = timeout(DEADLINE, write()).await;
        if matches!(&written, Ok(Err(error)) if client::is_not_found(error)) {
            let namespaces: Api<Namespace> = Api::all(self.client.clone());
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(self.namespace.clone());
            within(namespaces.create(&PostParams::default(), &namespace)).await?;
            return within(write()).await.map(drop);
        }
        match written {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(client::brief(&error)),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }
}

async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|error| client::brief(&error)),
        Err(_) => Err("no answer in time".to_owned()),
    }
}
