//! A fleet with its control plane, a member, and `kubectl muster` at both.

use std::path::PathBuf;

use futures::StreamExt as _;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use muster_agent::settings::Settings as AgentSettings;
use muster_control_plane::settings::Settings;
use muster_e2e::apiserver::{ApiServer, Options, Running};
use muster_e2e::harness::test_bed::{PATIENCE, Scratch, Task, TestBed, until};
use muster_e2e::harness::{access, kubeconfig};
use muster_shared::api::cluster::Cluster;
use muster_shared::certificate::request::NewKey;
use muster_shared::certificate::subject;
use muster_shared::k8s::{
    Api, ByteString, CertificateSigningRequest, Client, Event, ResourceExt, Secret,
};
use muster_shared::settings::BindAddress;
use tokio::time::timeout;

pub const NAMESPACE: &str = "karmada-system";
pub const SECRET: &str = "karmada-kubeconfig";

/// A fleet with its control plane, a member that has not joined, and files with an administrator's
/// access to both.
pub struct Bench {
    pub test_bed: TestBed,
    _control_plane: Task,
    pub member: Running,
    pub member_client: Client,
    pub scratch: Scratch,
}

impl Bench {
    pub async fn start(name: &str) -> Self {
        let test_bed = TestBed::fleet(name).await.unwrap();
        let settings = Settings {
            controllers: "cluster,agentcsrapproving".parse().unwrap(),
            ..Settings::default()
        };
        let member = ApiServer::start(Options {
            name: "m1".to_owned(),
            ..Options::default()
        });
        let member = member.await.unwrap();
        Self {
            _control_plane: test_bed.control_plane(settings).unwrap(),
            test_bed,
            member_client: member.client().await.unwrap(),
            member,
            scratch: Scratch::new(name).unwrap(),
        }
    }

    pub fn file(&self, name: &str, config: &Kubeconfig) -> PathBuf {
        let path = self.scratch.path().join(name);
        kubeconfig::write(config, &path).unwrap();
        path
    }

    /// Runs `kubectl muster` with an administrator's access to the fleet API.
    pub async fn at_fleet(&self, words: &[&str]) -> anyhow::Result<String> {
        let file = self.file("fleet", &self.test_bed.server.admin_kubeconfig().unwrap());
        muster(&file, words).await
    }

    /// Runs `kubectl muster` with an administrator's access to the member.
    pub async fn at_member(&self, words: &[&str]) -> anyhow::Result<String> {
        let file = self.file("member", &self.member.admin_kubeconfig().unwrap());
        muster(&file, words).await
    }

    /// Makes a token and gives the command line of `register` that is printed with it.
    pub async fn invitation(&self, options: &[&str]) -> Vec<String> {
        let words = [&["token", "create", "--print-register-command"], options].concat();
        let line = self.at_fleet(&words).await.unwrap();
        let words = line.strip_prefix("kubectl muster ").unwrap();
        words.split_whitespace().map(str::to_owned).collect()
    }

    pub async fn register(&self, line: &[String]) -> anyhow::Result<String> {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        self.at_member(&line).await
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.member_client.clone(), NAMESPACE)
    }

    pub fn clusters(&self) -> Api<Cluster> {
        Api::all(self.test_bed.client.clone())
    }

    /// Starts the agent, with the kubeconfig that `register` left and with the rights of its chart
    /// in the member.
    pub async fn agent(&self) -> Task {
        let secret = self.secrets().get(SECRET).await.unwrap();
        let fleet = self.scratch.path().join("agent-fleet");
        std::fs::write(&fleet, &secret.data.unwrap()[SECRET].0).unwrap();
        self.agent_with(|settings| settings.karmada_kubeconfig = Some(fleet))
            .await
    }

    /// Starts the agent with the rights of its chart in the member, and without access to the
    /// fleet.
    pub async fn agent_with(&self, edit: impl FnOnce(&mut AgentSettings)) -> Task {
        let account = access::admit_agent(&self.member_client).await.unwrap();
        let administrator = self.member.admin_kubeconfig().unwrap();
        let own = access::kubeconfig(&self.member_client, administrator, &account);
        let mut settings = AgentSettings {
            cluster_name: "m1".to_owned(),
            kubeconfig: Some(self.file("agent-member", &own.await.unwrap())),
            cluster_status_update_frequency: "1s".parse().unwrap(),
            cluster_success_threshold: "300ms".parse().unwrap(),
            report_secrets: "None".parse().unwrap(),
            metrics_bind_address: BindAddress(None),
            health_probe_bind_address: BindAddress(None),
            ..AgentSettings::default()
        };
        edit(&mut settings);
        Task::start(|shutdown| muster_agent::run(settings, shutdown))
    }

    /// Waits until the member is ready.
    pub async fn is_ready(&self) {
        let is_ready = |cluster: &Cluster| {
            let ready = cluster.condition("Ready");
            ready.is_some_and(|it| it.status == "True")
        };
        until(&self.clusters(), "m1", "it is ready", is_ready).await;
    }

    /// Asks for the certificate of an agent with a token, as a program of somebody else's would,
    /// and gives the request's name.
    pub async fn ask(&self, line: &[String], cluster: &str) -> String {
        self.ask_with(line, cluster, str::to_owned).await
    }

    /// Asks for the certificate of an agent with a token and with another text of the request, and
    /// returns the request's name.
    pub async fn ask_with(
        &self,
        line: &[String],
        cluster: &str,
        edit: impl FnOnce(&str) -> String,
    ) -> String {
        let at = line.iter().position(|it| it == "--token").unwrap();
        let mut config = self.test_bed.server.admin_kubeconfig().unwrap();
        config.auth_infos[0].auth_info = Some(AuthInfo {
            token: Some(line[at + 1].clone().into()),
            ..AuthInfo::default()
        });
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options);
        let stranger = Client::try_from(config.await.unwrap()).unwrap();
        let subject = subject::of(
            "system:karmada:agents",
            &format!("system:karmada:agent:{cluster}"),
        );
        let key = NewKey::generate().unwrap();
        let request = key.asking(cluster, &subject, std::time::Duration::from_hours(1));
        let mut request = request.unwrap();
        let text = String::from_utf8(request.spec.request.0).unwrap();
        request.spec.request = ByteString(edit(&text).into_bytes());
        let requests: Api<CertificateSigningRequest> = Api::all(stranger);
        let made = requests.create(&PostParams::default(), &request).await;
        made.unwrap().name_any()
    }

    pub fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.test_bed.client.clone())
    }

    pub async fn is_issued(&self, request: &str) {
        until(&self.requests(), request, "it is issued", |it| {
            it.status
                .as_ref()
                .is_some_and(|it| it.certificate.is_some())
        })
        .await;
    }

    /// Waits until a request was left to a person, and gives the reason.
    pub async fn is_left(&self, request: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.test_bed.client.clone(), "default");
        let about = WatchParams::default().fields(&format!("involvedObject.name={request}"));
        let mut told = events.watch(&about, "0").await.unwrap().boxed();
        let reason = async {
            loop {
                match told.next().await {
                    Some(Ok(WatchEvent::Added(event) | WatchEvent::Modified(event)))
                        if event.reason.as_deref() == Some("NotAutoApproved") =>
                    {
                        return event.message.unwrap();
                    }
                    Some(_) => {}
                    None => panic!("the watch of events ended"),
                }
            }
        };
        let why = timeout(PATIENCE, reason).await.expect("the reason is told");
        let status = self.requests().get(request).await.unwrap().status;
        assert!(status.is_none_or(|it| it.conditions.is_none()), "{why}");
        why
    }
}

async fn muster(kubeconfig: &std::path::Path, words: &[&str]) -> anyhow::Result<String> {
    let file = kubeconfig.to_str().unwrap();
    let line = [&["kubectl-muster", "--kubeconfig", file], words].concat();
    muster_kubectl::answer(line).await
}
