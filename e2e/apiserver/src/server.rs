//! One server: its state, and the way of a request from connection to verb.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use hyper::body::Body as HttpBody;
use jiff::fmt::rfc2822::DateTimePrinter;
use parking_lot::Mutex;

use crate::auth::authenticate;
use crate::auth::identity::User;
use crate::auth::impersonation;
use crate::auth::rbac::Attributes;
use crate::context::RequestContext;
use crate::context::Server;
use crate::faults::Effect;
use crate::paths;
use crate::registry::Served;
use crate::reviews;
use crate::subresources;
use crate::verbs;
use crate::wire::media::{self, Accept, Body, BoxError};
use crate::wire::protobuf::encode;
use crate::wire::request::{Query, ResourcePath, Target, Verb, verb};
use crate::wire::status_error::StatusError;

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("connection cut by an injected fault")]
pub struct Cut;

impl Server {
    /// Answers a request. An error closes the connection.
    pub async fn handle<B>(
        self: Arc<Self>,
        peer: Option<User>,
        request: Request<B>,
    ) -> Result<Response<Body>, Cut>
    where
        B: HttpBody<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let mut response = Arc::clone(&self).answer(peer, request).await?;
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&self.clock.now());
        if let Some(date) = date.ok().and_then(|date| HeaderValue::from_str(&date).ok()) {
            response.headers_mut().insert(header::DATE, date);
        }
        Ok(response)
    }

    async fn answer<B>(
        self: Arc<Self>,
        peer: Option<User>,
        request: Request<B>,
    ) -> Result<Response<Body>, Cut>
    where
        B: HttpBody<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let path = request.uri().path().to_owned();
        let user = self.authenticate(peer, request.headers());
        let name = user.as_ref().map(|u| u.name.clone()).unwrap_or_default();
        let method = request.method().clone();
        if let Some(refusal) = self.suffer(&name, &method, &path).await? {
            let response = media::refused(&refusal);
            self.audit.note(&name, &method, &path, response.status());
            return Ok(response);
        }
        let accept = Accept::negotiate(request.headers());
        let mut warnings = Vec::new();
        let answer = match user {
            Ok(user) => self.route(&user, accept, request, &mut warnings).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = answer.unwrap_or_else(|refusal| media::refused(&refusal));
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
    async fn suffer(
        &self,
        user: &str,
        method: &Method,
        path: &str,
    ) -> Result<Option<StatusError>, Cut> {
        for effect in self.faults.effects(Some(user), Some(path)) {
            match effect {
                Effect::Cut => return Err(Cut),
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
                Effect::Hold if !method.is_safe() => self.faults.hold(Some(user), path).await,
                Effect::Answer(code) => return Ok(Some(StatusError::injected(code))),
                Effect::Hold => {}
            }
        }
        Ok(None)
    }

    fn authenticate(&self, peer: Option<User>, headers: &HeaderMap) -> Result<User, StatusError> {
        if let Some(user) = peer {
            return impersonation::resolve(&self.access, user, headers);
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return impersonation::resolve(&self.access, User::anonymous(), headers);
        };
        let token = value.to_str().ok().and_then(|v| v.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match token.and_then(|(_, token)| authenticate::user_of_token(self.known(), token.trim())) {
            Some(user) => impersonation::resolve(&self.access, user, headers),
            None => Err(StatusError::unauthorized()),
        }
    }

    async fn route<B>(
        self: &Arc<Self>,
        user: &User,
        accept: Result<Accept, StatusError>,
        request: Request<B>,
        warnings: &mut Vec<String>,
    ) -> Result<Response<Body>, StatusError>
    where
        B: HttpBody<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
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
                self.access
                    .decide(user, &attributes)
                    .map_err(|denied| StatusError::forbidden_path(&denied.to_string()))?;
                return paths::answer(self, &parts);
            }
        };
        let Some(verb) = verb(&parts.method, &path, &query) else {
            return Err(StatusError::method_not_allowed());
        };
        self.access.permit(user, verb, &path, &query)?;
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
        let kind = &served.resource.kind;
        let compact = self.protobuf
            && matches!(verb, Verb::List | Verb::Watch)
            && served.resource.custom.is_none()
            && encode::Kind::of(&served.api_version(), kind).is_some();
        let compact = compact
            .then(|| Accept::prefers_protobuf(&parts.headers))
            .flatten();
        let context = RequestContext {
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
        let answer = dispatch(&context, verb, body).await;
        warnings.extend(context.warnings.into_inner());
        answer
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
        let offered = &served.version().verbs;
        if verb == Verb::DeleteCollection && !offered.iter().any(|v| v == "deletecollection") {
            return Err(StatusError::method_not_allowed());
        }
        Ok(served)
    }
}

/// Does what a request asks for.
async fn dispatch(
    context: &RequestContext<'_>,
    verb: Verb,
    body: bytes::Bytes,
) -> Result<Response<Body>, StatusError> {
    let outcome = if !context.path.subresource.is_empty() {
        subresources::dispatch(context, verb, &body).await?
    } else if verb == Verb::Create && context.path.name.is_empty() && reviews::are(&context.served)
    {
        reviews::create(context, &body)?
    } else {
        return verbs::dispatch(context, verb, body).await;
    };
    Ok(context.answer(&outcome))
}
