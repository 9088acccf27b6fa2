//! Renewal of the token of a member's account.
//!
//! `kubectl muster join` stores a token of limited life. The control plane asks the member for
//! another one in time, with the right of the account to make tokens of itself.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use kube::api::{Api, PostParams};
use muster_shared::k8s::ServiceAccount;
use serde::Deserialize;

/// Lifetime that is asked for. A server may give less.
const LIFETIME: Duration = Duration::from_hours(48);

/// Asks for a token of an account.
///
/// # Errors
/// Those of the API, also where it makes none.
pub async fn ask(accounts: &Api<ServiceAccount>, account: &str) -> Result<String, kube::Error> {
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: i64::try_from(LIFETIME.as_secs()).ok(),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let params = PostParams::default();
    let answer = accounts.create_token_request(account, &params, &request);
    let token = answer.await?.status.map(|status| status.token);
    token
        .filter(|token| !token.is_empty())
        .ok_or_else(|| kube::Error::Service("the member made no token".into()))
}

/// Content of a service account token, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Namespace of the account.
    pub namespace: String,
    /// Name of the account.
    pub account: String,
    /// Time at which the token was made.
    pub issued: Timestamp,
    /// Time at which the token expires.
    pub expires: Timestamp,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iat: i64,
    exp: i64,
}

/// Reads a bound service account token. Returns `None` for other tokens, which are not renewed:
/// those without an end, and those of other issuers.
pub fn read(token: &str) -> Option<Token> {
    let payload = token.trim().split('.').nth(1)?;
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    let (namespace, account) = claims
        .sub
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    Some(Token {
        namespace: namespace.to_owned(),
        account: account.to_owned(),
        issued: Timestamp::from_second(claims.iat).ok()?,
        expires: Timestamp::from_second(claims.exp).ok()?,
    })
}

/// Returns the time until a token is to be renewed: at half of its life.
pub fn due(token: &Token, now: Timestamp) -> Duration {
    let half = token.issued.as_second().midpoint(token.expires.as_second());
    let left = half.saturating_sub(now.as_second());
    Duration::from_secs(u64::try_from(left).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn token(claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!(
            "{}.{}.c2lnbmF0dXJl\n",
            part(&json!({ "alg": "RS256" })),
            part(claims)
        )
    }

    #[test]
    fn a_token_of_limited_life_is_renewed_at_half_of_it() {
        let claims = json!({ "sub": "system:serviceaccount:muster-system:muster", "iat": 1_000, "exp": 2_000 });
        let read = read(&token(&claims)).unwrap();
        assert_eq!(
            (read.namespace.as_str(), read.account.as_str()),
            ("muster-system", "muster")
        );
        for (now, seconds) in [(1_000, 500), (1_400, 100), (1_500, 0), (9_000, 0)] {
            let now = Timestamp::from_second(now).unwrap();
            assert_eq!(due(&read, now), Duration::from_secs(seconds), "{now}");
        }
    }

    #[test]
    fn other_tokens_are_left_alone() {
        for other in [
            "opaque".to_owned(),
            "a.b.c".to_owned(),
            String::new(),
            token(&json!({ "sub": "system:serviceaccount:a:b", "iat": 1 })),
            token(&json!({ "sub": "jane", "iat": 1, "exp": 2 })),
        ] {
            assert_eq!(read(&other), None, "{other}");
        }
    }
}
