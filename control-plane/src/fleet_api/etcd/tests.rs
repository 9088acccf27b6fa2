use std::net::TcpListener as Reserved;

use muster_shared::clock;
use tokio::net::TcpListener;

use super::super::issue;
use super::super::plan::{Leaf, tests::site};
use super::*;

/// A store whose members have empty volumes and certificates of one authority.
struct Store {
    directory: PathBuf,
    cluster: String,
    ports: Vec<u16>,
}

impl Store {
    fn new(name: &str, members: usize) -> Self {
        muster_shared::tls::install_provider();
        let directory = std::env::temp_dir().join(format!("muster-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (now, life) = (clock::calendar(), Duration::from_hours(1));
        let authority = issue::authority("etcd", now, life).unwrap();
        let mut certificates = site().leaves().into_iter();
        let leaf = certificates.find(|it| it.secret.ends_with("etcd-tls"));
        let leaf = Leaf {
            names: vec!["127.0.0.1".to_owned()],
            ..leaf.unwrap()
        };
        let until = now.saturating_add(jiff::SignedDuration::from_hours(1));
        let pair = issue::leaf(&leaf, &authority, until.unwrap(), now, life).unwrap();
        for (file, text) in [
            ("ca.crt", &authority.certificate),
            ("tls.crt", &pair.certificate),
            ("tls.key", &pair.key),
        ] {
            std::fs::write(directory.join(file), text).unwrap();
        }
        let reserved = (0..members).map(|_| Reserved::bind("127.0.0.1:0").unwrap());
        let reserved: Vec<_> = reserved.collect();
        let ports = reserved.iter().map(|it| it.local_addr().unwrap().port());
        let ports: Vec<u16> = ports.collect();
        let cluster = ports.iter().enumerate();
        let cluster = cluster.map(|(n, port)| format!("etcd-{n}=https://127.0.0.1:{port}"));
        Self {
            cluster: cluster.collect::<Vec<_>>().join(","),
            directory,
            ports,
        }
    }

    /// Returns the options of one member.
    fn member(&self, number: usize) -> Options {
        Options {
            name: format!("etcd-{number}"),
            data_dir: self.directory.join(format!("data-{number}")),
            initial_cluster: self.cluster.clone(),
            initial_cluster_token: "fleet".to_owned(),
            initial_cluster_state: ClusterState::New,
            listen: SocketAddr::from(([127, 0, 0, 1], self.ports[number])),
            tls_directory: self.directory.clone(),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

#[tokio::test]
async fn members_that_are_all_empty_know_of_each_other_and_one_that_is_alone_waits() {
    let store = Store::new("etcd-members", 2);
    let options = [store.member(0), store.member(1)];
    let identity = Identity::read(&store.directory).unwrap();
    let peers = Peer::list(&store.cluster).unwrap();
    let is_silent = |answer| matches!(answer, judge::Answer::Silent(_));
    assert!(is_silent(peers[0].ask(&identity).await));

    let listener = TcpListener::bind(options[0].listen).await.unwrap();
    let answering = tokio::spawn(peers::answer(listener, identity.acceptor()));
    assert_eq!(peers[0].ask(&identity).await, judge::Answer::Empty);
    let why = run(&options[1]).await.unwrap();
    assert!(why.contains("every member is empty"), "{why}");

    // A certificate of another authority is neither trusted nor shown anything.
    let stranger = Store::new("etcd-stranger", 1);
    let stranger = Identity::read(&stranger.directory).unwrap();
    assert!(is_silent(peers[0].ask(&stranger).await));
    answering.abort();
}

#[tokio::test]
async fn a_member_with_data_asks_nobody() {
    let store = Store::new("etcd-data", 2);
    let options = store.member(0);
    let log = options.data_dir.join("member/wal");
    std::fs::create_dir_all(&log).unwrap();
    assert!(!has_data(&options.data_dir).unwrap());
    std::fs::write(log.join("0000000000000000-0000000000000000.wal"), "").unwrap();
    let why = run(&options).await.unwrap();
    assert!(why.contains("has its data"), "{why}");
}

#[tokio::test]
async fn a_member_that_the_list_does_not_name_is_refused() {
    let store = Store::new("etcd-unnamed", 1);
    let options = Options {
        name: "etcd-7".to_owned(),
        ..store.member(0)
    };
    let error = run(&options).await.unwrap_err().to_string();
    assert!(error.contains("names no member \"etcd-7\""), "{error}");
}

#[tokio::test]
async fn a_member_reaches_others_by_both_families_of_addresses() {
    let store = Store::new("etcd-families", 1);
    let arguments = format!(
        "check --name=etcd-0 --data-dir=d --initial-cluster={} --initial-cluster-token=fleet --tls-directory=t",
        store.cluster
    );
    let options = Options::parse_from(arguments.split(' '));
    let port = store.ports[0];
    let listener = listen(SocketAddr::new(options.listen.ip(), port)).await;
    let _listener = listener.unwrap();
    for address in ["127.0.0.1", "::1"] {
        let connected = tokio::net::TcpStream::connect((address, port)).await;
        assert!(connected.is_ok(), "{address}: {connected:?}");
    }
}
