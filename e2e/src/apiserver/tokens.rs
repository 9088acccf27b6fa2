//! Tokens of service accounts: TokenRequest issues them, bearers are recognised by them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::identity::User;
use super::refusal::{GroupName, Refusal};
use super::schema::FieldError;
use super::server::Server;
use super::verbs::{Call, Outcome};
use super::{admission, clock, metadata, subresources};

/// The audience and issuer of tokens for the API itself.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The shortest life of a token, in seconds.
const SHORTEST: i64 = 600;

/// Answers a TokenRequest for the service account of the call.
pub async fn request(call: &Call<'_>, body: &[u8]) -> Result<Outcome, Refusal> {
    let mut request = subresources::spoken(call, body)?;
    let account = call.stored()?;
    admission::answerable(call, &mut request).await?;
    let seconds = request["spec"]["expirationSeconds"]
        .as_i64()
        .unwrap_or(3600);
    if seconds < SHORTEST {
        let kind = GroupName {
            group: "authentication.k8s.io",
            name: "TokenRequest",
        };
        let detail = "may not specify a duration less than 10 minutes";
        let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), detail);
        return Err(Refusal::invalid(kind, "", &[error]));
    }
    let audiences = match request["spec"]["audiences"].as_array() {
        Some(list) if !list.is_empty() => list.clone(),
        _ => vec![ISSUER.into()],
    };
    let now = call.server.clock.now();
    let end = now
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(now);
    let (namespace, name) = (account.head.namespace(), account.head.name());
    let claims = json!({
        "aud": audiences,
        "exp": end.as_second(),
        "iat": now.as_second(),
        "nbf": now.as_second(),
        "iss": ISSUER,
        "jti": clock::uid(),
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": { "name": name, "uid": account.head.uid },
        },
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    });
    let token = call
        .server
        .authority
        .sign(&claims)
        .map_err(Refusal::internal)?;
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    let fields = metadata::of(&mut request);
    fields.insert("name".to_owned(), name.into());
    fields.insert("namespace".to_owned(), namespace.into());
    fields.insert("uid".to_owned(), (&*account.head.uid).into());
    fields.insert("creationTimestamp".to_owned(), metadata::time(now).into());
    request["spec"]["audiences"] = audiences.into();
    request["spec"]["expirationSeconds"] = seconds.into();
    if request["spec"]["boundObjectRef"].is_null() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({ "token": token, "expirationTimestamp": metadata::time(end) });
    Ok(Outcome::Tree(StatusCode::CREATED, request))
}

/// The service account that a token stands for: signed here, not expired, and the account still the same one.
pub fn user(server: &Server, token: &str) -> Option<User> {
    if !server.authority.signed(token) {
        return None;
    }
    let claims: Value =
        serde_json::from_slice(&BASE64.decode(token.split('.').nth(1)?).ok()?).ok()?;
    let end = Timestamp::from_second(claims["exp"].as_i64()?).ok()?;
    let ours = claims["aud"].as_array()?.iter().any(|a| a == ISSUER);
    if end <= server.clock.now() || !ours {
        return None;
    }
    let bound = &claims["kubernetes.io"];
    let (namespace, account) = (
        bound["namespace"].as_str()?,
        bound["serviceaccount"]["name"].as_str()?,
    );
    let found = server
        .store
        .collection("/serviceaccounts")
        .get(&format!("{namespace}/{account}"))?;
    if bound["serviceaccount"]["uid"] != *found.head.uid {
        return None;
    }
    let own = format!("system:serviceaccounts:{namespace}");
    let mut user = User::authenticated(
        &format!("system:serviceaccount:{namespace}:{account}"),
        &["system:serviceaccounts", &own],
    );
    user.uid = found.head.uid.to_string();
    Some(user)
}
