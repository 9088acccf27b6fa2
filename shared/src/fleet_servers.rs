//! Addresses at which a fleet's API is reached.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::names::annotation::FLEET_SERVERS;
use crate::tls;

/// Most addresses of a fleet: each is asked when the one in use does not answer.
pub const MOST: usize = 8;
/// Bytes of the longest list, far below what an object of Kubernetes may hold in annotations.
const LONGEST: usize = 64 << 10;
/// Characters of the longest name of a store, as of a label's value.
const LONGEST_STORE: usize = 63;

/// One address of a fleet's API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetServer {
    /// URL of the API server.
    pub server: String,
    /// Certificates of the authority that signs its certificate, as PEM text in Base64. If absent,
    /// the authority of the agent's kubeconfig counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_data: Option<String>,
    /// File with these certificates, in place of `caData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Name of the store behind the address. Addresses of one store have one name. A standby has
    /// another one, and is obeyed only after its promotion.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub store: String,
}

impl FleetServer {
    /// Returns the address in the form in which addresses are compared.
    pub fn address(&self) -> &str {
        self.server.trim_end_matches('/')
    }

    /// Returns the certificates of the authority in DER; `None` where the address names none.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn authorities(&self) -> Result<Option<Vec<Vec<u8>>>, String> {
        let pem = match (&self.ca_data, &self.ca_file) {
            (Some(data), _) => STANDARD
                .decode(data.trim())
                .map_err(|_| "caData is not Base64".to_owned())?,
            (None, Some(file)) => std::fs::read(file)
                .map_err(|error| format!("caFile {} cannot be read: {error}", file.display()))?,
            (None, None) => return Ok(None),
        };
        let name = if self.ca_data.is_some() {
            "caData"
        } else {
            "caFile"
        };
        let read = tls::authorities(&pem);
        if read.is_empty() {
            return Err(format!("{name} has no certificate in PEM form"));
        }
        Ok(Some(read))
    }

    fn check(&self) -> Result<(), String> {
        let named = |problem: &str| format!("server {:?}: {problem}", self.server);
        let uri: Option<http::Uri> = self.server.parse().ok();
        let is_address = uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("https" | "http"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.query().is_none()
        });
        if !is_address || self.server.contains(['@', '#']) || self.server.len() > 2048 {
            return Err(named(
                "it is no URL of scheme (https or http), host, port and path only",
            ));
        }
        if self.ca_data.is_some() && self.ca_file.is_some() {
            return Err(named("caData and caFile exclude each other"));
        }
        if self.ca_data.is_some() {
            self.authorities().map_err(|problem| named(&problem))?;
        }
        let plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        if self.store.len() > LONGEST_STORE || !self.store.chars().all(plain) {
            return Err(named(&format!(
                "store is {:.80?}; it may have up to {LONGEST_STORE} letters, digits, \"-\", \"_\" and \".\"",
                self.store
            )));
        }
        Ok(())
    }
}

/// Rejects a list that cannot be used.
///
/// # Errors
/// When a field has a value that is not allowed; the error names both.
pub fn check(servers: &[FleetServer]) -> Result<(), String> {
    if servers.len() > MOST {
        let number = servers.len();
        return Err(format!(
            "there are {number} servers; at most {MOST} are allowed"
        ));
    }
    for (place, server) in servers.iter().enumerate() {
        server.check()?;
        let mut earlier = servers.iter().take(place);
        if earlier.any(|it| it.address() == server.address()) {
            return Err(format!("server {:?} is there twice", server.server));
        }
    }
    let bytes = write(servers).len();
    if bytes > LONGEST {
        return Err(format!(
            "the list has {bytes} bytes; at most {LONGEST} are allowed"
        ));
    }
    Ok(())
}

/// Rejects a list that no agent elsewhere could use.
///
/// # Errors
/// As [`check`], and for a `caFile`.
pub fn check_published(servers: &[FleetServer]) -> Result<(), String> {
    let mut named = servers.iter().filter(|it| it.ca_file.is_some());
    if let Some(it) = named.next() {
        return Err(format!(
            "server {:?}: caFile is a file of this process, which no agent can read; caData is allowed",
            it.server
        ));
    }
    check(servers)
}

/// Writes a list as the value of the annotation [`FLEET_SERVERS`].
pub fn write(servers: &[FleetServer]) -> String {
    serde_json::json!(servers).to_string()
}

/// Reads the value of the annotation [`FLEET_SERVERS`].
///
/// # Errors
/// When it is no list of addresses.
pub fn read(text: &str) -> Result<Vec<FleetServer>, String> {
    let named = |problem: String| format!("annotation {FLEET_SERVERS}: {problem}");
    if text.len() > LONGEST {
        return Err(named(format!("it has more than {LONGEST} bytes")));
    }
    let servers: Vec<FleetServer> =
        serde_json::from_str(text).map_err(|error| named(error.to_string()))?;
    check_published(&servers).map_err(named)?;
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(servers: &Value) -> Result<Vec<FleetServer>, String> {
        read(&servers.to_string())
    }

    #[test]
    fn what_is_not_allowed_is_named_with_what_is() {
        for (server, words) in [
            (json!({}), &["server"][..]),
            (json!({"server": "fleet.example.com"}), &["https"]),
            (json!({"server": "https://u@h"}), &["URL"]),
            (json!({"server": "https://h?a=b"}), &["URL"]),
            (json!({"server": "https://h", "ca": "x"}), &["ca", "caData"]),
            (
                json!({"server": "https://h", "caData": "%"}),
                &["https://h", "caData", "Base64"],
            ),
            (
                json!({"server": "https://h", "caData": "aGVsbG8="}),
                &["https://h", "caData", "PEM"],
            ),
            (
                json!({"server": "https://h", "caFile": "/ca.crt"}),
                &["caFile", "caData is allowed"],
            ),
            (
                json!({"server": "https://h", "store": "a b"}),
                &["store", "\"a b\"", "letters"],
            ),
        ] {
            let error = parse(&json!([server])).unwrap_err();
            assert!(
                words.iter().all(|it| error.contains(it)),
                "{words:?}: {error}"
            );
        }
        let one = json!({"server": "https://h"});
        let error = parse(&json!([one, {"server": "https://h/"}])).unwrap_err();
        assert!(error.contains("twice"), "{error}");
        let many: Vec<_> = (0..=MOST)
            .map(|n| json!({"server": format!("https://h{n}")}))
            .collect();
        let error = parse(&json!(many)).unwrap_err();
        assert!(error.contains("at most 8"), "{error}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let servers = vec![
            FleetServer {
                server: "https://a:6443".to_owned(),
                ..FleetServer::default()
            },
            FleetServer {
                server: "https://b/fleet".to_owned(),
                store: "second".to_owned(),
                ..FleetServer::default()
            },
        ];
        assert_eq!(read(&write(&servers)), Ok(servers));
    }
}
