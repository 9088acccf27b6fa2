//! Who is let in, and what is answered.
//!
//! Where the page is served to others, they [sign in](super::sign_in). Otherwise three things keep
//! them out of a fleet that is read with somebody's rights: the server listens
//! on loopback; the path begins with a secret, which other users of the machine do not know; and a
//! request has to name this machine as its host, so that no page of another site reaches it by a
//! name that is made to resolve to loopback.

use bytes::Bytes;
use http::header::{
    AGE, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST, HeaderName,
    IF_NONE_MATCH, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::json;
use tokio::time::Instant;

use super::answers::{About, Answer, Answers, Ask, MOST};
use super::files::FILES;
use super::sign_in::SignIn;

/// Nothing from elsewhere, no inline scripts, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

/// Address on this machine that a request has to name.
#[derive(Debug)]
pub(super) struct LocalAddress {
    /// Port that the host of a request names.
    pub port: u16,
    /// Secret with which its path begins.
    pub token: String,
}

/// Answer that a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// Its type and its text.
    File(&'static str, &'static str),
    Ask(Ask),
}

/// Reason of a refusal: status and text.
pub(super) type Refused = (StatusCode, String);

/// Way in which requests are authorized.
pub(super) enum AccessMode {
    /// Everybody who has the address, on this machine.
    Address(LocalAddress),
    /// Everybody who signs in.
    SignIn(SignIn),
}

impl AccessMode {
    /// Returns what a request asks for, if it is allowed to.
    async fn admit(&self, request: &Parts) -> Result<Target, Refused> {
        let path = match self {
            Self::Address(local_address) => local_address.admit(request)?,
            Self::SignIn(sign_in) => {
                is_get(request)?;
                sign_in.admit(request).await?;
                request.uri.path().strip_prefix('/').unwrap_or("-")
            }
        };
        target(path, request.uri.query().unwrap_or_default())
    }
}

fn is_get(request: &Parts) -> Result<(), Refused> {
    if request.method == Method::GET {
        return Ok(());
    }
    let words = "only GET: nothing can be changed here".to_owned();
    Err((StatusCode::METHOD_NOT_ALLOWED, words))
}

impl LocalAddress {
    /// Returns the path behind the secret of a request that is allowed.
    fn admit<'a>(&self, request: &'a Parts) -> Result<&'a str, Refused> {
        let refuse = |status, words: &str| Err((status, words.to_owned()));
        if !self.is_meant(request) {
            let words = format!(
                "the host of a request has to be 127.0.0.1:{0} or localhost:{0}",
                self.port
            );
            return refuse(StatusCode::MISDIRECTED_REQUEST, &words);
        }
        is_get(request)?;
        let path = request.uri.path().strip_prefix('/').unwrap_or_default();
        let (token, path) = path.split_once('/').unwrap_or((path, "-"));
        if !is_same(token, &self.token) {
            let words = "the address is not the one that `kubectl muster ui` printed";
            return refuse(StatusCode::FORBIDDEN, words);
        }
        Ok(path)
    }

    /// Returns whether the request names this machine, and no other, as its host.
    fn is_meant(&self, request: &Parts) -> bool {
        let mut hosts = request.headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return false;
        };
        let ours = ["127.0.0.1", "localhost", "[::1]"];
        let ours = ours.map(|name| format!("{name}:{}", self.port));
        let is_ours = |named: &str| ours.iter().any(|it| it.eq_ignore_ascii_case(named));
        let by_line = request.uri.authority();
        host.to_str().is_ok_and(is_ours) && by_line.is_none_or(|it| is_ours(it.as_str()))
    }
}

/// Returns what a path asks for.
fn target(path: &str, query: &str) -> Result<Target, Refused> {
    if let Some((_, kind, text)) = FILES.iter().find(|it| it.0 == path) {
        return Ok(Target::File(kind, text));
    }
    let wrong = |words| (StatusCode::BAD_REQUEST, words);
    let fleet = |command: &str| Target::Ask(Ask::new(About::Fleet, command, []));
    Ok(match path {
        "api/status" => fleet(&format!("status --clusters --most={MOST}")),
        "api/clusters" => fleet("get clusters"),
        "api/top" => fleet("top"),
        "api/workloads" => Target::Ask(workloads(query).map_err(wrong)?),
        "api/history" => fleet("history"),
        "api/explain" => Target::Ask(explain(query).map_err(wrong)?),
        "api/simulate" => {
            let flags = disaster(query).map_err(wrong)?;
            Target::Ask(Ask::new(About::Forecast, "simulate", flags))
        }
        _ => {
            let words = "here are the page and api/status, api/clusters, api/top, \
                api/workloads?cluster=NAME, api/history, \
                api/explain?namespace=NAME&kind=KIND&name=NAME, \
                api/simulate?lost=NAMES&drain=NAMES";
            return Err((StatusCode::NOT_FOUND, words.to_owned()));
        }
    })
}

/// Compares in a time that does not say how much of it is right.
fn is_same(given: &str, token: &str) -> bool {
    let differ = given.bytes().zip(token.bytes());
    given.len() == token.len() && differ.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Returns the flags of `simulate` that a query names.
fn disaster(query: &str) -> Result<Vec<String>, String> {
    const KEYS: [&str; 3] = ["lost", "lost-region", "drain"];
    let mut flags = Vec::new();
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        if !KEYS.contains(&&*key) {
            return Err(format!(
                "{key:?} is no parameter: lost, lost-region and drain are, with names of clusters \
                 or regions between commas"
            ));
        }
        let names = value.split(',').map(str::trim);
        let names: Vec<&str> = names.filter(|it| !it.is_empty()).collect();
        if !names.is_empty() {
            flags.push(format!("--{key}={}", names.join(",")));
        }
    }
    if flags.is_empty() {
        return Err("name a cluster: lost, lost-region or drain, with names between commas".into());
    }
    Ok(flags)
}

/// Returns the values of a query of which only these keys are known, each at most once and each a
/// name.
fn names<const N: usize>(query: &str, keys: [&str; N]) -> Result<[Option<String>; N], String> {
    let mut values = [const { None }; N];
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let at = keys.iter().position(|it| *it == key);
        let Some(at) = at.filter(|at| values[*at].is_none()) else {
            return Err(format!(
                "{key:?} is no parameter, or is there twice: {}",
                keys.join(", ")
            ));
        };
        if !value.is_empty() {
            if !is_name(&value) {
                return Err(format!("{key} {value:?} is no name"));
            }
            values[at] = Some(value.into_owned());
        }
    }
    Ok(values)
}

/// Returns whether a text may be a name of an object or a kind: no flag, no path, no list.
pub(super) fn is_name(text: &str) -> bool {
    let is_inner = |it: char| it.is_ascii_alphanumeric() || "-._:".contains(it);
    text.len() <= 253
        && text.starts_with(|it: char| it.is_ascii_alphanumeric())
        && text.chars().all(is_inner)
}

/// Returns what a query asks about workloads: all of them, or those of a cluster.
fn workloads(query: &str) -> Result<Ask, String> {
    let [cluster] = names(query, ["cluster"])?;
    let about = match cluster {
        Some(_) => About::Detail,
        None => About::Fleet,
    };
    let flag = cluster.map(|it| format!("--cluster={it}"));
    Ok(Ask::new(about, "get workloads -A", flag))
}

/// Returns the workload that a query asks about.
fn explain(query: &str) -> Result<Ask, String> {
    match names(query, ["namespace", "kind", "name"])? {
        [namespace, Some(kind), Some(name)] => {
            let namespace = namespace.map(|it| format!("--namespace={it}"));
            let words = namespace.into_iter().chain([format!("{kind}/{name}")]);
            Ok(Ask::new(About::Detail, "explain", words))
        }
        _ => Err("name a workload: kind, name, and namespace if it has one".into()),
    }
}

/// Returns the answer to a request.
pub(super) async fn answer(
    access_mode: &AccessMode,
    answers: &Answers,
    request: &Parts,
) -> Response<Bytes> {
    // Probes of a kubelet sign in nowhere, and learn nothing.
    let is_probe = matches!(access_mode, AccessMode::SignIn(_)) && request.uri.path() == "/healthz";
    if is_probe {
        return typed(StatusCode::OK, "text/plain", Bytes::from_static(b"ok\n"));
    }
    let mut response = match access_mode.admit(request).await {
        Err((status, words)) => failed(status, &words),
        Ok(Target::File(kind, text)) => {
            typed(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
        }
        Ok(Target::Ask(ask)) => {
            let answer = answers.get(&ask).await;
            respond(&answer, request)
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the response with an answer; without its text if the client has it already.
fn respond(answer: &Answer, request: &Parts) -> Response<Bytes> {
    let age = Instant::now().duration_since(answer.read).as_secs();
    let tag = format!("\"{}\"", answer.number);
    let is_known = request
        .headers
        .get(IF_NONE_MATCH)
        .is_some_and(|it| it == tag.as_str());
    let (mut response, code) = match &answer.said {
        Ok(said) if is_known => (
            typed(StatusCode::NOT_MODIFIED, JSON, Bytes::new()),
            said.code,
        ),
        Ok(said) => (
            typed(StatusCode::OK, JSON, said.text.clone().into()),
            said.code,
        ),
        Err(words) => (failed(StatusCode::BAD_GATEWAY, words), 1),
    };
    let headers = response.headers_mut();
    headers.insert(AGE, HeaderValue::from(age));
    headers.insert(EXIT_CODE, HeaderValue::from(u16::from(code)));
    headers.insert(LASTS, HeaderValue::from(answer.lasts.as_secs()));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Header with the exit code of the command that says the same.
const EXIT_CODE: HeaderName = HeaderName::from_static("muster-exit-code");
/// Header with the seconds from the reading of an answer until the next one is there. In a large
/// fleet it is longer.
const LASTS: HeaderName = HeaderName::from_static("muster-lasts");
const JSON: &str = "application/json";

fn typed(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let get = HeaderValue::from_static("GET");
        response.headers_mut().insert(ALLOW, get);
    }
    if status == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
    }
    response
}

fn failed(status: StatusCode, words: &str) -> Response<Bytes> {
    let body = json!({ "error": words }).to_string();
    typed(status, JSON, Bytes::from(body))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
