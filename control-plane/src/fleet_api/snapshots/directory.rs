//! Snapshots of etcd in a directory.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

/// Removes all but the newest snapshots. Other files stay, such as those that etcdctl has not
/// completed (`.part`).
pub(super) fn prune(directory: &Path, keep: usize) -> anyhow::Result<Vec<PathBuf>> {
    let name = || format!("read {}", directory.display());
    let mut snapshots: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(name)? {
        let path = entry.with_context(name)?.path();
        if path.extension().is_some_and(|it| it == "db") {
            let written = path.metadata().and_then(|it| it.modified());
            snapshots.push((written.with_context(name)?, path));
        }
    }
    snapshots.sort();
    snapshots.truncate(snapshots.len().saturating_sub(keep));
    let paths = snapshots.into_iter().map(|(_, path)| {
        std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        Ok(path)
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_shared::clock;

    use super::*;

    #[test]
    fn the_newest_snapshots_stay_and_other_files_are_not_touched() {
        let directory = std::env::temp_dir().join(format!("muster-prune-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for (name, age) in [
            ("a.db", 1),
            ("b.db", 3),
            ("c.db", 2),
            ("d.db.part", 9),
            ("e", 9),
        ] {
            let file = std::fs::File::create(directory.join(name)).unwrap();
            let written = SystemTime::from(clock::calendar()) - Duration::from_hours(age);
            file.set_modified(written).unwrap();
        }
        let names = |paths: Vec<PathBuf>| -> Vec<String> {
            let names = paths.iter().filter_map(|it| it.file_name()?.to_str());
            names.map(str::to_owned).collect()
        };
        assert_eq!(names(prune(&directory, 1).unwrap()), ["b.db", "c.db"]);
        assert_eq!(names(prune(&directory, 1).unwrap()), [""; 0]);
        let left = std::fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, 3);
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(prune(&directory, 1).is_err());
    }
}
