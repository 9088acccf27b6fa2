//! Keeps objects as compressed text, and decodes them when they are read.
//!
//! A decoded object takes five to ten times the memory of its compressed text: texts of its own for
//! each name, half a kilobyte for each map of labels. Of a large collection nearly all objects are
//! at rest. What was read last is kept decoded.

use std::any::Any;
use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::Resource;
use lru::LruCache;
use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};
use parking_lot::Mutex;

use super::outline::{Labels, Outline};
use super::store::{Held, address, version};

/// Objects of a collection that stay decoded: more than all workers use at a time.
const DECODED: NonZeroUsize = NonZeroUsize::new(512).unwrap();
/// Bytes of their texts at most: large objects take no more than some megabytes either.
const DECODED_BYTES: usize = 4 << 20;
/// Objects of which the texts make up a dictionary.
const SAMPLES: usize = 3;
/// Bytes of each of them.
const SAMPLE: usize = 4096;

/// Values that objects have in common, kept beside their text.
pub type Shared = Arc<dyn Any + Send + Sync>;

/// An object as text.
#[derive(Default)]
pub struct Parts {
    /// The text, in whatever form the codec reads.
    pub text: Vec<u8>,
    /// The labels as [`outline::text`](super::outline::text) writes them, for collections that are
    /// compared with selectors: they are read without decoding the object.
    pub labels: Option<String>,
    /// Values that the text lacks, because other objects have the same.
    pub shared: Option<Shared>,
}

type Unpack<K> = fn(&[u8], Option<&Shared>) -> serde_json::Result<K>;

/// Next serial number of a version of an object, which distinguishes what is decoded of it from any
/// other version of any object of any collection.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Converts the objects of a kind to text and back.
pub struct Codec<K> {
    /// Returns the parts of an object.
    pub pack: fn(&K) -> serde_json::Result<Parts>,
    /// Returns the object of a text and of what is beside it.
    pub unpack: Unpack<K>,
}

/// A packed object. What is asked of an object at rest is not in the text.
pub(super) struct Packed {
    /// Namespace, name, labels and compressed text, without anything between them.
    bytes: Box<[u8]>,
    /// Offsets at which the namespace, the name and the labels end.
    ends: [u32; 3],
    /// See [`version`].
    pub(super) version: Option<u64>,
    /// See [`SERIAL`].
    serial: u64,
    shared: Option<Shared>,
    dictionary: Arc<[u8]>,
}

impl Packed {
    pub(super) fn address(&self) -> (&str, &str) {
        let (namespace, name) = self.names();
        (text(namespace), text(name))
    }

    /// Returns the bytes of the namespace and of the name.
    pub(super) fn names(&self) -> (&[u8], &[u8]) {
        let [namespace, name, _] = self.ends;
        (self.part(0, namespace), self.part(namespace, name))
    }

    /// Returns the names and the labels of the object; `None` if only its text has the labels.
    pub(super) fn outline(&self) -> Option<Outline<'_>> {
        let labels = text(self.part(self.ends[1], self.ends[2]));
        (!labels.is_empty()).then(|| Outline::at(self.address(), Labels::Text(labels)))
    }

    fn part(&self, from: u32, to: u32) -> &[u8] {
        &self.bytes[from as usize..to as usize]
    }
}

/// Returns bytes that were a text when they were packed.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Packs the objects of one collection.
pub(super) struct Packer<K> {
    codec: Codec<K>,
    decoded: Mutex<Decoded<K>>,
    dictionary: Mutex<Dictionary>,
}

/// Objects that stay decoded, each with the length of its text.
struct Decoded<K> {
    objects: LruCache<u64, (usize, Arc<K>)>,
    bytes: usize,
}

impl<K> Decoded<K> {
    fn put(&mut self, serial: u64, length: usize, object: Arc<K>) {
        let former = self.objects.push(serial, (length, object));
        self.bytes += length;
        self.bytes -= former.map_or(0, |(_, (length, _))| length);
        while self.bytes > DECODED_BYTES
            && let Some((_, (length, _))) = self.objects.pop_lru()
        {
            self.bytes -= length;
        }
    }
}

/// What the texts of a collection have in common: some of them. It is made anew each time the
/// collection has doubled, so that it comes from all of it, and is made rarely.
#[derive(Default)]
struct Dictionary {
    bytes: Arc<[u8]>,
    samples: VecDeque<Vec<u8>>,
    seen: u64,
}

impl Dictionary {
    /// Returns the dictionary for a text, which later ones may refer to.
    fn take(&mut self, text: &[u8]) -> Arc<[u8]> {
        let taken = Arc::clone(&self.bytes);
        self.seen += 1;
        if self.seen.is_power_of_two() {
            self.samples.truncate(SAMPLES - 1);
            self.samples
                .push_front(text[..text.len().min(SAMPLE)].to_vec());
            self.bytes = self.samples.iter().flatten().copied().collect();
        }
        taken
    }
}

impl<K: Resource> Packer<K> {
    pub(super) fn new(codec: Codec<K>) -> Self {
        Self {
            codec,
            decoded: Mutex::new(Decoded {
                objects: LruCache::new(DECODED),
                bytes: 0,
            }),
            dictionary: Mutex::default(),
        }
    }

    /// Packs an object, and returns it as it is read from then on, which is without fractions of
    /// seconds; `None` if it could not be read again.
    pub(super) fn pack(&self, object: &K) -> Option<(Packed, Arc<K>)> {
        let Parts {
            text,
            labels,
            shared,
        } = (self.codec.pack)(object).ok()?;
        let read = (self.codec.unpack)(&text, shared.as_ref()).ok()?;
        debug_assert!(
            (self.codec.pack)(&read).is_ok_and(|again| again.text == text),
            "what is read is not what was packed: {}",
            String::from_utf8_lossy(&text)
        );
        let (namespace, name) = address(&read);
        let dictionary = self.dictionary.lock().take(&text);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Vec::with_capacity(text.len() / 2);
        let mut ends = [0; 3];
        let parts = [namespace, name, labels.as_deref().unwrap_or_default()];
        for (part, end) in parts.into_iter().zip(&mut ends) {
            bytes.extend_from_slice(part.as_bytes());
            *end = u32::try_from(bytes.len()).ok()?;
        }
        bytes.append(&mut compress_prepend_size_with_dict(&text, &dictionary));
        let packed = Packed {
            bytes: bytes.into_boxed_slice(),
            ends,
            version: version(&read),
            serial,
            shared,
            dictionary,
        };
        let read = Arc::new(read);
        let mut decoded = self.decoded.lock();
        decoded.put(serial, text.len(), Arc::clone(&read));
        drop(decoded);
        Some((packed, read))
    }

    /// Returns an object in the form in which it is kept, and as it is read.
    pub(super) fn hold(&self, object: Arc<K>) -> (Held<K>, Arc<K>) {
        match self.pack(&object) {
            Some((packed, read)) => (Held::Packed(Arc::new(packed)), read),
            None => (Held::Whole(Arc::clone(&object)), object),
        }
    }

    /// Returns an object, which stays decoded for a while.
    pub(super) fn read(&self, packed: &Packed) -> Option<Arc<K>> {
        if let Some((_, decoded)) = self.decoded.lock().objects.get(&packed.serial) {
            return Some(Arc::clone(decoded));
        }
        let (length, read) = self.unpack(packed)?;
        let mut decoded = self.decoded.lock();
        decoded.put(packed.serial, length, Arc::clone(&read));
        drop(decoded);
        Some(read)
    }

    /// Returns an object of many that are read one after the other: none of them stays decoded.
    pub(super) fn read_once(&self, packed: &Packed) -> Option<Arc<K>> {
        let decoded = {
            let decoded = self.decoded.lock();
            decoded
                .objects
                .peek(&packed.serial)
                .map(|it| Arc::clone(&it.1))
        };
        decoded.or_else(|| self.unpack(packed).map(|it| it.1))
    }

    /// Unpacks an object, and returns the length of its text, too. That it can be was seen when it
    /// was packed.
    fn unpack(&self, packed: &Packed) -> Option<(usize, Arc<K>)> {
        let compressed = &packed.bytes[packed.ends[2] as usize..];
        let text = decompress_size_prepended_with_dict(compressed, &packed.dictionary);
        let read = text.map(|text| {
            let object = (self.codec.unpack)(&text, packed.shared.as_ref());
            object.map(|object| (text.len(), Arc::new(object)))
        });
        match read {
            Ok(Ok(object)) => return Some(object),
            Ok(Err(error)) => tracing::error!(%error, "a cached object cannot be read"),
            Err(error) => tracing::error!(%error, "a cached object cannot be decompressed"),
        }
        None
    }
}

/// An object as a cache holds it.
pub struct Kept<K>(pub(super) Held<K>);

/// Returns an object as a cache holds it, if it holds this version.
type Lookup<K> = dyn Fn(&K) -> Option<Kept<K>> + Send + Sync;

/// Objects that somebody keeps by other keys than their names, packed.
pub struct PackedMap<Q, K> {
    objects: HashMap<Q, Held<K>>,
    packer: Packer<K>,
    cache: Option<Box<Lookup<K>>>,
}

impl<Q: Eq + Hash, K: Resource> PackedMap<Q, K> {
    /// Makes an empty map.
    pub fn new(codec: Codec<K>) -> Self {
        Self {
            objects: HashMap::new(),
            packer: Packer::new(codec),
            cache: None,
        }
    }

    /// Shares the packed form of what a cache holds, too.
    pub fn beside(&mut self, cache: impl Fn(&K) -> Option<Kept<K>> + Send + Sync + 'static) {
        self.cache = Some(Box::new(cache));
    }

    /// Returns a key as it is kept.
    pub fn key<R: Eq + Hash + ?Sized>(&self, key: &R) -> Option<&Q>
    where
        Q: Borrow<R>,
    {
        self.objects.get_key_value(key).map(|(key, _)| key)
    }

    /// Returns the object with a key.
    pub fn get<R: Eq + Hash + ?Sized>(&self, key: &R) -> Option<Arc<K>>
    where
        Q: Borrow<R>,
    {
        let held = self.objects.get(key)?;
        held.read_with(|packed| self.packer.read(packed))
    }

    /// Returns the object with a key, of many that are read one after the other: none of them stays
    /// decoded.
    pub fn peek<R: Eq + Hash + ?Sized>(&self, key: &R) -> Option<Arc<K>>
    where
        Q: Borrow<R>,
    {
        self.read_once(self.objects.get(key)?)
    }

    /// Puts an object in, and returns the one that had its key.
    pub fn insert(&mut self, key: Q, object: Arc<K>) -> Option<Arc<K>> {
        let cached = self.cache.as_ref().and_then(|look| look(&object));
        let held = cached.map_or_else(|| self.packer.hold(object).0, |it| it.0);
        let former = self.objects.insert(key, held)?;
        self.read_once(&former)
    }

    /// Takes an object out, with its key.
    pub fn remove_entry<R: Eq + Hash + ?Sized>(&mut self, key: &R) -> Option<(Q, Arc<K>)>
    where
        Q: Borrow<R>,
    {
        let (key, held) = self.objects.remove_entry(key)?;
        Some((key, self.read_once(&held)?))
    }

    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = &Q> {
        self.objects.keys()
    }

    fn read_once(&self, held: &Held<K>) -> Option<Arc<K>> {
        held.read_with(|packed| self.packer.read_once(packed))
    }
}

impl<Q: fmt::Debug, K> fmt::Debug for PackedMap<Q, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.objects.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::watch::outline::text;

    /// Returns a codec that cannot read the objects without a version again.
    fn codec() -> Codec<ConfigMap> {
        Codec {
            pack: |object| {
                Ok(Parts {
                    text: serde_json::to_vec(object)?,
                    labels: text(object.metadata.labels.as_ref()),
                    shared: Some(Arc::new(object.metadata.generation)),
                })
            },
            unpack: |text, shared| {
                let object: ConfigMap = serde_json::from_slice(text)?;
                let beside = shared.and_then(|it| it.downcast_ref::<Option<i64>>());
                assert_eq!(beside, Some(&object.metadata.generation));
                let known = object.metadata.resource_version.is_some();
                known.then_some(object).ok_or_else(|| {
                    serde::de::Error::custom("an object without a version cannot be read")
                })
            },
        }
    }

    fn object(number: usize) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("shop".into());
        object.metadata.name = Some(format!("web-{number}"));
        object.metadata.resource_version = Some(number.to_string());
        object.metadata.labels = Some([("app".to_owned(), format!("web-{number}"))].into());
        let text = "what all of them have, and what makes each of them long".repeat(4);
        object.data = Some([("text".to_owned(), format!("{text} {number}"))].into());
        object
    }

    #[test]
    fn what_was_packed_is_read_again_whichever_dictionary_it_was_packed_with() {
        let packer = Packer::new(codec());
        let objects: Vec<_> = (0..2 * DECODED.get()).map(object).collect();
        let kept: Vec<_> = objects
            .iter()
            .map(|it| packer.pack(it).unwrap().0)
            .collect();
        for (object, it) in objects.iter().zip(&kept) {
            let name = object.metadata.name.as_deref().unwrap();
            assert_eq!(it.address(), ("shop", name));
            let outline = it.outline().unwrap();
            assert_eq!((outline.namespace, outline.name), (Some("shop"), name));
            assert_eq!(outline.labels.get("app"), Some(name));
            assert_eq!(it.version, version(object));
            assert_eq!(packer.read_once(it).as_deref(), Some(object));
        }
        // Most of the text is in the dictionary.
        let (alone, later) = (kept[0].bytes.len(), kept[kept.len() - 1].bytes.len());
        assert!(2 * later < alone, "{alone} bytes alone, {later} later");
    }

    #[test]
    fn only_what_was_read_last_stays_decoded() {
        let packer = Packer::new(codec());
        let objects: Vec<_> = (0..DECODED.get() + 2).map(object).collect();
        let kept: Vec<_> = objects.iter().map(|it| packer.pack(it).unwrap()).collect();
        let stays = |at: usize| {
            let (it, decoded) = &kept[at];
            Arc::ptr_eq(&packer.read_once(it).unwrap(), decoded)
        };
        assert_eq!([0, 1, 2].map(stays), [false, false, true]);
        let read = packer.read(&kept[0].0).unwrap();
        assert!(Arc::ptr_eq(&packer.read(&kept[0].0).unwrap(), &read));
        assert_eq!([2, 3].map(stays), [false, true], "the oldest makes room");
    }

    #[test]
    fn large_objects_stay_decoded_up_to_a_number_of_bytes() {
        let packer = Packer::new(codec());
        let large = |number| {
            let mut object = object(number);
            let text = number.to_string().repeat(DECODED_BYTES / 4);
            object.data = Some([("text".to_owned(), text)].into());
            packer.pack(&object).unwrap()
        };
        let kept: Vec<_> = (0..8).map(large).collect();
        let (bytes, decoded) = {
            let decoded = packer.decoded.lock();
            (decoded.bytes, decoded.objects.len())
        };
        assert_eq!((bytes <= DECODED_BYTES, decoded), (true, 3));
        for (it, object) in &kept {
            assert_eq!(packer.read(it).as_ref(), Some(object));
        }
        let decoded = packer.decoded.lock();
        let sum: usize = decoded.objects.iter().map(|(_, (length, _))| length).sum();
        assert_eq!((decoded.bytes, decoded.objects.len()), (sum, 3));
    }

    #[test]
    fn what_cannot_be_read_again_is_kept_as_it_is() {
        let mut map = PackedMap::new(codec());
        let mut unread = object(1);
        unread.metadata.resource_version = None;
        let (unread, known) = (Arc::new(unread), Arc::new(object(2)));
        assert_eq!(map.insert(1, Arc::clone(&unread)), None);
        assert_eq!(map.insert(1, Arc::clone(&known)), Some(unread));
        assert_eq!(map.get(&1), Some(known));
    }

    #[test]
    fn what_a_cache_holds_is_shared_and_told_from_what_is_packed_here() {
        let packer = Packer::new(codec());
        let (cached, _) = packer.hold(Arc::new(object(1)));
        let Held::Packed(theirs) = &cached else {
            panic!("it is packed");
        };
        let mut map = PackedMap::new(codec());
        let held = cached.clone();
        map.beside(move |it: &ConfigMap| (*it == object(1)).then(|| Kept(held.clone())));
        for number in [2, 1, 3] {
            map.insert(number, Arc::new(object(number)));
        }
        assert_eq!(
            Arc::strong_count(theirs),
            3,
            "here, in the closure, in the map"
        );
        for number in [1, 2, 3, 2, 1] {
            assert_eq!(map.get(&number).as_deref(), Some(&object(number)));
        }
    }
}
