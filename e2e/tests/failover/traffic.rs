//! A host name in a DNS server that follows the DNSEndpoint of a Service through a failover.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hickory_server::Server;
use hickory_server::proto::op::{Message, Query, ResponseCode};
use hickory_server::proto::rr::rdata::{A, SOA};
use hickory_server::proto::rr::{Name, RData, Record, RecordSet, RecordType, RrKey};
use hickory_server::store::in_memory::InMemoryZoneHandler;
use hickory_server::zone_handler::{AxfrPolicy, Catalog, ZoneHandler, ZoneType};
use muster_e2e::harness::objects::merge_status;
use muster_e2e::harness::test_bed::awaited;
use muster_e2e::sandbox::story::Story;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::k8s::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Service,
};
use muster_shared::watch::{Change, Informer, Selection};
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::support::{Setting, scenario as play};
use super::the_rest;

const ZONE: &str = "example.com.";
const HOST: &str = "shop.example.com.";
/// Time in which DNS has to follow.
const PATIENCE: Duration = Duration::from_mins(2);

/// The kind of external-dns, and a Service in all clusters that follows a workload in some.
const MANIFESTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: dnsendpoints.externaldns.k8s.io
  annotations:
    api-approved.kubernetes.io: https://github.com/kubernetes-sigs/external-dns/pull/2007
spec:
  group: externaldns.k8s.io
  names: { kind: DNSEndpoint, listKind: DNSEndpointList, plural: dnsendpoints, singular: dnsendpoint }
  scope: Namespaced
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: { status: {} }
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                endpoints:
                  type: array
                  items:
                    type: object
                    required: [dnsName, recordType]
                    properties:
                      dnsName: { type: string }
                      recordType: { type: string, enum: [A, AAAA, CNAME] }
                      recordTTL: { type: integer, format: int64, minimum: 0 }
                      targets: { type: array, items: { type: string, minLength: 1 } }
            status: { type: object, properties: { observedGeneration: { type: integer, format: int64 } } }
---
apiVersion: v1
kind: Service
metadata:
  name: shop
  namespace: default
  annotations:
    failover.muster.io/hostname: shop.example.com
    failover.muster.io/hostname-ttl: \"5\"
    failover.muster.io/follows: apps/v1/Deployment/shop
spec:
  type: LoadBalancer
  selector: { app: shop }
  ports: [{ port: 80 }]
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: { name: shop-service, namespace: default }
spec:
  resourceSelectors: [{ apiVersion: v1, kind: Service, name: shop }]
  placement: { clusterAffinity: { clusterNames: [member1, member2, member3] } }
";

/// A DNS server with one zone, whose records are those of the DNSEndpoints of a fleet.
struct Dns {
    address: SocketAddr,
    /// Number of times that the records have changed.
    changes: watch::Receiver<u64>,
    stop: CancellationToken,
}

impl Dns {
    /// Starts the server, and what follows the objects.
    async fn start(story: &Story) -> anyhow::Result<Self> {
        let origin = Name::from_ascii(ZONE)?;
        let soa = SOA::new(origin.clone(), origin.clone(), 1, 60, 60, 60, 1);
        let mut records = RecordSet::new(origin.clone(), RecordType::SOA, 1);
        records.insert(Record::from_rdata(origin.clone(), 60, RData::SOA(soa)), 1);
        let key = RrKey::new(origin.clone().into(), RecordType::SOA);
        let zone: InMemoryZoneHandler = InMemoryZoneHandler::new(
            origin.clone(),
            BTreeMap::from([(key, records)]),
            ZoneType::Primary,
            AxfrPolicy::Deny,
        )
        .map_err(anyhow::Error::msg)?;
        let zone = Arc::new(zone);
        let mut catalog = Catalog::new();
        let handler: Arc<dyn ZoneHandler> = zone.clone();
        catalog.upsert(origin.into(), vec![handler]);
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        let mut server = Server::new(catalog);
        server.register_socket(socket);
        let (stop, (count, changes)) = (CancellationToken::new(), watch::channel(0));
        tokio::spawn(follow(endpoints(story, &stop), zone, count, server));
        Ok(Self {
            address,
            changes,
            stop,
        })
    }

    /// Asks the server for the addresses of the host name.
    async fn resolve(&self) -> anyhow::Result<BTreeSet<Ipv4Addr>> {
        let mut message = Message::query();
        message.add_query(Query::query(Name::from_ascii(HOST)?, RecordType::A));
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        socket.send_to(&message.to_vec()?, self.address).await?;
        let mut buffer = [0; 4096];
        let length = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await??;
        let answer = Message::from_vec(&buffer[..length])?;
        let code = answer.metadata.response_code;
        let is_answer = [ResponseCode::NoError, ResponseCode::NXDomain].contains(&code);
        anyhow::ensure!(is_answer, "the server answers {code}");
        let addresses = answer.answers.iter().filter_map(|it| match &it.data {
            RData::A(address) => Some(address.0),
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// Waits until the name leads to the clusters of these numbers, and adds each other answer on
    /// the way there to `seen`.
    async fn until(
        &mut self,
        numbers: &[u8],
        seen: &mut Vec<BTreeSet<Ipv4Addr>>,
    ) -> anyhow::Result<()> {
        let wanted: BTreeSet<Ipv4Addr> = numbers.iter().map(|it| address(*it)).collect();
        let followed = async {
            loop {
                self.changes.borrow_and_update();
                let answer = self.resolve().await?;
                if seen.last() != Some(&answer) {
                    seen.push(answer.clone());
                }
                if answer == wanted {
                    return anyhow::Ok(());
                }
                self.changes.changed().await?;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, followed).await;
        outcome.with_context(|| format!("waiting for {wanted:?}: the answers were {seen:?}"))?
    }
}

/// Returns the address of the load balancer in the member of a number.
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, number)
}

/// Follows the DNSEndpoints of the fleet, as external-dns does. Returns the last state of each.
fn endpoints(story: &Story, stop: &CancellationToken) -> mpsc::UnboundedReceiver<(String, Value)> {
    let kind = GroupVersionKind::gvk("externaldns.k8s.io", "v1alpha1", "DNSEndpoint");
    let kind = ApiResource::from_gvk(&kind);
    let client = story.fleet().api.watch_client.clone();
    let informer: Informer<DynamicObject> =
        Informer::new(Api::all_with(client, &kind), Selection::everything());
    let (sender, reported) = mpsc::unbounded_channel();
    informer.on_change(move |change| {
        let object = change.object();
        let endpoints = match change {
            Change::Applied { .. } => object.data["spec"]["endpoints"].clone(),
            Change::Deleted { .. } => Value::Null,
        };
        _ = sender.send((object.metadata.name.clone().unwrap_or_default(), endpoints));
    });
    tokio::spawn(informer.run(stop.clone()));
    reported
}

/// Writes the records of each object into the zone, until the objects end. The server ends with it.
async fn follow(
    mut reported: mpsc::UnboundedReceiver<(String, Value)>,
    zone: Arc<InMemoryZoneHandler>,
    count: watch::Sender<u64>,
    server: Server<Catalog>,
) {
    let mut names: BTreeMap<String, BTreeSet<RrKey>> = BTreeMap::new();
    while let Some((object, endpoints)) = reported.recv().await {
        let mut records = zone.records_mut().await;
        for key in names.remove(&object).unwrap_or_default() {
            records.remove(&key);
        }
        for endpoint in endpoints.as_array().into_iter().flatten() {
            let Ok(name) = Name::from_ascii(format!("{}.", endpoint["dnsName"].as_str().unwrap()))
            else {
                continue;
            };
            let ttl = u32::try_from(endpoint["recordTTL"].as_u64().unwrap()).unwrap();
            assert_eq!(endpoint["recordType"], "A");
            let mut set = RecordSet::new(name.clone(), RecordType::A, 1);
            for target in endpoint["targets"].as_array().unwrap() {
                let address: Ipv4Addr = target.as_str().unwrap().parse().unwrap();
                set.insert(
                    Record::from_rdata(name.clone(), ttl, RData::A(A(address))),
                    1,
                );
            }
            let key = RrKey::new(name.into(), RecordType::A);
            records.insert(key.clone(), Arc::new(set));
            names.entry(object.clone()).or_default().insert(key);
        }
        drop(records);
        count.send_modify(|it| *it += 1);
    }
    drop(server);
}

/// Gives the load balancer of each member an address, as a cloud does.
async fn give_addresses(story: &Story) -> anyhow::Result<()> {
    for number in 1..=3 {
        let member = story.fleet().member(&format!("member{number}"))?;
        let services: Api<Service> = Api::namespaced(member.api.watch_client.clone(), "default");
        awaited(&services, "shop", "the Service is in the member", |it| {
            it.is_some()
        })
        .await?;
        let services: Api<Service> = Api::namespaced(member.api.client.clone(), "default");
        let ingress = json!([{"ip": address(number)}]);
        let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        merge_status(&services, "shop", status).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_name_in_dns_leads_to_healthy_clusters_before_during_and_after_a_failover() {
    let setting = Setting {
        plan: |plan| {
            let flags = ["--traffic-dns-endpoints", "--traffic-return-after=2s"];
            plan.control_plane.extend(flags.map(str::to_owned));
        },
        ..Setting::named("traffic")
    };
    play(setting, async |story: &Story| {
        let mut seen = Vec::new();
        let mut dns = Dns::start(story).await?;
        assert_eq!(
            dns.resolve().await?,
            BTreeSet::new(),
            "nobody has asked for it"
        );
        story.fleet().apply(MANIFESTS).await?;
        give_addresses(story).await?;
        dns.until(&[1, 2], &mut seen).await?;
        seen.clear();
        story.cut()?;
        dns.until(&[2], &mut seen).await?;
        story.until_moved().await?;
        dns.until(&[2, 3], &mut seen).await?;
        the_rest(story).await?;
        dns.until(&[2, 3], &mut seen).await?;
        let seen: Vec<Vec<u8>> = seen
            .iter()
            .map(|it| it.iter().map(|it| it.octets()[3]).collect())
            .collect();
        assert_eq!(
            seen,
            [vec![1, 2], vec![2], vec![2, 3]],
            "never empty, nowhere else"
        );
        let api: Api<ResourceBinding> =
            Api::namespaced(story.fleet().api.watch_client.clone(), "default");
        let is_reported = |it: Option<&ResourceBinding>| {
            let mut conditions = it.into_iter().flat_map(|it| &it.status().conditions);
            conditions.any(|it| {
                let leads = "shop.example.com leads to member2 (192.0.2.2), member3 (192.0.2.3).";
                it.type_ == "HostnamePublished" && it.status == "True" && it.message == leads
            })
        };
        awaited(
            &api,
            "shop-service",
            "the condition says where it leads",
            is_reported,
        )
        .await?;
        // It goes with its template.
        let services: Api<Service> = Api::namespaced(story.fleet().api.client.clone(), "default");
        services
            .delete("shop", &DeleteParams::default())
            .await
            .context("deleting the Service")?;
        dns.until(&[], &mut Vec::new()).await?;
        dns.stop.cancel();
        Ok(())
    })
    .await;
}
