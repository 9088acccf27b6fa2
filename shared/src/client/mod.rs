//! Clients of a Kubernetes API, with deadlines by purpose.
//!
//! kube's defaults do not suit a failure detector: there is no read timeout, so that a server that
//! accepts a request and stalls is waited for without limit, and one call may hide up to fifteen
//! retries of 429, 503 and 504. Here each [`Profile`] has deadlines and none retries: the caller
//! decides what a failure means.

mod connection;
mod gate;
mod head;
mod network;
mod proxy;
mod reload;
mod route;
mod service;
mod traffic;
mod writer;

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use kube::api::Api;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::PartialObjectMeta;
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use tokio::time::error::Elapsed;

pub use self::gate::Gate;
pub use self::head::Head;
pub use self::network::{Network, ResponseBody};
pub use self::proxy::{
    configured, of_another as proxy_of_another, of_environment as environment_proxy,
    of_kubeconfig as kubeconfig_proxy, of_text as proxy_of_text,
};
pub use self::reload::{Gateway, Life, Pool, Source, credentials};
pub use self::route::Route;
pub use self::service::{Limits, retry_after};
pub use self::traffic::Priority;
pub use self::writer::Writer;

/// Purpose of a client, which decides its deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Reads and writes of single objects: a response within 15 s.
    Write,
    /// Lists and watches: no read deadline, because a quiet watch is healthy;
    /// [`watch`](crate::watch) applies its own.
    Watch,
    /// Health checks: a response within 5 s. The caller's own deadline is usually shorter.
    Probe,
}

impl Profile {
    /// Returns the longest time for a response; `None` for no deadline.
    const fn response_deadline(self) -> Option<Duration> {
        match self {
            Self::Write => Some(Duration::from_secs(15)),
            Self::Probe => Some(Duration::from_secs(5)),
            Self::Watch => None,
        }
    }

    /// Returns the most bytes of an answer that a program reads, which are in memory at once,
    /// several times; no limit where they are read one object at a time, each of which is limited.
    /// An API server may be anybody's: that of a member answers to the control plane in push mode.
    const fn longest_answer(self) -> usize {
        match self {
            Self::Write | Self::Probe => 32 * 1024 * 1024,
            Self::Watch => usize::MAX,
        }
    }
}

/// Error while a client is prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig is missing, unreadable or incomplete.
    #[error("cannot use kubeconfig {path:?}: {problem}")]
    Kubeconfig {
        /// Path of the file, as given.
        path: String,
        /// Fault of the file; quotes nothing of its content.
        problem: String,
    },
    /// There are neither in-cluster credentials nor a default kubeconfig.
    #[error(
        "found no way to reach a Kubernetes API: give --kubeconfig, set KUBECONFIG, or run in a pod (in a pod: {pod}; \
         kubeconfig: {kubeconfig})"
    )]
    Infer {
        /// Reason why the pod's service account cannot be used.
        pod: String,
        /// Reason why the default kubeconfig cannot be used.
        kubeconfig: String,
    },
    /// Certificates or addresses in the configuration cannot be used.
    #[error("cannot prepare a connection to {server}: {source}")]
    Connect {
        /// Address of the server.
        server: String,
        /// Error of kube.
        source: Box<kube::Error>,
    },
}

/// Loads the configuration of a Kubernetes API: from a kubeconfig file (and context), or without
/// one from `KUBECONFIG`, the home directory or the pod's service account, as every Kubernetes
/// client does.
pub async fn kubeconfig(path: Option<&Path>, context: Option<&str>) -> Result<Config, Error> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    kubeconfig_of(path, &options).await
}

/// Loads the configuration of a Kubernetes API as [`kubeconfig`] does, with a context, a cluster
/// and a user of the kubeconfig.
pub async fn kubeconfig_of(
    path: Option<&Path>,
    options: &KubeConfigOptions,
) -> Result<Config, Error> {
    let is_chosen =
        options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    let named = |path: &Path, source: KubeconfigError| Error::Kubeconfig {
        path: path.display().to_string(),
        problem: problem(&source),
    };
    match path {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|source| named(path, source))?;
            configured(file, options)
                .await
                .map_err(|source| named(path, source))
        }
        None if is_chosen => default_kubeconfig(options)
            .await
            .map_err(|source| named(Path::new("$KUBECONFIG or ~/.kube/config"), source)),
        None => match default_kubeconfig(options).await {
            Ok(config) => Ok(config),
            Err(kubeconfig) => Config::incluster().map_err(|pod| Error::Infer {
                pod: pod.to_string(),
                kubeconfig: problem(&kubeconfig),
            }),
        },
    }
}

/// Loads the configuration of `KUBECONFIG`, or of the kubeconfig in the home directory.
async fn default_kubeconfig(options: &KubeConfigOptions) -> Result<Config, KubeconfigError> {
    configured(Kubeconfig::read()?, options).await
}

/// Loads the configuration of a Kubernetes API from the text of a kubeconfig. Errors call it by
/// `name`.
pub async fn from_text(text: &str, name: &str) -> Result<Config, Error> {
    let named = |source: KubeconfigError| Error::Kubeconfig {
        path: name.to_owned(),
        problem: problem(&source),
    };
    let read = Kubeconfig::from_yaml(text).map_err(named)?;
    let options = KubeConfigOptions::default();
    configured(read, &options).await.map_err(named)
}

/// Returns a configuration with a client certificate and its key (PEM texts) in place of all other
/// credentials.
pub fn certified(mut way: Config, certificate: &[u8], key: &[u8]) -> Config {
    use base64::Engine;
    let encode = |bytes| base64::engine::general_purpose::STANDARD.encode(bytes);
    way.auth_info = AuthInfo {
        client_certificate_data: Some(encode(certificate)),
        client_key_data: Some(encode(key).into()),
        ..AuthInfo::default()
    };
    way
}

/// Returns what is wrong with a kubeconfig, without a word of it: its text holds tokens and keys,
/// and what is logged or said in an event is read by others.
fn problem(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => format!("it is no kubeconfig {}", place(error)),
        other => other.to_string(),
    }
}

/// Returns where a YAML text is not what it should be. The parser's own words quote the text.
pub fn place(error: &serde_saphyr::Error) -> String {
    error.location().map_or_else(
        || "at some place".to_owned(),
        |at| format!("at line {}, column {}", at.line(), at.column()),
    )
}

/// Returns the address of a configuration's server, without a slash at the end.
pub fn address(config: &Config) -> String {
    let address = config.cluster_url.to_string();
    address.trim_end_matches('/').to_owned()
}

/// Prepares a client with the deadlines of a profile. Nothing is sent yet. A `read_timeout` of the
/// configuration takes the place of the profile's own, except where that has none.
pub fn connect(config: &Config, profile: Profile) -> Result<Client, Error> {
    connect_within(config, profile, usize::MAX)
}

/// Prepares a client that reads no more of an answer than some bytes.
fn connect_within(config: &Config, profile: Profile, longest: usize) -> Result<Client, Error> {
    let mut config = config.clone();
    config.default_retry = false;
    let connecting = match profile {
        Profile::Probe => Duration::from_secs(3),
        Profile::Write | Profile::Watch => Duration::from_secs(5),
    };
    let asked = config.read_timeout;
    config.connect_timeout = Some(asked.map_or(connecting, |it| it.min(connecting)));
    let deadline = profile.response_deadline();
    config.read_timeout = deadline.map(|own| asked.unwrap_or(own));
    config.write_timeout = Some(Duration::from_secs(15));
    // Otherwise the time that a pooled connection sat idle counts against the next answer.
    config.reset_reader_on_write = true;
    let server = config.cluster_url.to_string();
    connection::client(config, longest).map_err(|source| Error::Connect {
        server,
        source: Box::new(source),
    })
}

/// Returns whether the answer has the code for something that does not exist, be it the object or
/// the kind. Whoever asks for an object uses [`get_opt`] or [`is_gone`].
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Returns the name of the object that does not exist, as the error says. Only an answer that names
/// an object says so: an API server that does not serve the kind, as one that has just started, or
/// a proxy before it, answers with the same code.
fn absent(error: &kube::Error) -> Option<&str> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let name = status.details.as_ref()?.name.as_str();
    (status.is_not_found() && !name.is_empty()).then_some(name)
}

/// Returns whether the error says that there is no object of this name.
pub fn says_absent(error: &kube::Error, name: &str) -> bool {
    absent(error) == Some(name)
}

/// Returns whether the answer to a write says that its object is gone.
pub fn is_gone(error: &kube::Error) -> bool {
    absent(error).is_some()
}

/// Returns whether the API, or its store, does not take an object for what is in it, such as its
/// size, which etcd and its client refuse with the code of an error within the server. The same
/// write will not succeed later.
pub fn refuses_content(error: &kube::Error) -> bool {
    let sizes = ["request is too large", "larger than max"];
    matches!(error, kube::Error::Api(status) if matches!(status.code, 413 | 422)
        || sizes.iter().any(|size| status.message.contains(size)))
}

/// Reads an object; `None` if the API says that it does not have it (see [`says_absent`]).
///
/// # Errors
/// If the API answers anything else, or does not answer.
pub async fn get_opt<K>(api: &Api<K>, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    if_there(api.get(name).await, name)
}

/// Reads the metadata of an object; `None` if the API says that it does not have the object (see
/// [`says_absent`]).
///
/// # Errors
/// If the API answers anything else, or does not answer.
pub async fn get_metadata_opt<K>(
    api: &Api<K>,
    name: &str,
) -> Result<Option<PartialObjectMeta<K>>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    if_there(api.get_metadata(name).await, name)
}

/// Returns what was read; `None` if the answer says that there is no object of this name.
fn if_there<T>(answer: Result<T, kube::Error>, name: &str) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if says_absent(&error, name) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the error says that another client wrote the object first, or created it first.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_already_exists())
}

/// What an API says that does not serve the kind that it was asked for; its own words are "404 page
/// not found".
const UNSERVED: &str = "this API does not serve that kind (404): is it the right kubeconfig? `kubectl muster check` says which definitions are missing, \
    and which of them to apply";

/// Returns whether the API does not serve the path at all. For kinds that it serves, a 404 has a
/// status object.
fn is_unserved(status: &kube::core::Status) -> bool {
    status.code == 404 && status.message.trim() == "404 page not found"
}

/// Formats an error of a request in one short line. kube's own text for an API error is the whole
/// status object.
pub fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if is_unserved(status) => UNSERVED.to_owned(),
        kube::Error::Api(status) if !status.message.is_empty() => {
            format!("{} ({} {})", status.message, status.code, status.reason)
        }
        other => words(other),
    }
}

/// Returns the answer to a request that had a limited time, or says in one short line why there is
/// none.
///
/// # Errors
/// When the request failed, or its time was over first.
pub fn in_time<T>(answer: Result<Result<T, kube::Error>, Elapsed>) -> Result<T, String> {
    match answer {
        Ok(answer) => answer.map_err(|error| brief(&error)),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

/// Returns the text of an error with its causes, as the first errors are often general.
pub fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn a_deadline_of_the_configuration_takes_the_place_of_that_of_the_profile() {
        // It takes connections, and answers nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", silent.local_addr().unwrap());
        let mut config = Config::new(address.parse().unwrap());
        config.read_timeout = Some(Duration::from_millis(50));
        for profile in [Profile::Write, Profile::Probe] {
            let client = connect(&config, profile).unwrap();
            let own = profile.response_deadline().unwrap();
            let answer = tokio::time::timeout(own, client.apiserver_version()).await;
            assert!(matches!(answer, Ok(Err(_))), "{profile:?}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_kubeconfig_is_reported_without_a_word_of_it() {
        let folder = std::env::temp_dir().join(format!("muster-secret-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("kubeconfig");
        for user in [
            "{token: SECRET\"",
            "{token: SECRET\"}",
            "{token: [SECRET]}",
            "SECRET",
            "{token: \"SECRET}",
            "{client-key-data: \"SECRET\\q\"}",
            "{token: *SECRET}",
        ] {
            let text = format!("apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user: {user}\n");
            std::fs::write(&path, text).unwrap();
            let error = kubeconfig(Some(&path), None).await.unwrap_err();
            let mut words = format!("{error} {error:?}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                words = format!("{words} {cause} {cause:?}");
                source = cause.source();
            }
            assert!(!words.contains("SECRET"), "{user}: {words}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_an_answer_that_names_the_object_says_that_it_is_gone() {
        for (code, reason, name, expected) in [
            (404, "NotFound", "web", true),
            (404, "NotFound", "", false),
            (404, "Failed to parse error data", "", false),
            (409, "Conflict", "web", false),
        ] {
            let details = serde_json::from_value(serde_json::json!({ "name": name }));
            let status = Status::failure("", reason).with_code(code);
            let status = status.with_details(details.unwrap());
            let error = kube::Error::Api(status.boxed());
            assert_eq!(is_gone(&error), expected, "{code} {reason} {name}");
            let named = ["web", "other", ""].map(|name| says_absent(&error, name));
            assert_eq!(named, [expected, false, false], "{code} {reason} {name}");
        }
        let status = Status::failure("404 page not found", "Failed to parse error data");
        let unserved = kube::Error::Api(status.with_code(404).boxed());
        assert!(!is_gone(&unserved), "the kind is not served now");
    }

    #[test]
    fn a_write_that_is_refused_for_its_content_is_told_from_one_that_may_succeed_later() {
        for (code, message, expected) in [
            (413, "Request entity too large: limit is 3145728", true),
            (422, "Work \"w\" is invalid", true),
            (500, "etcdserver: request is too large", true),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097278 vs. 2097152)",
                true,
            ),
            (500, "etcdserver: leader changed", false),
            (409, "the object has been modified", false),
            (403, "works.work.karmada.io is forbidden", false),
        ] {
            let status = Status::failure(message, "").with_code(code);
            let error = kube::Error::Api(status.boxed());
            assert_eq!(refuses_content(&error), expected, "{code} {message}");
        }
    }

    #[test]
    fn an_api_that_does_not_know_a_kind_says_what_to_do() {
        let error = |message: &str, reason: &str| {
            let status = serde_json::json!({"code": 404, "message": message, "reason": reason});
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        let unserved = brief(&error("404 page not found\n", "Failed to parse error data"));
        assert!(
            unserved.contains("definitions") && unserved.contains("kubeconfig"),
            "{unserved}"
        );
        let missing = brief(&error("clusters \"a\" not found", "NotFound"));
        assert_eq!(missing, "clusters \"a\" not found (404 NotFound)");
    }
}
