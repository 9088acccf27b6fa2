//! A foreign program as a child that never outlives us, even when we are killed.

use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};

use anyhow::Context as _;

/// Runs the program of its arguments and kills it when standard input ends, which it does when the
/// parent is gone.
const GUARD: &str = r#"exec 3<&0
"$@" </dev/null 3<&- & child=$!
{ cat <&3 >/dev/null; kill -9 "$child"; } 2>/dev/null & guard=$!
wait "$child"; status=$?
kill "$guard" 2>/dev/null
exit "$status""#;

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Child {
    shell: std::process::Child,
    input: Option<ChildStdin>,
}

impl Child {
    /// Starts a program; its log is the program's name with `.log` in that directory.
    pub fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let log = directory.join(format!("{name}.log"));
        let output = std::fs::File::create(&log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let mut shell = Command::new("sh")
            .args(["-c", GUARD, "sh"])
            .arg(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let input = shell.stdin.take();
        Ok(Self { shell, input })
    }

    /// Returns how the child ended, if it did.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.shell.try_wait().context("asking after a child")
    }
}

impl Child {
    /// Kills it, and returns when it is gone.
    pub fn kill(&mut self) {
        self.input = None;
        // The guard kills at once, so that this does not block; there is nobody to report an
        // error.
        let _ = self.shell.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
