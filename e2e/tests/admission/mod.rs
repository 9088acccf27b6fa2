//! Admission by policies of the API itself. The texts are those of kube-apiserver. Webhooks are
//! asked in `webhook`.

mod namespaces;
mod policy;

use kube::Client;
use muster_e2e::apiserver::{ApiServer, Running};
use muster_e2e::harness::raw;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Talk {
    _server: Option<Running>,
    client: Client,
}

impl Talk {
    async fn begin() -> Self {
        muster_shared::tls::install_provider();
        let server = ApiServer::for_test().await;
        let client = server.client().await.unwrap();
        Self {
            _server: Some(server),
            client,
        }
    }

    /// Begins with a server that somebody else keeps.
    fn with(client: &Client) -> Self {
        Self {
            _server: None,
            client: client.clone(),
        }
    }

    /// Sends a request; the answer is the object or `Status`.
    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        raw::send(&self.client, &[], method, path, body).await.body
    }

    async fn create(&self, map: &Value) -> Value {
        self.send("POST", MAPS, map).await
    }
}

fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}
