//! Bootstrap tokens: secrets by which somebody who is nobody yet is known for as long as it takes
//! to become somebody (kube-apiserver with `--enable-bootstrap-token-auth`, and the bootstrap
//! signer of kube-controller-manager).

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::hmac;
use serde_json::Value;

use crate::auth::identity::User;
use crate::store::Store;

/// The type of secrets that hold such a token.
pub const SECRET: &str = "bootstrap.kubernetes.io/token";
/// What their names begin with; the token's id follows.
pub const PREFIX: &str = "bootstrap-token-";
/// Where they have to be.
pub const NAMESPACE: &str = "kube-system";

/// Namespace and name of the ConfigMap that says to everybody where the API is.
pub const INFO: (&str, &str) = ("kube-public", "cluster-info");

/// The group of everybody who comes with such a token.
const GROUP: &str = "system:bootstrappers";

/// Returns whether an object is a token's secret or the ConfigMap that is signed with it, by its
/// collection, namespace and name.
pub fn concerns(plural: &str, namespace: &str, name: &str) -> bool {
    match plural {
        "secrets" => namespace == NAMESPACE && name.starts_with(PREFIX),
        "configmaps" => (namespace, name) == INFO,
        _ => false,
    }
}

/// Returns the id and secret of a token, if it has the form of one.
fn parts(token: &str) -> Option<(&str, &str)> {
    let plain = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let (id, secret) = token.split_once('.')?;
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

/// Returns the user that a token stands for: its secret is there, of the right type, says the same,
/// has not expired, and is for this use.
pub fn bearer(store: &Store, token: &str, now: Timestamp) -> Option<User> {
    let (id, secret) = parts(token)?;
    let key = format!("{NAMESPACE}/{PREFIX}{id}");
    let object = store.collection("/secrets").get(&key)?;
    if object.head.deleting || object.head.field("type") != Some(SECRET) {
        return None;
    }
    user(&object.value()["data"], (id, secret), now)
}

fn user(data: &Value, (id, secret): (&str, &str), now: Timestamp) -> Option<User> {
    let field = |name: &str| text(data, name);
    let same = field("token-secret").as_deref() == Some(secret)
        && field("token-id").as_deref() == Some(id);
    if !same || has_expired(data, now) || !allows(data, "authentication") {
        return None;
    }
    let extra = field("auth-extra-groups").unwrap_or_default();
    let extra: Vec<&str> = extra.split(',').filter(|g| !g.is_empty()).collect();
    if !extra.iter().all(|group| is_group(group)) {
        return None;
    }
    let groups = [&[GROUP], &extra[..]].concat();
    Some(User::authenticated(
        &format!("system:bootstrap:{id}"),
        &groups,
    ))
}

/// Returns whether a name is that of a group of bootstrap tokens:
/// `\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`.
fn is_group(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let own = name.strip_prefix("system:bootstrappers:");
    own.is_some_and(|own| {
        own.len() <= 256
            && own.bytes().all(|b| plain(b) || b == b':' || b == b'-')
            && own.bytes().last().is_some_and(plain)
    })
}

/// Returns whether a token has expired. One with a date that cannot be read has.
fn has_expired(data: &Value, now: Timestamp) -> bool {
    let end = text(data, "expiration").filter(|it| !it.is_empty());
    end.is_some_and(|end| end.parse::<Timestamp>().map_or(true, |end| end <= now))
}

fn allows(data: &Value, usage: &str) -> bool {
    text(data, &format!("usage-bootstrap-{usage}")).as_deref() == Some("true")
}

fn text(data: &Value, name: &str) -> Option<String> {
    let bytes = STANDARD.decode(data[name].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns the key and the signature (JWS without its payload, HMAC with SHA-256) by which the
/// holder of a token knows a text for the API's; `None` if the token is not for signing.
pub fn signature(data: &Value, payload: &str, now: Timestamp) -> Option<(String, String)> {
    let (id, secret) = (text(data, "token-id")?, text(data, "token-secret")?);
    if has_expired(data, now) || !allows(data, "signing") {
        return None;
    }
    let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(payload));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    Some((
        format!("jws-kubeconfig-{id}"),
        format!("{head}..{signature}"),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: (&str, &str) = ("abcdef", "0123456789abcdef");

    fn data(edit: impl FnOnce(&mut Value)) -> Value {
        let mut data = json!({
            "token-id": ID.0, "token-secret": ID.1, "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:a:b,system:bootstrappers:c-1",
        });
        edit(&mut data);
        let fields = data.as_object().unwrap().iter();
        let fields = fields.map(|(k, v)| (k.clone(), STANDARD.encode(v.as_str().unwrap()).into()));
        Value::Object(fields.collect())
    }

    #[test]
    fn a_token_that_is_old_or_for_something_else_stands_for_nobody() {
        for (field, value) in [
            ("expiration", "1970-01-01T00:00:00Z"),
            ("expiration", "soon"),
            ("token-secret", "0123456789abcdee"),
            ("token-id", "abcdee"),
            ("usage-bootstrap-authentication", "yes"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a-"),
        ] {
            let data = data(|data| data[field] = value.into());
            assert_eq!(
                user(&data, ID, Timestamp::UNIX_EPOCH),
                None,
                "{field} {value}"
            );
        }
        let fresh = data(|data| data["expiration"] = "1970-01-01T00:00:01Z".into());
        assert!(user(&fresh, ID, Timestamp::UNIX_EPOCH).is_some());
    }
}
