//! What somebody tries who has an agent's credentials: everything that is not the agent's own
//! report is refused, with the files that the chart installs, on every provider; and what an agent
//! does passes. `requests.yaml` has the requests.

use std::collections::BTreeMap;

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use muster_e2e::harness::access;
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::clean::{self, Reservation};
use muster_e2e::harness::fleet;
use muster_e2e::harness::provider::{self, Cluster};
use muster_e2e::harness::test_bed::{PATIENCE, Scratch, eventually};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

/// The member whose agent was stolen, and another.
const OWN: &str = "stolen-own";
const OTHER: &str = "stolen-other";

const MEMBER: [&str; 3] = [
    include_str!("../../../charts/control-plane/access/member.yaml"),
    include_str!("../../../charts/control-plane/access/member-secrets.yaml"),
    include_str!("../../../charts/control-plane/access/member-certificates.yaml"),
];
const REGISTRATION: &str = include_str!("../../../charts/control-plane/access/registration.yaml");

/// Requests about both members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requests {
    /// What is there before anybody else asks for anything.
    furniture: Vec<Ask>,
    /// What an agent asks for; the first of these registers its member.
    agent: Vec<Ask>,
    /// What people and the control plane write on the stolen Cluster.
    quarantine: Vec<Ask>,
    /// Paths of what no probe may change.
    kept: Vec<String>,
    /// What has to be refused.
    probes: Vec<Ask>,
}

impl Requests {
    /// Reads the requests, those of an agent for one of its identities.
    fn of(identity: &str) -> Self {
        let text = include_str!("requests.yaml")
            .replace("IDENTITY", identity)
            .replace("OWN", OWN)
            .replace("OTHER", OTHER);
        serde_saphyr::from_str(&text).unwrap()
    }

    /// Returns the probes that an agent's role allows, so that only a policy can refuse them:
    /// changes of what it may write. The id of a Cluster, which the definition keeps from
    /// everybody, is not among them.
    fn of_policies(&self) -> Vec<Ask> {
        let own = [
            "own Cluster",
            "own Work:",
            "events: rewrite",
            "events: count",
        ];
        let is_allowed = |ask: &&Ask| {
            let id = ask.what.ends_with(" id") || ask.what.contains("the id");
            let changes = ["MERGE ", "JSON "]
                .iter()
                .any(|it| ask.request.starts_with(it));
            !id && changes && own.iter().any(|it| ask.what.starts_with(it))
        };
        self.probes.iter().filter(is_allowed).cloned().collect()
    }
}

/// A request that somebody sends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    /// What it would do.
    what: String,
    /// A method or a form of patches, and a path.
    #[serde(rename = "do")]
    request: String,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl Ask {
    fn new(what: &str, request: String, body: Value) -> Self {
        Self {
            what: what.to_owned(),
            request,
            body,
            headers: BTreeMap::new(),
        }
    }

    /// Returns the request as one that is checked and not carried out.
    fn rehearsed(mut self) -> Self {
        let mark = if self.request.contains('?') { '&' } else { '?' };
        self.request = format!("{}{mark}dryRun=All", self.request);
        self
    }
}

/// Somebody whom the API knows.
struct Account {
    name: &'static str,
    client: Client,
    /// Who is impersonated, where the client is an administrator's.
    impersonates: Vec<(&'static str, String)>,
}

impl Account {
    /// Sends a request; gives the code and what was answered.
    async fn send(&self, ask: &Ask) -> (u16, Value) {
        let (verb, path) = ask.request.split_once(' ').unwrap();
        let (method, kind) = match verb {
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            "JSON" => ("PATCH", "application/json-patch+json"),
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            method => (method, "application/json"),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        for (name, value) in &self.impersonates {
            request = request.header(*name, value);
        }
        for (name, value) in &ask.headers {
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
        if code == 200 && path.contains("watch=") {
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
struct Stage {
    administrator: Account,
    agents: Vec<Account>,
    _cluster: Box<dyn Cluster>,
    reservation: Option<Reservation>,
    _scratch: Scratch,
}

impl Stage {
    async fn set() -> Self {
        muster_shared::tls::install_provider();
        let provider = provider::chosen().unwrap();
        let reservation = Reservation::take(&*provider).await.unwrap();
        let scratch = Scratch::new("stolen").unwrap();
        let cluster = provider.start("fleet", scratch.path()).await.unwrap();
        let config = cluster.administrator().unwrap();
        let client =
            |config| async { Client::try_from(fleet::config(config).await.unwrap()).unwrap() };
        let administrator = client(config.clone()).await;
        if reservation.is_some() {
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
            reservation,
            _scratch: scratch,
        };
        stage.take_effect().await;
        stage
    }

    /// Waits until roles and policies count: a real API server reads them a moment after they were
    /// written.
    async fn take_effect(&self) {
        let good = Requests::of("").agent.remove(0).rehearsed();
        let mut bad = good.clone();
        bad.body["metadata"]["labels"] = json!({"probe": "effect"});
        for agent in &self.agents {
            eventually(agent.name, async || {
                let (good, bad) = (agent.send(&good).await.0, agent.send(&bad).await.0);
                let count = (good < 300 && bad >= 300).then_some(());
                count.ok_or_else(|| format!("the policies do not count: {good}, {bad}"))
            })
            .await;
        }
    }

    /// Sends a request of the administrator, which must not be refused.
    async fn administer(&self, ask: &Ask) -> Value {
        let (code, answer) = self.administrator.send(ask).await;
        assert!(code < 300 || code == 409, "{}: {code} {answer}", ask.what);
        answer
    }

    /// Sends requests of the administrator.
    async fn administer_all(&self, asks: &[Ask]) {
        for ask in asks {
            self.administer(ask).await;
        }
    }

    /// Returns what no probe may change, as it is now.
    async fn kept(&self, paths: &[String]) -> Vec<Value> {
        let mut all = Vec::new();
        for path in paths {
            let look = Ask::new("look", format!("GET {path}"), Value::Null);
            let mut object = self.administer(&look).await;
            object["metadata"]["managedFields"].take();
            object["metadata"]["resourceVersion"].take();
            all.push(object);
        }
        all
    }

    async fn end(self) {
        if self.reservation.is_some() {
            clean::fleet(&self.administrator.client).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_stolen_agent_changes_its_own_report_and_nothing_else() {
    let stage = Stage::set().await;
    let requests = Requests::of("");
    stage.administer_all(&requests.furniture).await;
    let mut wrong = Vec::new();
    for agent in &stage.agents {
        for ask in Requests::of(agent.name).agent {
            let (code, answer) = agent.send(&ask).await;
            if code >= 300 {
                wrong.push(format!("{}: {}: {code} {answer}", agent.name, ask.what));
            }
        }
        stage.administer_all(&requests.quarantine).await;
    }
    assert!(wrong.is_empty(), "an agent may not:\n{}", wrong.join("\n"));

    // What only the policies refuse has to be sound otherwise.
    for ask in requests.of_policies() {
        let ask = ask.rehearsed();
        let (code, answer) = stage.administrator.send(&ask).await;
        if code >= 300 {
            wrong.push(format!("{}: {code} {answer}", ask.what));
        }
    }
    assert!(wrong.is_empty(), "unsound probes:\n{}", wrong.join("\n"));

    let before = stage.kept(&requests.kept).await;
    let mut count = 0;
    for agent in &stage.agents {
        for ask in &requests.probes {
            if !agent.impersonates.is_empty() && !ask.headers.is_empty() {
                continue;
            }
            count += 1;
            let (code, answer) = agent.send(ask).await;
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
    assert_eq!(stage.kept(&requests.kept).await, before);
    stage.end().await;
}

#[tokio::test]
async fn where_the_location_is_fixed_no_agent_moves_its_cluster() {
    let stage = Stage::set().await;
    let requests = Requests::of("");
    stage.administer_all(&requests.furniture).await;
    let agent = &stage.agents[0];
    let (code, answer) = agent.send(&requests.agent[0]).await;
    assert!(code < 300, "{answer}");
    let own = format!("MERGE /apis/cluster.karmada.io/v1alpha1/clusters/{OWN}");
    let fix = json!({"metadata": {"annotations": {"failover.muster.io/fixed-location": "true"}}});
    stage
        .administer(&Ask::new("fix the location", own.clone(), fix))
        .await;
    for (spec, allowed) in [
        (json!({"region": "eu-south"}), false),
        (json!({"zones": ["z9"]}), false),
        (json!({"zones": null}), false),
        (json!({"provider": "other"}), false),
        (json!({"apiEndpoint": "https://elsewhere:6443"}), true),
    ] {
        let ask = Ask::new("move", own.clone(), json!({ "spec": spec }));
        let (code, answer) = agent.send(&ask).await;
        assert_eq!(code < 300, allowed, "{spec}: {answer}");
    }
    stage.end().await;
}
