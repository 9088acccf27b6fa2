//! The controllers that keep an API tidy and that a real cluster runs beside its server: CRDs,
//! namespaces, garbage collection, default service accounts, their old tokens, certificates,
//! signatures by bootstrap tokens.

mod bootstrap_signer;
mod definitions;
mod garbage;
mod inside;
mod namespaces;
mod signing;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::auth::{self, bootstrap_tokens};
use crate::context::{Notice, Server};
use crate::registry::Resource;
use crate::store::Object;

pub use inside::Inside;

/// How often what could not be finished is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// How kube-controller-manager calls itself in managed fields.
const MANAGER: &str = "kube-controller-manager";

/// Returns whether a write may concern a controller; they get every deletion.
pub fn concerns(resource: &Resource, object: &Object) -> bool {
    let head = &object.head;
    let structural = matches!(
        resource.plural.as_str(),
        "namespaces" | "customresourcedefinitions" | "certificatesigningrequests"
    );
    // A secret of the old kind waits for its token.
    let token = resource.plural == "secrets" && head.field("type") == Some(auth::tokens::SECRET);
    let registration = bootstrap_tokens::concerns(&resource.plural, head.namespace(), head.name());
    structural || token || registration || head.deleting || !head.owners.is_empty()
}

/// Runs until `shutdown`. `manager` says whether all controllers act, or CRDs alone are served, as
/// by a bare kube-apiserver.
pub async fn run(
    server: Arc<Server>,
    mut notices: mpsc::UnboundedReceiver<Notice>,
    manager: bool,
    shutdown: CancellationToken,
) {
    let inside = |user, agent| Inside::new(Arc::clone(&server), user, agent);
    let mut definitions =
        definitions::Definitions::new(inside("system:apiserver", "kube-apiserver"));
    let mut garbage = garbage::Garbage::new(inside(
        "system:serviceaccount:kube-system:generic-garbage-collector",
        MANAGER,
    ));
    let mut namespaces = namespaces::Namespaces::new(inside(
        "system:serviceaccount:kube-system:namespace-controller",
        MANAGER,
    ));
    let signing = signing::Signing::new(inside(
        "system:serviceaccount:kube-system:certificate-controller",
        MANAGER,
    ));
    let tokens = tokens::Tokens::new(inside(
        "system:serviceaccount:kube-system:token-controller",
        MANAGER,
    ));
    let bootstrap_signer = bootstrap_signer::BootstrapSigner::new(inside(
        "system:serviceaccount:kube-system:bootstrap-signer",
        MANAGER,
    ));
    let mut again = tokio::time::interval(AGAIN);
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            notice = notices.recv() => {
                let Some(notice) = notice else { return };
                definitions.observe(&notice).await;
                if manager {
                    garbage.observe(&notice).await;
                    namespaces.observe(&notice).await;
                    signing.observe(&notice).await;
                    tokens.observe(&notice).await;
                    bootstrap_signer.observe(&notice).await;
                }
            }
            _ = again.tick() => {
                definitions.again().await;
                if manager {
                    garbage.again().await;
                    namespaces.again().await;
                }
            }
        }
    }
}
