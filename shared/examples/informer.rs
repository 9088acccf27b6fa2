//! A cache of the ConfigMaps of a cluster, with a line for each change. Uses the kubeconfig of the
//! environment. Run it with `cargo run -p muster-shared --example informer`.

use muster_shared::client::{self, Profile};
use muster_shared::k8s::{Api, ConfigMap, ResourceExt};
use muster_shared::watch::{Change, Informer, Selection};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    muster_shared::tls::install_provider();
    let config = client::kubeconfig(None, None).await?;
    let client = client::connect(&config, Profile::Watch)?;
    let maps: Informer<ConfigMap> = Informer::new(Api::all(client), Selection::everything());
    maps.on_change(|change| {
        let verb = match change {
            Change::Applied { old: None, .. } => "is there",
            Change::Applied { .. } => "changed",
            Change::Deleted { .. } => "is gone",
        };
        let map = change.object();
        println!(
            "{}/{} {verb}",
            map.namespace().unwrap_or_default(),
            map.name_any()
        );
    });
    let shutdown = CancellationToken::new();
    tokio::spawn(muster_shared::tasks::stop_on_signal(shutdown.clone()));
    maps.run(shutdown).await;
    Ok(())
}
