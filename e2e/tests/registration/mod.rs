//! Joining by bootstrap tokens: from `kubectl muster token create` to a Cluster that is ready, and
//! back.

mod bench;
mod bootstrap;
mod helm;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::PostParams;
use muster_e2e::harness::objects::{create, delete, list, merge, typed};
use muster_e2e::harness::test_bed::until;
use muster_shared::certificate::hash::Hash;
use muster_shared::k8s::{Api, ConfigMap, Namespace, ResourceExt, ServiceAccount};
use serde_json::{Value, json};

use bench::Bench;

use crate::support::credentials::SECRET;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_joins_by_a_token_and_leaves_nothing_behind_when_it_goes() {
    let bench = Bench::start("joins").await;
    let line = bench
        .invitation(&["--cluster-name", "m1", "--description", "first"])
        .await;
    let table = bench.at_fleet(&["token", "list"]).await.unwrap();
    assert!(
        table.contains("first") && table.contains("karmada:cluster:m1"),
        "{table}"
    );

    let said = bench.register(&line).await.unwrap();
    assert!(said.contains("clusterName=m1"), "{said}");
    let again = bench.register(&line).await.unwrap_err().to_string();
    assert!(again.contains("--force"), "{again}");

    let agent = bench.agent().await;
    bench.is_ready().await;

    // The same member may have another certificate, should the first one be lost.
    let replace = [&line[..], &["--force".to_owned()]].concat();
    bench.register(&replace).await.unwrap();

    agent.stop().await.unwrap();
    let said = bench.unregister().await;
    assert!(
        bench.clusters().get_opt("m1").await.unwrap().is_none(),
        "{said}"
    );
    assert!(
        bench.secrets().get_opt(SECRET).await.unwrap().is_none(),
        "{said}"
    );
    let roles: Api<ClusterRole> = bench.all();
    let roles = list(&roles).await;
    let left: Vec<String> = roles.iter().map(ResourceExt::name_any).collect();
    assert!(!left.iter().any(|it| it.contains("m1")), "{left:?}");
    let table = bench.at_fleet(&["token", "list"]).await.unwrap();
    assert!(!table.contains("first"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_brings_the_cluster_that_it_is_for_and_no_other() {
    let bench = Bench::start("confined").await;
    let line = bench.invitation(&["--cluster-name", "m1"]).await;
    bench.is_issued(&bench.ask(&line, "m1").await).await;
    let why = bench.is_left(&bench.ask(&line, "m2").await).await;
    assert!(
        why.contains("may not ask for the agent of cluster \"m2\""),
        "{why}"
    );
    let why = bench
        .is_left(&bench.ask(&line, "rbac-generator").await)
        .await;
    assert!(why.contains("not exactly an agent's"), "{why}");

    // A token for any cluster is for new ones.
    let any = bench.invitation(&[]).await;
    bench.is_issued(&bench.ask(&any, "m3").await).await;
    let clusters = bench.clusters();
    let cluster = json!({"metadata": {"name": "m3"}, "spec": {"syncMode": "Pull"}});
    create(&clusters, cluster).await;
    let what = "the control plane has seen it";
    until(&clusters, "m3", what, |it| !it.finalizers().is_empty()).await;
    let why = bench.is_left(&bench.ask(&any, "m3").await).await;
    assert!(why.contains("which is there already"), "{why}");

    // A Cluster that is being removed still has Works, and roles to read them.
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    merge(&clusters, "m3", hold).await;
    delete(&clusters, "m3").await;
    let why = bench.is_left(&bench.ask(&any, "m3").await).await;
    assert!(why.contains("which is there already"), "{why}");

    // A name is given once, before there is a Cluster as well.
    bench.is_issued(&bench.ask(&any, "m4").await).await;
    let why = bench.is_left(&bench.ask(&any, "m4").await).await;
    assert!(why.contains("was approved already"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_fails_changes_nothing_and_says_why() {
    let bench = Bench::start("refused").await;
    let line = bench.invitation(&["--cluster-name", "m1"]).await;
    let with = |flag: &str, value: &str| {
        let mut line = line.clone();
        let at = line.iter().position(|it| it == flag).unwrap();
        line[at + 1] = value.to_owned();
        line.extend(["--discovery-timeout".to_owned(), "2s".to_owned()]);
        line
    };
    let hash = format!("sha256:{}", "0".repeat(64));
    let token = with("--token", "abcdef.0123456789abcdef");
    let (id, _) = line[3].split_once('.').unwrap();
    for (line, words) in [
        (
            with("--discovery-token-ca-cert-hash", &hash),
            "not the expected one",
        ),
        (
            with("--token", &format!("{id}.0123456789abcdef")),
            "not signed with this token's secret",
        ),
        (token, "does not know the token"),
        (with("--cluster-name", "m2"), "was not approved within"),
    ] {
        let error = format!("{:#}", bench.register(&line).await.unwrap_err());
        assert!(error.contains(words), "{error}");
        assert!(bench.secrets().get_opt(SECRET).await.unwrap().is_none());
    }

    // Another member has the name: its access stays as it is (Karmada takes it away).
    let id =
        json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull", "id": "somebody else"}});
    create(&bench.clusters(), id).await;
    let error = bench.register(&line).await.unwrap_err().to_string();
    assert!(error.contains("another member called \"m1\""), "{error}");
    let roles: Api<ClusterRole> = bench.all();
    assert!(roles.get_opt("muster:agent:m1").await.unwrap().is_some());
}

/// Checks a fleet that replaces its authority: it names both for a while, and members join by
/// commands that were printed before and after.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_pins_one_of_two_authorities_joins_and_trusts_the_other_with_no_token() {
    let bench = Bench::start("two-authorities").await;
    let line = bench.invitation(&["--cluster-name", "m1"]).await;
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let another = params.self_signed(&rcgen::KeyPair::generate().unwrap());
    let another = another.unwrap().pem();

    let maps: Api<ConfigMap> = bench.within("kube-public");
    let of = |map: &ConfigMap, key: &str| map.data.as_ref().unwrap()[key].clone();
    let (id, _) = line[3].split_once('.').unwrap();
    let signature = format!("jws-kubeconfig-{id}");
    let signed = |map: &ConfigMap| map.data.as_ref().unwrap().contains_key(&signature);
    until(&maps, "cluster-info", "it is signed", signed).await;
    let before = maps.get("cluster-info").await.unwrap();
    let mut info: Value = serde_saphyr::from_str(&of(&before, "kubeconfig")).unwrap();
    let bundle = &mut info["clusters"][0]["cluster"]["certificate-authority-data"];
    let present = STANDARD.decode(bundle.as_str().unwrap()).unwrap();
    let both = format!("{another}{}", String::from_utf8(present).unwrap());
    *bundle = STANDARD.encode(&both).into();
    let changed = json!({"data": {"kubeconfig": info.to_string()}});
    merge(&maps, "cluster-info", changed).await;
    let former = of(&before, &signature);
    until(&maps, "cluster-info", "it is signed again", |map| {
        map.data.as_ref().and_then(|it| it.get(&signature)) != Some(&former)
    })
    .await;

    // The server does not have a certificate of the other one.
    let pin = Hash::of_authority(another.as_bytes()).unwrap()[0].to_string();
    let at = line
        .iter()
        .position(|it| it == "--discovery-token-ca-cert-hash");
    let mut pinned = line.clone();
    pinned[at.unwrap() + 1] = pin;
    let refused = format!("{:#}", bench.register(&pinned).await.unwrap_err());
    assert!(refused.contains("verified connection"), "{refused}");
    let asked = list(&bench.requests()).await;
    assert!(asked.is_empty(), "{asked:?}");

    bench.register(&line).await.unwrap();
    let stored = bench.secrets().get(SECRET).await.unwrap();
    let stored = String::from_utf8(stored.data.unwrap()[SECRET].0.clone()).unwrap();
    let stored: Value = serde_saphyr::from_str(&stored).unwrap();
    let bundle = &stored["clusters"][0]["cluster"]["certificate-authority-data"];
    let bundle = STANDARD.decode(bundle.as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(bundle).unwrap(), both);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_workloads_stays_unless_that_is_forced() {
    let bench = Bench::start("stays").await;
    bench.invitation(&["--cluster-name", "m1"]).await;
    let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
    create(&bench.clusters(), cluster).await;
    let works = bench.works("m1");
    let work = json!({"metadata": {"name": "web"}, "spec": {"workload": {"manifests": []}}});
    create(&works, work).await;

    let refused = bench.at_fleet(&["unregister", "m1"]).await.unwrap_err();
    assert!(refused.to_string().contains("[\"web\"]"), "{refused}");
    let cluster = bench.clusters().get("m1").await.unwrap();
    assert!(cluster.metadata.deletion_timestamp.is_none());
    let roles: Api<ClusterRole> = bench.all();
    assert!(roles.get_opt("muster:agent:m1").await.unwrap().is_some());

    // No agent of this member ever reported: nobody could carry its removal out, so that it is
    // let go.
    let said = bench.at_fleet(&["unregister", "m1", "--force"]).await;
    assert!(said.is_ok(), "{said:?}");
    assert!(list(&works).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_stays_where_the_kubeconfig_cannot_be_used_or_is_that_of_another() {
    let bench = Bench::start("wrong-file").await;
    bench.invitation(&["--cluster-name", "m1"]).await;
    let cluster = json!({"metadata": {"name": "m1"},
        "spec": {"syncMode": "Pull", "id": "the-id-of-m1"}});
    create(&bench.clusters(), cluster).await;
    let administrator = bench.member.server.admin_kubeconfig().unwrap();
    let another = bench.file("member", &administrator).unwrap();
    let absent = another.with_file_name("absent");
    for (file, words) in [(&absent, "absent"), (&another, "leads to another cluster")] {
        let file = file.to_str().unwrap();
        let line = ["unregister", "m1", "--member-kubeconfig", file];
        let refused = format!("{:#}", bench.at_fleet(&line).await.unwrap_err());
        assert!(refused.contains(words), "{refused}");
        let cluster = bench.clusters().get("m1").await.unwrap();
        assert!(cluster.metadata.deletion_timestamp.is_none());
    }
    // A Cluster that is gone does not say which member is meant, and this one is of m2.
    let of_member: Api<Namespace> = Api::all(bench.member.client.clone());
    let id = of_member.get("kube-system").await.unwrap().uid();
    let cluster = json!({"metadata": {"name": "m2"}, "spec": {"syncMode": "Pull", "id": id}});
    create(&bench.clusters(), cluster).await;
    let file = another.to_str().unwrap();
    let line = ["unregister", "gone", "--member-kubeconfig", file];
    let refused = format!("{:#}", bench.at_fleet(&line).await.unwrap_err());
    assert!(
        refused.contains("the member of Cluster \"m2\""),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_leaves_keeps_the_accounts_of_its_other_fleet() {
    let bench = Bench::start("two-fleets").await;
    bench.invitation(&["--cluster-name", "m1"]).await;
    let namespaces: Api<Namespace> = bench.all();
    let id = namespaces.get("kube-system").await.unwrap().uid();
    let of_member: Api<Namespace> = Api::all(bench.member.client.clone());
    let namespace = json!({"metadata": {"name": "karmada-cluster"}});
    let params = PostParams {
        field_manager: Some("muster-agent".to_owned()),
        ..PostParams::default()
    };
    of_member.create(&params, &typed(namespace)).await.unwrap();
    let accounts: Api<ServiceAccount> =
        Api::namespaced(bench.member.client.clone(), "karmada-cluster");
    for (name, fleet) in [
        ("karmada-m1", id),
        ("karmada-impersonator", Some("other".to_owned())),
    ] {
        let account = json!({"metadata": {"name": name, "labels": {"karmada.io/system": "true"},
            "annotations": {"work.muster.io/fleet": fleet}}});
        accounts.create(&params, &typed(account)).await.unwrap();
    }
    // Whoever has no kubeconfig of the member at hand repeats it later.
    let said = bench.at_fleet(&["unregister", "m1"]).await.unwrap();
    assert!(
        said.contains("repeat this with --member-kubeconfig"),
        "{said}"
    );
    let said = bench.unregister().await;
    assert!(said.contains("Removed 1 accounts"), "{said}");
    assert!(
        said.contains("ServiceAccount karmada-impersonator"),
        "{said}"
    );
    assert!(accounts.get_opt("karmada-m1").await.unwrap().is_none());
    accounts.get("karmada-impersonator").await.unwrap();
}
