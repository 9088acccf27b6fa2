//! Signatures of requests by [Standard Webhooks](https://www.standardwebhooks.com): symmetric keys,
//! HMAC-SHA256.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Prefix of a key.
const PREFIX: &str = "whsec_";
/// Bytes of a key, as the specification limits them.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;
/// Keys at most: the one in use, and others while receivers change over.
const MOST: usize = 4;

/// Keys that sign a request. Their debug form shows none.
#[derive(Debug)]
pub struct Keys(Vec<hmac::Key>);

impl Keys {
    /// Reads the keys of a file, one in a line. Each signs, so that receivers can change over.
    ///
    /// # Errors
    /// A predicate that says what is wrong and quotes nothing.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        let lines = text.lines().map(str::trim).filter(|it| !it.is_empty());
        let keys: Result<Vec<_>, _> = lines.map(key).collect();
        match keys? {
            keys if keys.is_empty() => Err("has no key: write whsec_ and 24 to 64 bytes in base64"),
            keys if keys.len() > MOST => Err("has more than 4 keys"),
            keys => Ok(Self(keys)),
        }
    }

    /// Returns the value of the header `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let content = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        let signatures = self.0.iter().map(|key| {
            let signature = STANDARD.encode(hmac::sign(key, &content));
            format!("v1,{signature}")
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

fn key(line: &str) -> Result<hmac::Key, &'static str> {
    let encoded = line.strip_prefix(PREFIX);
    let bytes = encoded.and_then(|it| STANDARD.decode(it).ok());
    let bytes = bytes.ok_or("has a key that is not whsec_ and base64")?;
    if !LENGTHS.contains(&bytes.len()) {
        return Err("has a key that is not of 24 to 64 bytes");
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_is_signed_as_it_says() {
        // The vector that the reference libraries of Standard Webhooks test with.
        let keys = Keys::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signature = keys.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_key_signs_while_receivers_change_over() {
        let (old, new) = (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        );
        let signed = |text: &str| Keys::read(text).unwrap().sign("id", 1, b"x");
        let both = signed(&format!("{new}\n\n {old} \n"));
        assert_eq!(both, format!("{} {}", signed(new), signed(old)));
        assert_ne!(signed(new), signed(old));
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_quoted() {
        for text in [
            "",
            "hunter2",
            "whsec_hunter2!",
            "whsec_c2hvcnQ=",
            &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"; 5].join("\n"),
        ] {
            let error = Keys::read(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
