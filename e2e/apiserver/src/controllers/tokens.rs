//! Fills secrets that ask for a service account's token of the old kind, and removes them with the
//! account.

use super::Inside;
use crate::auth::tokens;
use crate::context::Notice;
use crate::registry::Served;
use crate::verbs::DeleteOptions;
use crate::wire::metadata;

/// The controller of old tokens.
pub struct Tokens {
    inside: Inside,
    secrets: Served,
}

impl Tokens {
    /// Returns a controller that has seen nothing yet.
    pub fn new(inside: Inside) -> Self {
        let secrets = inside.builtin("", "secrets");
        Self { inside, secrets }
    }

    /// Takes note of a change.
    pub async fn observe(&self, notice: &Notice) {
        if !notice.group.is_empty() {
            return;
        }
        if notice.plural == "secrets" && !notice.gone {
            self.fill(notice).await;
        } else if notice.plural == "serviceaccounts" && notice.gone {
            self.clear(notice).await;
        }
    }

    async fn fill(&self, notice: &Notice) {
        let head = &notice.object.head;
        if head.deleting || head.field("type") != Some(tokens::SECRET) {
            return;
        }
        let Some((data, uid)) = tokens::old_data(self.inside.server.known(), &notice.object) else {
            return;
        };
        let at = (head.namespace(), head.name(), "");
        let filled = self.inside.change(&self.secrets, at, |secret| {
            let mut new = secret.clone();
            new["data"] = data.clone().into();
            let annotations = &mut metadata::of(&mut new)["annotations"];
            annotations["kubernetes.io/service-account.uid"] = uid.as_str().into();
            Some(new)
        });
        if let Err(refusal) = filled.await {
            tracing::debug!(secret = &*head.key, %refusal, "filling a secret with a token");
        }
    }

    async fn clear(&self, notice: &Notice) {
        let account = &notice.object.head;
        let prefix = format!("{}/", account.namespace());
        let secrets = self.secrets.resource.collection.present(&prefix);
        let tokens = secrets
            .iter()
            .filter(|o| o.head.field("type") == Some(tokens::SECRET));
        for secret in tokens {
            let value = secret.value();
            let own = &value["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
            if *own != *account.uid {
                continue;
            }
            let head = &secret.head;
            let options = DeleteOptions::default();
            let deleted =
                self.inside
                    .delete(&self.secrets, head.namespace(), head.name(), &options);
            if let Err(refusal) = deleted.await {
                tracing::debug!(secret = &*head.key, %refusal, "removing an old token");
            }
        }
    }
}
