//! A fleet with its control plane, a member, and `kubectl muster` at both.

use std::ops::Deref;

use kube::config::{AuthInfo, KubeConfigOptions};
use muster_agent::settings::Settings as AgentSettings;
use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{create, event};
use muster_e2e::harness::test_bed::{MemberApi, Task, TestBed, until};
use muster_shared::certificate::request::NewKey;
use muster_shared::certificate::subject;
use muster_shared::k8s::{Api, CertificateSigningRequest, Client, ResourceExt, Secret};

use crate::support::credentials::{NAMESPACE, SECRET};
use crate::support::kubectl;

/// A fleet with its control plane, and a member that has not joined.
pub struct Bench {
    pub test_bed: TestBed,
    _control_plane: Task,
    pub member: MemberApi,
}

impl Deref for Bench {
    type Target = TestBed;

    fn deref(&self) -> &TestBed {
        &self.test_bed
    }
}

impl Bench {
    pub async fn start(name: &str) -> Self {
        let test_bed = TestBed::fleet(name).await.unwrap();
        let settings = Settings {
            controllers: "cluster,agentcsrapproving".parse().unwrap(),
            ..Settings::default()
        };
        Self {
            _control_plane: test_bed.control_plane(settings).unwrap(),
            test_bed,
            member: MemberApi::start("m1").await.unwrap(),
        }
    }

    /// Runs `kubectl muster` with an administrator's access to the fleet API.
    pub async fn at_fleet(&self, words: &[&str]) -> anyhow::Result<String> {
        kubectl::answer(&self.administrator().unwrap(), words).await
    }

    /// Runs `kubectl muster` with an administrator's access to the member.
    pub async fn at_member(&self, words: &[&str]) -> anyhow::Result<String> {
        let administrator = self.member.server.admin_kubeconfig().unwrap();
        kubectl::answer(&self.file("member", &administrator).unwrap(), words).await
    }

    /// Unregisters the member with an administrator's access to both sides, and returns what is
    /// printed.
    pub async fn unregister(&self) -> String {
        let administrator = self.member.server.admin_kubeconfig().unwrap();
        let file = self.file("member", &administrator).unwrap();
        let access = ["--member-kubeconfig", file.to_str().unwrap()];
        let words = [&["unregister", "m1"][..], &access].concat();
        self.at_fleet(&words).await.unwrap()
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
        Api::namespaced(self.member.client.clone(), NAMESPACE)
    }

    /// Starts the agent, with the kubeconfig that `register` left and with the rights of its chart
    /// in the member.
    pub async fn agent(&self) -> Task {
        let secret = self.secrets().get(SECRET).await.unwrap();
        let fleet = self.directory().join("agent-fleet");
        std::fs::write(&fleet, &secret.data.unwrap()[SECRET].0).unwrap();
        self.agent_with(|settings| settings.karmada_kubeconfig = Some(fleet))
            .await
    }

    /// Starts the agent with the rights of its chart in the member, and without access to the
    /// fleet.
    pub async fn agent_with(&self, edit: impl FnOnce(&mut AgentSettings)) -> Task {
        let agent = self.test_bed.agent(&self.member, |settings| {
            settings.report_secrets = "None".parse().unwrap();
            edit(settings);
        });
        agent.await.unwrap()
    }

    /// Waits until the member is ready.
    pub async fn is_ready(&self) {
        self.ready("m1", "True").await;
    }

    /// Asks for the certificate of an agent with a token, as a program of somebody else's would,
    /// and returns the request's name.
    pub async fn ask(&self, line: &[String], cluster: &str) -> String {
        let at = line.iter().position(|it| it == "--token").unwrap();
        let mut config = self.server.admin_kubeconfig().unwrap();
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
        let requests: Api<CertificateSigningRequest> = Api::all(stranger);
        create(&requests, &request.unwrap()).await.name_any()
    }

    pub fn requests(&self) -> Api<CertificateSigningRequest> {
        self.all()
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
        let about = format!("involvedObject.name={request},reason=NotAutoApproved");
        let why = event(&self.here(), &about, "").await.message.unwrap();
        let status = self.requests().get(request).await.unwrap().status;
        assert!(status.is_none_or(|it| it.conditions.is_none()), "{why}");
        why
    }
}
