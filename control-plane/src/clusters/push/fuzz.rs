//! Tokens of service accounts, of any bytes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use muster_fuzz::Fuzz;

use super::renewal::{due, read};

#[test]
fn a_token_is_read_or_not_renewed() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Fuzz::new("service-account-token")
        .words(&[
            "{",
            "}",
            ":",
            ",",
            "\"sub\"",
            "\"iat\"",
            "\"exp\"",
            "\"system:serviceaccount:n:a\"",
            "1",
            "-1",
            "null",
            "1e3",
            "253402300799",
            "-377705116800",
        ])
        .executions(3_000)
        .run(|claims| {
            let token = format!("e30.{}.c2ln\n", URL_SAFE_NO_PAD.encode(claims));
            match read(&token) {
                Some(token) => {
                    let wait = due(&token, now);
                    assert!(token.expires >= now || wait.is_zero() || token.issued > now);
                    format!("{} {}", wait.is_zero(), token.issued < token.expires)
                }
                None => "not renewed".to_owned(),
            }
        });
}
