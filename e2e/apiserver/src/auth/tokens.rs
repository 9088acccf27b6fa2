//! Tokens of service accounts: TokenRequest issues them, bearers are recognised by them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::auth::identity::{Authority, CREDENTIAL, User};
use crate::store::{Object, Store};

/// The audience and issuer of tokens for the API itself.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The issuer of the old tokens, which are kept in secrets.
const OLD_ISSUER: &str = "kubernetes/serviceaccount";

/// The type of secrets that hold old tokens.
pub const SECRET: &str = "kubernetes.io/service-account-token";

/// Somebody recognised by a token, and the audiences it was recognised for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The service account.
    pub user: User,
    /// Of those asked for, the token's own.
    pub audiences: Vec<String>,
}

/// What tokens are recognised by.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Signs tokens.
    pub authority: &'a Authority,
    /// Has the accounts that tokens stand for.
    pub store: &'a Store,
    /// The present.
    pub now: Timestamp,
}

/// Returns the service account that a token stands for: signed here, not expired, for one of these
/// audiences (of the API itself if there are none), and the account still the same.
pub fn bearer(known: Known<'_>, token: &str, audiences: &[String]) -> Result<Bearer, String> {
    let unknown = || "invalid bearer token".to_owned();
    let claims = claims(known, token).ok_or_else(unknown)?;
    if claims["iss"] == OLD_ISSUER {
        let user = old_bearer(known, token, &claims).ok_or_else(unknown)?;
        return Ok(Bearer {
            user,
            audiences: vec![ISSUER.to_owned()],
        });
    }
    let api = [ISSUER.to_owned()];
    let wanted = if audiences.is_empty() {
        &api
    } else {
        audiences
    };
    let own = claims["aud"].as_array().into_iter().flatten();
    let own: Vec<&str> = own.filter_map(Value::as_str).collect();
    let shared: Vec<String> = wanted
        .iter()
        .filter(|a| own.contains(&a.as_str()))
        .cloned()
        .collect();
    if shared.is_empty() {
        let list = |items: &mut dyn Iterator<Item = &str>| {
            items
                .map(|i| format!("{i:?}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        return Err(format!(
            "[invalid bearer token, token audiences [{}] is invalid for the target audiences [{}]]",
            list(&mut own.iter().copied()),
            list(&mut wanted.iter().map(String::as_str))
        ));
    }
    let user = account_of(known, &claims).ok_or_else(unknown)?;
    Ok(Bearer {
        user,
        audiences: shared,
    })
}

/// Returns what a token says that was signed here and has not expired.
fn claims(known: Known<'_>, token: &str) -> Option<Value> {
    if !known.authority.signed(token) {
        return None;
    }
    let claims = BASE64.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let Some(end) = claims["exp"].as_i64() else {
        return (claims["iss"] == OLD_ISSUER).then_some(claims);
    };
    (Timestamp::from_second(end).ok()? > known.now).then_some(claims)
}

fn account_of(known: Known<'_>, claims: &Value) -> Option<User> {
    let own = &claims["kubernetes.io"];
    let namespace = own["namespace"].as_str()?;
    let account = &own["serviceaccount"];
    let mut user = user(known, namespace, account["name"].as_str()?, &account["uid"])?;
    let id = claims["jti"].as_str().unwrap_or_default();
    user.extra
        .insert(CREDENTIAL.to_owned(), vec![format!("JTI={id}")]);
    Some(user)
}

/// Returns a service account as a user, if it is there and still the same.
fn user(known: Known<'_>, namespace: &str, account: &str, uid: &Value) -> Option<User> {
    let accounts = known.store.collection("/serviceaccounts");
    let found = accounts.get(&format!("{namespace}/{account}"))?;
    if *uid != *found.head.uid {
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

const OLD_CLAIMS: &str = "kubernetes.io/serviceaccount/";

/// Returns the user of an old token, which is good as long as its secret holds it.
fn old_bearer(known: Known<'_>, token: &str, claims: &Value) -> Option<User> {
    let claim = |name: &str| &claims[format!("{OLD_CLAIMS}{name}")];
    let namespace = claim("namespace").as_str()?;
    let key = format!("{namespace}/{}", claim("secret.name").as_str()?);
    let secret = known.store.collection("/secrets").get(&key)?;
    if secret.head.deleting || secret.value()["data"]["token"] != STANDARD.encode(token) {
        return None;
    }
    user(
        known,
        namespace,
        claim("service-account.name").as_str()?,
        claim("service-account.uid"),
    )
}

/// Returns what a secret of the old kind should hold in `data`, and the uid for its annotation;
/// `None` if it holds it already or its account isn't there.
pub fn old_data(known: Known<'_>, secret: &Object) -> Option<(Map<String, Value>, String)> {
    let value = secret.value();
    let namespace = secret.head.namespace();
    let name = value["metadata"]["annotations"]["kubernetes.io/service-account.name"].as_str()?;
    let account = known
        .store
        .collection("/serviceaccounts")
        .get(&format!("{namespace}/{name}"))?;
    if value["data"]["token"]
        .as_str()
        .is_some_and(|t| !t.is_empty())
    {
        return None;
    }
    let mut claims = Map::new();
    claims.insert("iss".to_owned(), OLD_ISSUER.into());
    claims.insert(
        "sub".to_owned(),
        format!("system:serviceaccount:{namespace}:{name}").into(),
    );
    for (claim, value) in [
        ("namespace", namespace),
        ("secret.name", secret.head.name()),
        ("service-account.name", name),
        ("service-account.uid", &*account.head.uid),
    ] {
        claims.insert(format!("{OLD_CLAIMS}{claim}"), value.into());
    }
    let token = known.authority.sign(&Value::Object(claims)).ok()?;
    let mut data = Map::new();
    for (key, value) in [
        ("token", token.as_str()),
        ("namespace", namespace),
        ("ca.crt", known.authority.root()),
    ] {
        data.insert(key.to_owned(), STANDARD.encode(value).into());
    }
    Some((data, account.head.uid.to_string()))
}
