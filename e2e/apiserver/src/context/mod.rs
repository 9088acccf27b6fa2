//! One request that has been understood and permitted, and the server that it is for.

mod server;

use std::sync::Arc;

use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::auth::identity::User;
use crate::registry::Served;
use crate::registry::codec;
use crate::store::Object;
use crate::table;
use crate::wire::field_error::FieldError;
use crate::wire::media::{self, Accept, Body, Form};
use crate::wire::request::{Query, ResourcePath};
use crate::wire::status_error::StatusError;

pub use server::{Notice, Server};

/// One request on a resource.
pub struct RequestContext<'a> {
    /// The server asked.
    pub server: &'a Arc<Server>,
    /// Who asks.
    pub user: &'a User,
    /// What resource.
    pub served: Served,
    /// The path.
    pub path: &'a ResourcePath<'a>,
    /// The query.
    pub query: &'a Query,
    /// What the client wants to read.
    pub accept: Accept,
    /// Media type of the body.
    pub content_type: &'a str,
    /// First part of the user agent: the field manager of those who name none.
    pub agent: &'a str,
    /// Warnings for the client.
    pub warnings: Mutex<Vec<String>>,
}

/// The result of a verb.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// An object as it is stored.
    Stored(StatusCode, Arc<Object>),
    /// An object (or `Status`) that isn't.
    Tree(StatusCode, Value),
}

impl Outcome {
    /// Returns the object.
    pub fn value(&self) -> Value {
        match self {
            Self::Stored(_, object) => object.value(),
            Self::Tree(_, value) => value.clone(),
        }
    }
}

impl RequestContext<'_> {
    /// Adds a warning to the answer.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Returns whether the request is a dry run. Its options have been checked before.
    pub fn is_dry_run(&self) -> bool {
        self.query.all("dryRun").any(|v| v == "All")
    }

    /// Returns the key of the object asked for.
    pub fn key(&self) -> String {
        self.served
            .resource
            .key(&self.path.namespace, &self.path.name)
    }

    /// Returns the object asked for.
    pub fn stored(&self) -> Result<Arc<Object>, StatusError> {
        let resource = &self.served.resource;
        resource
            .collection
            .get(&self.key())
            .ok_or_else(|| StatusError::not_found(resource.name(), &self.path.name))
    }

    /// Returns who owns the fields that this call writes.
    pub fn manager(&self) -> &str {
        self.query.get("fieldManager").unwrap_or(self.agent)
    }

    /// Refuses an object with all that is wrong with it.
    pub fn invalid(&self, name: &str, errors: &[FieldError]) -> StatusError {
        StatusError::invalid(self.served.resource.kind_name(), name, errors)
    }

    /// Returns the answer to the client, in the form that it accepts.
    pub fn answer(&self, outcome: &Outcome) -> Response<Body> {
        let (Outcome::Stored(code, _) | Outcome::Tree(code, _)) = *outcome;
        if let Outcome::Stored(_, object) = outcome
            && self.accept == Accept::default()
        {
            return media::json_bytes(code, object.json());
        }
        let value = outcome.value();
        if value["kind"] == "Status" {
            return media::tree(code, &value);
        }
        let shown = match self.accept.form {
            Form::Object => value,
            Form::Metadata => codec::metadata_only(&value),
            Form::Table => self.table(
                &[&value],
                json!({ "resourceVersion": value["metadata"]["resourceVersion"] }),
            ),
        };
        media::tree(code, &shown)
    }

    /// Returns a table of objects.
    pub fn table(&self, items: &[&Value], metadata: Value) -> Value {
        let now = self.server.clock.now();
        let mut table = table::table(&self.served.version().columns, items, now);
        table["metadata"] = metadata;
        table
    }
}
