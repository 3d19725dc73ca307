//! Savepoints: a stopped query in a directory, with all that another node needs to go on with it.
//!
//! ```text
//!   savepoint                         the query, the records behind its snapshot, and the snapshot's manifest
//!   <owner>-<epoch>-<stage>-<part>    the state of a member
//! ```
//!
//! The query keeps its id, by which its sink knows it: what the sink holds is not written again, wherever the query goes on.

use std::collections::BTreeSet;
use std::path::Path;

use savanna_streams_api::{Result, StreamError};
use savanna_streams_runtime::driver::EpochRecord;
use savanna_streams_runtime::snapshot::{Manifest, Part, Snapshot, write_state};
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::snapshots::{is_part, read_parts};
use super::stored::{StoredQuery, decode, encode};

const SAVEPOINT: &str = "savepoint";
const NEXT: &str = "savepoint.next";
/// A savepoint that is longer is none: it has 300 bytes for each epoch behind the snapshot.
const SAVEPOINT_MAX: u64 = 1 << 30;

/// What a savepoint has beside the parts of the snapshot.
#[derive(Serialize, Deserialize)]
struct Saved {
    query: StoredQuery,
    records: Vec<EpochRecord>,
    manifest: Option<Manifest>,
}

/// A query that was saved.
#[derive(Debug)]
pub(crate) struct Savepoint {
    pub(crate) query: StoredQuery,
    pub(crate) records: Vec<EpochRecord>,
    pub(crate) snapshot: Option<Snapshot>,
}

fn failed(directory: &Path, error: &dyn std::fmt::Display) -> StreamError {
    StreamError::io(format!("write the savepoint {}", directory.display()), &error.to_string())
}

/// Makes a directory for a savepoint, and sees whether it can be written.
///
/// # Errors
/// It cannot, or has something in it.
pub(crate) fn prepare(directory: &Path) -> Result<()> {
    let try_out = || -> std::io::Result<bool> {
        let folder = Folder::make(directory)?;
        if !folder.is_empty()? {
            return Ok(false);
        }
        let written = folder.write(NEXT, &mut |out| out.write_all(b"a savepoint"));
        let removed = folder.remove(NEXT);
        written.and(removed)?;
        Ok(true)
    };
    match try_out() {
        Ok(true) => Ok(()),
        Ok(false) => Err(failed(directory, &"there is something in it; name a directory that is empty or not there")),
        Err(error) => Err(failed(directory, &error)),
    }
}

impl Savepoint {
    /// Writes it to a directory that has none. It is there as a whole or not at all.
    ///
    /// # Errors
    /// It cannot be written, or the directory has something in it. Then nothing of it stays.
    pub(crate) fn write(self, directory: &Path) -> Result<()> {
        prepare(directory)?;
        let folder = Folder::at(directory);
        let mut written = Vec::new();
        self.write_files(directory, &folder, &mut written).inspect_err(|_| {
            for name in &written {
                if let Err(error) = folder.remove(name) {
                    tracing::warn!(file = %directory.join(name).display(), %error, "what is left of a savepoint stays");
                }
            }
        })
    }

    fn write_files(self, directory: &Path, folder: &Folder, written: &mut Vec<String>) -> Result<()> {
        let failed = |error: &std::io::Error| failed(directory, error);
        let manifest = match self.snapshot {
            None => None,
            Some(Snapshot { mut manifest, states }) => {
                for (part, state) in manifest.parts.iter_mut().zip(&states) {
                    written.push(part.name.clone());
                    let wrote = folder.write(&part.name, &mut |out| write_state(state, out));
                    (part.bytes, part.checksum) = wrote.map_err(|e| failed(&e))?;
                }
                Some(manifest)
            }
        };
        let record = encode(&Saved { query: self.query, records: self.records, manifest })?;
        written.push(NEXT.into());
        let write = || {
            folder.write(NEXT, &mut |out| {
                out.write_all(&crc32c::crc32c(&record).to_le_bytes())?;
                out.write_all(&record)
            })?;
            folder.sync()
        };
        write().map_err(|e| failed(&e))?;
        folder.rename(NEXT, SAVEPOINT).map_err(|e| failed(&e))?;
        written.pop();
        written.push(SAVEPOINT.into());
        folder.sync().map_err(|e| failed(&e))
    }

    /// Reads it. The directory is one that others may write: nothing outside of it is read, and nothing is told of what does not fit.
    ///
    /// # Errors
    /// There is none, or it is damaged: with file and place.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let failed = |cause: &str| StreamError::io(format!("read the savepoint {}", directory.display()), &cause);
        let folder = Folder::at(directory);
        let bytes = folder.read(SAVEPOINT, SAVEPOINT_MAX, false).map_err(|e| failed(&format!("{SAVEPOINT}: {e}")))?;
        let saved = match bytes.split_first_chunk::<4>() {
            Some((checksum, rest)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(rest) => decode(rest),
            _ => Err("it is damaged: its bytes do not have its checksum".to_owned()),
        };
        let Saved { query, records, manifest } = saved.map_err(|cause| failed(&format!("{SAVEPOINT}: {cause}")))?;
        let snapshot = manifest.map(|manifest| {
            check_names(&manifest).map_err(|cause| failed(&format!("{SAVEPOINT}: {cause}")))?;
            let read = |part: &Part| folder.read(&part.name, part.bytes, true);
            let states = read_parts(&manifest, read).map_err(|(name, cause)| failed(&format!("{name}: {cause}")))?;
            Ok(Snapshot { manifest, states })
        });
        Ok(Self { query, records, snapshot: snapshot.transpose()? })
    }
}

/// Whether all parts have names of parts, and each its own.
fn check_names(manifest: &Manifest) -> Result<(), String> {
    let mut names = BTreeSet::new();
    match manifest.parts.iter().find(|part| !is_part(&part.name) || !names.insert(&part.name)) {
        None => Ok(()),
        Some(part) => Err(format!("expected parts such as \"1-2-3-4\", each once, got {:?}", part.name)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use savanna_streams_api::ids::{Epoch, QueryId, StageId};
    use savanna_streams_model::time::EventTime;
    use savanna_streams_runtime::snapshot::State;

    use super::super::stored::Standing;
    use super::*;

    fn savepoint(names: &[&str]) -> Savepoint {
        let id = QueryId { code: "0123456789ab".into(), job: 7 };
        let query = StoredQuery {
            id: id.clone(),
            name: "q".into(),
            statement: "INSERT INTO o SELECT a FROM t".into(),
            parameters: Vec::new(),
            settings: BTreeMap::new(),
            relations: Vec::new(),
            standing: Standing::Stopped,
            emission: 0,
            anew_behind: Epoch::ZERO,
        };
        let part = |name: &&str| Part {
            stage: StageId(1),
            shuffle: 0,
            members: 1,
            name: (*name).to_owned(),
            bytes: 0,
            checksum: 0,
        };
        let (epoch, instant) = (Epoch(5), EventTime(7));
        let record = EpochRecord { epoch, processing_time: instant, sources: Vec::new(), committed: epoch };
        let parts: Vec<Part> = names.iter().map(part).collect();
        let states = vec![State::default(); parts.len()];
        let manifest = Manifest { query: id, record, rows_at: instant, signatures: Vec::new(), parts };
        Savepoint { query, records: Vec::new(), snapshot: Some(Snapshot { manifest, states }) }
    }

    /// Puts a file that says this of its parts in the place of a savepoint's.
    fn forge(directory: &Path, parts: Vec<Part>) {
        let Savepoint { query, records, snapshot } = savepoint(&[]);
        let manifest = snapshot.map(|snapshot| Manifest { parts, ..snapshot.manifest });
        let record = encode(&Saved { query, records, manifest }).unwrap();
        let bytes = [&crc32c::crc32c(&record).to_le_bytes(), record.as_slice()].concat();
        fs::write(directory.join(SAVEPOINT), bytes).unwrap();
    }

    fn refused(directory: &Path) -> String {
        Savepoint::read(directory).unwrap_err().to_string()
    }

    #[test]
    fn a_savepoint_is_for_nobody_but_its_owner() {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("new/q");
        savepoint(&["1-5-1-0"]).write(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for made in [&all.path().join("new"), &directory] {
            assert_eq!(mode(made), 0o700, "{}", made.display());
        }
        for file in ["savepoint", "1-5-1-0"] {
            assert_eq!(mode(&directory.join(file)), 0o600, "{file}");
        }
        assert_eq!(Savepoint::read(&directory).unwrap().snapshot.unwrap().states, [State::default()]);
    }

    #[test]
    fn nothing_is_left_of_a_savepoint_that_could_not_be_written() {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("q");
        // The second part cannot be written.
        let error = savepoint(&["1-5-1-0", "no/such/directory"]).write(&directory).unwrap_err().to_string();
        assert!(error.contains("write the savepoint"), "{error}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        savepoint(&["1-5-1-0"]).write(&directory).unwrap();
        let error = savepoint(&["1-5-1-0"]).write(&directory).unwrap_err().to_string();
        assert!(error.contains("there is something in it"), "{error}");
        Savepoint::read(&directory).unwrap();
    }

    #[test]
    fn a_savepoint_leads_to_no_file_outside_of_it_and_tells_nothing_of_one() {
        let all = tempfile::tempdir().unwrap();
        let (directory, secret) = (all.path().join("q"), all.path().join("secret"));
        fs::write(&secret, "secret").unwrap();
        savepoint(&["1-5-1-0"]).write(&directory).unwrap();
        let part = |name: &str, bytes: u64| Part {
            stage: StageId(1),
            shuffle: 0,
            members: 1,
            name: name.into(),
            bytes,
            checksum: 0,
        };
        for name in ["../secret", secret.to_str().unwrap(), "/dev/zero", "savepoint", "1-2-3", "1-2-3-+4", "../1-2-3-4"]
        {
            forge(&directory, vec![part(name, 3)]);
            assert!(refused(&directory).contains("expected parts such as"), "{name}: {}", refused(&directory));
        }
        forge(&directory, vec![part("1-5-1-0", 3), part("1-5-1-0", 3)]);
        assert!(refused(&directory).contains("each once"), "{}", refused(&directory));
        // Links, and what is no file.
        symlink(&secret, directory.join("1-2-3-4")).unwrap();
        forge(&directory, vec![part("1-2-3-4", 6)]);
        let error = refused(&directory);
        assert!(error.contains("1-2-3-4") && !error.contains("damaged"), "{error}");
        fs::create_dir(directory.join("1-2-3-5")).unwrap();
        forge(&directory, vec![part("1-2-3-5", 6)]);
        assert!(refused(&directory).contains("expected a file"), "{}", refused(&directory));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.join("1-2-3-6"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        forge(&directory, vec![part("1-2-3-6", 6)]);
        assert!(refused(&directory).contains("expected a file"), "{}", refused(&directory));
        // Lengths that it does not have.
        fs::write(directory.join("1-2-3-7"), "abcdef").unwrap();
        for bytes in [5, 7, u64::MAX] {
            forge(&directory, vec![part("1-2-3-7", bytes)]);
            assert!(refused(&directory).contains("it is damaged"), "{}", refused(&directory));
        }
        forge(&directory, vec![part("1-2-3-7", 6)]);
        let checksum = format!("{:08x}", crc32c::crc32c(b"abcdef"));
        let error = refused(&directory);
        assert!(error.contains("do not have its checksum") && !error.contains(&checksum), "{error}");
        // The savepoint's own file may lead nowhere, too.
        fs::remove_file(directory.join(SAVEPOINT)).unwrap();
        symlink(&secret, directory.join(SAVEPOINT)).unwrap();
        assert!(!refused(&directory).contains("damaged"), "{}", refused(&directory));
    }
}
