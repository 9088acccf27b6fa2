//! The flags by which every command reaches an API, as kubectl has them.

use std::path::PathBuf;
use std::time::Duration as StdDuration;

use anyhow::{Context as _, ensure};
use clap::Args;
use http::{Request, Response, StatusCode};
use kube::Config;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions};
use muster_shared::client::{self, Profile};
use muster_shared::k8s::Client;
use muster_shared::settings::Duration;
use tokio::time::Instant;

/// Level from which on each request is reported.
const REQUESTS: u8 = 6;
/// Number of times at most that a request is sent which the server refuses because it has too much
/// to do: client-go's first and its ten more.
const ATTEMPTS: u32 = 11;
/// Longest pause before such a request is sent again.
const LONGEST_PAUSE: StdDuration = StdDuration::from_secs(10);
/// Longest time for a request, a year, which stands for no limit.
const NO_LIMIT: StdDuration = StdDuration::from_hours(24 * 365);

/// Flags of kubectl. Each is an argument of every command; `line` says what becomes of one whose
/// name a command has for a flag of its own.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct Connection {
    /// Kubeconfig of the fleet API (of the member for `register`); KUBECONFIG or the default one
    /// without it.
    #[arg(id = "connection.kubeconfig", long = "kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context within the kubeconfig.
    #[arg(id = "connection.context", long = "context", value_name = "NAME")]
    pub context: Option<String>,
    /// Cluster within the kubeconfig.
    #[arg(id = "connection.cluster", long = "cluster", value_name = "NAME")]
    pub cluster: Option<String>,
    /// User within the kubeconfig.
    #[arg(id = "connection.user", long = "user", value_name = "NAME")]
    pub user: Option<String>,
    /// Namespace of what is asked about; that of the context without it. For `register` the
    /// member's namespace for the agent's Secret: karmada-system without it.
    #[arg(
        id = "connection.namespace",
        long = "namespace",
        short = 'n',
        value_name = "NAME"
    )]
    pub namespace: Option<String>,
    /// Address of the API, in place of that in the kubeconfig.
    #[arg(
        id = "connection.server",
        long = "server",
        short = 's',
        value_name = "URL"
    )]
    pub server: Option<String>,
    /// Bearer token, in place of the credentials in the kubeconfig. Arguments are seen by others.
    #[arg(id = "connection.token", long = "token", value_name = "TOKEN")]
    pub token: Option<String>,
    /// User to act as.
    #[arg(id = "connection.as", long = "as", value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to act as, with --as; may be given several times.
    #[arg(id = "connection.as-group", long = "as-group", value_name = "GROUP")]
    pub as_group: Vec<String>,
    /// Uid to act as, with --as.
    #[arg(id = "connection.as-uid", long = "as-uid", value_name = "UID")]
    pub as_uid: Option<String>,
    /// Longest time for one request, such as 5s; 0 for no limit. 15s without it. Watches go on.
    #[arg(id = "connection.request-timeout", long = "request-timeout", value_name = "DURATION", value_parser = seconds)]
    pub request_timeout: Option<Duration>,
    /// Level of the log on the standard error: from 6 on each request, with its answer.
    #[arg(id = "connection.v", long = "v", short = 'v', value_name = "LEVEL")]
    pub verbosity: Option<u8>,
}

/// Reads a duration; a number alone is one of seconds, as kubectl has it.
fn seconds(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if is_number {
        return format!("{text}s").parse();
    }
    text.parse()
}

impl Connection {
    /// Loads the configuration of the API.
    pub async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let config = client::kubeconfig_of(self.kubeconfig.as_deref(), &options).await?;
        self.change(config)
    }

    /// Returns a flag that changes what the kubeconfig says of the way to the API, if one is given.
    pub fn changing(&self) -> Option<&'static str> {
        let flags = [
            ("--cluster", self.cluster.is_some()),
            ("--user", self.user.is_some()),
            ("--server", self.server.is_some()),
            ("--token", self.token.is_some()),
            ("--as", self.impersonate.is_some()),
            ("--request-timeout", self.request_timeout.is_some()),
        ];
        let given = flags.into_iter().find(|it| it.1);
        given.map(|it| it.0)
    }

    /// Changes a configuration as the flags say.
    fn change(&self, mut config: Config) -> anyhow::Result<Config> {
        if let Some(server) = &self.server {
            let address = server.parse::<http::Uri>();
            let address = address
                .ok()
                .filter(|it| it.host().is_some_and(|host| !host.is_empty()));
            let mut address = address.with_context(|| {
                format!("--server is {server:?}: write for example https://fleet.example:6443")
            })?;
            if address.scheme().is_none() {
                address = format!("https://{server}").parse()?;
            }
            let (own, before) = (config.proxy_url.as_ref(), &config.cluster_url);
            config.proxy_url = client::proxy_of_another(own, before, &address);
            config.cluster_url = address;
        }
        if let Some(token) = &self.token {
            config.auth_info = AuthInfo {
                token: Some(token.clone().into()),
                impersonate: config.auth_info.impersonate,
                impersonate_groups: config.auth_info.impersonate_groups,
                impersonate_uid: config.auth_info.impersonate_uid,
                impersonate_user_extra: config.auth_info.impersonate_user_extra,
                ..AuthInfo::default()
            };
        }
        ensure!(
            self.impersonate.is_some() || (self.as_group.is_empty() && self.as_uid.is_none()),
            "--as-group and --as-uid say more of a user: name it with --as"
        );
        if let Some(user) = &self.impersonate {
            let auth = &mut config.auth_info;
            auth.impersonate = Some(user.clone());
            auth.impersonate_uid.clone_from(&self.as_uid);
            auth.impersonate_groups = Some(self.as_group.clone()).filter(|it| !it.is_empty());
            auth.impersonate_user_extra = None;
        }
        if let Some(longest) = self.request_timeout {
            config.read_timeout = Some(if longest.is_zero() {
                NO_LIMIT
            } else {
                *longest
            });
        }
        Ok(config)
    }

    /// Prepares a client.
    pub fn client(&self, config: &Config) -> anyhow::Result<Client> {
        let client = client::connect(config, Profile::Write)?;
        let is_reported = self.verbosity.is_some_and(|level| level >= REQUESTS);
        let patient =
            tower::service_fn(move |request| patient(client.clone(), request, is_reported));
        Ok(Client::new(patient, config.default_namespace.clone()))
    }
}

/// Sends a request, and sends it again where the server asks for that, as kubectl does: a server
/// that has just started, or has too much to do, refuses it (429) and has done nothing. A 503 may
/// be that of a gateway behind which a write was done, so that only reads are sent again then.
async fn patient(
    client: Client,
    mut request: Request<Body>,
    is_reported: bool,
) -> Result<Response<Body>, kube::Error> {
    for _ in 1..ATTEMPTS {
        let Some(again) = copy(&request) else {
            break;
        };
        let is_safe = request.method().is_safe();
        let answer = send(&client, request, is_reported).await;
        let refused = answer.as_ref().ok();
        let refused = refused.filter(|it| is_safe || it.status() == StatusCode::TOO_MANY_REQUESTS);
        let Some(pause) = refused.and_then(client::retry_after) else {
            return answer;
        };
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
        request = again;
    }
    send(&client, request, is_reported).await
}

/// Returns a request like another one; `None` where its body is sent while it is made.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Sends a request once, and logs it with its answer on the standard error where that is wanted.
async fn send(
    client: &Client,
    request: Request<Body>,
    is_reported: bool,
) -> Result<Response<Body>, kube::Error> {
    let what = is_reported.then(|| format!("{} {}", request.method(), request.uri()));
    let begun = Instant::now();
    let answer = client.send(request).await;
    if let Some(what) = what {
        let said = match &answer {
            Ok(response) => response.status().to_string(),
            Err(error) => client::brief(error),
        };
        eprintln!("{what}: {said} in {} ms", begun.elapsed().as_millis());
    }
    answer
}

#[cfg(test)]
mod tests {
    use muster_shared::settings::Duration;

    use super::*;
    use crate::line;

    fn of(words: &str) -> Connection {
        let words = format!("kubectl-muster {words}");
        line::parse(words.split(' ')).unwrap().connection
    }

    #[test]
    fn every_flag_of_kubectl_changes_the_way_to_the_api() {
        let known = || {
            let mut config = Config::new("https://fleet.example".parse().unwrap());
            config.auth_info.client_certificate = Some("a.crt".to_owned());
            config.proxy_url = Some("http://of-the-kubeconfig".parse().unwrap());
            config
        };
        let words = "status --as jane --as-group dev --as-group ops --as-uid 7 -s other:6443 --request-timeout 3 -v=6";
        let connection = of(words);
        assert_eq!(connection.verbosity, Some(REQUESTS));
        let config = connection.change(known()).unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://other:6443/");
        assert_eq!(config.proxy_url, known().proxy_url);
        assert_eq!(config.read_timeout, Some(StdDuration::from_secs(3)));
        let auth = config.auth_info;
        assert_eq!(auth.impersonate.as_deref(), Some("jane"));
        assert_eq!(auth.impersonate_uid.as_deref(), Some("7"));
        let groups = ["dev", "ops"].map(str::to_owned).to_vec();
        assert_eq!(auth.impersonate_groups, Some(groups));
        assert_eq!(auth.client_certificate.as_deref(), Some("a.crt"));

        let config = of("--token t --request-timeout 0 status").change(known());
        let config = config.unwrap();
        assert!(config.auth_info.token.is_some());
        assert_eq!(config.auth_info.client_certificate, None);
        assert_eq!(config.read_timeout, Some(NO_LIMIT));
        for (words, expected) in [
            ("ui --serve [::1]:0 --context c --kubeconfig f -v=6", None),
            ("ui --serve [::1]:0 --as jane", Some("--as")),
            ("ui --serve [::1]:0 -s other", Some("--server")),
        ] {
            assert_eq!(of(words).changing(), expected, "{words}");
        }
        let reported = of("status --as-group dev").change(known()).unwrap_err();
        assert!(reported.to_string().contains("--as"), "{reported}");
        of("status -s :").change(known()).unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_sent_again_while_the_server_asks_for_that() {
        for (method, code, refusals, header, expected) in [
            ("PUT", 429, 2, Some("1"), (200, 3)),
            ("PUT", 429, 2, None, (429, 1)),
            ("PUT", 429, 100, Some("1"), (429, ATTEMPTS)),
            ("PUT", 503, 2, Some("1"), (503, 1)),
            ("GET", 503, 2, Some("1"), (200, 3)),
        ] {
            let sent = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
            let counted = std::sync::Arc::clone(&sent);
            let api = tower::service_fn(move |request: Request<Body>| {
                assert_eq!(request.headers()["x"], "y");
                let number = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let mut answer = Response::builder().status(200);
                if number < refusals {
                    answer = answer.status(code);
                    if let Some(seconds) = header {
                        answer = answer.header("Retry-After", seconds);
                    }
                }
                std::future::ready(answer.body(Body::empty()))
            });
            let request = Request::builder().method(method).uri("/api");
            let request = request.header("x", "y");
            let request = request.body(Body::from(b"{}".to_vec())).unwrap();
            let answer = patient(Client::new(api, "default"), request, false).await;
            let sent = sent.load(std::sync::atomic::Ordering::SeqCst);
            assert_eq!((answer.unwrap().status().as_u16(), sent), expected);
        }
    }

    #[test]
    fn a_number_alone_is_one_of_seconds() {
        for (text, expected) in [
            ("5", Ok(5)),
            ("0", Ok(0)),
            ("2m", Ok(120)),
            ("x", Err(())),
            ("", Err(())),
        ] {
            let read = seconds(text).map_err(|_| ());
            let expected = expected.map(|it| Duration(StdDuration::from_secs(it)));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn a_command_keeps_a_flag_of_its_own_and_passes_it_to_nobody() {
        for words in [
            "history --cluster m1",
            "rebalance --cluster m1",
            "get workloads --cluster m1",
        ] {
            assert_eq!(of(words).cluster, None, "{words}");
        }
        assert_eq!(of("get clusters --cluster a").cluster.as_deref(), Some("a"));
        let both = of("--cluster a history --cluster m1");
        assert_eq!(both.cluster.as_deref(), Some("a"));
        let token = "abcdef.0123456789abcdef";
        let register = format!("register fleet:6443 --token {token} --cluster-name m1");
        assert_eq!(of(&register).token, None);
        assert_eq!(of("check --request-timeout 3s").request_timeout, None);
        assert_eq!(of("token create --server https://a:1").server, None);
    }
}
