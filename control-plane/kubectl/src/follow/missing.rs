//! Bindings that are not listed any more, and that nobody saw being deleted.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kube::Client;
use muster_control_plane::fleet::binding::BindingKey;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client;
use muster_shared::watch::{Doubt, Presence};
use parking_lot::Mutex;

/// Bindings that the API is asked for between two checks.
const ASKED: usize = 16;

/// Whether they are gone.
#[derive(Debug, Default)]
pub(super) struct Missing(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    is_gone: HashMap<BindingKey, bool>,
    /// Those of which it is not known, the one first that was not asked for the longest.
    order: VecDeque<BindingKey>,
}

impl Missing {
    /// Returns whether a binding that is not listed has been deleted: it was seen being deleted, or
    /// has not been there since the command began, or the API said so.
    pub(super) fn is_deleted(
        &self,
        key: &BindingKey,
        presence: &Presence<Arc<AnyBinding>>,
    ) -> bool {
        match presence {
            Presence::Gone | Presence::Unknown(Doubt::Unseen) => true,
            Presence::Unknown(Doubt::Vanished) => {
                let mut asked = self.0.lock();
                if let Some(is_gone) = asked.is_gone.get(key) {
                    return *is_gone;
                }
                asked.is_gone.insert(key.clone(), false);
                asked.order.push_back(key.clone());
                false
            }
            Presence::There(_) => {
                self.0.lock().is_gone.remove(key);
                false
            }
            Presence::Unknown(_) => false,
        }
    }

    /// Asks the API for a few of those of which it is not known; returns whether one is gone.
    pub(super) async fn ask(&self, client: &Client) -> bool {
        let asked = self.unknown().into_iter().map(|key| async move {
            let found = client::get_metadata_opt(&key.api(client), &key.name).await;
            let is_gone = matches!(found, Ok(None));
            if is_gone {
                self.0.lock().is_gone.insert(key, true);
            }
            is_gone
        });
        let gone = futures::future::join_all(asked).await;
        gone.contains(&true)
    }

    /// Returns the next bindings to ask for. They come next after all others.
    fn unknown(&self) -> Vec<BindingKey> {
        let mut asked = self.0.lock();
        let Asked { is_gone, order } = &mut *asked;
        order.retain(|key| is_gone.get(key) == Some(&false));
        let next: Vec<_> = order.iter().take(ASKED).cloned().collect();
        order.rotate_left(next.len());
        next
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn key(name: usize) -> BindingKey {
        BindingKey {
            namespace: Some("shop".to_owned()),
            name: format!("w{name:02}"),
        }
    }

    /// Returns an API that has all bindings but the last.
    fn api(last: usize) -> Client {
        let name = key(last).name;
        fixtures::api(move |request| {
            if request.uri().path().ends_with(&format!("/{name}")) {
                (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": &name}}),
                )
            } else {
                (200, json!({"metadata": {"name": "x"}}))
            }
        })
    }

    #[tokio::test]
    async fn each_binding_that_vanished_is_asked_for_in_order_while_it_is_not_there() {
        let missing = Missing::default();
        let vanished = Presence::Unknown(Doubt::Vanished);
        let check = || {
            let keys = (0..=2 * ASKED).map(key);
            keys.filter(|it| missing.is_deleted(it, &vanished)).count()
        };
        assert_eq!(check(), 0);
        let api = api(2 * ASKED);
        for (asks, is_update) in [(1, false), (2, false), (3, true), (4, false)] {
            assert_eq!(missing.ask(&api).await, is_update, "{asks}");
            assert_eq!(check(), usize::from(asks >= 3), "{asks}");
        }
        assert!(missing.is_deleted(&key(2 * ASKED), &vanished));
        for number in 0..2 * ASKED {
            missing.is_deleted(&key(number), &Presence::There(Arc::default()));
        }
        assert!(missing.unknown().is_empty(), "they are there again");
    }
}
