//! What prints again and again ends when nobody reads it any more, as behind `| head -1`.

#![allow(clippy::unwrap_used, clippy::panic)] // how a test says that it failed

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Time within which the program has to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts an API that serves nothing; returns its address.
fn api() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || refuse(stream));
        }
    });
    address
}

/// Answers the first request of a connection.
fn refuse(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while lines
        .next()
        .is_some_and(|it| it.is_ok_and(|it| !it.is_empty()))
    {}
    let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let _ = stream.write_all(answer.as_bytes());
}

/// Starts the program, which asks an API.
fn watching(directory: &std::path::Path) -> Child {
    let kubeconfig = directory.join("kubeconfig");
    let config = format!(
        r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "fleet",
            "clusters": [{{"name": "fleet", "cluster": {{"server": "{}"}}}}],
            "contexts": [{{"name": "fleet", "context": {{"cluster": "fleet", "user": "fleet"}}}}],
            "users": [{{"name": "fleet", "user": {{}}}}]}}"#,
        api()
    );
    std::fs::write(&kubeconfig, config).unwrap();
    Command::new(env!("CARGO_BIN_EXE_kubectl-muster"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["status", "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_watch_ends_quietly_when_its_reader_has_left() {
    let directory = std::env::temp_dir().join(format!("muster-pipe-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let mut child = watching(&directory);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut errors = child.stderr.take().unwrap();
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    assert!(first.starts_with("NOT KNOWN: "), "{first}");
    let clock = reader.by_ref().lines().map_while(Result::ok);
    let clock = clock.take(100).find(|it| it.starts_with("--- "));
    assert!(clock.is_some_and(|it| it.ends_with("again every 2s")));
    drop(reader);
    let id = child.id();
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait()));
    let Ok(status) = ended.recv_timeout(PATIENCE) else {
        let _ = Command::new("kill").arg(id.to_string()).status();
        panic!("it goes on although nobody reads it");
    };
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    // Too little could be read, and nothing is said of the pipe.
    assert_eq!((status.unwrap().code(), said.as_str()), (Some(2), ""));
    std::fs::remove_dir_all(directory).unwrap();
}
