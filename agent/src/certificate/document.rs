//! Kubeconfig in the Secret: reads its certificate, and replaces it. Pure.
//!
//! The kubeconfig belongs to the operator: all other fields stay as they are, including unknown
//! ones.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_shared::client;
use muster_shared::tls::{self, Certificate};
use serde_json::{Value, json};

/// Reason why a kubeconfig has no certificate that can be renewed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not YAML. The message says where and quotes nothing, because the text has keys
    /// and the message becomes an event.
    #[error("the kubeconfig cannot be read: {0}")]
    Syntax(String),
    /// The current context has no user.
    #[error("the kubeconfig's context {0:?} names no user that is in it")]
    NoUser(String),
    /// The user has no certificate; it may have a token.
    #[error(
        "user {0:?} of the kubeconfig has no client-certificate-data: there is nothing to renew"
    )]
    NoCertificate(String),
    /// The certificate cannot be parsed.
    #[error(transparent)]
    Certificate(#[from] tls::Error),
    /// The kubeconfig cannot be serialised.
    #[error("the kubeconfig cannot be written: {0}")]
    Write(String),
}

/// A kubeconfig with a client certificate.
#[derive(Clone, Debug)]
pub struct Document {
    root: Value,
    user: usize,
    /// URL of the server; empty if the kubeconfig names none.
    pub server: String,
    /// The certificate as PEM text.
    pub certificate: Vec<u8>,
    /// The private key as PEM text.
    pub key: Vec<u8>,
    /// The certificates in `certificate`, the leaf first.
    pub chain: Vec<Certificate>,
}

impl Document {
    /// Reads a kubeconfig; `context` is the one to use, or its own current one.
    pub fn read(text: &[u8], context: Option<&str>) -> Result<Self, Error> {
        let text = std::str::from_utf8(text).map_err(|error| Error::Syntax(error.to_string()))?;
        let root: Value = serde_saphyr::from_str(text)
            .map_err(|error| Error::Syntax(format!("it is no YAML {}", client::place(&error))))?;
        let current = context.or_else(|| root["current-context"].as_str());
        let current = current.unwrap_or_default().to_owned();
        let entry = |list: &str, name: &Value| {
            let list = root[list].as_array();
            list.and_then(|list| list.iter().position(|it| it["name"] == *name))
        };
        let at = entry("contexts", &json!(current));
        let named = |field: &str| at.map(|at| root["contexts"][at]["context"][field].clone());
        let cluster = named("cluster").and_then(|name| entry("clusters", &name));
        let server = cluster.and_then(|at| root["clusters"][at]["cluster"]["server"].as_str());
        let server = server.unwrap_or_default().to_owned();
        let name = named("user");
        let user = name.as_ref().and_then(|name| entry("users", name));
        let (Some(name), Some(user)) = (name, user) else {
            return Err(Error::NoUser(current));
        };
        let decoded = |field: &str| {
            let text = root["users"][user]["user"][field].as_str()?;
            STANDARD.decode(text).ok().filter(|it| !it.is_empty())
        };
        let fields = ["client-certificate-data", "client-key-data"].map(decoded);
        let [Some(certificate), Some(key)] = fields else {
            return Err(Error::NoCertificate(
                name.as_str().unwrap_or_default().into(),
            ));
        };
        let chain = tls::certificates(&certificate)?;
        Ok(Self {
            root,
            user,
            server,
            certificate,
            key,
            chain,
        })
    }

    /// Returns the kubeconfig with another certificate and key (PEM text).
    pub fn with(&self, certificate: &[u8], key: &[u8]) -> Result<String, Error> {
        let mut root = self.root.clone();
        let user = &mut root["users"][self.user]["user"];
        user["client-certificate-data"] = STANDARD.encode(certificate).into();
        user["client-key-data"] = STANDARD.encode(key).into();
        serde_saphyr::to_string(&root).map_err(|error| Error::Write(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: b\nfuture: [1, two]\n\
             clusters: [{{name: c, cluster: {{server: 'https://x', future: yes}}}}]\n\
             contexts:\n- {{name: a, context: {{cluster: c, user: other}}}}\n- {{name: b, context: {{cluster: c, user: us}}}}\n\
             users:\n- {{name: other, user: {{token: t}}}}\n- {{name: us, user: {user}}}\n"
        )
    }

    #[test]
    fn what_cannot_be_renewed_is_reported_by_name() {
        for (text, context, words) in [
            (text("{token: t}"), None, "\"us\""),
            (text("{client-certificate-data: eA==}"), None, "\"us\""),
            (text("{}"), Some("nowhere"), "\"nowhere\""),
            (text("{}"), Some("a"), "\"other\""),
            ("{".to_owned(), None, "cannot be read"),
            (String::new(), None, "context \"\""),
        ] {
            let error = Document::read(text.as_bytes(), context).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_text_that_is_no_yaml_is_not_quoted() {
        for user in ["{client-key-data: SECRET\"", "\"SECRET", "{token: *SECRET}"] {
            let error = Document::read(text(user).as_bytes(), None).unwrap_err();
            let words = format!("{error} {error:?}");
            assert!(
                words.contains("line") && !words.contains("SECRET"),
                "{words}"
            );
        }
    }

    #[test]
    fn nothing_but_the_certificate_changes() {
        let before: Value = serde_saphyr::from_str(&text("{future: {x: 1}}")).unwrap();
        let document = Document {
            server: String::new(),
            root: before.clone(),
            user: 1,
            certificate: Vec::new(),
            key: Vec::new(),
            chain: Vec::new(),
        };
        let after = document.with(b"certificate", b"key").unwrap();
        let after: Value = serde_saphyr::from_str(&after).unwrap();
        let mut expected = before;
        expected["users"][1]["user"]["client-certificate-data"] = json!("Y2VydGlmaWNhdGU=");
        expected["users"][1]["user"]["client-key-data"] = json!("a2V5");
        assert_eq!(after, expected);
    }
}
