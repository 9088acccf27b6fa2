//! A client that nobody here wrote: kubectl does its usual work on the embedded API, and, where
//! `KUBEBUILDER_ASSETS` names one, on a real API, which shows that what is expected here is what it
//! does there.

mod kubectl;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kube::config::Kubeconfig;
use muster_e2e::apiserver::{ApiServer, Running};
use muster_e2e::harness::envtest::{Envtest, Options};
use muster_e2e::harness::kubeconfig::write;
use tokio::process::Command;

use kubectl::Kubectl;

/// No command takes longer.
const DEADLINE: Duration = Duration::from_mins(2);

/// A server, and the file by which clients reach it.
struct Server {
    name: &'static str,
    kubeconfig: PathBuf,
    _alive: Alive,
}

#[allow(dead_code)] // kept, not used
enum Alive {
    Embedded(Running),
    Real(Box<Envtest>),
}

impl Server {
    fn new(name: &'static str, kubeconfig: &Kubeconfig, alive: Alive) -> Self {
        let file = format!("kubectl-{name}-{}.kubeconfig", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
        write(kubeconfig, &path).unwrap();
        Self {
            name,
            kubeconfig: path,
            _alive: alive,
        }
    }

    /// Starts the embedded server, and a real one if there is one.
    async fn all() -> Vec<Self> {
        let embedded = ApiServer::for_test().await;
        let kubeconfig = embedded.admin_kubeconfig().unwrap();
        let embedded = Alive::Embedded(embedded);
        let mut all = vec![Self::new("embedded", &kubeconfig, embedded)];
        if let Some(options) = Options::from_environment().unwrap() {
            let real = Envtest::start(options).await.unwrap();
            let kubeconfig = real.kubeconfig().unwrap();
            let real = Alive::Real(Box::new(real));
            all.push(Self::new("real", &kubeconfig, real));
        }
        all
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Runs a program to its end: whether it succeeded, what it said, and what it complained about.
async fn run(command: &mut Command) -> std::io::Result<(bool, String, String)> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output())
        .await
        .map_err(|_| std::io::Error::other("no end in time"))??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

#[tokio::test]
async fn kubectl_works() {
    if run(Command::new("kubectl").args(["version", "--client"]))
        .await
        .is_err()
    {
        eprintln!("skipped: there is no kubectl here");
        return;
    }
    for server in Server::all().await {
        Kubectl::new(server.name, &server.kubeconfig).walk().await;
    }
}
