//! A member that joins by the one command that `token create --print-helm-command` prints.

use std::collections::BTreeMap;

use muster_e2e::harness::objects::create;
use muster_shared::certificate::kubeconfig::Way;
use muster_shared::k8s::{Api, Namespace};

use crate::registration::bench::Bench;
use crate::support::credentials::NAMESPACE;

/// Returns the values that a helm command sets.
fn values(command: &str) -> BTreeMap<&str, &str> {
    let words = command.split_whitespace();
    let words = words.map(|word| word.trim_matches('"'));
    words.filter_map(|word| word.split_once('=')).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_joins_by_the_values_of_the_printed_helm_command() {
    let bench = Bench::start("helm").await;
    let words = ["token", "create", "--print-helm-command"];
    let refused = bench.at_fleet(&words).await.unwrap_err().to_string();
    assert!(refused.contains("--cluster-name"), "{refused}");

    let words = [&words[..], &["--cluster-name", "m1"]].concat();
    let command = bench.at_fleet(&words).await.unwrap();
    assert!(
        command.starts_with("helm upgrade --install muster-agent charts/agent --namespace"),
        "{command}"
    );
    let values = values(&command);
    assert_eq!(values["clusterName"], "m1");
    assert_eq!(values["fleet.server"], bench.server.url());
    // A second run keeps what somebody set meanwhile, such as the agent's rights.
    assert!(command.contains(" --reset-then-reuse-values "), "{command}");
    let nowhere = [&words[..], &["--server", "fleet.example"]].concat();
    let refused = bench.at_fleet(&nowhere).await.unwrap_err().to_string();
    assert!(refused.contains("https://fleet.example:6443"), "{refused}");
    let elsewhere = [&words[..], &["--server", "https://10.0.0.1:6443/"]].concat();
    let again = bench.at_fleet(&elsewhere).await.unwrap();
    assert!(
        again.contains("fleet.server=https://10.0.0.1:6443 "),
        "{again}"
    );

    // What the chart makes of the values (charts/agent/templates/bootstrap.yaml).
    let authority = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        values["fleet.caData"],
    );
    let way = Way {
        server: values["fleet.server"].to_owned(),
        authority: authority.unwrap(),
        ..Way::default()
    };
    let kubeconfig = way.with_token("bootstrap", values["fleet.token"]);
    let file = bench.directory().join("bootstrap");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let namespaces: Api<Namespace> = Api::all(bench.member.client.clone());
    let namespace = serde_json::json!({"metadata": {"name": NAMESPACE}});
    create(&namespaces, namespace).await;
    let hashes = values["fleet.caHash"].trim_matches(['{', '}']);
    assert!(hashes.starts_with("sha256:"), "{command}");
    let _agent = bench
        .agent_with(|settings| {
            settings.bootstrap_kubeconfig = Some(file);
            settings.discovery_token_ca_cert_hash = hashes.parse().unwrap();
        })
        .await;
    bench.is_ready().await;
}
