//! Hashes by which authorities are pinned, as kubeadm has them.

use std::fmt;
use std::str::FromStr;

use ring::digest;

use crate::tls;

/// SHA-256 of the public key of a certificate (`SubjectPublicKeyInfo`), as kubeadm pins
/// authorities.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash([u8; 32]);

/// A text that is not a hash.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a hash of a certificate authority: sha256: and 64 hexadecimal digits")]
pub struct NoHash(String);

impl Hash {
    /// Returns the hash of a key, DER.
    pub fn of(key: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, key);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// Returns the hashes of the keys of each certificate of a PEM text.
    ///
    /// # Errors
    /// When the text has no certificate, or one that cannot be read.
    pub fn of_authority(pem: &[u8]) -> Result<Vec<Self>, tls::Error> {
        let chain = tls::certificates(pem)?;
        Ok(chain.iter().map(|it| Self::of(&it.key)).collect())
    }

    /// Returns whether a list of authorities is one that was expected: none is pinned, or one of
    /// the list is. A fleet that replaces its authority has two for a while, and who joins knows
    /// the hash of one.
    ///
    /// What is secret is to be sent only to a server that a pinned authority vouches for.
    pub fn accepts(pins: &[Self], found: &[Self]) -> bool {
        pins.is_empty() || found.iter().any(|it| pins.contains(it))
    }
}

impl FromStr for Hash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Self, NoHash> {
        let refused = || NoHash(text.to_owned());
        let digits = text.strip_prefix("sha256:").ok_or_else(refused)?;
        // A sign is no digit, though numbers may have one.
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let pair = &digits[2 * at..2 * at + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| refused())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
