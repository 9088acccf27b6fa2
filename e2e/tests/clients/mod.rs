//! Clients that nobody here wrote: kubectl and the official Python client do their usual work on
//! the embedded API, and, where `KUBEBUILDER_ASSETS` names one, on a real API, which shows that
//! what is expected here is what they do there.

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
    fn new(name: &'static str, test: &str, kubeconfig: &Kubeconfig, alive: Alive) -> Self {
        let file = format!("{test}-{name}-{}.kubeconfig", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
        write(kubeconfig, &path).unwrap();
        Self {
            name,
            kubeconfig: path,
            _alive: alive,
        }
    }

    /// Starts the embedded server, and a real one if there is one.
    async fn all(test: &str) -> Vec<Self> {
        let embedded = ApiServer::for_test().await;
        let kubeconfig = embedded.admin_kubeconfig().unwrap();
        let mut all = vec![Self::new(
            "embedded",
            test,
            &kubeconfig,
            Alive::Embedded(embedded),
        )];
        if let Some(options) = Options::from_environment().unwrap() {
            let real = Envtest::start(options).await.unwrap();
            let kubeconfig = real.kubeconfig().unwrap();
            all.push(Self::new(
                "real",
                test,
                &kubeconfig,
                Alive::Real(Box::new(real)),
            ));
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

/// Returns a Python with the official client, in a virtual environment that is kept for the next
/// run, or the reason why there is none.
async fn python() -> Result<PathBuf, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-client");
    let python = place.join("bin/python");
    let has = |python: PathBuf| async move {
        let mut command = Command::new(python);
        command.args(["-c", "import kubernetes"]);
        run(&mut command).await.is_ok_and(|(fine, ..)| fine)
    };
    if has(python.clone()).await {
        return Ok(python);
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&place);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "-q", "--retries", "1", "kubernetes"]);
    for command in [&mut venv, &mut install] {
        let (fine, _, complaint) = run(command).await.map_err(|error| error.to_string())?;
        if !fine {
            return Err(complaint);
        }
    }
    Ok(python)
}

#[tokio::test]
async fn the_python_client_works() {
    let python = match python().await {
        Ok(python) => python,
        Err(why) => {
            eprintln!("skipped: there is no Python client here: {why}");
            return;
        }
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/client.py");
    for server in Server::all("python").await {
        let mut command = Command::new(&python);
        command.arg(script).arg(&server.kubeconfig);
        let (fine, said, complaint) = run(&mut command).await.unwrap();
        assert!(fine, "{}: {said}\n{complaint}", server.name);
    }
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
    for server in Server::all("kubectl").await {
        Kubectl::new(server.name, &server.kubeconfig).walk().await;
    }
}
