//! Requests that the server makes of itself, through the same verbs as everybody's.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::auth::identity::User;
use crate::context::Server;
use crate::context::{Outcome, RequestContext};
use crate::registry::Served;
use crate::verbs::{self, DeleteOptions, Prepared};
use crate::wire::media::Accept;
use crate::wire::request::{Query, ResourcePath};
use crate::wire::status_error::StatusError;

/// A client inside the server.
pub struct Inside {
    /// The server.
    pub server: Arc<Server>,
    user: User,
    agent: &'static str,
}

impl Inside {
    /// Returns a client with a name; `agent` is the manager of the fields that it writes.
    pub fn new(server: Arc<Server>, user: &str, agent: &'static str) -> Self {
        Self {
            server,
            user: User::authenticated(user, &["system:masters"]),
            agent,
        }
    }

    fn context<'a>(
        &'a self,
        served: &Served,
        path: &'a ResourcePath<'a>,
        query: &'a Query,
    ) -> RequestContext<'a> {
        RequestContext {
            server: &self.server,
            user: &self.user,
            served: served.clone(),
            path,
            query,
            accept: Accept::default(),
            content_type: "application/json",
            agent: self.agent,
            warnings: Mutex::default(),
        }
    }

    /// Returns a built-in resource that is always there.
    pub fn builtin(&self, group: &str, plural: &str) -> Served {
        self.server
            .registry
            .find(group, "v1", plural)
            .expect("a built-in kind: invariant of kinds.rs")
    }

    /// Makes an object.
    pub async fn create(
        &self,
        served: &Served,
        namespace: &str,
        object: &Value,
    ) -> Result<Outcome, StatusError> {
        let path = path(namespace, "", "");
        let query = Query::default();
        verbs::create(
            &self.context(served, &path, &query),
            object.to_string().as_bytes(),
        )
        .await
    }

    /// Changes an object (or a subresource of it) to what `change` makes of it; `None` leaves it as
    /// it is.
    pub async fn change(
        &self,
        served: &Served,
        (namespace, name, subresource): (&str, &str, &str),
        change: impl Fn(&Value) -> Option<Value>,
    ) -> Result<Outcome, StatusError> {
        let path = path(namespace, name, subresource);
        let query = Query::default();
        let context = self.context(served, &path, &query);
        verbs::update_with(&context, |old| {
            Ok(Prepared::from(change(old).unwrap_or_else(|| old.clone())))
        })
        .await
    }

    /// Deletes an object.
    pub async fn delete(
        &self,
        served: &Served,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Outcome, StatusError> {
        let path = path(namespace, name, "");
        let query = Query::default();
        verbs::delete(
            &self.context(served, &path, &query),
            name,
            namespace,
            options,
        )
        .await
    }
}

fn path<'a>(namespace: &'a str, name: &'a str, subresource: &'a str) -> ResourcePath<'a> {
    ResourcePath {
        namespace: Cow::Borrowed(namespace),
        name: Cow::Borrowed(name),
        subresource: Cow::Borrowed(subresource),
        ..ResourcePath::default()
    }
}
