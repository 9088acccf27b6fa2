//! A real API starts from released binaries, serves, collects garbage where it can, and is gone
//! when dropped.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use muster_e2e::harness::envtest::{ASSETS, Envtest, Options};

#[tokio::test]
async fn a_real_api_starts_serves_and_is_gone_when_dropped() {
    let Some(options) = Options::from_environment().unwrap() else {
        eprintln!("skipped: {ASSETS} names no etcd and kube-apiserver");
        return;
    };
    let api = Envtest::start(options).await.unwrap();
    let config = api.config().await.unwrap();
    let address = config.cluster_url.authority().unwrap().to_string();
    let maps: Api<ConfigMap> = Api::default_namespaced(config.try_into().unwrap());
    let mut map = ConfigMap::default();
    map.metadata.generate_name = Some("made-".to_owned());
    maps.create(&PostParams::default(), &map).await.unwrap();

    let directory = api.directory().to_owned();
    drop(api);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert!(!directory.exists());
}
