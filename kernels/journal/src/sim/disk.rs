//! The simulated disk.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::local::{Disk, DiskFile};

/// A crash keeps or loses unsynced bytes by sectors of this size, apart from torn ones.
const SECTOR: usize = 512;

/// What a chosen operation does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with EIO. A failed write may have written some of its bytes; a failed sync loses some of what was written
    /// for good although it stays readable until the crash, as Linux does.
    Error,
    /// It fails with ENOSPC.
    Full,
    /// A write takes only some of the bytes; other operations fail with EIO.
    Short,
    /// It and everything after it fails, until [`SimDisk::crash`].
    PowerCut,
}

/// A directory on a simulated disk. Share it with `Arc` to let several owners open it.
pub struct SimDisk {
    me: Weak<Self>,
    state: Mutex<State>,
}

struct State {
    rng: ChaCha8Rng,
    files: Vec<File>,
    /// Which files there are, as processes see it.
    names: BTreeMap<String, usize>,
    /// Which files there are after a crash.
    names_synced: BTreeMap<String, usize>,
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    short_writes: bool,
    lying_syncs: bool,
    capacity: u64,
    cut: bool,
    /// Files opened before a crash are of no use after it.
    boot: u64,
}

#[derive(Default)]
struct File {
    /// What processes read.
    cached: Vec<u8>,
    /// What is on the disk for certain.
    synced: Vec<u8>,
    /// Writes since the last sync, in order.
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimDisk")
            .field("names", &state.names.keys().collect::<Vec<_>>())
            .field("operations", &state.operations)
            .finish_non_exhaustive()
    }
}

impl SimDisk {
    /// An empty disk. All that is left to chance follows from the seed.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            state: Mutex::new(State {
                rng: ChaCha8Rng::seed_from_u64(seed),
                files: Vec::new(),
                names: BTreeMap::new(),
                names_synced: BTreeMap::new(),
                operations: 0,
                faults: BTreeMap::new(),
                short_writes: false,
                lying_syncs: false,
                capacity: u64::MAX,
                cut: false,
                boot: 0,
            }),
        })
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Lets the `nth` operation from now (1 is the next) fail.
    pub fn fail(&self, nth: u64, fault: Fault) {
        let mut state = self.state.lock();
        let at = state.operations + nth;
        state.faults.insert(at, fault);
    }

    /// Lets writes take fewer bytes than given, at random.
    pub fn set_short_writes(&self, short: bool) {
        self.state.lock().short_writes = short;
    }

    /// Lets syncs return without doing anything: a broken disk, to show that a checker finds it.
    pub fn set_lying_syncs(&self, lying: bool) {
        self.state.lock().lying_syncs = lying;
    }

    /// How many bytes all files together may have.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// The machine crashes and starts again: what was not synced is there, partly there or not there, by chance. Faults
    /// that were ordered are forgotten.
    pub fn crash(&self) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.boot += 1;
        state.cut = false;
        state.faults.clear();
        for file in &mut state.files {
            file.lose_unsynced(&mut state.rng);
        }
        let mut names: Vec<&String> = state.names.keys().chain(state.names_synced.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let mut left = BTreeMap::new();
        for name in names {
            let view = if state.rng.random() { &state.names } else { &state.names_synced };
            if let Some(file) = view.get(name) {
                left.insert(name.clone(), *file);
            }
        }
        state.names.clone_from(&left);
        state.names_synced = left;
    }

    /// The names and sizes of all files.
    pub fn files(&self) -> Vec<(String, usize)> {
        let state = self.state.lock();
        let sizes = state.names.iter().map(|(name, file)| (name.clone(), state.files[*file].cached.len()));
        sizes.collect()
    }

    /// Flips one bit of a file, on the disk and as it is read.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip(&self, name: &str, offset: usize, bit: u8) {
        let mut state = self.state.lock();
        let file = state.names[name];
        let file = &mut state.files[file];
        file.cached[offset] ^= 1 << bit;
        if let Some(byte) = file.synced.get_mut(offset) {
            *byte ^= 1 << bit;
        }
    }

    /// Replaces or adds a file, durably.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state.lock();
        let file = state.files.len();
        state.files.push(File { cached: bytes.to_vec(), synced: bytes.to_vec(), unsynced: Vec::new() });
        state.names.insert(name.to_owned(), file);
        state.names_synced.insert(name.to_owned(), file);
    }

    /// A copy of the disk as it is, with a seed of its own.
    pub fn copy(&self, seed: u64) -> Arc<Self> {
        let copy = Self::new(seed);
        {
            let (from, mut to) = (self.state.lock(), copy.state.lock());
            to.names.clone_from(&from.names);
            to.names_synced.clone_from(&from.names_synced);
            to.files = from
                .files
                .iter()
                .map(|file| File {
                    cached: file.cached.clone(),
                    synced: file.synced.clone(),
                    unsynced: file.unsynced.clone(),
                })
                .collect();
        }
        copy
    }

    /// Counts an operation and fails it if that was ordered.
    fn begin(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        match state.next_fault()? {
            None => Ok(state),
            Some(fault) => Err(fault.error()),
        }
    }
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::Full => io::Error::from(io::ErrorKind::StorageFull),
            Self::Error | Self::Short => io::Error::other("simulated I/O error"),
            Self::PowerCut => io::Error::other("simulated power cut"),
        }
    }
}

impl State {
    fn next_fault(&mut self) -> io::Result<Option<Fault>> {
        if self.cut {
            return Err(Fault::PowerCut.error());
        }
        self.operations += 1;
        let fault = self.faults.remove(&self.operations);
        if fault == Some(Fault::PowerCut) {
            self.cut = true;
        }
        Ok(fault)
    }

    fn file(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].cached.len() as u64).sum()
    }
}

impl File {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        apply(&mut self.cached, offset, bytes);
        self.unsynced.push((offset, bytes.to_vec()));
    }

    /// At once also after a crash: whoever relies on what is behind loses it.
    fn shorten(&mut self, to: usize) {
        self.cached.truncate(to);
        self.synced.truncate(to);
        for (offset, bytes) in &mut self.unsynced {
            bytes.truncate(to.saturating_sub(*offset));
        }
    }

    fn sync(&mut self) {
        for (offset, bytes) in self.unsynced.drain(..) {
            apply(&mut self.synced, offset, &bytes);
        }
    }

    /// Keeps of each unsynced write all, nothing, the beginning up to any byte, or any of its sectors.
    fn keep_some_unsynced(&mut self, rng: &mut ChaCha8Rng) {
        for (offset, bytes) in self.unsynced.drain(..) {
            match rng.random_range(0..4) {
                0 => {}
                1 => apply(&mut self.synced, offset, &bytes),
                2 => {
                    let torn = rng.random_range(0..=bytes.len());
                    apply(&mut self.synced, offset, &bytes[..torn]);
                }
                _ => {
                    let mut sectors: Vec<(usize, &[u8])> = bytes.chunks(SECTOR).enumerate().collect();
                    sectors.shuffle(rng);
                    let kept = rng.random_range(0..=sectors.len());
                    for (at, sector) in &sectors[..kept] {
                        apply(&mut self.synced, offset + at * SECTOR, sector);
                    }
                }
            }
        }
    }

    fn lose_unsynced(&mut self, rng: &mut ChaCha8Rng) {
        self.keep_some_unsynced(rng);
        self.cached.clone_from(&self.synced);
    }
}

fn apply(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if !bytes.is_empty() && content.len() < end {
        content.resize(end, 0);
    }
    if !bytes.is_empty() {
        content[offset..end].copy_from_slice(bytes);
    }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.begin()?.names.keys().cloned().collect())
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        Ok(self.begin()?.names.contains_key(name))
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let state = self.begin()?;
        let content = &state.files[state.file(name)?].cached;
        let len = usize::try_from(limit).unwrap_or(usize::MAX).min(content.len());
        Ok(content[..len].to_vec())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.begin()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(File::default());
        state.names.insert(name.to_owned(), file);
        let disk = self.me.upgrade().expect("the disk is shared while it is used");
        Ok(Box::new(SimFile { disk, file, boot: state.boot }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.begin()?;
        let file = state.file(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.begin()?;
        state.file(name)?;
        state.names.remove(name);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.begin()?;
        if !state.lying_syncs {
            state.names_synced = state.names.clone();
        }
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        format!("sim:/{name}")
    }
}

#[derive(Debug)]
struct SimFile {
    disk: Arc<SimDisk>,
    file: usize,
    boot: u64,
}

impl DiskFile for SimFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut guard = self.disk.state.lock();
        let state = &mut *guard;
        if state.boot != self.boot {
            return Err(Fault::PowerCut.error());
        }
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let fault = state.next_fault()?;
        let some = if bytes.is_empty() { 0 } else { state.rng.random_range(0..bytes.len()) };
        let taken = match fault {
            None if state.short_writes && state.rng.random() => some.max(1).min(bytes.len()),
            None => bytes.len(),
            Some(Fault::Short) => some.max(1).min(bytes.len()),
            Some(fault) => {
                state.files[self.file].write(offset, &bytes[..some]);
                return Err(fault.error());
            }
        };
        let grows = (offset + taken).saturating_sub(state.files[self.file].cached.len()) as u64;
        if state.used() + grows > state.capacity {
            return Err(Fault::Full.error());
        }
        state.files[self.file].write(offset, &bytes[..taken]);
        Ok(taken)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut guard = self.disk.state.lock();
        let state = &mut *guard;
        if state.boot != self.boot {
            return Err(Fault::PowerCut.error());
        }
        match state.next_fault()? {
            None if state.lying_syncs => Ok(()),
            None => {
                state.files[self.file].sync();
                Ok(())
            }
            Some(Fault::PowerCut) => Err(Fault::PowerCut.error()),
            Some(fault) => {
                state.files[self.file].keep_some_unsynced(&mut state.rng);
                Err(fault.error())
            }
        }
    }

    fn twin(&self) -> io::Result<Option<Box<dyn DiskFile>>> {
        Ok(Some(Box::new(Self { disk: Arc::clone(&self.disk), ..*self })))
    }

    fn shorten(&mut self, to: u64) -> io::Result<()> {
        let mut guard = self.disk.state.lock();
        let state = &mut *guard;
        if state.boot != self.boot {
            return Err(Fault::PowerCut.error());
        }
        let to = usize::try_from(to).map_err(io::Error::other)?;
        state.files[self.file].shorten(to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_every_crash() {
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            let mut file = disk.create("a").expect("created");
            file.write_at(b"kept", 0).expect("written");
            file.sync().expect("synced");
            disk.sync_dir().expect("synced");
            file.write_at(b"lost?", 4).expect("written");
            disk.crash();
            let content = disk.read("a", u64::MAX).expect("there");
            assert!(content.starts_with(b"kept"), "seed {seed}");
            assert!(b"keptlost?".starts_with(&content[..]), "seed {seed}");
            assert!(file.sync().is_err(), "a file from before the crash is closed");
        }
    }

    #[test]
    fn what_was_not_synced_is_sometimes_lost_and_sometimes_kept() {
        let left = |seed| {
            let disk = SimDisk::new(seed);
            disk.create("a").expect("created");
            disk.crash();
            disk.files().len()
        };
        let kept: usize = (0..50).map(left).sum();
        assert!((1..50).contains(&kept), "{kept}");
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_the_next() {
        let lost = (0..50).filter(|seed| {
            let disk = SimDisk::new(*seed);
            disk.put("other", b"");
            let mut file = disk.create("a").expect("created");
            disk.sync_dir().expect("synced");
            file.write_at(b"content", 0).expect("written");
            disk.fail(1, Fault::Error);
            assert!(file.sync().is_err());
            assert!(file.sync().is_ok());
            assert_eq!(disk.read("a", 99).expect("there"), b"content", "readable until the crash");
            disk.crash();
            disk.read("a", 99).expect("there") != b"content"
        });
        assert!(lost.count() > 0);
    }
}
