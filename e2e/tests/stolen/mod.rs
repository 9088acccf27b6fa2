//! What somebody tries who has an agent's credentials: everything that is not the agent's own
//! report is refused, with the files that the chart installs, on every provider; and what an agent
//! does passes.

mod probes;
mod work;

use std::collections::BTreeMap;

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use muster_e2e::harness::access;
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::clean::{self, Turn};
use muster_e2e::harness::fleet;
use muster_e2e::harness::provider::{self, Cluster};
use muster_e2e::harness::test_bed::{PATIENCE, Scratch, eventually};
use serde_json::{Value, json};
use tokio::time::timeout;

/// The member whose agent was stolen, and another.
pub(crate) const OWN: &str = "stolen-own";
pub(crate) const OTHER: &str = "stolen-other";
pub(crate) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

const MEMBER: [&str; 3] = [
    include_str!("../../../charts/control-plane/access/member.yaml"),
    include_str!("../../../charts/control-plane/access/member-secrets.yaml"),
    include_str!("../../../charts/control-plane/access/member-certificates.yaml"),
];
const REGISTRATION: &str = include_str!("../../../charts/control-plane/access/registration.yaml");

/// A request that somebody sends.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// What it would do.
    pub(crate) what: String,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) body: Value,
    pub(crate) headers: BTreeMap<&'static str, String>,
}

impl Ask {
    fn new(what: &str, method: &'static str, path: &str, kind: &'static str, body: Value) -> Self {
        Self {
            what: what.to_owned(),
            method,
            path: path.to_owned(),
            kind,
            body,
            headers: BTreeMap::new(),
        }
    }

    pub(crate) fn get(what: &str, path: &str) -> Self {
        Self::new(what, "GET", path, "application/json", Value::Null)
    }

    pub(crate) fn delete(what: &str, path: &str) -> Self {
        Self::new(what, "DELETE", path, "application/json", json!({}))
    }

    pub(crate) fn post(what: &str, path: &str, body: Value) -> Self {
        Self::new(what, "POST", path, "application/json", body)
    }

    pub(crate) fn put(what: &str, path: &str, body: Value) -> Self {
        Self::new(what, "PUT", path, "application/json", body)
    }

    pub(crate) fn merge(what: &str, path: &str, body: Value) -> Self {
        Self::new(what, "PATCH", path, "application/merge-patch+json", body)
    }

    pub(crate) fn json(what: &str, path: &str, body: Value) -> Self {
        Self::new(what, "PATCH", path, "application/json-patch+json", body)
    }

    pub(crate) fn apply(what: &str, path: &str, body: Value) -> Self {
        let path = format!("{path}?fieldManager=muster-agent&force=true");
        Self::new(what, "PATCH", &path, "application/apply-patch+yaml", body)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.to_owned());
        self
    }
}

/// Somebody whom the API knows.
pub(crate) struct Account {
    name: &'static str,
    client: Client,
    /// Who is impersonated, where the client is an administrator's.
    impersonates: Vec<(&'static str, String)>,
}

impl Account {
    /// Sends a request; gives the code and what was answered.
    pub(crate) async fn send(&self, ask: &Ask) -> (u16, Value) {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(&ask.path)
            .header("content-type", ask.kind);
        let own = self.impersonates.iter().map(|(name, value)| (*name, value));
        for (name, value) in own.chain(ask.headers.iter().map(|(name, value)| (*name, value))) {
            request = request.header(name, value);
        }
        let body = match &ask.body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = request.body(body.into()).unwrap();
        let response = timeout(PATIENCE, self.client.send(request)).await;
        let response = response.expect("an answer").unwrap();
        let code = response.status().as_u16();
        // A watch that was not refused goes on; its head is enough.
        if code == 200 && ask.path.contains("watch=") {
            return (code, Value::Null);
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        (
            code,
            serde_json::from_slice(&body).unwrap_or(Value::String(text)),
        )
    }
}

/// A fleet API with two members, of which one is stolen.
pub(crate) struct Stage {
    pub(crate) administrator: Account,
    pub(crate) agents: Vec<Account>,
    _cluster: Box<dyn Cluster>,
    turn: Option<Turn>,
    _scratch: Scratch,
}

impl Stage {
    async fn set() -> Self {
        muster_shared::tls::install_provider();
        let provider = provider::chosen().unwrap();
        let turn = Turn::take(&*provider).await.unwrap();
        let scratch = Scratch::new("stolen").unwrap();
        let cluster = provider.start("fleet", scratch.path()).await.unwrap();
        let config = cluster.administrator().unwrap();
        let client =
            |config| async { Client::try_from(fleet::config(config).await.unwrap()).unwrap() };
        let administrator = client(config.clone()).await;
        if turn.is_some() {
            clean::fleet(&administrator).await.unwrap();
        }
        fleet::install(&administrator).await.unwrap();
        access::admit_control_plane(&administrator).await.unwrap();
        apply(&administrator, REGISTRATION).await.unwrap();
        for member in [OWN, OTHER] {
            for text in MEMBER {
                let text = text.replace("MEMBER", member);
                apply(&administrator, &text).await.unwrap();
            }
        }
        let account = access::Account {
            namespace: "karmada-system",
            name: format!("muster-agent-{OWN}"),
        };
        let by_token = access::kubeconfig(&administrator, config.clone(), &account);
        let certificate = vec![
            ("impersonate-user", format!("system:karmada:agent:{OWN}")),
            ("impersonate-group", "system:karmada:agents".to_owned()),
            ("impersonate-group", "system:authenticated".to_owned()),
        ];
        let agents = vec![
            Account {
                name: "account",
                client: client(by_token.await.unwrap()).await,
                impersonates: Vec::new(),
            },
            Account {
                name: "certificate",
                client: administrator.clone(),
                impersonates: certificate,
            },
        ];
        let stage = Self {
            administrator: Account {
                name: "administrator",
                client: administrator,
                impersonates: Vec::new(),
            },
            agents,
            _cluster: cluster,
            turn,
            _scratch: scratch,
        };
        stage.take_effect().await;
        stage
    }

    /// Waits until roles and policies count: a real API server reads them a moment after they were
    /// written.
    async fn take_effect(&self) {
        let register = work::registration();
        let mut odd = register.body.clone();
        odd["metadata"]["labels"] = json!({"probe": "effect"});
        let path = format!("{}&dryRun=All", register.path);
        for agent in &self.agents {
            let (good, bad) = (
                Ask {
                    path: path.clone(),
                    ..register.clone()
                },
                Ask {
                    path: path.clone(),
                    body: odd.clone(),
                    ..register.clone()
                },
            );
            eventually(agent.name, async || {
                let (good, bad) = (agent.send(&good).await.0, agent.send(&bad).await.0);
                let count = (good < 300 && bad >= 300).then_some(());
                count.ok_or_else(|| format!("the policies do not count: {good}, {bad}"))
            })
            .await;
        }
    }

    pub(crate) async fn administer(&self, ask: Ask) -> Value {
        let (code, answer) = self.administrator.send(&ask).await;
        assert!(code < 300 || code == 409, "{}: {code} {answer}", ask.what);
        answer
    }

    async fn end(self) {
        if self.turn.is_some() {
            clean::fleet(&self.administrator.client).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_stolen_agent_changes_its_own_report_and_nothing_else() {
    let stage = Stage::set().await;
    work::furnish(&stage).await;
    let mut wrong = Vec::new();
    for agent in &stage.agents {
        for ask in work::of_an_agent(agent.name) {
            let (code, answer) = agent.send(&ask).await;
            if code >= 300 {
                wrong.push(format!("{}: {}: {code} {answer}", agent.name, ask.what));
            }
        }
        work::quarantine(&stage).await;
    }
    assert!(wrong.is_empty(), "an agent may not:\n{}", wrong.join("\n"));

    // What only the policies refuse has to be sound otherwise.
    for mut ask in probes::of_policies() {
        ask.path += "?dryRun=All";
        let (code, answer) = stage.administrator.send(&ask).await;
        if code >= 300 {
            wrong.push(format!("{}: {code} {answer}", ask.what));
        }
    }
    assert!(wrong.is_empty(), "unsound probes:\n{}", wrong.join("\n"));

    let before = work::kept(&stage).await;
    let mut count = 0;
    for agent in &stage.agents {
        for ask in probes::all() {
            if !agent.impersonates.is_empty() && !ask.headers.is_empty() {
                continue;
            }
            count += 1;
            let (code, answer) = agent.send(&ask).await;
            if code != 403 && code != 422 {
                wrong.push(format!("{}: {}: {code} {answer}", agent.name, ask.what));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a stolen agent may:\n{}",
        wrong.join("\n")
    );
    assert!(count >= 200, "{count} probes");
    assert_eq!(work::kept(&stage).await, before);
    stage.end().await;
}

#[tokio::test]
async fn where_the_location_is_fixed_no_agent_moves_its_cluster() {
    let stage = Stage::set().await;
    work::furnish(&stage).await;
    let agent = &stage.agents[0];
    let own = format!("{CLUSTERS}/{OWN}");
    let (code, answer) = agent.send(&work::registration()).await;
    assert!(code < 300, "{answer}");
    let fix = json!({"metadata": {"annotations": {"failover.muster.io/fixed-location": "true"}}});
    stage
        .administer(Ask::merge("fix the location", &own, fix))
        .await;
    for (spec, allowed) in [
        (json!({"region": "eu-south"}), false),
        (json!({"zones": ["z9"]}), false),
        (json!({"zones": null}), false),
        (json!({"provider": "other"}), false),
        (json!({"apiEndpoint": "https://elsewhere:6443"}), true),
    ] {
        let ask = Ask::merge("move", &own, json!({ "spec": spec }));
        let (code, answer) = agent.send(&ask).await;
        assert_eq!(code < 300, allowed, "{spec}: {answer}");
    }
    stage.end().await;
}
