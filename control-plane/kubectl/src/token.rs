//! `kubectl muster token`: creates, lists and deletes bootstrap tokens, and creates the roles that
//! joining requires.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use kube::Config;
use kube::api::{DeleteParams, PostParams};
use muster_control_plane::clusters::registration::access;
use muster_control_plane::clusters::registration::decide::rivals;
use muster_control_plane::clusters::registration::discovery::{self, Info};
use muster_control_plane::clusters::registration::token::{self, Entry, Token, USAGES};
use muster_control_plane::fleet::availability::readiness;
use muster_shared::api::cluster::Cluster;
use muster_shared::certificate::kubeconfig::Way;
use muster_shared::client::{self, Head};
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client, ConfigMap, ObjectMeta, Secret};
use muster_shared::names::{BOOTSTRAP_GROUP, CLUSTER_BOOTSTRAP_GROUP_PREFIX};
use muster_shared::settings::Duration;

use super::install::{CHART, NAMESPACE};
use super::list::tokens;
use super::output::warn;
use super::request::{call, require_name};
use super::table::{Table, passed};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Makes a token and prints it.
    Create(Create),
    /// Lists the tokens.
    List,
    /// Deletes tokens.
    Delete {
        /// Tokens, or their first parts.
        #[arg(required = true, value_name = "TOKEN")]
        tokens: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct Create {
    /// The token, in place of one made up.
    token: Option<Token>,
    /// The cluster that it is for. Its agent is given its rights as well, so that nothing is left
    /// to do here. Without it any cluster can join by the token that is not in the fleet yet, and
    /// somebody has to give that cluster's agent its rights (chart, access.members).
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// For how long it is good; 0 for ever.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    ttl: Duration,
    /// Purpose of the token, as free text.
    #[arg(long, default_value = "", value_name = "TEXT")]
    description: String,
    /// Permitted uses of the token: signing, authentication.
    #[arg(long, value_delimiter = ',', default_values = USAGES, value_name = "LIST")]
    usages: Vec<String>,
    /// Groups of a client that uses the token, in place of the default ones.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    groups: Vec<String>,
    /// Print the command by which a member joins.
    #[arg(long)]
    print_register_command: bool,
    /// Print a kubeconfig with the token, with which the agent registers by itself
    /// (`--bootstrap-kubeconfig`).
    #[arg(long, conflicts_with = "print_register_command")]
    print_bootstrap_kubeconfig: bool,
    /// Print the helm command that installs the member's agent, which registers by itself. Run it
    /// with the kubeconfig of the member.
    #[arg(long, requires = "cluster_name", conflicts_with_all = ["print_register_command", "print_bootstrap_kubeconfig"])]
    print_helm_command: bool,
    /// The agent's chart in the helm command.
    #[arg(long, default_value = CHART, value_name = "CHART")]
    chart: String,
    /// Address of the fleet API as members see it. Without it that of ConfigMap
    /// kube-public/cluster-info for the helm command, and that of the kubeconfig otherwise.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

pub(super) async fn carry_out(
    fleet: Client,
    config: &Config,
    what: What,
) -> anyhow::Result<String> {
    match what {
        What::Create(options) => create(fleet, config, options).await,
        What::List => list(fleet).await,
        What::Delete { tokens } => delete(fleet, &tokens).await,
    }
}

async fn create(fleet: Client, config: &Config, options: Create) -> anyhow::Result<String> {
    let cluster = options.cluster_name.as_deref();
    if let Some(name) = cluster {
        require_name(name)?;
    }
    if let Some(server) = &options.server {
        let address = server.parse::<http::Uri>();
        ensure!(
            address.is_ok_and(|it| it.scheme_str() == Some("https") && it.host().is_some()),
            "--server is {server:?}: the address of the fleet API is meant, such as https://fleet.example:6443"
        );
    }
    if let Some(name) = cluster {
        refuse_a_rival(&fleet, name).await?;
        if let Some(warning) = taken(&fleet, name).await {
            warn(&warning);
        }
    }
    if cluster.is_none() && options.groups.is_empty() {
        eprintln!(
            "Note: any cluster that is not in the fleet yet can join by this token; --cluster-name NAME makes one for one cluster, with its rights"
        );
    }
    if options.ttl.is_zero() {
        eprintln!("Warning: the token is good for ever: kubectl muster token delete ends it");
    }
    let now = calendar();
    let groups = match cluster {
        _ if !options.groups.is_empty() => options.groups,
        Some(name) => vec![format!("{CLUSTER_BOOTSTRAP_GROUP_PREFIX}{name}")],
        None => vec![BOOTSTRAP_GROUP.to_owned()],
    };
    let entry = Entry {
        token: match options.token {
            Some(token) => token,
            None => Token::generate()?,
        },
        description: options.description,
        expiration: end(now, options.ttl)?,
        usages: options.usages,
        groups,
    };
    entry.check()?;

    let mut needed = access::of_registration()?;
    if let Some(name) = cluster {
        needed.extend(access::of_member(name)?);
    }
    access::grant(&fleet, &needed).await?;
    let own = client::address(config);
    let given = options.server;
    let given = given.map(|it| it.trim_end_matches('/').to_owned());
    let server = given.as_ref().unwrap_or(&own);
    let info = publish(&fleet, config, server).await?;
    let secrets: Api<Secret> = Api::namespaced(fleet, token::NAMESPACE);
    let step = format!("create the token's Secret {:?}", entry.token.name());
    let params = PostParams::default();
    call(&step, secrets.create(&params, &entry.secret())).await?;
    if options.print_bootstrap_kubeconfig {
        let way = Way {
            server: server.clone(),
            authority: info.authority,
            ..Way::default()
        };
        let kubeconfig = way.with_token("bootstrap", &entry.token.to_string());
        return serde_saphyr::to_string(&kubeconfig).context("write the kubeconfig");
    }
    if let (true, Some(name)) = (options.print_helm_command, cluster) {
        let server = given.as_ref().or(info.server.as_ref()).unwrap_or(&own);
        let (chart, token) = (&options.chart, entry.token.to_string());
        return Ok(helm_command(chart, name, server, &info, &token));
    }
    if !options.print_register_command {
        return Ok(format!("{}\n", entry.token));
    }
    let address = server.trim_start_matches("https://");
    let hashes: Vec<String> = info.hashes.iter().map(ToString::to_string).collect();
    let name = cluster.unwrap_or("NAME");
    Ok(format!(
        "kubectl muster register {address} --token {} --discovery-token-ca-cert-hash {} --cluster-name {name}\n",
        entry.token,
        hashes.join(",")
    ))
}

/// Returns the command that installs the agent of a member, with the rights that its chart gives.
fn helm_command(chart: &str, name: &str, server: &str, info: &Info, token: &str) -> String {
    let hashes: Vec<String> = info.hashes.iter().map(ToString::to_string).collect();
    format!(
        "helm upgrade --install muster-agent {chart} --namespace {NAMESPACE} --create-namespace --reset-then-reuse-values \\\n  \
         --set clusterName={name} \\\n  --set fleet.server={} \\\n  --set fleet.token={token} \\\n  --set fleet.caData={} \\\n  --set \"fleet.caHash={{{}}}\"\n",
        server.trim_end_matches('/'),
        STANDARD.encode(&info.authority),
        hashes.join(",")
    )
}

/// Refuses a name whose Secrets would have the names of another cluster's.
async fn refuse_a_rival(fleet: &Client, name: &str) -> anyhow::Result<()> {
    let clusters = Api::all(fleet.clone());
    for rival in rivals(name) {
        let step = format!("look for Cluster {rival:?}");
        let found = call(&step, Head::<Cluster>::get_opt(&clusters, &rival)).await?;
        ensure!(
            found.is_none(),
            "{name:?} cannot be beside the cluster {rival:?}: the names of their Secrets would be the same; choose another name"
        );
    }
    Ok(())
}

/// Warns where a cluster of this name is in the fleet: whoever comes with the token is taken for
/// its agent, or refused as another cluster.
async fn taken(fleet: &Client, name: &str) -> Option<String> {
    let clusters: Api<Cluster> = Api::all(fleet.clone());
    // What follows shows whether the token can be made.
    let cluster = client::get_opt(&clusters, name).await.ok().flatten()?;
    Some(format!(
        "the fleet has a cluster {name:?} already (Ready={}). The token is for its own agent; another cluster that comes with it is refused, and needs another name",
        readiness(&cluster)
    ))
}

/// Returns when a token ends that is made now.
fn end(now: Timestamp, ttl: Duration) -> anyhow::Result<Option<Timestamp>> {
    if ttl.is_zero() {
        return Ok(None);
    }
    let ttl = SignedDuration::try_from(*ttl).context("read --ttl")?;
    Ok(Some(now.checked_add(ttl).context("read --ttl")?))
}

/// Says publicly where the fleet API is, unless that is said already, and gives what is said.
async fn publish(fleet: &Client, config: &Config, server: &str) -> anyhow::Result<Info> {
    let maps: Api<ConfigMap> = Api::namespaced(fleet.clone(), discovery::NAMESPACE);
    let place = format!("ConfigMap {}/{}", discovery::NAMESPACE, discovery::NAME);
    let step = format!("read {place}");
    let there = call(&step, client::get_opt(&maps, discovery::NAME)).await?;
    if let Some(map) = there {
        return Ok(Info::read(&map.data.unwrap_or_default())?);
    }
    let roots = config.root_cert.as_deref().unwrap_or_default();
    ensure!(
        !roots.is_empty(),
        "the kubeconfig does not say who signs the fleet API's certificate (certificate-authority-data), so that {place} cannot be written"
    );
    let text = discovery::kubeconfig(server, roots);
    let text = serde_saphyr::to_string(&text).context("write a kubeconfig")?;
    let data = BTreeMap::from([(discovery::KEY.to_owned(), text)]);
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(discovery::NAME.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data.clone()),
        ..ConfigMap::default()
    };
    match maps.create(&PostParams::default(), &map).await {
        Err(error) if !client::is_conflict(&error) => {
            anyhow::bail!("create {place}: {}", client::brief(&error))
        }
        _ => Ok(Info::read(&data)?),
    }
}

async fn list(fleet: Client) -> anyhow::Result<String> {
    let entries = call("list the tokens' Secrets", tokens(&fleet)).await?;
    Ok(table(&entries, calendar()))
}

fn table(entries: &[Entry], now: Timestamp) -> String {
    let or_none = |text: String| {
        if text.is_empty() {
            "<none>".to_owned()
        } else {
            text
        }
    };
    let mut table = Table::new([
        "TOKEN",
        "TTL",
        "EXPIRES",
        "USAGES",
        "DESCRIPTION",
        "EXTRA GROUPS",
    ]);
    for entry in entries {
        let left = entry.expiration.map(|end| end.duration_since(now));
        let left = left.map(|it| match u64::try_from(it.as_secs()) {
            Ok(seconds @ 1..) => passed(seconds),
            _ => "<expired>".to_owned(),
        });
        table.row([
            entry.token.to_string(),
            left.unwrap_or_else(|| "<forever>".to_owned()),
            entry
                .expiration
                .map_or_else(|| "<never>".to_owned(), |it| format!("{it:.0}")),
            or_none(entry.usages.join(",")),
            or_none(entry.description.clone()),
            or_none(entry.groups.join(",")),
        ]);
    }
    table.to_string()
}

async fn delete(fleet: Client, tokens: &[String]) -> anyhow::Result<String> {
    let secrets: Api<Secret> = Api::namespaced(fleet, token::NAMESPACE);
    let mut text = String::new();
    for given in tokens {
        let id = match given.parse::<Token>() {
            Ok(token) => token.id,
            Err(_) if token::is_plain(given, 6) => given.clone(),
            Err(error) => return Err(error),
        };
        let (name, params) = (token::name_of(&id), DeleteParams::default());
        let step = format!("delete token {id:?}");
        call(&step, secrets.delete(&name, &params)).await?;
        let _ = writeln!(text, "bootstrap token {id:?} deleted");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_is_left_of_a_token() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let entry = |end: Option<&str>| Entry {
            token: "abcdef.0123456789abcdef".parse().unwrap(),
            description: String::new(),
            expiration: end.map(|it| it.parse().unwrap()),
            usages: USAGES.map(str::to_owned).to_vec(),
            groups: Vec::new(),
        };
        for (end, left) in [
            (None, "<forever>"),
            (Some("2030-01-02T00:00:00Z"), "24h0m"),
            (Some("2030-01-01T00:10:01Z"), "10m1s"),
            (Some("2030-01-01T00:00:09Z"), "9s"),
            (Some("2029-01-01T00:00:09Z"), "<expired>"),
        ] {
            let text = table(&[entry(end)], now);
            let row = text.lines().nth(1).unwrap();
            assert_eq!(row.split_whitespace().nth(1), Some(left), "{text}");
        }
    }

    #[test]
    fn a_token_without_an_end_has_none() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(end(now, "0".parse().unwrap()).unwrap(), None);
        let hour = end(now, "1h".parse().unwrap()).unwrap().unwrap();
        assert_eq!(hour.as_second(), 3600);
        assert!(end(now, "2562047h".parse().unwrap()).is_ok());
        assert!(end(Timestamp::MAX, "1h".parse().unwrap()).is_err());
    }
}
