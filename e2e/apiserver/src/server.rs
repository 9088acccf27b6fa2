//! One server: its state, and the way of a request from connection to verb.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::admission::Admission;
use crate::audit::Audit;
use crate::auth::authorize;
use crate::auth::bootstrap_tokens;
use crate::auth::identity::{Authority, User};
use crate::auth::impersonation;
use crate::auth::rbac::Attributes;
use crate::auth::rbac::Rbac;
use crate::auth::tokens;
use crate::faults::{Effect, Faults};
use crate::paths;
use crate::registry::{Registry, Resource, Served};
use crate::store::{Object, Store};
use crate::verbs::{self, Call};
use crate::wire::clock::Clock;
use crate::wire::media::{self, Accept, Body};
use crate::wire::protobuf::encode;
use crate::wire::request::{Query, ResourcePath, Target, Verb, verb};
use crate::wire::status_error::{GroupName, StatusError};

/// Something that happened to an object, for the controllers inside the server.
#[derive(Debug, Clone)]
pub struct Notice {
    /// Group of the resource.
    pub group: String,
    /// Plural of the resource.
    pub plural: String,
    /// The object, in its last state if it is gone.
    pub object: Arc<Object>,
    /// Whether it is gone.
    pub gone: bool,
}

/// The state of one API server.
#[derive(Debug)]
pub struct Server {
    /// A name for logs and certificates.
    pub name: String,
    /// The objects.
    pub store: Store,
    /// What is served.
    pub registry: Registry,
    /// Certificates and tokens.
    pub authority: Authority,
    /// Webhooks.
    pub admission: Admission,
    /// Roles and bindings, sorted by whom they concern.
    pub roles: Rbac,
    /// Failures on demand.
    pub faults: Faults,
    /// Writes that were asked for.
    pub audit: Audit,
    /// Wall clock.
    pub clock: Clock,
    /// The last cluster address given to a service.
    pub addresses: Mutex<u32>,
    /// Whether roles are enforced; members of `system:masters` may do everything either way.
    pub rbac: bool,
    /// Whether lists are streamed to watches that ask for it.
    pub watch_list: bool,
    /// Whether protobuf is written for those who prefer it.
    pub protobuf: bool,
    /// Where the controllers hear of changes.
    pub notices: mpsc::UnboundedSender<Notice>,
}

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("connection cut by an injected fault")]
pub struct Cut;

impl Server {
    /// Tells the controllers of a write that may concern them.
    pub fn written(&self, resource: &Resource, object: &Arc<Object>) {
        let head = &object.head;
        let structural = matches!(
            resource.plural.as_str(),
            "namespaces" | "customresourcedefinitions" | "certificatesigningrequests"
        );
        // A secret of the old kind waits for its token.
        let token = resource.plural == "secrets" && head.field("type") == Some(tokens::SECRET);
        let registration =
            bootstrap_tokens::concerns(&resource.plural, head.namespace(), head.name());
        if structural || token || registration || head.deleting || !head.owners.is_empty() {
            self.notify(resource, object, false);
        }
    }

    /// Tells the controllers that an object is gone.
    pub fn removed(&self, resource: &Resource, object: &Arc<Object>) {
        self.notify(resource, object, true);
    }

    fn notify(&self, resource: &Resource, object: &Arc<Object>, gone: bool) {
        // Without controllers nobody listens.
        let _ = self.notices.send(Notice {
            group: resource.group.clone(),
            plural: resource.plural.clone(),
            object: Arc::clone(object),
            gone,
        });
    }

    /// Who a bearer token stands for.
    pub fn user_of_token(&self, token: &str) -> Option<User> {
        self.authority
            .user_of_token(token)
            .or_else(|| bootstrap_tokens::bearer(self, token))
            .or_else(|| tokens::bearer(self, token, &[]).ok().map(|b| b.user))
    }

    /// Answers a request. An error closes the connection.
    pub async fn handle(
        self: Arc<Self>,
        peer: Option<User>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Cut> {
        let path = request.uri().path().to_owned();
        let user = self.authenticate(peer, request.headers());
        let name = user.as_ref().map(|u| u.name.clone()).unwrap_or_default();
        let method = request.method().clone();
        if let Some(refusal) = self.suffer(&name, &path).await? {
            return Ok(media::refused(&refusal, Accept::default()));
        }
        let accept = Accept::negotiate(request.headers());
        let shown = accept.clone().unwrap_or_default();
        let mut warnings = Vec::new();
        let answer = match user {
            Ok(user) => self.route(&user, accept, request, &mut warnings).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = answer.unwrap_or_else(|refusal| {
            media::refused(
                &refusal,
                Accept {
                    yaml: shown.yaml,
                    ..Accept::default()
                },
            )
        });
        self.audit.note(&name, &method, &path, response.status());
        for warning in warnings {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        Ok(response)
    }

    /// Undergoes the injected faults that concern this request.
    async fn suffer(&self, user: &str, path: &str) -> Result<Option<StatusError>, Cut> {
        for effect in self.faults.effects(Some(user), Some(path)) {
            match effect {
                Effect::Refuse | Effect::Cut => return Err(Cut),
                Effect::Hang => {
                    let mut changes = self.faults.subscribe();
                    while self
                        .faults
                        .effects(Some(user), Some(path))
                        .contains(&Effect::Hang)
                    {
                        if changes.changed().await.is_err() {
                            break;
                        }
                    }
                    return Err(Cut);
                }
                Effect::Delay(time) => tokio::time::sleep(time).await,
                Effect::Answer(code) => return Ok(Some(StatusError::injected(code))),
                Effect::SlowReady(time) if path.starts_with("/readyz") => {
                    tokio::time::sleep(time).await;
                }
                Effect::DropWatches | Effect::SlowReady(_) | Effect::NotReady => {}
            }
        }
        Ok(None)
    }

    fn authenticate(&self, peer: Option<User>, headers: &HeaderMap) -> Result<User, StatusError> {
        if let Some(user) = peer {
            return impersonation::resolve(self, user, headers);
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return impersonation::resolve(self, User::anonymous(), headers);
        };
        let token = value.to_str().ok().and_then(|v| v.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match token.and_then(|(_, token)| self.user_of_token(token.trim())) {
            Some(user) => impersonation::resolve(self, user, headers),
            None => Err(StatusError::unauthorized()),
        }
    }

    async fn route(
        self: &Arc<Self>,
        user: &User,
        accept: Result<Accept, StatusError>,
        request: Request<Incoming>,
        warnings: &mut Vec<String>,
    ) -> Result<Response<Body>, StatusError> {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let path = match Target::parse(parts.uri.path()) {
            Target::Resource(path) => path,
            Target::Path => {
                let attributes = Attributes {
                    verb: parts.method.as_str().to_ascii_lowercase(),
                    path: Some(parts.uri.path().to_owned()),
                    ..Attributes::default()
                };
                authorize::decide(self, user, &attributes)
                    .map_err(|denied| StatusError::forbidden_path(&denied.to_string()))?;
                return paths::answer(self, &parts, &query);
            }
        };
        let Some(verb) = verb(&parts.method, &path, &query) else {
            return Err(StatusError::method_not_allowed());
        };
        self.permit(user, verb, &path, &query)?;
        let served = self.served(&path, verb)?;
        let content_type = media::content_type(&parts.headers);
        let agent = parts
            .headers
            .get(header::USER_AGENT)
            .and_then(|v| v.to_str().ok());
        let agent = agent
            .unwrap_or("unknown")
            .split('/')
            .next()
            .unwrap_or("unknown");
        if let Some(deprecation) = &served.version().deprecation {
            warnings.push(deprecation.clone());
        }
        let kind = &served.resource.kind;
        let compact = self.protobuf
            && matches!(verb, Verb::List | Verb::Watch)
            && served.resource.custom.is_none()
            && encode::Kind::of(&served.api_version(), kind).is_some();
        let compact = compact
            .then(|| Accept::prefers_protobuf(&parts.headers))
            .flatten();
        let call = Call {
            server: self,
            user,
            served,
            path: &path,
            query: &query,
            accept: compact.map_or(accept, Ok)?,
            content_type: &content_type,
            agent,
            warnings: Mutex::default(),
        };
        let body = match verb {
            Verb::Get | Verb::List | Verb::Watch => bytes::Bytes::new(),
            _ => media::read(body).await?,
        };
        let answer = verbs::dispatch(&call, verb, body).await;
        warnings.extend(call.warnings.into_inner().unwrap_or_default());
        answer
    }

    /// Whether the user may do this. Asked once more for the verb `create` when a change makes an
    /// object that was not there.
    pub fn permit(
        &self,
        user: &User,
        verb: Verb,
        path: &ResourcePath<'_>,
        query: &Query,
    ) -> Result<(), StatusError> {
        // A collection narrowed to one name is asked for like the object of that name, so that roles can allow just that.
        let selected = match verb {
            Verb::List | Verb::Watch | Verb::DeleteCollection => query.selected_name(),
            _ => None,
        };
        let attributes = Attributes {
            verb: verb.name().to_owned(),
            group: path.group.to_string(),
            resource: path.resource.to_string(),
            subresource: path.subresource.to_string(),
            // A namespace is asked about as an object in itself.
            namespace: if path.resource == "namespaces" {
                path.name.to_string()
            } else {
                path.namespace.to_string()
            },
            name: selected.unwrap_or_else(|| path.name.to_string()),
            path: None,
        };
        authorize::decide(self, user, &attributes)
            .map(|_| ())
            .map_err(|denied| {
                StatusError::forbidden(
                    GroupName {
                        group: &path.group,
                        name: &path.resource,
                    },
                    &attributes.name,
                    &denied.to_string(),
                )
            })
    }

    fn served(&self, path: &ResourcePath<'_>, verb: Verb) -> Result<Served, StatusError> {
        let Some(served) = self
            .registry
            .find(&path.group, &path.version, &path.resource)
        else {
            let all = self.registry.all();
            let builtin = all
                .iter()
                .any(|r| r.custom.is_none() && r.group == path.group);
            return Err(if builtin {
                StatusError::no_such_resource()
            } else {
                StatusError::no_such_path()
            });
        };
        let namespaced = served.resource.namespaced;
        if namespaced && path.namespace.is_empty() {
            // Across namespaces one can only read.
            if !path.name.is_empty() {
                return Err(StatusError::no_such_resource());
            }
            if !matches!(verb, Verb::List | Verb::Watch) {
                return Err(StatusError::method_not_allowed());
            }
        }
        if !namespaced && !path.namespace.is_empty() {
            return Err(StatusError::no_such_resource());
        }
        if path.surplus {
            return Err(StatusError::no_such_resource());
        }
        let all = served.resource.versions.iter().flat_map(|v| &v.verbs);
        if verb == Verb::DeleteCollection && !all.into_iter().any(|v| v == "deletecollection") {
            return Err(StatusError::method_not_allowed());
        }
        Ok(served)
    }
}
