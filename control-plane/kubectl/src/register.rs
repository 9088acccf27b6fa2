//! `kubectl muster register`: obtains a certificate for a member's agent and stores it in a Secret.
//!
//! Nothing is written before the certificate has been issued and the fleet API has no other member
//! of this name. A registration that fails therefore changes nothing; at most a signing request
//! remains.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use kube::Config;
use kube::api::{Patch, PatchParams};
use muster_agent::Asked;
use muster_control_plane::clusters::registration::access;
use muster_control_plane::clusters::registration::discovery::{self, Hash, Info};
use muster_control_plane::clusters::registration::token::Token;
use muster_shared::api::cluster::Cluster;
use muster_shared::certificate::kubeconfig::Way;
use muster_shared::certificate::subject;
use muster_shared::client::{self, Profile};
use muster_shared::k8s::{Api, Client, ConfigMap, Secret};
use muster_shared::names::{AGENT_GROUP, AGENT_USER_PREFIX};
use muster_shared::settings;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::install::{CHART, SECRET};
use super::request::{FIELD_MANAGER, call, identify, require_name};

/// Bytes of a file with a token that are read: 23, and white space.
const LONGEST_TOKEN: u64 = 4096;
/// Pause between two checks of something that others have to do.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Address of the fleet API, as HOST:PORT.
    #[arg(value_name = "API:PORT", value_parser = endpoint)]
    endpoint: String,
    /// The bootstrap token. Arguments are seen by others (`ps`, the shell's history): see
    /// --token-file.
    #[arg(
        long,
        required_unless_present = "token_file",
        conflicts_with = "token_file"
    )]
    token: Option<Token>,
    /// File with the bootstrap token; `-` for the standard input.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Hashes of the fleet API's authority, as `token create --print-register-command` prints them.
    /// One authority of the fleet API has to have one of them, and the token is sent to no server
    /// whose certificate another authority signed.
    #[arg(long, value_delimiter = ',', value_name = "sha256:HEX")]
    discovery_token_ca_cert_hash: Vec<Hash>,
    /// Trust an authority that is known by the token alone: anyone who has seen the token can pose
    /// as that authority.
    #[arg(long)]
    discovery_token_unsafe_skip_ca_verification: bool,
    /// Time to wait for the fleet API, and then for the approval.
    #[arg(long, default_value = "5m", value_name = "DURATION")]
    discovery_timeout: settings::Duration,
    /// Name of this cluster in the fleet.
    #[arg(long, value_name = "NAME")]
    cluster_name: String,
    /// For how long the certificate is to be good, in seconds; the agent renews it.
    #[arg(long, default_value_t = 7_776_000, value_name = "SECONDS")]
    cert_expiration_seconds: u32,
    /// Replace a Secret that is there.
    #[arg(long)]
    force: bool,
    /// Check whether everything is as it should be, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Options {
    fn check(&self) -> anyhow::Result<()> {
        require_name(&self.cluster_name)?;
        ensure!(
            !self.discovery_token_ca_cert_hash.is_empty()
                || self.discovery_token_unsafe_skip_ca_verification,
            "give --discovery-token-ca-cert-hash, or --discovery-token-unsafe-skip-ca-verification to trust whoever answers"
        );
        Ok(())
    }

    /// Returns the token, from where it was given. What cannot be read is not repeated: it may be a
    /// secret.
    fn token(&self) -> anyhow::Result<Token> {
        let Some(file) = &self.token_file else {
            return self.token.clone().context("give --token or --token-file");
        };
        let text = if file.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin().take(LONGEST_TOKEN))
                .context("read the token from the standard input")?
        } else {
            let opened = File::open(file).map(|it| it.take(LONGEST_TOKEN));
            let read = opened.and_then(std::io::read_to_string);
            read.with_context(|| format!("read the token from {}", file.display()))?
        };
        let token = text.trim().parse();
        token.with_context(|| format!("read the token from {}", file.display()))
    }

    fn server(&self) -> String {
        format!("https://{}", self.endpoint)
    }
}

/// Returns the host and port of an address that may be written as `https://HOST:PORT/`. The
/// connection is always TLS, and the API is at the root.
fn endpoint(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").unwrap_or(text);
    let host = host.strip_suffix('/').unwrap_or(host);
    let authority: Option<http::uri::Authority> = host.parse().ok();
    match authority.filter(|it| !it.host().is_empty() && !it.as_str().contains('@')) {
        Some(authority) => Ok(authority.to_string()),
        None => Err(
            "write HOST or HOST:PORT, such as fleet.example:6443: no http://, no path".to_owned(),
        ),
    }
}

pub(super) async fn carry_out(
    member: Client,
    namespace: &str,
    options: &Options,
) -> anyhow::Result<String> {
    options.check()?;
    let token = options.token()?;
    let id = identify(&member, "identify the member").await?;
    let secrets: Api<Secret> = Api::namespaced(member.clone(), namespace);
    let there = call(
        "read the member's Secret",
        client::get_opt(&secrets, SECRET),
    )
    .await?;
    ensure!(
        there.is_none() || options.force,
        "Secret {namespace}/{SECRET} is there already: this member has joined a fleet. --force replaces it"
    );
    let info = discover(options, &token).await?;
    if options.dry_run {
        return Ok(format!(
            "{} can be trusted, and this member can join it as {:?}. Nothing was changed.\n",
            options.server(),
            options.cluster_name
        ));
    }
    let (asked, certificate) = certify(options, &token, &info).await?;
    let way = Way {
        server: options.server(),
        authority: info.authority.clone(),
        ..Way::default()
    };
    let cluster = &options.cluster_name;
    let kubeconfig = way.with_certificate(cluster, &certificate, asked.key().as_bytes());
    check_all(options, &kubeconfig, &id).await?;
    store(&member, &secrets, namespace, &kubeconfig).await?;
    Ok(what_is_left(namespace, &options.cluster_name))
}

/// Finds out whom to trust: asks a server that nobody vouches for yet, checks what it says, and
/// asks again over a connection that is verified.
async fn discover(options: &Options, token: &Token) -> anyhow::Result<Info> {
    let (server, hashes) = (options.server(), &options.discovery_token_ca_cert_hash);
    let mut unverified = reached(&server)?;
    unverified.accept_invalid_certs = true;
    let deadline = Instant::now() + *options.discovery_timeout;
    let data = loop {
        let problem = match public(&unverified).await {
            Ok(Some(data)) => match discovery::trust(&data, token, hashes) {
                Ok(_) => break data,
                // The signer may be about to sign.
                Err(error @ discovery::Error::Unsigned) => error.into(),
                Err(error) => return Err(error.into()),
            },
            Ok(None) => anyhow::anyhow!(
                "it has no ConfigMap {}/{}: make a token there with `kubectl muster token create`",
                discovery::NAMESPACE,
                discovery::NAME
            ),
            Err(error) => error,
        };
        if Instant::now() + PAUSE > deadline {
            return Err(problem.context(format!("cannot discover the fleet API at {server}")));
        }
        tokio::time::sleep(PAUSE).await;
    };
    let info = discovery::trust(&data, token, hashes)?;
    let again = public(&verified(options, &info)?).await;
    let again = again.context("ask the fleet API again over a verified connection")?;
    ensure!(
        again.as_ref() == Some(&data),
        "the fleet API at {server} says something else over a verified connection: either its ConfigMap {}/{} was just changed, and the same command works now, or another server answers in its place (a proxy, or an attacker)",
        discovery::NAMESPACE,
        discovery::NAME
    );
    Ok(info)
}

/// Returns a connection to the fleet API, through the proxy of the environment where it names one.
fn reached(server: &str) -> anyhow::Result<Config> {
    let mut config = Config::new(server.parse().context("read the address")?);
    config.proxy_url = client::environment_proxy(&config.cluster_url);
    Ok(config)
}

/// Returns a connection that trusts pinned authorities alone where some are pinned, so that whoever
/// can add one to the public ConfigMap is not sent the token.
fn verified(options: &Options, info: &Info) -> anyhow::Result<Config> {
    let mut config = reached(&options.server())?;
    config.root_cert = Some(info.roots(&options.discovery_token_ca_cert_hash));
    Ok(config)
}

async fn public(config: &Config) -> anyhow::Result<Option<BTreeMap<String, String>>> {
    let fleet = client::connect(config, Profile::Probe)?;
    let maps: Api<ConfigMap> = Api::namespaced(fleet, discovery::NAMESPACE);
    let found = call("ask who it is", client::get_opt(&maps, discovery::NAME)).await?;
    Ok(found.map(|map| map.data.unwrap_or_default()))
}

/// Asks for a certificate with the token, and waits for it.
async fn certify(
    options: &Options,
    token: &Token,
    info: &Info,
) -> anyhow::Result<(Asked, Vec<u8>)> {
    let mut config = verified(options, info)?;
    config.auth_info.token = Some(token.to_string().into());
    let requests = Api::all(client::connect(&config, Profile::Write)?);
    let cluster = &options.cluster_name;
    let subject = subject::of(AGENT_GROUP, &format!("{AGENT_USER_PREFIX}{cluster}"));
    let life = Duration::from_secs(options.cert_expiration_seconds.into());
    let asked = match Asked::ask(&requests, cluster, &subject, life).await {
        Ok(asked) => asked,
        Err(error) if error.is_unknown_user() => bail!(
            "the fleet API does not know the token: it has expired, was deleted, is not for authentication, or the API server runs without --enable-bootstrap-token-auth"
        ),
        Err(error) => return Err(error.into()),
    };
    let deadline = Instant::now() + *options.discovery_timeout;
    loop {
        let is_late = Instant::now() > deadline;
        match asked.answer(&requests, &[]).await {
            Ok(Some(certificate)) => return Ok((asked, certificate)),
            Ok(None) if is_late => bail!(
                "signing request {name:?} was not approved within {:?}. `kubectl describe csr {name}` at the fleet API says why the control plane left it; a person can approve it (`kubectl certificate approve {name}`), and then this command has to be run again with a token for {cluster:?}",
                *options.discovery_timeout,
                name = asked.name
            ),
            Err(error) if is_late || error.ends() => return Err(error.into()),
            Ok(None) | Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks the fleet API as the agent: it has to have the agent's rights, and know no other member of
/// this name.
async fn check_all(options: &Options, kubeconfig: &Value, id: &str) -> anyhow::Result<()> {
    let cluster = &options.cluster_name;
    let parsed = serde_json::from_value(kubeconfig.clone()).context("read the new kubeconfig")?;
    let defaults = kube::config::KubeConfigOptions::default();
    let config = client::configured(parsed, &defaults);
    let config = config.await.context("use the new kubeconfig")?;
    let clusters: Api<Cluster> = Api::all(client::connect(&config, Profile::Write)?);
    let found = match client::get_opt(&clusters, cluster).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.is_forbidden() => bail!(
            "the certificate was issued, and its owner has no rights yet: make a token with `kubectl muster token create --cluster-name {cluster}`, or install charts/control-plane with access.members={{{cluster}}}"
        ),
        Err(error) => bail!("look for Cluster {cluster:?}: {}", client::brief(&error)),
    };
    match found
        .and_then(|it| it.spec.id)
        .filter(|it| !it.is_empty() && it != id)
    {
        None => Ok(()),
        Some(other) => bail!(
            "the fleet has another member called {cluster:?} (its kube-system has uid {other}, this one's {id}). Nothing was changed"
        ),
    }
}

async fn store(
    member: &Client,
    secrets: &Api<Secret>,
    namespace: &str,
    kubeconfig: &Value,
) -> anyhow::Result<()> {
    access::ensure_namespace(member, namespace).await?;
    let text = serde_saphyr::to_string(kubeconfig).context("write the kubeconfig")?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": namespace},
        "type": "Opaque", "data": {SECRET: STANDARD.encode(text)},
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    call(
        "write the member's Secret",
        secrets.patch(SECRET, &params, &Patch::Apply(secret)),
    )
    .await?;
    Ok(())
}

fn what_is_left(namespace: &str, cluster: &str) -> String {
    let mut text = format!(
        "Secret {namespace}/{SECRET} has the agent's certificate for the fleet API.\nStart the agent:\n\n"
    );
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "  helm install muster-agent {CHART} -n {namespace} --set clusterName={cluster} \\\n    --set fleet.kubeconfigSecret={SECRET} --set fleet.kubeconfigKey={SECRET} --set certRotation.enabled=true\n\n\
         It applies the kinds of ordinary applications. With --set rights.preset=everything it applies Secrets, roles and all other kinds, too,\n\
         and amounts to the administrator of this cluster."
    );
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(more: &str) -> Result<Options, clap::Error> {
        let line = format!("register fleet:6443 --token abcdef.0123456789abcdef {more}");
        Line::try_parse_from(line.split_whitespace()).map(|it| it.options)
    }

    #[test]
    fn an_address_is_a_host_and_a_port_and_nothing_else() {
        let token = "abcdef.0123456789abcdef";
        for (text, server) in [
            ("fleet:6443", Some("https://fleet:6443")),
            ("https://fleet.eu:6443/", Some("https://fleet.eu:6443")),
            ("[::1]:6443", Some("https://[::1]:6443")),
            ("fleet", Some("https://fleet")),
            ("http://foo:80/bar", None),
            ("https://foo/bar", None),
            ("admin@foo", None),
            ("foo bar", None),
            ("", None),
        ] {
            let line = ["register", text, "--token", token, "--cluster-name", "m1"];
            let parsed = Line::try_parse_from(line).map(|it| it.options.server());
            assert_eq!(parsed.ok().as_deref(), server, "{text:?}");
        }
    }

    #[test]
    fn nobody_is_trusted_unseen_unless_that_is_asked_for() {
        let hash = format!("--discovery-token-ca-cert-hash sha256:{}", "0".repeat(64));
        let unseen = "--discovery-token-unsafe-skip-ca-verification";
        for (more, good) in [
            ("--cluster-name m1".to_owned(), false),
            (format!("--cluster-name m1 {hash}"), true),
            (format!("--cluster-name m1 {unseen}"), true),
            (format!("--cluster-name M.1 {hash}"), false),
        ] {
            assert_eq!(options(&more).unwrap().check().is_ok(), good, "{more:?}");
        }
        let short = "--cluster-name m1 --discovery-token-ca-cert-hash sha256:0";
        assert!(options(short).is_err());
    }

    #[test]
    fn a_token_comes_from_the_command_line_or_a_file_and_is_not_repeated() {
        let directory = std::env::temp_dir().join(format!("muster-token-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("token");
        let line = |more: &[&str]| {
            let line = ["register", "fleet:6443", "--cluster-name", "m1"];
            Line::try_parse_from([&line, more].concat()).map(|it| it.options)
        };
        let path = file.to_str().unwrap();
        std::fs::write(&file, "abcdef.0123456789abcdef\n").unwrap();
        let token = line(&["--token-file", path]).unwrap().token().unwrap();
        assert_eq!(token.to_string(), "abcdef.0123456789abcdef");
        std::fs::write(&file, "abcdef.SECRET").unwrap();
        let error = line(&["--token-file", path]).unwrap().token().unwrap_err();
        assert!(!format!("{error:#}").contains("SECRET"), "{error:#}");
        assert!(line(&[]).is_err(), "one of the two is needed");
        let both = ["--token", "abcdef.0123456789abcdef", "--token-file", path];
        assert!(line(&both).is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
