//! The embedded API server alone, with Muster's CRDs, to try clients against: writes an
//! administrator's kubeconfig to the path that it is given and serves until it is interrupted.

use muster_test_apiserver::{ApiServer, Options};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "embedded.kubeconfig".to_owned());
    let crds = muster_shared::api::crds()
        .into_iter()
        .map(serde_json::to_value);
    let options = Options {
        crds: crds.collect::<Result<_, _>>()?,
        ..Options::default()
    };
    let running = ApiServer::start(options).await?;
    std::fs::write(
        &path,
        serde_saphyr::to_string(&running.admin_kubeconfig()?)?,
    )?;
    println!("{} serves; kubectl --kubeconfig {path}", running.url());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
