//! Uses stored credentials at another address of the fleet API.

use kube::Config;
use muster_shared::client::{self, Profile};
use muster_shared::k8s::{Api, Namespace, Secret};
use muster_shared::names::CLUSTER_NAMESPACE;

use super::{Bootstrap, pins, way_of};
use crate::certificate::document::Document;
use crate::write::within;

impl Bootstrap {
    /// Returns the configuration of stored credentials for the server of a bootstrap kubeconfig
    /// that leads to another one than before, and stores it, if that server accepts them: it is the
    /// fleet API at another address then, and no token is needed, which has long expired as a rule.
    /// `None` if the server refuses them, as that of another fleet does, or is silent. Where
    /// authorities are pinned, it is believed only by the certificate of one of these: whoever can
    /// append an authority to the kubeconfig, and name another server in it, would otherwise become
    /// the fleet of the agent.
    pub(super) async fn accepted(&self, secret: Option<&Secret>, way: &Config) -> Option<Config> {
        let document = Document::read(self.text(secret)?, None).ok()?;
        let (certificate, key) = (&document.certificate, &document.key);
        let config = client::certified(way.clone(), certificate, key);
        let narrow = pins::narrow(config.clone(), &self.pins);
        let fleet = client::connect(&narrow, Profile::Write).ok()?;
        // Each agent may read this namespace, and nobody may without credentials.
        let namespaces: Api<Namespace> = Api::all(fleet);
        let read = namespaces.get_metadata(CLUSTER_NAMESPACE);
        let server = &config.cluster_url;
        if let Err(error) = within("try the stored certificate there", read).await {
            tracing::info!(%server, %error, "another server does not accept the stored certificate");
            return None;
        }
        let stored = way_of(way).with_certificate(&self.cluster, certificate, key);
        // The credentials are used even if the Secret cannot be written.
        if let Ok(text) = serde_saphyr::to_string(&stored)
            && let Err(error) = self.store(secret, &text).await
        {
            tracing::warn!(%error, "could not store the new address of the fleet API");
        }
        tracing::info!(%server, "the stored certificate is used at another address of the fleet API");
        Some(config)
    }
}
