//! One pass over the Secrets of a bundled fleet API: makes what is missing, renews what ends, and
//! writes nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;
use muster_shared::certificate::kubeconfig::Way;
use muster_shared::client;
use muster_shared::clock::later;
use muster_shared::k8s::{Api, ByteString, Client, ObjectMeta, Secret, Service};
use muster_shared::write::post_params;
use serde_json::{Value, json};

use super::issue::{self, Pair};
use super::judge::{self, AUTHORITIES, Authority, CERTIFICATE, KEY, TOKENS, Verdict};
use super::plan::{Kubeconfig, Leaf, PORT, Signer, Site, sorted};
use crate::fleet::api_error::ApiError;
use crate::settings::COMPONENT;

/// Key of a kubeconfig.
const KUBECONFIG: &str = "kubeconfig";
/// Name of the context for `kubectl port-forward` in the administrators' kubeconfig.
const FORWARDED: &str = "port-forward";
/// Lifetime of the certificate with which this program prepares the fleet API.
const VISIT: Duration = Duration::from_hours(1);

/// State after a pass.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The site, with the addresses that the host's load balancer gave.
    pub site: Site,
    /// Kubeconfig with which the fleet API is prepared, for an hour; stored nowhere.
    pub visitor: String,
    /// Authorities by which clients know the fleet API (PEM).
    pub trusted: String,
    /// Message that the load balancer has no address yet; until then kubeconfigs name the Service.
    pub waits: Option<String>,
    /// Secrets that were written, with the reason.
    pub written: Vec<(String, &'static str)>,
    /// Secrets that are not as they should be. The others are.
    pub problems: Vec<anyhow::Error>,
}

/// Keeps the Secrets of one fleet API in the host cluster.
pub(super) struct Keeper {
    /// Client of the host cluster.
    pub host: Client,
    /// Names, as configured.
    pub site: Site,
    /// Lifetime of new authorities.
    pub authority_life: Duration,
    /// Lifetime of other new certificates.
    pub leaf_life: Duration,
    /// Secret with a serving certificate that somebody else keeps, such as cert-manager.
    pub serving: Option<String>,
}

impl Keeper {
    /// Makes a pass.
    ///
    /// # Errors
    /// When an authority cannot be used, without which nothing else can be judged.
    pub(super) async fn pass(&self, now: Timestamp) -> anyhow::Result<Outcome> {
        let (site, waits) = self.located().await?;
        let mut leaves = site.leaves();
        let (mut found, mut problems) = (BTreeMap::new(), Vec::new());
        for leaf in &leaves {
            match self.get(&leaf.secret).await {
                Ok(secret) => _ = found.insert(leaf.secret.clone(), secret),
                Err(error) => problems.push(error),
            }
        }
        let mut written = Vec::new();
        let signed = |signer| {
            let signed = leaves.iter().filter(|it| it.signer == signer);
            let mut there = signed.filter(|it| found.get(&it.secret).is_some_and(Option::is_some));
            there.next().map(|it| it.secret.as_str())
        };
        let fleet = self.authority(
            "ca",
            "muster-fleet-ca",
            signed(Signer::Fleet),
            &mut problems,
            now,
            &mut written,
        );
        let fleet = fleet.await?;
        let etcd = self.authority(
            "etcd-ca",
            "muster-etcd-ca",
            signed(Signer::Etcd),
            &mut problems,
            now,
            &mut written,
        );
        let etcd = etcd.await?;
        if let Err(error) = self.token_key(&mut written).await {
            problems.push(error);
        }
        let mut trusted = fleet.trusted.clone();
        if let Some(name) = &self.serving {
            let others = self.brought(name, &found, &mut problems).await?;
            trusted = judge::bundle(&trusted, &others);
            leaves.retain(|it| it.secret != site.name("api-tls"));
        }
        // A load balancer that has lost an address, as that of a node which restarts, may get it
        // back in a moment: the certificate keeps the address.
        let is_given = site.address != self.site.address;
        let mut serving = leaves.iter_mut().filter(|it| it.serves);
        if (waits.is_some() || is_given)
            && let Some(leaf) = serving.find(|it| it.signer == Signer::Fleet)
            && let Some(Some(held)) = found.get(&leaf.secret)
        {
            let held = judge::names_of(held);
            if waits.is_some() || leaf.names.iter().all(|it| held.contains(it)) {
                leaf.names.extend(held);
                leaf.names = sorted(std::mem::take(&mut leaf.names));
            }
        }
        for leaf in &leaves {
            let Some(found) = found.get(&leaf.secret) else {
                continue;
            };
            let found = found.as_ref();
            let (authority, trusted) = match leaf.signer {
                Signer::Fleet => (&fleet, &trusted),
                Signer::Etcd => (&etcd, &etcd.trusted),
            };
            match self.leaf(leaf, &site, found, authority, trusted, now).await {
                Ok(Some(why)) => written.push((leaf.secret.clone(), why)),
                Ok(None) => {}
                Err(error) => problems.push(error),
            }
        }
        let visitor = visitor(&site, &fleet, &trusted, now)?;
        Ok(Outcome {
            site,
            visitor,
            trusted,
            waits,
            written,
            problems,
        })
    }

    /// Returns the site with the names and the address that the Service got from its load balancer,
    /// and what to say while it has none.
    async fn located(&self) -> anyhow::Result<(Site, Option<String>)> {
        let mut site = self.site.clone();
        let name = site.name("api");
        let services: Api<Service> = Api::namespaced(self.host.clone(), &site.namespace);
        let service = client::get_opt(&services, &name).await;
        let service = service.map_err(ApiError::of("read", &format!("Service {name}")))?;
        let waits = service.as_ref().and_then(|it| no_address(it, &site));
        let status = service.and_then(|it| it.status?.load_balancer?.ingress);
        for ingress in status.into_iter().flatten() {
            for name in [ingress.hostname, ingress.ip].into_iter().flatten() {
                if site.address.is_empty() {
                    let host = if name.contains(':') {
                        format!("[{name}]")
                    } else {
                        name.clone()
                    };
                    site.address = format!("https://{host}:{PORT}");
                }
                site.names.push(name);
            }
        }
        Ok((site, waits))
    }

    /// Returns an authority; it is made where neither it nor anything that it may have signed is
    /// there. `unread`: why certificates could not be read, which may be its own.
    async fn authority(
        &self,
        what: &str,
        common_name: &str,
        signed: Option<&str>,
        unread: &mut Vec<anyhow::Error>,
        now: Timestamp,
        written: &mut Vec<(String, &'static str)>,
    ) -> anyhow::Result<Authority> {
        let name = self.site.name(what);
        let found = self.get(&name).await?;
        if found.is_none()
            && let Some(error) = unread.pop()
        {
            return Err(error);
        }
        let (authority, why) = match judge::authority(found.as_ref(), signed, now) {
            Verdict::Keep(authority) => (authority, "further authorities are trusted"),
            Verdict::Refuse(why) => return Err(refused(&name, &why)),
            Verdict::Make(why) => {
                let made = issue::authority(common_name, now, self.authority_life);
                let pair =
                    made.map_err(|error| anyhow!("cannot make the authority {name}: {error}"))?;
                let until = later(now, self.authority_life);
                let trusted = judge::bundle(&pair.certificate, "");
                (
                    Authority {
                        pair,
                        trusted,
                        until,
                    },
                    why,
                )
            }
        };
        let mut data = files(&authority.pair);
        data.insert(AUTHORITIES, authority.trusted.clone());
        if self.store(&name, found.as_ref(), data).await? {
            written.push((name, why));
        }
        Ok(authority)
    }

    /// Returns the authorities of the certificate that somebody else keeps in a Secret. While that
    /// is gone, as when its issuer makes it anew, the authorities that clients know count, for they
    /// signed the certificate in use.
    async fn brought(
        &self,
        name: &str,
        found: &BTreeMap<String, Option<Secret>>,
        problems: &mut Vec<anyhow::Error>,
    ) -> anyhow::Result<String> {
        let brought = self.get(name).await.unwrap_or_else(|error| {
            problems.push(error);
            None
        });
        let known = found.get(&self.site.name("control-plane"));
        // Authorities that clients trust are not known where neither Secret can be read.
        if brought.is_none()
            && known.is_none()
            && let Some(error) = problems.pop()
        {
            return Err(error);
        }
        let source = brought.as_ref().or_else(|| known?.as_ref());
        let text = source.and_then(|it| judge::text(it, AUTHORITIES));
        Ok(text.unwrap_or_default())
    }

    async fn token_key(&self, written: &mut Vec<(String, &'static str)>) -> anyhow::Result<()> {
        let name = self.site.name("accounts");
        let found = self.get(&name).await?;
        match judge::token_key(found.as_ref()) {
            Verdict::Keep(()) => {}
            Verdict::Refuse(why) => return Err(refused(&name, &why)),
            Verdict::Make(why) => {
                let made = issue::token_key();
                let made =
                    made.map_err(|error| anyhow!("cannot make the key of tokens: {error}"))?;
                let data = TOKENS.into_iter().zip(made).collect();
                self.store(&name, found.as_ref(), data).await?;
                written.push((name, why));
            }
        }
        Ok(())
    }

    /// Makes or renews a certificate where that is due. Returns why its Secret was written.
    async fn leaf(
        &self,
        leaf: &Leaf,
        site: &Site,
        found: Option<&Secret>,
        authority: &Authority,
        trusted: &str,
        now: Timestamp,
    ) -> anyhow::Result<Option<&'static str>> {
        let (pair, why) = match judge::leaf(found, leaf, authority, now, self.leaf_life) {
            Verdict::Keep(pair) => (pair, "its kubeconfig or the trusted authorities changed"),
            Verdict::Refuse(why) => return Err(refused(&leaf.secret, &why)),
            Verdict::Make(why) => (sign(leaf, authority, now, self.leaf_life)?, why),
        };
        let mut data = files(&pair);
        data.insert(AUTHORITIES, trusted.to_owned());
        if let Some(text) = kubeconfig(leaf, site, &pair, trusted)? {
            data.insert(KUBECONFIG, text);
        }
        let is_written = self.store(&leaf.secret, found, data).await?;
        Ok(is_written.then_some(why))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.host.clone(), &self.site.namespace)
    }

    async fn get(&self, name: &str) -> anyhow::Result<Option<Secret>> {
        let found = client::get_opt(&self.secrets(), name).await;
        Ok(found.map_err(ApiError::of("read", &format!("Secret {name}")))?)
    }

    /// Writes a Secret, unless it has the same data already or somebody else wrote it meanwhile.
    async fn store(
        &self,
        name: &str,
        found: Option<&Secret>,
        data: BTreeMap<&'static str, String>,
    ) -> anyhow::Result<bool> {
        let octets =
            |(key, value): (&str, String)| (key.to_owned(), ByteString(value.into_bytes()));
        let data: BTreeMap<_, _> = data.into_iter().map(octets).collect();
        let params = post_params(COMPONENT);
        let outcome = match found {
            Some(found) if found.data.as_ref() == Some(&data) => return Ok(false),
            Some(found) => {
                let secret = Secret {
                    data: Some(data),
                    ..found.clone()
                };
                self.secrets().replace(name, &params, &secret).await
            }
            None => {
                let labels = [
                    (judge::MANAGED_BY, judge::MANAGER),
                    ("app.kubernetes.io/part-of", "muster"),
                    ("app.kubernetes.io/instance", &self.site.prefix),
                ];
                let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
                let secret = Secret {
                    metadata: ObjectMeta {
                        name: Some(name.to_owned()),
                        labels: Some(labels.into()),
                        ..ObjectMeta::default()
                    },
                    data: Some(data),
                    type_: Some("Opaque".to_owned()),
                    ..Secret::default()
                };
                self.secrets().create(&params, &secret).await
            }
        };
        outcome.map_err(ApiError::of("write", &format!("Secret {name}")))?;
        Ok(true)
    }
}

fn refused(secret: &str, why: &str) -> anyhow::Error {
    anyhow!("cannot use Secret {secret:?}: {why}")
}

/// Makes a kubeconfig of the group that has all rights before there are roles.
fn visitor(
    site: &Site,
    authority: &Authority,
    trusted: &str,
    now: Timestamp,
) -> anyhow::Result<String> {
    let leaf = Leaf {
        secret: String::new(),
        purpose: "certificate that prepares the fleet API",
        signer: Signer::Fleet,
        user: format!("{COMPONENT}-setup"),
        group: Some("system:masters".to_owned()),
        names: Vec::new(),
        serves: false,
        asks: true,
        kubeconfig: Kubeconfig::Inside,
    };
    let pair = sign(&leaf, authority, now, VISIT)?;
    Ok(kubeconfig(&leaf, site, &pair, trusted)?.unwrap_or_default())
}

fn sign(
    leaf: &Leaf,
    authority: &Authority,
    now: Timestamp,
    life: Duration,
) -> anyhow::Result<Pair> {
    issue::leaf(leaf, &authority.pair, authority.until, now, life)
        .map_err(|error| anyhow!("cannot make the {}: {error}", leaf.purpose))
}

fn files(pair: &Pair) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (CERTIFICATE, pair.certificate.clone()),
        (KEY, pair.key.clone()),
    ])
}

fn kubeconfig(
    leaf: &Leaf,
    site: &Site,
    pair: &Pair,
    trusted: &str,
) -> anyhow::Result<Option<String>> {
    let server = match leaf.kubeconfig {
        Kubeconfig::None => return Ok(None),
        Kubeconfig::Files | Kubeconfig::Inside => site.inside(),
        Kubeconfig::Outside => site.outside(),
    };
    let files = leaf.kubeconfig == Kubeconfig::Files;
    let way = Way {
        server,
        authority: if files {
            Vec::new()
        } else {
            trusted.as_bytes().to_vec()
        },
        ..Way::default()
    };
    let (certificate, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());
    let mut document = way.with_certificate(&leaf.user, certificate, key);
    if files {
        // Beside the kubeconfig.
        document["clusters"][0]["cluster"]["certificate-authority"] = AUTHORITIES.into();
        document["users"][0]["user"] = json!({
            "client-certificate": CERTIFICATE,
            "client-key": KEY,
        });
    }
    if leaf.kubeconfig == Kubeconfig::Outside {
        forward(&mut document, &leaf.user);
    }
    let text = serde_saphyr::to_string(&document).map(Some);
    text.map_err(|error| anyhow!("cannot write a kubeconfig: {error}"))
}

/// Adds a context for `kubectl port-forward`, which people without an address of the fleet API use.
fn forward(document: &mut Value, user: &str) {
    let mut cluster = document["clusters"][0].clone();
    cluster["name"] = FORWARDED.into();
    cluster["cluster"]["server"] = format!("https://127.0.0.1:{PORT}").into();
    let context = json!({
        "name": FORWARDED,
        "context": { "cluster": FORWARDED, "user": user },
    });
    for (list, entry) in [("clusters", cluster), ("contexts", context)] {
        if let Some(list) = document[list].as_array_mut() {
            list.push(entry);
        }
    }
}

/// Returns the message about a Service that has no address from its load balancer yet, if clients
/// are to find the fleet API by that address.
fn no_address(service: &Service, site: &Site) -> Option<String> {
    let kind = service.spec.as_ref()?.type_.as_deref();
    let status = service.status.as_ref();
    let ingress = status.and_then(|it| it.load_balancer.as_ref()?.ingress.as_ref());
    let has_one = ingress.is_some_and(|it| !it.is_empty());
    (kind == Some("LoadBalancer") && !has_one && site.address.is_empty()).then(|| {
        format!(
            "Service {} has no address from a load balancer yet: until it has, kubeconfigs and helm commands name {}, which is known in this cluster alone. Where there is no load balancer, set fleetApi.address or another fleetApi.service.type",
            site.name("api"),
            site.outside()
        )
    })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::plan::tests::site;
    use super::*;
    use crate::fleet::testing::Bench;

    /// Gives the Secrets that were made their namespace, as an API server does.
    fn settle(bench: &Bench) {
        for mut secret in bench.api.all("secrets") {
            let name = secret["metadata"]["name"].as_str().unwrap().to_owned();
            bench.api.delete("secrets", "", &name);
            secret["metadata"]["namespace"] = json!(site().namespace);
            bench.api.put("secrets", secret);
        }
    }

    fn keeper(bench: &Bench, serving: Option<&str>) -> Keeper {
        Keeper {
            host: bench.fleet.client.clone(),
            site: site(),
            authority_life: Duration::from_hours(24 * 3650),
            leaf_life: Duration::from_hours(24 * 90),
            serving: serving.map(str::to_owned),
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_authority_of_a_brought_certificate_is_trusted_while_its_secret_is_not_there() {
        let (bench, name) = (Bench::new([]), "brought");
        let (keeper, now) = (keeper(&bench, Some(name)), now());
        let issuer = issue::authority("issuer", now, keeper.authority_life).unwrap();
        let data = BTreeMap::from([(AUTHORITIES, ByteString(issuer.certificate.into_bytes()))]);
        let metadata = json!({"name": name, "namespace": site().namespace});
        bench
            .api
            .put("secrets", json!({"metadata": metadata, "data": data}));
        let trusted = keeper.pass(now).await.unwrap().trusted;
        assert_eq!(trusted.matches("BEGIN CERTIFICATE").count(), 2);
        settle(&bench);

        bench.api.delete("secrets", &site().namespace, name);
        let outcome = keeper.pass(now).await.unwrap();
        assert_eq!(
            (outcome.trusted, outcome.written),
            (trusted.clone(), vec![])
        );
        bench.api.refuse(Method::GET, &format!("/{name}"), 500, "");
        let outcome = keeper.pass(now).await.unwrap();
        assert_eq!((outcome.trusted, outcome.written), (trusted, vec![]));
        assert_eq!(outcome.problems.len(), 1, "{:?}", outcome.problems);
        let known = format!("/{}", site().name("control-plane"));
        bench.api.refuse(Method::GET, &known, 500, "");
        let outcome = keeper.pass(now).await;
        assert!(outcome.is_err(), "nothing says whom clients trust");
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_keeps_the_addresses_that_its_load_balancer_has_lost_for_a_moment() {
        let (bench, serving) = (Bench::new([]), site().name("api-tls"));
        let keeper = Keeper {
            site: Site {
                address: String::new(),
                ..site()
            },
            ..keeper(&bench, None)
        };
        let metadata = json!({"name": site().name("api"), "namespace": site().namespace});
        for (addresses, is_made) in [
            (&["192.0.2.9"][..], true),
            (&[], false),
            (&["192.0.2.9"], false),
            (&["192.0.2.9", "192.0.2.10"], true),
            (&["192.0.2.10"], false),
            (&["192.0.2.10", "192.0.2.9"], false),
            (&["192.0.2.11"], true),
            (&["192.0.2.9"], true),
        ] {
            let ingress: Vec<_> = addresses.iter().map(|it| json!({"ip": it})).collect();
            let service = json!({
                "metadata": metadata, "spec": {"type": "LoadBalancer"},
                "status": {"loadBalancer": {"ingress": ingress}},
            });
            bench.api.put("services", service);
            let outcome = keeper.pass(now()).await.unwrap();
            settle(&bench);
            let mut written = outcome.written.iter();
            assert_eq!(written.any(|it| it.0 == serving), is_made, "{addresses:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_that_cannot_be_read_keeps_no_other_from_being_made() {
        let bench = Bench::new([]);
        let (keeper, now) = (keeper(&bench, None), now());
        let (page, admin) = (site().name("page"), site().name("admin"));
        let path = format!("/{page}");
        bench.api.refuse(Method::GET, &path, 500, "");
        let first = keeper.pass(now).await;
        assert!(first.is_err(), "it may be of an authority that is not here");
        assert!(bench.api.all("secrets").is_empty());

        bench.api.answer_truly();
        assert!(keeper.pass(now).await.unwrap().problems.is_empty());
        settle(&bench);
        bench.api.delete("secrets", &site().namespace, &admin);
        bench.api.refuse(Method::GET, &path, 500, "");
        let outcome = keeper.pass(now).await.unwrap();
        let written: Vec<_> = outcome.written.iter().map(|it| &it.0).collect();
        assert_eq!(written, [&admin]);
        assert_eq!(outcome.problems.len(), 1, "{:?}", outcome.problems);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_stays_as_it_is_and_without_an_authority_nothing_is_written() {
        let bench = Bench::new([]);
        let (keeper, now, namespace) = (keeper(&bench, None), now(), site().namespace);
        assert!(keeper.pass(now).await.unwrap().problems.is_empty());
        settle(&bench);
        let (page, admin) = (site().name("page"), site().name("admin"));
        let mut foreign = bench.api.object("secrets", &namespace, &page).unwrap();
        foreign["metadata"]["labels"] = Value::Null;
        bench.api.put("secrets", foreign.clone());
        bench.api.delete("secrets", &namespace, &admin);
        let outcome = keeper.pass(now).await.unwrap();
        let written: Vec<_> = outcome.written.iter().map(|it| &it.0).collect();
        assert_eq!(written, [&admin]);
        let problems: Vec<_> = outcome.problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains("somebody else made it"),
            "{problems:?}"
        );
        let held = bench.api.object("secrets", &namespace, &page).unwrap();
        assert_eq!(held["data"], foreign["data"]);

        settle(&bench);
        bench.api.delete("secrets", &namespace, &site().name("ca"));
        bench.api.forget();
        let Err(error) = keeper.pass(now).await else {
            panic!("the members trust the authority that is gone");
        };
        assert!(error.to_string().contains("it is gone"), "{error}");
        assert!(bench.api.writes().is_empty());
    }

    #[test]
    fn a_load_balancer_without_an_address_is_reported_where_clients_depend_on_it() {
        let given = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}});
        for (kind, address, status, is_reported) in [
            ("LoadBalancer", "", json!({}), true),
            (
                "LoadBalancer",
                "",
                json!({"loadBalancer": {"ingress": []}}),
                true,
            ),
            ("LoadBalancer", "", given, false),
            ("LoadBalancer", "https://fleet.example", json!({}), false),
            ("ClusterIP", "", json!({}), false),
        ] {
            let service = json!({"spec": {"type": kind}, "status": status});
            let service: Service = serde_json::from_value(service).unwrap();
            let site = Site {
                address: address.to_owned(),
                ..site()
            };
            let reported = no_address(&service, &site);
            assert_eq!(reported.is_some(), is_reported, "{kind} {address} {status}");
            assert!(
                reported
                    .is_none_or(|reported| reported.contains("muster-fleet-api.muster-system.svc"))
            );
        }
    }
}
