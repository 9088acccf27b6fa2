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

    /// Reads the record; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read, or says what this version does not understand: a record that was
    /// damaged is not one that never was. A "not found" that does not name the record is an error,
    /// too: it may be that of a proxy before the member, and says nothing about the record.
    pub async fn read(&self) -> Result<Option<R>, String> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = within(client::get_opt(&api, &self.name)).await?;
        let text = found.and_then(|found| found.data?.remove(KEY));
        text.map(|text| parse(&self.name, &text)).transpose()
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
        if matches!(&written, Ok(Err(error)) if client::is_gone(error)) {
            let namespaces: Api<Namespace> = Api::all(self.client.clone());
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(self.namespace.clone());
            within(namespaces.create(&PostParams::default(), &namespace)).await?;
            return within(write()).await.map(drop);
        }
        client::in_time(written).map(drop)
    }
}

fn parse<R: DeserializeOwned>(name: &str, text: &str) -> Result<R, String> {
    serde_json::from_str(text).map_err(|error| format!("key {KEY} of ConfigMap {name}: {error}"))
}

async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    client::in_time(timeout(DEADLINE, call).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_record_that_is_damaged_is_an_error_that_names_it() {
        assert_eq!(parse::<u64>("muster-fleet-m1", "3"), Ok(3));
        for damaged in ["", "x", "{", "-1"] {
            let error = parse::<u64>("muster-fleet-m1", damaged).unwrap_err();
            assert!(
                error.starts_with("key record of ConfigMap muster-fleet-m1: "),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn only_an_answer_that_names_the_record_says_that_there_is_none() {
        for (what, details, expected) in [
            ("a proxy", json!({}), None),
            ("the API", json!({"name": "muster-fleet-m1"}), Some(None)),
        ] {
            let member = testing::api(move |_, _| testing::not_found(&details));
            let records: Records<u64> =
                Records::new(member, "here", "muster-fleet-m1".to_owned(), "agent");
            assert_eq!(records.read().await.ok(), expected, "{what}");
        }
    }
}
