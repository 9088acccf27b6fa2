//! Limits of manifests, which are checked while they are changed.

use std::io;

use muster_shared::work_status::{depth, length};
use serde_json::Value;

/// Levels of the deepest manifest. A Work adds some of its own, and readers of JSON end at 128: a
/// deeper one could be written and never read again.
pub const DEEPEST_MANIFEST: usize = 100;
/// Bytes of JSON of the largest manifest: etcd's default limit for a request, and so for an object
/// (`--max-request-bytes`).
pub const LARGEST_MANIFEST: usize = 1536 * 1024;
/// Bytes that all changes of a manifest for one cluster may go through. Whoever may write a policy
/// must not be able to keep a worker busy with one resource for minutes.
pub(super) const MOST_READ: usize = 1024 * 1024 * 1024;
/// Factor by which the bytes of a document count that is read and written, which takes longer than
/// other changes.
pub(super) const DOCUMENT: usize = 16;

/// Bytes by which a manifest may still grow, and that its changes may still go through.
#[derive(Debug)]
pub(super) struct Room {
    left: usize,
    unread: usize,
}

impl Room {
    /// Measures a manifest.
    ///
    /// # Errors
    /// The manifest is over a limit already: a text that completes "the resource is ...".
    pub fn beside(manifest: &Value) -> Result<Self, String> {
        // The depth comes first: measuring the length recurses.
        shallow(manifest)?;
        let left = LARGEST_MANIFEST.checked_sub(length(manifest));
        let left = left.ok_or_else(excess)?;
        let unread = MOST_READ;
        Ok(Self { left, unread })
    }

    /// Measures the manifest after changes.
    ///
    /// # Errors
    /// The manifest is over a limit.
    pub fn after(self, manifest: &Value) -> Result<Self, String> {
        let Self { left, .. } = Self::beside(manifest)?;
        Ok(Self { left, ..self })
    }

    /// Returns by how many bytes the manifest may still grow.
    pub fn bytes(&self) -> usize {
        self.left
    }

    /// Returns how many bytes the manifest has.
    pub fn held(&self) -> usize {
        LARGEST_MANIFEST - self.left
    }

    /// Counts bytes that a change goes through.
    ///
    /// # Errors
    /// The changes before have gone through too many bytes for that.
    pub fn read(&mut self, bytes: usize) -> Result<(), String> {
        let unread = self.unread.checked_sub(bytes);
        self.unread = unread.ok_or_else(|| {
            "the policies change a resource of this size too often: put the changes into fewer \
             entries, or split the resource"
                .to_owned()
        })?;
        Ok(())
    }

    /// Takes bytes for a text that becomes part of the manifest.
    ///
    /// # Errors
    /// The manifest may grow by fewer bytes only.
    pub fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }
}

/// Returns whether a manifest is within the limits.
///
/// # Errors
/// The limit that it exceeds.
pub fn check(manifest: &Value) -> Result<(), String> {
    Room::beside(manifest).map(|_| ())
}

/// Returns whether a manifest or template is within the limit of depth.
///
/// # Errors
/// A text about the limit.
pub fn shallow(manifest: &Value) -> Result<(), String> {
    match depth(manifest) {
        levels if levels > DEEPEST_MANIFEST => Err(format!(
            "{levels} levels deep, more than the {DEEPEST_MANIFEST} that fit into a work"
        )),
        _ => Ok(()),
    }
}

/// Returns what a manifest is that is too large.
fn excess() -> String {
    format!("more than the {LARGEST_MANIFEST} bytes large that fit into a work")
}

/// Returns the reason for which a change is refused that would make a manifest too large.
fn too_large() -> String {
    format!("the resource would become {}", excess())
}

/// Text of limited length.
#[derive(Debug)]
pub(super) struct Bounded {
    text: Vec<u8>,
    limit: usize,
}

impl Bounded {
    /// Returns what is written, of at most so many bytes.
    ///
    /// # Errors
    /// A text that says that it is longer.
    pub fn text<T, E>(
        limit: usize,
        write: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<String, String> {
        let text = Vec::new();
        let mut bounded = Self { text, limit };
        write(&mut bounded).map_err(|_| too_large())?;
        Ok(String::from_utf8(bounded.text).unwrap_or_default())
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.text.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
