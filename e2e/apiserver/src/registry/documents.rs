//! Documents about all resources, kept until one comes, goes or changes.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;

use super::Resource;

/// The documents of the resources that were served when somebody asked last.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Option<(All, Documents)>>);

/// All resources, as the registry has them.
type All = Arc<Vec<Arc<Resource>>>;

/// What discovery says of the core group, and of all others.
#[derive(Clone, Debug)]
pub struct Documents {
    /// The core group.
    pub core: Document,
    /// All others.
    pub groups: Document,
}

/// A document and its tag: the hash of its bytes in quotes, as the real server makes it.
#[derive(Clone, Debug)]
pub struct Document {
    /// The document.
    pub bytes: Bytes,
    /// By which a client asks whether it is still the same.
    pub tag: HeaderValue,
}

impl Kept {
    /// Returns the documents of these resources, and makes them anew if they are other resources
    /// than before.
    pub fn of(&self, all: &All, make: impl FnOnce(&[Arc<Resource>]) -> Documents) -> Documents {
        let mut last = self.0.lock();
        if let Some((of, known)) = last.as_ref()
            && Arc::ptr_eq(of, all)
        {
            return known.clone();
        }
        let new = (Arc::clone(all), make(all));
        last.insert(new).1.clone()
    }
}
